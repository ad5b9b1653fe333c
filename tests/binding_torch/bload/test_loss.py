"""The mean over all ranks' valid elements, by hand."""

from typing import Any

import horovod.torch as hvd
import pytest
import torch
from rank_pool import RankPool

import hvd_adaptive.torch as hva
from hvd_adaptive import ConfigError


def own(rank: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Rank r has r valid elements of 3, valued 10, 11, ...; the others are not finite."""
    values = torch.tensor([10.0, 11.0, torch.inf], dtype=dtype)
    valid = torch.arange(3) < rank
    return torch.where(valid, values, torch.nan).requires_grad_(), valid


@pytest.mark.parametrize("total", [None, 3])
def test_the_mean_over_ranks_is_that_over_all_elements(ranks: Any, total: int | None) -> None:
    def on_rank() -> Any:
        losses, valid = own(hvd.rank())
        loss = hva.valid_mean(losses, valid, total=total)
        loss.backward()
        assert losses.grad is not None
        return loss.item(), losses.grad.tolist()

    answers = ranks(3).run(on_rank)
    # 10 on rank 1, 10 and 11 on rank 2: the mean of three, which each rank's part adds to by a third of itself.
    assert [round(loss, 5) for loss, _ in answers] == [0, 10, 21]
    assert [gradient for _, gradient in answers] == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]


@pytest.mark.parametrize("total", [None, 0])
def test_nothing_valid_anywhere_is_zero(ranks: Any, total: int | None) -> None:
    def on_rank() -> Any:
        losses, valid = own(0)
        loss = hva.valid_mean(losses, valid, total=total)
        loss.backward()
        assert losses.grad is not None
        return loss.item(), losses.grad.tolist()

    assert ranks(2).run(on_rank) == [(0, [0, 0, 0])] * 2


@pytest.mark.parametrize("total", [None, 200_000])
def test_losses_of_16_bits_do_not_overflow(ranks: Any, total: int | None) -> None:
    """Their sum and number are beyond the largest of 16 bits, 65,504."""

    def on_rank() -> float:
        losses = torch.full((100_000,), 3.0, dtype=torch.float16)
        return hva.valid_mean(losses, torch.ones(100_000, dtype=torch.bool), total=total).item()

    assert ranks(2).run(on_rank) == [3.0, 3.0]


def test_a_process_set_has_a_mean_of_its_own() -> None:
    pool = RankPool(3)  # of its own, because it is left with a process set

    def on_rank() -> Any:
        members = hvd.add_process_set([1, 2])
        if not members.included():
            return None
        losses, valid = own(hvd.rank())
        return hva.valid_mean(losses, valid, members).item(), hva.valid_mean(losses, valid, members, total=3).item()

    found = pool.run(on_rank)
    pool.close()
    assert found[0] is None
    # 31 in all over 3 elements, halved by the average of two ranks.
    assert [[round(value, 5) for value in pair] for pair in found[1:]] == [[6.66667] * 2, [14.0] * 2]


def test_bad_input(ranks: Any) -> None:
    def on_rank() -> None:
        losses, valid = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
        with pytest.raises(ConfigError, match=r"a bool of the losses' shape \[2, 3\], got torch.bool of \[3, 2\]; reduce"):
            hva.valid_mean(losses, valid.T)
        with pytest.raises(ConfigError, match=r"got torch.float32 of \[2, 3\]"):
            hva.valid_mean(losses, losses)
        for total in (-1, 2.0):
            with pytest.raises(ConfigError, match=r"total must be a whole number from 0 to \d+ \(of all ranks\), got"):
                hva.valid_mean(losses, valid, total=total)

    ranks(1).run(on_rank)
