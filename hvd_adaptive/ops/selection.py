"""Exact selection of the largest elements of long vectors in a host's memory, in few passes and little memory."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from hvd_adaptive.ops.kernels import count_within, positions_above, positions_from

LONG = 2**16
"""Elements from which on a look at a sample pays before a selection."""
SAMPLE = 2**14
"""Elements a look takes."""
_ROOM = 1.5
"""Room for candidates, over what a sample lets expect."""
_DIGIT = 16
"""Bits of a magnitude that one pass settles: a counter for each of their values stays close to the core."""


def top_positions(x: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64] | None:
    """Ascending positions of the ``k`` elements of largest magnitude; of equal ones, the first.

    A threshold that, as a sample tells, a few more than ``k`` elements pass leaves candidates, among which the k-th is found.
    Where the sample was wrong, or a great many are equal, counting finds the k-th.

    Args:
        x: f[n].
        k: from 1 on.

    Returns:
        ``i64[k]``; None where this is no way to find them: in half precision, below :data:`LONG` elements, if all are to be
        kept, or if fewer than ``k`` are numbers.
    """
    if not LONG <= x.size > k or x.dtype not in (np.float32, np.float64):
        return None
    threshold, expected = _threshold(x, k)
    room = min(x.size, int(_ROOM * expected))
    found, magnitudes = np.empty(room, np.int64), np.empty(room, x.dtype)
    count = positions_from(x, threshold, found, magnitudes)
    if not k <= count <= room:
        del found, magnitudes
        return by_counting(x, k)
    candidates, magnitudes = found[:count], magnitudes[:count]
    least = np.partition(magnitudes, count - k)[count - k]
    kept = magnitudes > least
    equal = np.flatnonzero(magnitudes == least)
    kept[equal[: k - np.count_nonzero(kept)]] = True
    return candidates[kept]


def by_counting(x: npt.NDArray[Any], k: int) -> npt.NDArray[np.int64] | None:
    """As :func:`top_positions`, in as many passes for any vector, f32[n] or f64[n]: three and five."""
    integer = np.dtype(f"i{x.itemsize}").type
    bits, mask, infinity = x.view(integer), integer(np.iinfo(integer).max), np.array(np.inf, x.dtype).view(integer)[()]
    low, high, wanted = integer(0), infinity, k
    for shift in range(8 * x.itemsize - _DIGIT, -1, -_DIGIT):
        counts = np.zeros(2**_DIGIT, np.int64)
        count_within(counts, bits, mask, low, high, integer(shift))
        from_here = np.cumsum(counts[::-1])[::-1]
        if from_here[0] < wanted:
            return None
        digit = np.flatnonzero(from_here >= wanted)[-1]
        wanted -= int(from_here[digit] - counts[digit])
        low += integer(digit) << integer(shift)
        high = min(high, low + ((integer(1) << integer(shift)) - integer(1)))
    found = np.empty(k, np.int64)
    positions_above(found, bits, mask, low, wanted, infinity)
    return found


def _threshold(x: npt.NDArray[Any], k: int) -> tuple[Any, int]:
    """A magnitude that a few more than ``k`` elements should reach, and how many; never zero, which all would."""
    sample = np.abs(x[spread(x.size)])
    expected = k * sample.size / x.size
    rank = min(sample.size, int(expected + 4 * math.sqrt(expected)) + 8)  # four deviations further down
    threshold = np.partition(sample, sample.size - rank)[sample.size - rank]
    return max(threshold, np.finfo(x.dtype).smallest_subnormal), max(k, rank * x.size // sample.size)


def spread(n: int) -> npt.NDArray[np.int64]:
    """Ascending positions below ``n``, one from each of equal parts, with no period: columns of a layer have one."""
    part = n // SAMPLE
    number = np.arange(SAMPLE)
    return number * part + (number * 2_654_435_769 >> 16) % part  # Knuth's multiplicative hash
