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


@pytest.mark.parametrize("causal", [False, True])
def test_in_torchs_own_module_it_is_inverted(causal: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(4, 2, batch_first=True).double()
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    segments = torch.tensor([[1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 2, 2]])
    mask = (~hva.block_attention_mask(segments, causal)).squeeze(1).repeat_interleave(2, 0)
    found, _ = module(x, x, x, attn_mask=mask)
    for row, first, end in [(0, 0, 2), (0, 2, 5), (1, 0, 4), (1, 4, 6)]:
        part = x[row, None, first:end]
        later = torch.ones(end - first, end - first, dtype=torch.bool).triu(1) if causal else None
        alone, _ = module(part, part, part, attn_mask=later)
        assert float((found[row, first:end] - alone[0]).detach().abs().max()) <= 1e-12  # roundings of float64


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match=r"segment_ids must be \[b, T\], got \[4\]; take batch.segment_ids"):
        hva.block_attention_mask(torch.zeros(4))
