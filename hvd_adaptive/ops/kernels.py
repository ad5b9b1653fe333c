"""Compiled loops over a host's memory, for what numpy and torch need several passes and full-size temporaries for.

They are compiled when first called, for each dtype, and kept on disk, where a second run and other ranks find them. None holds
Python's lock, none allocates.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

_BLOCK = 32
"""Elements looked at without a branch, which the compiler does several at a time; most hold none of the few that are searched."""


@numba.njit(nogil=True, cache=True)
def positions_from(x: npt.NDArray[Any], threshold: Any, found: npt.NDArray[np.int64]) -> int:
    """Write the ascending positions of all elements of magnitude ``threshold`` or more into ``found``, as far as they fit.

    Args:
        x: f32[n] or f64[n].
        threshold: of x's dtype.
        found: i64[m].

    Returns:
        How many there are; more than ``m`` if the others are missing. NaN is none.
    """
    count, room = 0, found.size
    for start in range(0, x.size, _BLOCK):
        block = x[start : start + _BLOCK]  # of which the compiler knows that no index is negative
        hits = 0
        for place in range(block.size):
            hits += abs(block[place]) >= threshold
        if hits and count + hits <= room:
            written = count
            for place in range(block.size):
                if abs(block[place]) >= threshold:
                    found[written] = start + place
                    written += 1
        count += hits
    return count
