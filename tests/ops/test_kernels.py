"""Compiled loops against numpy."""

import os
import subprocess
import sys

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_adaptive.ops import kernels
from hvd_adaptive.ops.kernels import positions_from

ELEMENTS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(
    x=hnp.arrays(np.float64, st.integers(0, 200), elements=ELEMENTS),
    threshold=st.sampled_from([1e-45, 1.0, 2.5, np.inf]),
    room=st.integers(0, 210),
)
def test_positions_from_a_threshold_on(dtype: str, x: np.ndarray, threshold: float, room: int) -> None:
    x = x.astype(dtype)
    expected = np.flatnonzero(np.abs(x) >= x.dtype.type(threshold))
    found, magnitudes = np.full(room, -1), np.full(room, -1, dtype)
    assert positions_from(x, x.dtype.type(threshold), found, magnitudes) == len(expected)
    if room >= len(expected):
        assert found.tolist() == expected.tolist() + [-1] * (room - len(expected))
        np.testing.assert_array_equal(magnitudes[: len(expected)], np.abs(x[expected]))
    else:  # whole blocks that fit, in their places or not at all
        written = found[found >= 0]
        assert np.isin(written, expected).all()


PROGRAM = """
import numpy as np
from hvd_adaptive.ops import kernels
from hvd_adaptive.ops.kernels import positions_from
found, magnitudes = np.empty(100_000, np.int64), np.empty(100_000, np.float32)
x = np.arange(-50_000, 50_000, dtype=np.float32)
count = positions_from(x, np.float32(40_000), found, magnitudes)
print(count, int(found[:count].sum()), sum(positions_from.stats.cache_hits.values()))
"""


def test_ranks_that_start_together_compile_into_one_cache(tmp_path: object) -> None:
    """All find the same with an empty cache, which is whole afterwards: the next one compiles nothing."""

    def started() -> subprocess.Popen[str]:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    expected = sum(range(90_000, 100_000)) + sum(range(10_001))
    answers = [process.communicate(timeout=100) for process in [started() for _ in range(4)]]
    assert [answer.split()[:2] for answer, _ in answers] == [["20001", str(expected)]] * 4, answers
    answer, error = started().communicate(timeout=100)
    assert answer.split() == ["20001", str(expected), "1"], error


@pytest.mark.parametrize("positions", [[0, 8], [-9, 1]])
def test_positions_that_are_none_of_the_vectors_are_noticed(positions: list[int]) -> None:
    """Memory beyond it belongs to others."""
    x, where = np.zeros(8, np.float32), np.array(positions)
    with pytest.raises(IndexError):
        kernels.clear_at(x, where)
    with pytest.raises(IndexError):
        kernels.add_at(x, where, np.ones(2, np.float32))
