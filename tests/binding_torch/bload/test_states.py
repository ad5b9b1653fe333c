"""State at the starts of sequences."""

from typing import Any, NamedTuple

import pytest
import torch
from packers import made
from torch import nn

import hvd_adaptive.torch as hva
from hvd_adaptive import ConfigError
from hvd_adaptive.bload import tables

BLOCKS = made([[3, 2, 4], [10], [], [6]])
STARTS = torch.from_numpy(tables(list(BLOCKS), 10).starts)


def fresh(time: int) -> list[bool]:
    return [time in starts for starts in ([0, 3, 5], [0], [], [0])]


@pytest.mark.parametrize("time", range(10))
def test_rows_that_start_are_zeroed_and_others_kept(time: int) -> None:
    layers, cell = torch.ones(2, 4, 5), torch.ones(4, 5)
    found = hva.reset_states((layers, [cell, None], {"c": cell}), STARTS, time)
    expected = [0.0 if zero else 1.0 for zero in fresh(time)]
    for state in (found[0][0], found[0][1], found[1][0], found[2]["c"]):
        assert [set(row.tolist()) for row in state] == [{value} for value in expected]
    assert found[1][1] is None
    assert type(found[1]) is list
    assert layers.sum() == 40, "the given state stays as it was"


def test_rows_in_another_dimension() -> None:
    found = hva.reset_states(torch.ones(4, 2, 3, 3), STARTS, 3, batch_dim=0)
    assert found.sum((1, 2, 3)).tolist() == [0, 18, 18, 18]


def test_a_state_that_is_not_finite_is_gone_after_a_reset() -> None:
    state = torch.full((4, 5), torch.nan, requires_grad=True)
    found = hva.reset_states(state, STARTS, 3)
    assert found[0].tolist() == [0] * 5
    found[0].sum().backward()
    assert state.grad is not None
    assert not state.grad.any(), "nothing flows back over a start"


class Both(NamedTuple):
    h: torch.Tensor
    c: torch.Tensor


def test_a_named_tuple_stays_one() -> None:
    found = hva.reset_states(Both(torch.ones(4, 5), torch.ones(4, 2)), STARTS, 3)
    assert type(found) is Both
    assert (found.h.sum(), found.c.sum()) == (15, 6)


def test_no_state_before_the_first_time() -> None:
    assert hva.reset_states(None, STARTS, 0) is None


@pytest.mark.parametrize(("shape", "dim"), [((5, 4), -2), ((4,), -2), ((2, 4, 5), 0)])
def test_a_state_of_another_shape_is_refused(shape: Any, dim: int) -> None:
    with pytest.raises(ConfigError, match=rf"must have 4 rows in dimension {dim}, got one of shape .*; give batch_dim"):
        hva.reset_states(torch.ones(shape), STARTS, 0, dim)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "num_layers": 2, "batch_first": True}], ids=["plain", "both-ways"]
)
def test_run_packed_is_each_sequence_by_itself(kind: Any, options: Any) -> None:
    torch.manual_seed(1)
    rnn = kind(3, 5, **options).double()
    data = torch.randn(4, 10, 3, dtype=torch.float64)
    found = hva.run_packed(rnn, data, list(BLOCKS))
    expected = torch.zeros_like(found)
    for row, block in enumerate(BLOCKS):
        first = 0
        for length in block.lengths.tolist():
            alone, _ = rnn(data[row : row + 1, first : first + length].transpose(0, 0 if rnn.batch_first else 1))
            expected[row, first : first + length] = alone.reshape(length, -1)
            first += length
    assert found.shape == (4, 10, 5 * (2 if rnn.bidirectional else 1))
    assert float((found - expected).detach().abs().max()) <= 1e-12  # a few roundings of float64: sequences are run side by side


@pytest.mark.parametrize("padding", [0.0, torch.nan, torch.inf])
def test_run_packed_over_empty_blocks_reaches_every_parameter(padding: float) -> None:
    rnn = nn.LSTM(3, 5)
    empty = made([[], []])
    data = torch.full((2, 10, 3), padding, requires_grad=True)
    found = hva.run_packed(rnn, data, list(empty))
    assert found.shape == (2, 10, 5)
    assert not found.any()
    found.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in (data, *rnn.parameters()))


@pytest.mark.parametrize("shape", [(3, 10, 3), (4, 10)])
def test_run_packed_refuses_other_shapes(shape: Any) -> None:
    with pytest.raises(ConfigError, match=r"data must be \[4, T, features\] for as many blocks, got"):
        hva.run_packed(nn.GRU(3, 5), torch.zeros(shape), list(BLOCKS))
