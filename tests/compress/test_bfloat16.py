"""Oracles: bits by hand, and torch's own bfloat16. The rounding of every kind of number is tested with the backends."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hvd_adaptive import BFloat16
from hvd_adaptive.prng import Draw, Key

DRAW = Draw(Key(1, 2), Key(3, 4))


@given(x=hnp.arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32, allow_nan=False)))
def test_what_arrives_is_torchs_bfloat16(ops, x):
    payload = BFloat16().encode(ops, ops.from_numpy(x), DRAW)
    assert [ops.dtype(f.array) for f in payload.fields] == ["int16"]
    back = ops.to_numpy(BFloat16().decode(ops, payload, DRAW))
    np.testing.assert_array_equal(back, torch.tensor(x).bfloat16().float().numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_error_is_below_2_to_the_minus_8(ops, dtype):
    """Over all binades that bfloat16 holds as normal numbers, in which its step is 2^-7 of the leading bit."""
    x = np.ldexp(np.random.default_rng(2).uniform(1, 2, 5000), np.arange(5000) % 252 - 126).astype(dtype)
    x[::2] *= -1
    payload = BFloat16().encode(ops, ops.from_numpy(x), DRAW)
    error = np.abs(ops.to_numpy(BFloat16().decode(ops, payload, DRAW)) - x) / np.abs(x)
    assert 2.0**-9 < error.max() <= 2.0**-8


def test_omega_bounds_the_largest_growth(ops):
    """1 + 2^-8 + a little is rounded up to 1 + 2^-7."""
    x = np.array([1 + 2.0**-8 + 2.0**-20], np.float32)
    back = float(ops.to_numpy(BFloat16().decode(ops, BFloat16().encode(ops, ops.from_numpy(x), DRAW), DRAW))[0])
    assert 1 + 0.99 * BFloat16().omega(1) < (back / float(x[0])) ** 2 <= 1 + BFloat16().omega(1)


def test_bits_by_hand(ops):
    payload = BFloat16().encode(ops, ops.from_numpy(np.array([1.0, -2.5, 3.140625, 1e-40], np.float32)), DRAW)
    assert ops.to_numpy(payload.fields[0].array).view(np.uint16).tolist() == [0x3F80, 0xC020, 0x4049, 0x0001]


def test_sends_half_the_bytes_of_float32_and_only_in_a_gather(ops):
    payload = BFloat16().encode(ops, ops.from_numpy(np.ones(10, np.float32)), DRAW)
    assert [(f.bits, f.counted) for f in payload.fields] == [(16, False)]
    assert sum(ops.nbytes(f.array) for f in payload.fields) == 20
    assert payload.kept == 10
    assert BFloat16().exchanges == ("gather", "two-sided")
    assert BFloat16().carries_all
    assert not BFloat16().biased
