"""Exact selection from long vectors, where it differs from any other: order, ties, and what no sample shows."""

import tracemalloc

import numpy as np
import pytest

from hvd_adaptive.ops import selection

N = selection.LONG + 77


def drawn(seed: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(N).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 2, 650, 6_500, N // 2, N - 1])
def test_positions_ascend_and_are_those_of_the_largest(k: int, dtype: str) -> None:
    x = drawn(k, dtype)
    found = selection.top_positions(x, k)
    assert found is not None
    np.testing.assert_array_equal(found, np.sort(np.argsort(-np.abs(x), kind="stable")[:k]))


@pytest.mark.parametrize("k", [1, 100, 30_000])
def test_of_equal_elements_the_first_are_taken(k: int) -> None:
    x = np.where(np.arange(N) % 2, 1.0, -1.0).astype("float32")
    x[N - 10 :] = 5.0
    found = selection.top_positions(x, k)
    first = np.arange(max(0, k - 10))
    np.testing.assert_array_equal(found, np.concatenate([first, np.arange(N - 10, N - 10 + min(k, 10))]))


def test_zeros_are_kept_where_few_are_not_zero() -> None:
    x = np.zeros(N, "float32")
    x[[5, 70, N - 1]] = [1.0, -2.0, 1e-45]
    np.testing.assert_array_equal(selection.top_positions(x, 3), [5, 70, N - 1])
    x[:3] = -0.0
    np.testing.assert_array_equal(selection.top_positions(x, 10), [0, 1, 2, 3, 4, 5, 6, 7, 70, N - 1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 2, 650, N // 2, N - 1])
@pytest.mark.parametrize("values", ["drawn", "rounded", "with few", "of all magnitudes"])
def test_counting_finds_the_same(values: str, k: int, dtype: str) -> None:
    x = drawn(7, dtype)
    if values == "rounded":
        x = x.round(1)
    elif values == "with few":
        x[drawn(8, dtype) < 2] = 0
    elif values == "of all magnitudes":
        x *= 10.0 ** np.linspace(-44, 38, N).astype(dtype)
        x[[3, 77]] = -np.inf, np.inf
    found = selection.by_counting(x, k)
    np.testing.assert_array_equal(found, np.sort(np.argsort(-np.abs(x), kind="stable")[:k]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_counting_leaves_out_what_is_no_number(dtype: str) -> None:
    x = np.full(N, np.nan, dtype)
    x[9] = -x[9]
    x[[4, 6, 7]] = 0, np.inf, -3
    np.testing.assert_array_equal(selection.by_counting(x, 2), [6, 7])
    np.testing.assert_array_equal(selection.top_positions(x, 3), [4, 6, 7])
    assert selection.by_counting(x, 4) is None


def test_what_is_left_to_others() -> None:
    x = drawn(5, "float32")
    assert selection.top_positions(x[: selection.LONG - 1], 3) is None
    assert selection.top_positions(x.astype("float16"), 3) is None
    assert selection.top_positions(x, N) is None


def test_infinite_elements_are_the_largest_and_what_is_no_number_is_none() -> None:
    x = drawn(3, "float32")
    x[[9, 1000]] = np.inf, -np.inf
    np.testing.assert_array_equal(selection.top_positions(x, 2), [9, 1000])
    assert selection.top_positions(np.full(N, np.nan, "float32"), 2) is None


@pytest.mark.parametrize("share", [1e-3, 1e3])
def test_a_sample_unlike_the_rest_misleads_nobody(share: float) -> None:
    """The sample sees nothing but small elements, or all of the large ones: far more or fewer pass than it tells."""
    x = drawn(4, "float32")
    x[selection.spread(N)] *= share
    np.testing.assert_array_equal(selection.top_positions(x, 50), np.sort(np.argsort(-np.abs(x), kind="stable")[:50]))


@pytest.mark.parametrize("period", [250, 256, 1000])
def test_a_sample_has_no_period(period: int) -> None:
    """Of the columns of a layer it sees each about as often."""
    seen = np.bincount(selection.spread(period * 1000) % period, minlength=period)
    assert seen.min() > 0
    assert seen.max() < 2.5 * selection.SAMPLE / period


def test_it_needs_little_memory_whatever_is_equal() -> None:
    """Three quarters are equal, or the sample is wrong: the positions and counters, and no vector besides."""
    x = np.zeros(2**21, "float32")
    x[::4] = drawn(9, "float32")[0]
    x[1000:2000] = 7
    for k in (100, 10_000):
        selection.top_positions(x, k)
        tracemalloc.start()
        selection.top_positions(x, k)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < x.nbytes // 2
