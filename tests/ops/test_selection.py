"""Exact selection from long vectors, where it differs from any other: order, ties, and what no sample shows."""

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


def test_few_that_are_not_zero_are_not_enough() -> None:
    x = np.zeros(N, "float32")
    x[[5, 70, N - 1]] = [1.0, -2.0, 1e-45]
    assert selection.top_positions(x, 4) is None
    np.testing.assert_array_equal(selection.top_positions(x, 3), [5, 70, N - 1])


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


def test_a_sample_unlike_the_rest_costs_another_pass_only() -> None:
    """The sample sees nothing but small elements, so that far more pass than there is room for."""
    x = drawn(4, "float32")
    x[:: N // 2**14] /= 1e3
    np.testing.assert_array_equal(selection.top_positions(x, 50), np.sort(np.argsort(-np.abs(x), kind="stable")[:50]))
