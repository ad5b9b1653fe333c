"""Attention over blocks: no sequence looks at another."""

import torch

from hvd_adaptive.errors import ConfigError


def block_attention_mask(segment_ids: torch.Tensor, causal: bool = False) -> torch.Tensor:
    """The mask that ``torch.nn.functional.scaled_dot_product_attention`` takes as ``attn_mask``: True where one may look.

    Padding looks at the padding of its block, never at a sequence, nor a sequence at it; so no row is without any True, of which
    attention would make NaN.

    ``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer`` take the opposite, True where one may not look, for each head:
    ``(~mask).squeeze(1).repeat_interleave(heads, 0)``.

    Args:
        segment_ids: ``i64[b, T]``, a batch's.
        causal: nothing looks at what comes later.

    Returns:
        ``bool[b, 1, T, T]``, the 1 being for all heads.

    Raises:
        ConfigError: if ``segment_ids`` is not ``[b, T]``.
    """
    if segment_ids.dim() != 2:
        raise ConfigError(
            f"block_attention_mask: segment_ids must be [b, T], got {list(segment_ids.shape)}; take batch.segment_ids"
        )
    mask = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    return mask.tril() if causal else mask
