"""Oracle: the definition."""

import numpy as np
import pytest
from hypothesis import given
from vectors import DTYPES, positions_sent, sent, usual_vectors, vectors

from hvd_adaptive import AdaptiveThreshold
from hvd_adaptive.feedback import Residual


@given(x=usual_vectors(DTYPES))
def test_keeps_what_is_at_least_half_the_largest(ops, x):
    largest = max(abs(e) for e in x.tolist())
    expected = [i for i, e in enumerate(x.tolist()) if e and 2 * abs(e) >= largest]
    assert positions_sent(sent(ops, AdaptiveThreshold(), x)) == expected


@given(x=vectors())
def test_what_is_dropped_is_below_half_the_largest(ops, x):
    """Subnormals too, whose half may not exist."""
    result = sent(ops, AdaptiveThreshold(), x)
    kept, wide = positions_sent(result), np.abs(x.astype(np.float64))
    if wide.any():
        assert kept
        assert np.all(np.delete(wide, kept) * 2 < wide.max())
        assert np.all(wide[kept] > 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exactly_half_is_kept_and_just_below_is_not(ops, dtype):
    below = np.nextafter(np.array(2, dtype), np.array(0, dtype))
    x = np.array([4, 2, -2, below, -4, 0, 1.5, -below], dtype)
    assert positions_sent(sent(ops, AdaptiveThreshold(), x)) == [0, 1, 2, 4]


def test_the_largest_may_be_negative(ops):
    assert positions_sent(sent(ops, AdaptiveThreshold(), np.array([-9, 1, 4], np.float32))) == [0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_send_nothing_and_ties_everything(ops, dtype):
    assert positions_sent(sent(ops, AdaptiveThreshold(), np.zeros(7, dtype))) == []
    tiny = np.finfo(dtype).smallest_subnormal
    for fill in (1, -3, tiny, -tiny):
        assert positions_sent(sent(ops, AdaptiveThreshold(), np.full(7, fill, dtype))) == list(range(7))


def test_what_others_may_rely_on():
    assert AdaptiveThreshold().biased
    assert AdaptiveThreshold().feedback == Residual()
    assert AdaptiveThreshold().omega(10) == 0
