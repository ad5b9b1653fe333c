"""Oracles: means and codes one element at a time, in Python's floats; draws from the scalar generator."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from random_oracle import uniform
from vectors import draw, expected_levels, vectors

from hvd_adaptive import QSGD, EFSign, SignSGD, TernGrad
from hvd_adaptive.compress import levels as module
from hvd_adaptive.compress.levels import code_dtype, rounded_at_random, row_means, signs

magnitudes = st.sampled_from(["float32", "float64"]).flatmap(
    lambda dtype: hnp.arrays(dtype, st.integers(1, 40), elements=st.floats(0, 2.0**100, width=32))
)


@given(x=magnitudes, width=st.integers(1, 50))
def test_means_of_rows_the_last_of_what_is_left(ops, x, width):
    """Magnitudes do not cancel, so doubles leave an error of one rounding."""
    width = min(width, x.size)
    rows = [x[start : start + width].tolist() for start in range(0, x.size, width)]
    expected = [math.fsum(row) / len(row) for row in rows]
    means = ops.to_numpy(row_means(ops, ops.from_numpy(x), width))
    assert means.dtype == x.dtype
    tiny = np.finfo(x.dtype).smallest_subnormal
    np.testing.assert_allclose(means, expected, rtol=2 * np.finfo(x.dtype).eps, atol=tiny)


@pytest.mark.parametrize(("n", "width", "means"), [(5, 2, [1, 5, 8]), (4, 2, [1, 5]), (5, 5, [4]), (5, 1, [0, 2, 4, 6, 8])])
def test_means_by_hand(ops, n, width, means):
    x = np.arange(0, 2 * n, 2, dtype=np.float32)
    np.testing.assert_array_equal(ops.to_numpy(row_means(ops, ops.from_numpy(x), width)), means)


# ---- what codes stand for --------------------------------------------------------------------------------------------------


@given(
    levels=st.sampled_from([1, 2, 7, 127, 1000]),
    ranks=st.integers(1, 5),
    n=st.integers(1, 20),
    bucket=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_a_sum_of_codes_stands_for_the_mean_of_what_ranks_sent(ops, levels, ranks, n, bucket, seed):
    rng = np.random.default_rng(seed)
    codes, scale = rng.integers(0, 2 * levels + 1, (ranks, n)), rng.uniform(1, 9, -(-n // min(bucket, n))).astype(np.float32)
    method = QSGD(levels, bucket=bucket)
    values = ops.to_numpy(
        method.values(ops, ops.from_numpy(codes.sum(0).astype(np.int32)), ops.from_numpy(scale), "float32", ranks)
    )
    per_element = [float(scale[i // bucket]) for i in range(n)]
    expected = [s * sum(int(c) / levels - 1 for c in column) / ranks for s, column in zip(per_element, codes.T, strict=True)]
    # a whole number below 2^24, a division and a product: two roundings of the value; the oracle's own sum may miss 0 by 1e-15
    np.testing.assert_allclose(values, expected, rtol=4 * 2.0**-24, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_the_ends_and_the_middle_are_exact(ops, dtype, ranks):
    codes = ops.from_numpy(np.array([0, 7 * ranks, 14 * ranks], np.int32))
    scale = ops.from_numpy(np.array([0.7], "float64" if dtype == "float64" else "float32"))
    values = ops.to_numpy(QSGD(7).values(ops, codes, scale, dtype, ranks))
    s = np.array(0.7, scale.numpy().dtype if hasattr(scale, "numpy") else scale.dtype).astype(dtype)
    assert values.dtype == dtype
    np.testing.assert_array_equal(values, [-s, 0, s])


def test_sums_beyond_what_float32_can_count_are_still_told_apart(ops):
    """2^20 levels of 16 ranks add up to 2^25, where float32 knows even numbers only."""
    codes = ops.from_numpy(np.array([2**24 - 1, 2**24, 2**24 + 1, 2**25], np.int32))
    values = ops.to_numpy(QSGD(2**20).values(ops, codes, ops.from_numpy(np.ones(1, np.float32)), "float32", 16))
    np.testing.assert_array_equal(values, [-(2.0**-24), 0, 2.0**-24, 1])


def test_of_votes_only_the_sign_counts(ops):
    sums = ops.from_numpy(np.array([0, 1, 2, 3, 4], np.int32))
    for scale, expected in ((1.0, [-1, -1, 0, 1, 1]), (0.0, [0] * 5)):
        scales = ops.from_numpy(np.array([scale], np.float32))
        np.testing.assert_array_equal(ops.to_numpy(SignSGD().values(ops, sums, scales, "float32", 4)), expected)


# ---- codes -----------------------------------------------------------------------------------------------------------------


@given(x=vectors(("float32", "float64")), levels=st.sampled_from([1, 3, 127, 128, 2**20]), factor=st.sampled_from([1, 1.5, 1000]))
def test_rounding_under_any_scale_that_is_not_less_than_the_largest(ops, x, levels, factor):
    """Ranks share the largest scale of all, so a rank's own elements may be far below it."""
    largest = np.array([np.abs(x).max() * x.dtype.type(factor)], x.dtype)
    codes = ops.to_numpy(rounded_at_random(ops, ops.from_numpy(x), ops.from_numpy(largest), x.size, levels, draw()))
    assert codes.dtype == (np.uint8 if levels < 128 else np.int32)
    assert np.all((codes >= 0) & (codes <= 2 * levels))
    level, certain = expected_levels(x, np.repeat(largest, x.size), levels, uniform(draw().own, x.size))
    found = (codes.astype(np.int64) - levels) * np.sign(x)
    np.testing.assert_array_equal(found[certain], level[certain])
    assert np.all(np.abs(found - level) <= 1)


