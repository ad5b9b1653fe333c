"""BLoad for ``tf.data`` and Keras: equal batches of equal blocks, and what models need to keep the sequences of a block apart."""

from hvd_adaptive.tensorflow.bload.attention import block_attention_mask
from hvd_adaptive.tensorflow.bload.batch import BLoadBatch
from hvd_adaptive.tensorflow.bload.dataset import BLoadDataset, bload_dataset
from hvd_adaptive.tensorflow.bload.loss import valid_mean

__all__ = ["BLoadBatch", "BLoadDataset", "bload_dataset", "block_attention_mask", "valid_mean"]
