"""Oracle: a numpy sort, and by hand the bisection between mean and largest magnitude."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import BAD_FACTORS, DTYPES, assert_none_smaller_than_one_left, draw, positions_sent, sent, vectors

from hvd_adaptive import ConfigError, RedSync
from hvd_adaptive.feedback import Residual


def rounded(n, factor):
    return min(n, max(1, int(n / factor + 0.5)))


@given(x=vectors(), factor=st.floats(1, 100))
def test_between_k_and_2_k_of_the_largest_are_kept(ops, x, factor):
    kept, k = positions_sent(sent(ops, RedSync(factor), x)), rounded(x.size, factor)
    assert k <= len(kept) <= min(2 * k, x.size)
    np.testing.assert_array_equal(np.sort(np.abs(x[kept])), np.sort(np.abs(x))[x.size - len(kept) :])
    assert_none_smaller_than_one_left(x, kept)


def bisected(magnitudes, k):
    """How many pass the first threshold that lets k to 2 k through, in doubles; None if 16 thresholds do not."""
    mean, largest = sum(magnitudes) / len(magnitudes), max(magnitudes)
    low, high = 0.0, 1.0
    for _ in range(16):
        ratio = (low + high) / 2
        count = sum(m > mean + ratio * (largest - mean) for m in magnitudes)
        if k <= count <= 2 * k:
            return count
        low, high = (ratio, high) if count > 2 * k else (low, ratio)
    return None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("factor", [4, 20, 100, 1000])
def test_the_first_threshold_that_lets_k_to_2_k_through_is_taken(ops, seed, factor):
    """Whole numbers below 2^24, so that float32 holds the comparison of a threshold off the numbers."""
    rng = np.random.default_rng(seed)
    x = np.round(rng.standard_normal(500) ** 3 * 1e4).astype(np.float32)
    count = bisected(np.abs(x).astype(float).tolist(), rounded(500, factor))
    assert len(positions_sent(sent(ops, RedSync(factor), x))) == (count or rounded(500, factor))


@pytest.mark.parametrize("power", [8, 13, 16, 18, 19, 20, 22])
def test_the_search_goes_on_for_sixteen_thresholds(ops, power):
    """A hundred elements lie so close below the largest that only a late threshold parts them, or none."""
    x = np.zeros(1000)
    x[:100] = 1 - np.arange(100) * 2.0**-power
    assert len(positions_sent(sent(ops, RedSync(200), x))) == (bisected(x.tolist(), 5) or 5)


def test_an_element_on_the_threshold_does_not_pass(ops):
    """Mean 16, largest 80, so the first threshold is 48."""
    assert positions_sent(sent(ops, RedSync(8), np.array([80, 48, 0, 0, 0, 0, 0, 0], np.float32))) == [0]


def test_by_hand(ops):
    """Mean 20 and largest 100: of the thresholds 60, 40 and 30 for k = 2 the first passes 1, the second 2."""
    x = np.array([100, -45, 10, 5, 0, 0, 0, 0], np.float32)
    assert positions_sent(sent(ops, RedSync(4), x)) == [0, 1]
    x = np.array([-70, 70, 10, 5, 5, 0, 0, 0, 0, 0], np.float32)  # mean 16, threshold 43: two of k = 1 pass
    assert positions_sent(sent(ops, RedSync(10), x)) == [0, 1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("factor", [1, 3, 7, 10, 100])
def test_where_all_tie_exactly_k_are_taken(ops, dtype, factor):
    for fill in (0, 1, -3, np.finfo(dtype).smallest_subnormal):
        assert len(positions_sent(sent(ops, RedSync(factor), np.full(30, fill, dtype)))) == rounded(30, factor)


def test_of_candidates_that_tie_exactly_k_are_taken(ops):
    """A hundred ones above zeros: every threshold lets all hundred through."""
    x = np.zeros(1000, np.float32)
    x[::10] = -1
    kept = positions_sent(sent(ops, RedSync(50), x))
    assert len(kept) == 20
    assert np.all(x[kept] == -1)
    x[500] = 5
    kept = positions_sent(sent(ops, RedSync(100), x))
    assert len(kept) == 10
    assert 500 in kept


def test_it_draws_nothing(ops):
    x = np.random.default_rng(0).standard_normal(300)
    one, other = (positions_sent(sent(ops, RedSync(10), x, streams)) for streams in (draw(), draw(5, 3)))
    assert one == other


def test_what_others_may_rely_on():
    assert RedSync(9).biased
    assert RedSync(9).feedback == Residual()
    assert RedSync(9).omega(5) == 0
    assert RedSync(9).counted


@pytest.mark.parametrize("factor", BAD_FACTORS)
def test_refuses_a_bad_factor(factor):
    with pytest.raises(ConfigError) as raised:
        RedSync(factor)
    assert str(raised.value).startswith("RedSync: factor must be a finite number >= 1")
    assert str(raised.value).endswith(f"got {factor!r}")
