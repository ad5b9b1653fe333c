"""Gradient compression and equal blocks of variable-length sequences for ``horovod.tensorflow``.

import horovod.tensorflow as hvd
import hvd_adaptive.tensorflow as hva
from hvd_adaptive import TopK

compression = hva.EntireModel(model.trainable_variables, TopK(factor=100))
...
tape = hvd.DistributedGradientTape(tape, compression=compression, groups=1)
"""

from hvd_adaptive.tensorflow.bload import BLoadBatch, BLoadDataset, bload_dataset, block_attention_mask, valid_mean
from hvd_adaptive.tensorflow.compression import TensorFlowCompression
from hvd_adaptive.tensorflow.scopes import SCOPES, Bucketed, EntireModel, LayerWise, compression

__all__ = [
    "SCOPES",
    "BLoadBatch",
    "BLoadDataset",
    "Bucketed",
    "EntireModel",
    "LayerWise",
    "TensorFlowCompression",
    "bload_dataset",
    "block_attention_mask",
    "compression",
    "valid_mean",
]
