"""Exact selection of the largest elements of long vectors in a host's memory: one pass, and a small rest."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from hvd_adaptive.ops.kernels import positions_from

LONG = 2**16
"""Elements from which on a look at a sample pays before a selection."""
_SAMPLE = 2**14
_ROOM = 1.5
"""Room for candidates, over what a sample lets expect."""


def top_positions(x: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64] | None:
    """Ascending positions of the ``k`` elements of largest magnitude; of equal ones, the first.

    A threshold that, as a sample tells, a few more than ``k`` elements pass leaves candidates among which the k-th is found.

    Args:
        x: f[n].
        k: from 1 on.

    Returns:
        ``i64[k]``; None where this is no way to find them: in half precision, below :data:`LONG` elements, if all are to be
        kept, or if fewer than ``k`` passed, as where few are not zero, or none is a number.
    """
    if not LONG <= x.size > k or x.dtype not in (np.float32, np.float64):
        return None
    threshold, expected = _threshold(x, k)
    room = min(x.size, int(_ROOM * expected))
    found, magnitudes = np.empty(room, np.int64), np.empty(room, x.dtype)
    count = positions_from(x, threshold, found, magnitudes)
    if count > room:  # the sample saw another vector than the rest is
        found, magnitudes = np.empty(count, np.int64), np.empty(count, x.dtype)
        positions_from(x, threshold, found, magnitudes)
    if count < k:
        return None
    candidates, magnitudes = found[:count], magnitudes[:count]
    least = np.partition(magnitudes, count - k)[count - k]
    kept = magnitudes > least
    equal = np.flatnonzero(magnitudes == least)
    kept[equal[: k - np.count_nonzero(kept)]] = True
    return candidates[kept]


def _threshold(x: npt.NDArray[Any], k: int) -> tuple[Any, int]:
    """A magnitude that a few more than ``k`` elements should reach, and how many; never zero, which all would."""
    sample = np.abs(x[:: x.size // _SAMPLE])
    expected = k * sample.size / x.size
    rank = min(sample.size, int(expected + 4 * math.sqrt(expected)) + 8)  # four deviations further down
    threshold = np.partition(sample, sample.size - rank)[sample.size - rank]
    return max(threshold, np.finfo(x.dtype).smallest_subnormal), max(k, rank * x.size // sample.size)
