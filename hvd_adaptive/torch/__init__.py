"""Gradient compression for ``horovod.torch``.

import horovod.torch as hvd
import hvd_adaptive.torch as hva
from hvd_adaptive import TopK

compression = hva.EntireModel(model.named_parameters(), TopK(factor=100))
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), compression=compression)
"""

from hvd_adaptive.torch.bload.lengths import gather_lengths
from hvd_adaptive.torch.bload.packed import Packed
from hvd_adaptive.torch.bload.stream import BLoadStream
from hvd_adaptive.torch.compression import TorchCompression
from hvd_adaptive.torch.scopes import SCOPES, Bucketed, EntireModel, LayerWise, compression

__all__ = [
    "SCOPES",
    "BLoadStream",
    "Bucketed",
    "EntireModel",
    "LayerWise",
    "Packed",
    "TorchCompression",
    "compression",
    "gather_lengths",
]
