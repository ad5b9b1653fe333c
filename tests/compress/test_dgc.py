"""Oracle: the documented search in numpy, with the sample of the scalar generator.

What it guarantees: never more than k, and none smaller than one left behind. At least 0.8 k only if as many elements reach
0.8^10 = 0.107 of the threshold that the sample told, or are not 0; a sample that met only outliers may find fewer.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_oracle import sample
from vectors import BAD_FACTORS, assert_none_smaller_than_one_left, draw, positions_sent, sent, vectors

from hvd_adaptive import DGC, ConfigError, MomentumCorrection


def rounded(n, factor):
    return min(n, max(1, int(n / factor + 0.5)))


def expected_magnitudes(x, factor, fraction=0.01, streams=None):
    """Sorted magnitudes of what is kept."""
    n, k = x.size, rounded(x.size, factor)
    looked_at = int(max(256, n * fraction))
    magnitude = np.abs(x)
    descending = np.sort(magnitude)[::-1]
    if looked_at >= n:
        return descending[:k][::-1]
    sampled = magnitude[list(sample((streams or draw()).own, looked_at, n))]
    threshold = np.sort(sampled)[::-1][rounded(looked_at, factor) - 1]
    for _ in range(10):
        if np.count_nonzero((magnitude >= threshold) & (magnitude > 0)) >= 0.8 * k:
            break
        threshold = threshold * x.dtype.type(0.8)
    passing = np.sort(magnitude[(magnitude >= threshold) & (magnitude > 0)])[::-1]
    return passing[:k][::-1]


def kept_magnitudes(ops, x, method, streams=None):
    kept = positions_sent(sent(ops, method, x, streams))
    assert_none_smaller_than_one_left(x, kept)
    return np.sort(np.abs(x[kept]))


@given(x=vectors(), factor=st.floats(1, 100))
def test_a_short_unit_keeps_exactly_its_k_largest(ops, x, factor):
    kept = kept_magnitudes(ops, x, DGC(factor))
    assert kept.size == rounded(x.size, factor)
    np.testing.assert_array_equal(kept, expected_magnitudes(x, factor))


@pytest.mark.parametrize("n", [255, 256, 257, 2000])
@pytest.mark.parametrize("factor", [1, 2, 10, 100, 1e6])
def test_a_unit_that_is_sampled(ops, n, factor):
    for seed, kind in enumerate(("normal", "heavy", "integers", "ones")):
        rng = np.random.default_rng(seed)
        x = {
            "normal": rng.standard_normal(n),
            "heavy": rng.standard_cauchy(n) ** 3,
            "integers": rng.integers(-3, 4, n),
            "ones": np.ones(n),
        }[kind].astype(np.float32)
        kept = kept_magnitudes(ops, x, DGC(factor))
        assert kept.size <= rounded(n, factor)
        np.testing.assert_array_equal(kept, expected_magnitudes(x, factor))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("step", range(3))
def test_a_usual_gradient_keeps_four_fifths_of_k_at_least(ops, dtype, step):
    x = np.random.default_rng(step).standard_normal(3000).astype(dtype)
    assert 0.8 * 30 <= kept_magnitudes(ops, x, DGC(100), draw(step)).size <= 30


def test_a_threshold_too_high_is_lowered_ten_times_at_most(ops):
    """The sample is told outliers of 1; the others lie in steps below, of which those down to 0.8^10 are reached."""
    n, factor = 1000, 10
    looked_at = list(sample(draw().own, 256, n))
    for low, found in ((0.81, 100), (0.8**9, 100), (0.8**10 * 1.001, 100), (0.8**10 * 0.99, 26)):
        x = np.full(n, low)
        x[looked_at[:26]] = 1
        assert kept_magnitudes(ops, x, DGC(factor)).size == found


def test_four_fifths_of_k_are_enough(ops):
    """Of 100 wanted, 80 ones are; of 79 the threshold is lowered to what lies below them."""
    looked_at = list(sample(draw().own, 256, 1000))
    others = [i for i in range(1000) if i not in set(looked_at)]
    for ones, found in ((80, 80), (79, 100)):
        x = np.full(1000, 0.9)
        x[looked_at[:26] + others[: ones - 26]] = 1
        assert kept_magnitudes(ops, x, DGC(10)).size == found


def test_with_zeros_in_the_sample_only_what_is_not_0_is_sent(ops):
    x = np.zeros(1000, np.float32)
    assert kept_magnitudes(ops, x, DGC(10)).size == 0
    x[list(sample(draw().own, 300, 1000))[-5:]] = 1, -2, 3, -4, 1e-40
    assert kept_magnitudes(ops, x, DGC(10)).size == 5
    assert kept_magnitudes(ops, x, DGC(500)).tolist() == [3, 4]


def test_of_many_ties_k_are_taken(ops):
    for dtype in ("float16", "float32", "float64"):
        for fill in (1, -1, np.finfo(dtype).smallest_subnormal):
            assert kept_magnitudes(ops, np.full(1000, fill, dtype), DGC(10)).size == 100


def test_a_larger_sample_may_be_asked_for(ops):
    x = np.random.default_rng(7).standard_cauchy(2000).astype(np.float32)
    for fraction in (0.2, 0.5, 1):
        kept = kept_magnitudes(ops, x, DGC(20, sample=fraction))
        np.testing.assert_array_equal(kept, expected_magnitudes(x, 20, fraction))
    assert kept.size == 100


def test_the_sample_is_a_ranks_own(ops):
    """So the number kept of a heavy tail differs by rank, and follows the own draw alone."""
    x = np.random.default_rng(3).standard_cauchy(2000).astype(np.float32) ** 3
    sizes = [kept_magnitudes(ops, x, DGC(20), draw(rank=rank)).size for rank in range(6)]
    assert len(set(sizes)) > 1
    assert sizes[0] == kept_magnitudes(ops, x, DGC(20), draw()._replace(shared=draw(1).shared)).size
    assert sizes == [expected_magnitudes(x, 20, streams=draw(rank=rank)).size for rank in range(6)]


def test_its_feedback_is_momentum_correction():
    assert DGC(100).feedback == MomentumCorrection(0.9, False, None, True)
    assert DGC(100, 0.5, True, 2, False).feedback == MomentumCorrection(0.5, True, 2.0, False)
    assert DGC(100).biased
    assert DGC(100).omega(5) == 0
    assert type(DGC(100, clip=1).clip) is float


@pytest.mark.parametrize("factor", BAD_FACTORS)
def test_refuses_a_bad_factor(factor):
    with pytest.raises(ConfigError) as raised:
        DGC(factor)
    assert str(raised.value).startswith("DGC: factor must be a finite number >= 1")
    assert str(raised.value).endswith(f"got {factor!r}")


BAD = {
    "sample": [0, -0.1, 1.01, float("nan"), float("inf"), "0.1", None, True],
    "momentum": [-0.1, 1, 1.5, float("nan"), float("inf"), "0.9", None, False],
    "clip": [0, -1, float("nan"), float("inf"), "1", True],
    "nesterov": [0, 1, None, "yes"],
    "masking": [0, 1, None, "yes"],
}
LEGAL = {
    "sample": "a number from 1e-06 to 1",
    "momentum": "a number from 0 to 0.9999",
    "clip": "a number from 1e-30 to 1e+30",
    "nesterov": "True or False",
    "masking": "True or False",
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_refuses_other_bad_values(name, value):
    with pytest.raises(ConfigError) as raised:
        DGC(10, **{name: value})
    assert f"{name} must be {LEGAL[name]}" in str(raised.value)
    assert str(raised.value).endswith(f"got {value!r}")