def test_the_fraction_decides_how_often_a_height_is_rounded_up(ops):
    """Heights 2.25 and 0.5 of 4 levels; counts lie within 5.5 binomial deviations."""
    n = 20000
    for value, low, chance in ((0.5625, 2, 0.25), (-0.125, 0, 0.5)):
        x, one = ops.from_numpy(np.full(n, value, np.float32)), ops.from_numpy(np.ones(1, np.float32))
        levels = (ops.to_numpy(rounded_at_random(ops, x, one, ops.size(x), 4, draw())).astype(int) - 4) * int(np.sign(value))
        assert set(levels.tolist()) == {low, low + 1}
        assert abs(np.count_nonzero(levels == low + 1) - n * chance) < 5.5 * math.sqrt(n * chance * (1 - chance))


def test_a_height_on_a_level_stays_there_even_if_0_is_drawn(ops, monkeypatch):
    """One draw in 2^24 is 0, and chance 0 means never."""
    monkeypatch.setattr(module, "uniform", lambda ops, _, n, like, _first: ops.zeros(n, "float32", like))
    x, one = ops.from_numpy(np.array([0, 0.25, -0.5, 1, -1, 0.26], np.float32)), ops.from_numpy(np.ones(1, np.float32))
    assert ops.to_numpy(rounded_at_random(ops, x, one, ops.size(x), 4, draw())).tolist() == [4, 5, 2, 8, 0, 6]


@given(x=vectors())
def test_signs_and_the_coin_of_zeros(ops, x):
    coins = uniform(draw().own, x.size)
    expected = [int(u < 0.5) if e == 0 else int(e > 0) for e, u in zip(x.tolist(), coins, strict=True)]
    codes = ops.to_numpy(signs(ops, ops.from_numpy(x), draw()))
    assert codes.dtype == np.uint8
    assert codes.tolist() == expected


def test_the_coin_is_fair_and_each_rank_tosses_its_own(ops):
    zeros = ops.from_numpy(np.zeros(10000, np.float32))
    first, second = (ops.to_numpy(signs(ops, zeros, draw(rank=rank))).astype(int) for rank in (0, 1))
    for tosses in (first, second, first ^ second):
        assert abs(tosses.sum() - 5000) < 5.5 * math.sqrt(10000 / 4)


@pytest.mark.parametrize(("top", "dtype"), [(1, "uint8"), (255, "uint8"), (256, "int32"), (2**21, "int32")])
def test_codes_are_held_in_the_narrowest_dtype(top, dtype):
    assert code_dtype(top) == dtype


@pytest.mark.parametrize("method", [QSGD(3, bucket=4), QSGD(3, norm="max", bucket=4), EFSign(4)], ids=repr)
@pytest.mark.parametrize(("n", "scales"), [(1, 1), (4, 1), (5, 2), (12, 3), (13, 4)])
def test_a_scale_for_each_bucket(ops, method, n, scales):
    assert ops.size(method.encode(ops, ops.from_numpy(np.ones(n, np.float32)), draw()).fields[1].array) == scales


@pytest.mark.parametrize(
    "method", [QSGD(3), QSGD(3, norm="max", bucket=4), EFSign(4), SignSGD(), SignSGD(True), TernGrad()], ids=repr
)
@pytest.mark.parametrize(("dtype", "scale"), [("float16", "float32"), ("float32", "float32"), ("float64", "float64")])
def test_scales_are_single_precision_at_least(ops, method, dtype, scale):
    payload = method.encode(ops, ops.from_numpy(np.ones(5, dtype)), draw())
    assert ops.dtype(payload.fields[1].array) == scale
