"""Attention over blocks: no sequence looks at another."""

from typing import Any

import tensorflow as tf

from hvd_adaptive.errors import ConfigError


def block_attention_mask(segment_ids: Any, causal: bool = False) -> Any:
    """The mask that ``keras.layers.MultiHeadAttention`` takes as ``attention_mask``: True where one may look.

    Padding looks at the padding of its block, never at a sequence, nor a sequence at it; so no row is without any True, of which
    attention would make NaN. Where a mask for each head is needed, as in ``keras.ops.dot_product_attention``, take
    ``mask[:, None]``.

    Args:
        segment_ids: ``i64[b, T]``, a batch's.
        causal: nothing looks at what comes later.

    Returns:
        ``bool[b, T, T]``.

    Raises:
        ConfigError: if ``segment_ids`` is not ``[b, T]``.
    """
    segment_ids = tf.convert_to_tensor(segment_ids)
    if segment_ids.shape.rank != 2:
        raise ConfigError(f"block_attention_mask: segment_ids must be [b, T], got {segment_ids.shape}; take batch.segment_ids")
    mask = segment_ids[:, :, None] == segment_ids[:, None, :]
    return tf.linalg.band_part(mask, -1, 0) if causal else mask
