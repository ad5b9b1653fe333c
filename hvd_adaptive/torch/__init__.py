"""Gradient compression and equal blocks of variable-length sequences for ``horovod.torch``.

import horovod.torch as hvd
import hvd_adaptive.torch as hva
from hvd_adaptive import TopK

compression = hva.EntireModel(model.named_parameters(), TopK(factor=100))
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), compression=compression)

sampler = hva.BLoadSampler(lengths, batch_size=8)
loader = DataLoader(hva.BLoadDataset(dataset), batch_sampler=sampler, collate_fn=hva.bload_collate(sampler.block_length))
"""

from hvd_adaptive.bload.packed import Packed
from hvd_adaptive.torch.bload.attention import block_attention_mask
from hvd_adaptive.torch.bload.collate import BLoadBatch, bload_collate
from hvd_adaptive.torch.bload.dataset import BLoadDataset
from hvd_adaptive.torch.bload.lengths import gather_lengths
from hvd_adaptive.torch.bload.loss import valid_mean
from hvd_adaptive.torch.bload.sampler import BLoadSampler
from hvd_adaptive.torch.bload.states import reset_states, run_packed
from hvd_adaptive.torch.bload.stream import BLoadStream
from hvd_adaptive.torch.compression import TorchCompression
from hvd_adaptive.torch.scopes import SCOPES, Bucketed, EntireModel, LayerWise, compression

__all__ = [
    "SCOPES",
    "BLoadBatch",
    "BLoadDataset",
    "BLoadSampler",
    "BLoadStream",
    "Bucketed",
    "EntireModel",
    "LayerWise",
    "Packed",
    "TorchCompression",
    "bload_collate",
    "block_attention_mask",
    "compression",
    "gather_lengths",
    "reset_states",
    "run_packed",
    "valid_mean",
]
