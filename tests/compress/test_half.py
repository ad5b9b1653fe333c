"""Oracle: the table of all float16 values, built from sign, exponent and fraction."""

import numpy as np
import pytest

from hvd_adaptive import Half
from hvd_adaptive.prng import Draw, Key

DRAW = Draw(Key(1, 2), Key(3, 4))
_BITS = np.arange(0x7C00)
_VALUES = np.where(_BITS < 0x400, np.ldexp(_BITS, -24), np.ldexp(0x400 + _BITS % 0x400, _BITS // 0x400 - 25))
_LADDER = np.append(_VALUES, 65536.0)  # where the next value would be, stands infinity


def nearest(x):
    """The bits of the nearest float16, the even one of two, by looking at all of them."""
    magnitude = np.abs(x.astype(np.float64))
    above = np.clip(np.searchsorted(_LADDER, magnitude), 1, _LADDER.size - 1)
    below = above - 1
    middle = (_LADDER[below] + _LADDER[above]) / 2
    tie = np.where(below % 2 == 0, below, above)
    bits = np.where(magnitude < middle, below, np.where(magnitude > middle, above, tie))
    return (bits | np.where(np.signbit(x), 0x8000, 0)).astype(np.uint16)


def hard_to_round(dtype):
    """Every float16, every middle between two, and their neighbours in ``dtype``, of both signs; and numbers beyond."""
    steps = np.concatenate([_LADDER, (_LADDER[1:] + _LADDER[:-1]) / 2]).astype(dtype)
    x = np.concatenate(
        [steps, np.nextafter(steps, dtype(np.inf)), np.nextafter(steps, dtype(-np.inf)), np.array([1e6, np.inf], dtype)]
    )
    return np.concatenate([x, -x])


def test_every_element_becomes_the_nearest_float16(ops):
    x = hard_to_round(np.float32)
    payload = Half().encode(ops, ops.from_numpy(x), DRAW)
    assert [ops.dtype(f.array) for f in payload.fields] == ["float16"]
    np.testing.assert_array_equal(ops.to_numpy(payload.fields[0].array).view(np.uint16), nearest(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_error_is_below_2_to_the_minus_11(ops, dtype):
    x = hard_to_round(dtype)
    back = ops.to_numpy(Half().decode(ops, Half().encode(ops, ops.from_numpy(x), DRAW), DRAW))
    assert back.dtype == dtype
    normal = (np.abs(x) >= 2.0**-14) & (np.abs(x) <= 65504)
    error = np.abs(back[normal] - x[normal]) / np.abs(x[normal])
    assert 2.0**-12 < error.max() <= 2.0**-11
    infinite = np.abs(x) >= 65520  # halfway to what would follow the largest
    assert np.isinf(back[infinite]).all()
    assert np.isfinite(back[np.abs(x) < 65519]).all()


def test_sends_half_the_bytes_of_float32(ops):
    payload = Half().encode(ops, ops.from_numpy(np.ones(10, np.float32)), DRAW)
    assert [(f.bits, f.counted) for f in payload.fields] == [(16, False)]
    assert sum(ops.nbytes(f.array) for f in payload.fields) == 20
    assert payload.kept == 10


def test_omega_is_reached_halfway_between_two_of_the_least_precise(ops):
    """An element that is rounded up by the most there is, 2^-11 of itself, comes near the bound; none passes it."""
    x = hard_to_round(np.float32)
    x = x[(np.abs(x) >= 2.0**-14) & (np.abs(x) < 65520)]
    back = ops.to_numpy(Half().decode(ops, Half().encode(ops, ops.from_numpy(x), DRAW), DRAW)).astype(np.float64)
    most = ((back / x) ** 2).max()
    assert 1 + 0.99 * Half().omega(1) < most <= 1 + Half().omega(1)


def test_is_summed_by_default():
    assert Half().exchanges == ("reduce", "gather", "two-sided")
    assert Half().carries_all
    assert not Half().biased
