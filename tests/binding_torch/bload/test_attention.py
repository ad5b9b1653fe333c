"""The mask, element by element."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import hvd_adaptive.torch as hva
from hvd_adaptive import ConfigError


@pytest.mark.parametrize("causal", [False, True])
def test_who_may_look_at_whom(causal: bool) -> None:
    segments = [[1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1, 1], [0] * 7]
    mask = hva.block_attention_mask(torch.tensor(segments), causal)
    assert (mask.shape, mask.dtype) == ((3, 1, 7, 7), torch.bool)
    for row, segment in enumerate(segments):
        for who in range(7):
            for whom in range(7):
                may = segment[who] == segment[whom] and (whom <= who or not causal)
                assert bool(mask[row, 0, who, whom]) == may


@pytest.mark.parametrize("causal", [False, True])
def test_padding_gives_no_nan(causal: bool) -> None:
    mask = hva.block_attention_mask(torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0]]), causal)
    x = torch.ones(2, 3, 4, 8, requires_grad=True)
    scaled_dot_product_attention(x, x, x, attn_mask=mask).sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match=r"segment_ids must be \[b, T\], got \[4\]; take batch.segment_ids"):
        hva.block_attention_mask(torch.zeros(4))
