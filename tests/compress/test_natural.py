"""Oracle: neighbours by math.frexp, which are exact, and draws of the scalar generator."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from random_oracle import uniform
from vectors import DTYPES, draw, sent, vectors

from hvd_adaptive import NaturalCompression
from hvd_adaptive.compress import natural
from hvd_adaptive.feedback import NoFeedback

every_float32 = hnp.arrays("float32", st.integers(1, 60), elements=st.floats(allow_nan=False, allow_infinity=False, width=32))


def neighbours(a):
    """Of a magnitude: the powers of two below and above that float32 has, or 0, and the chance of the upper one."""
    if a < 2.0**-126:
        return 0.0, 2.0**-126, a / 2.0**-126
    fraction, exponent = math.frexp(a)
    below = math.ldexp(1.0, exponent - 1)
    return below, below if exponent == 128 else 2 * below, 2 * fraction - 1


@given(x=vectors() | every_float32)
def test_each_element_is_rounded_at_random_to_a_power_of_two_beside_it(ops, x):
    with np.errstate(over="ignore"):
        single = x.astype(np.float32).tolist()
    expected = []
    for element, u in zip(single, uniform(draw().own, x.size), strict=True):
        below, above, chance = neighbours(abs(element))
        expected.append(math.copysign(above if u < chance else below, element))
    result = sent(ops, NaturalCompression(), x)
    np.testing.assert_array_equal(result.y, np.array(expected).astype(x.dtype))
    assert result.bits == [8, 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_and_powers_of_two_arrive_as_they_were(ops, dtype):
    x = np.array([0, -0.0, 1, -1, 2.0**-14, -(2.0**12), 0.5], dtype)
    for step in range(10):
        y = sent(ops, NaturalCompression(), x, draw(step)).y
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(np.signbit(y), np.signbit(x))


def test_a_power_of_two_stays_even_if_0_is_drawn(ops, monkeypatch):
    """One draw in 2^24 is 0, and chance 0 means never."""
    monkeypatch.setattr(natural, "uniform", lambda ops, _, n, like: ops.zeros(n, "float32", like))
    y = sent(ops, NaturalCompression(), np.array([0, 0.5, -4, 1.001], np.float32)).y
    np.testing.assert_array_equal(y, np.array([0, 0.5, -4, 2], np.float32))


@pytest.mark.parametrize(("value", "power"), [(3e38, 127), (2.0**127, 127), (1e300, 127), (float(np.finfo(np.float32).max), 127)])
def test_beyond_the_largest_power_the_lower_one_is_taken(ops, value, power):
    y = sent(ops, NaturalCompression(), np.array([value, -value] * 20)).y
    assert y.tolist() == [2.0**power, -(2.0**power)] * 20


def test_only_own_draws_decide(ops):
    x = np.linspace(-1, 1, 200).astype(np.float32)
    codes = sent(ops, NaturalCompression(), x).fields[0].tolist()
    assert codes == sent(ops, NaturalCompression(), x).fields[0].tolist()
    assert codes == sent(ops, NaturalCompression(), x, draw()._replace(shared=draw(1).shared)).fields[0].tolist()
    assert codes != sent(ops, NaturalCompression(), x, draw(rank=1)).fields[0].tolist()


def test_what_others_may_rely_on():
    assert not NaturalCompression().biased
    assert NaturalCompression().feedback == NoFeedback()
    assert NaturalCompression().exchanges == ("gather", "two-sided")
    assert NaturalCompression().omega(10**6) == 1 / 8
