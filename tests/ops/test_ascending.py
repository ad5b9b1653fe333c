"""Positions in few bits: there and back, as long as said, and close to the least there is."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import positions_bytes

from hvd_adaptive.ops import ascending
from hvd_adaptive.ops.host_ops import HostOps
from hvd_adaptive.ops.numpy_ops import NumpyOps


def spread(k: int, n: int, seed: int = 0) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).choice(n, k, replace=False)).astype(np.int64)


def assert_there_and_back(ops, positions: np.ndarray, n: int) -> None:
    coded = ops.encode_positions(ops.from_numpy(positions), n)
    assert ops.dtype(coded) == "uint8"
    assert ops.size(coded) == ascending.coded_size(positions.size, n) == positions_bytes(positions.size, n)
    back = ops.to_numpy(ops.decode_positions(coded, positions.size, n))
    assert back.dtype == np.int64
    np.testing.assert_array_equal(back, positions)


@given(st.data())
def test_there_and_back(ops, data):
    n = data.draw(st.integers(1, 300))
    positions = data.draw(st.sets(st.integers(0, n - 1)))
    assert_there_and_back(ops, np.array(sorted(positions), np.int64), n)


@pytest.mark.parametrize(
    ("k", "n"), [(0, 1), (0, 10**6), (1, 2**40), (1, 1), (7, 7), (4096, 4096), (1000, 2**33), (70_000, 10**6), (3, 4)]
)
def test_few_and_many(ops, k, n):
    positions = spread(k, n) if n <= 10**6 else np.unique(np.random.default_rng(k).integers(0, n, k))
    assert_there_and_back(ops, positions, n)
    if k:
        assert_there_and_back(ops, np.arange(k, dtype=np.int64), n)  # all of them at one end
        assert_there_and_back(ops, np.arange(n - k, n, dtype=np.int64), n)


def test_every_backend_has_the_same_code(ops):
    for k, n in ((5, 9), (700, 70_000), (999, 1000)):
        positions = spread(k, n, k)
        expected = ascending.encode(NumpyOps(), positions, n).tobytes()
        assert ops.to_numpy(ops.encode_positions(ops.from_numpy(positions), n)).tobytes() == expected


@pytest.mark.parametrize("factor", [1, 2, 10, 100, 1000, 1e5])
def test_it_is_close_to_the_least_there_is(factor):
    """As many bits as tell one choice of k among n from the others, a half more for each position, and what fills up bytes."""
    n = 10**6
    k = round(n / factor)
    least = (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)
    spare = 0.6 if factor > 2 else 2.0  # where most are kept, a flag each and one between are more than is needed
    assert least <= 8 * ascending.coded_size(k, n) <= least + spare * k + 128


def test_a_damaged_code_stays_within_its_memory():
    """Flags that tell of more positions than there are."""
    ops, (k, n) = HostOps(), (100, 10_000)
    coded = np.full(ascending.coded_size(k, n), 255, np.uint8)
    assert ops.decode_positions(coded, k, n).size == k
