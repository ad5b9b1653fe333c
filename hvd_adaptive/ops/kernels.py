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
PAGE = 1024
"""Elements that are gone over twice, which stay close to the core meanwhile."""


@numba.njit(nogil=True, cache=True)
def positions_from(x: npt.NDArray[Any], threshold: Any, found: npt.NDArray[np.int64], magnitudes: npt.NDArray[Any]) -> int:
    """Write the ascending positions of all elements of magnitude ``threshold`` or more into ``found``, as far as they fit.

    Args:
        x: f32[n] or f64[n].
        threshold: of x's dtype.
        found: i64[m].
        magnitudes: of x's dtype, [m], where those of the found elements go.

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
                    magnitudes[written] = abs(block[place])
                    written += 1
        count += hits
    return count


@numba.njit(nogil=True, cache=True)
def count_within(counts: npt.NDArray[np.int64], bits: npt.NDArray[Any], mask: Any, low: Any, high: Any, shift: Any) -> None:
    """Count magnitudes from ``low`` to ``high``, those together that differ in their last ``shift`` bits only.

    Args:
        counts: i64[m], added to.
        bits: i32[n] or i64[n], those of floats, whose magnitudes have the order of their bits.
        mask: of bits' dtype, as are the next three: all but the sign.
        low: bits of the least magnitude, a multiple of ``1 << shift``.
        high: less than ``low + (m << shift)``.
        shift: how many.
    """
    for place in range(bits.size):
        magnitude = bits[place] & mask
        if low <= magnitude <= high:
            counts[(magnitude - low) >> shift] += 1


@numba.njit(nogil=True, cache=True)
def positions_above(found: npt.NDArray[np.int64], bits: npt.NDArray[Any], mask: Any, least: Any, equal: int, high: Any) -> None:
    """Write the ascending positions of magnitudes above ``least``, and of the first ``equal`` that are ``least``.

    Args:
        found: i64[k], of as many as there are.
        bits: i32[n] or i64[n], those of floats.
        mask: of bits' dtype: all but the sign.
        least: of bits' dtype.
        equal: how many.
        high: of bits' dtype: above it are no numbers.
    """
    written = 0
    for place in range(bits.size):
        magnitude = bits[place] & mask
        if magnitude < least or magnitude > high or (magnitude == least and equal == 0):
            continue
        equal -= magnitude == least
        found[written] = place
        written += 1


@numba.njit(nogil=True, cache=True)
def add_while_finite(x: npt.NDArray[Any], values: npt.NDArray[Any]) -> int:
    """Add ``values`` f[n] to ``x`` f[n], block by block, up to the first block with a sum that is not finite.

    Returns:
        How many were added; ``n`` if all sums are finite.
    """
    for start in range(0, x.size, PAGE):
        block, added = x[start : start + PAGE], values[start : start + PAGE]
        finite = 0
        for place in range(block.size):
            finite += abs(block[place] + added[place]) < np.inf
        if finite < block.size:
            return start
        for place in range(block.size):
            block[place] += added[place]
    return x.size


@numba.njit(nogil=True, cache=True, boundscheck=True)
def clear_at(x: npt.NDArray[Any], positions: npt.NDArray[np.int64]) -> None:
    """Write zeros into ``x`` f[n] at ``positions`` i64[k]."""
    for place in range(positions.size):
        x[positions[place]] = 0


@numba.njit(nogil=True, cache=True, boundscheck=True)
def add_at(x: npt.NDArray[Any], positions: npt.NDArray[np.int64], values: npt.NDArray[Any]) -> None:
    """Add ``values`` f[k] to ``x`` f[n] at ``positions`` i64[k]."""
    for place in range(positions.size):
        x[positions[place]] += values[place]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc"})
def sums_onto(sums: npt.NDArray[np.float64], x: npt.NDArray[Any], width: int) -> None:
    """Write the sum of each ``width`` elements of ``x`` f[n] in turn; several at a time, so not in the elements' order."""
    for row in range(sums.size):
        part, total = x[row * width : (row + 1) * width], 0.0
        for place in range(part.size):
            total += np.float64(part[place])
        sums[row] = total


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def sums_of_squares(sums: npt.NDArray[np.float64], x: npt.NDArray[Any], width: int) -> None:
    """Write those of each ``width`` elements of ``x`` f[n] in turn; several sums at a time, so not in the elements' order."""
    for row in range(sums.size):
        part, total = x[row * width : (row + 1) * width], 0.0
        for place in range(part.size):
            total += np.float64(part[place]) * np.float64(part[place])
        sums[row] = total


@numba.njit(nogil=True, cache=True)
def largest_onto(largest: npt.NDArray[Any], x: npt.NDArray[Any], width: int, mask: Any) -> None:
    """Write the largest of each ``width`` elements of ``x``, the bits of floats as integers, in turn, under a ``mask``."""
    for row in range(largest.size):
        part, found = x[row * width : (row + 1) * width], mask & 0
        for place in range(part.size):
            found = max(found, part[place] & mask)
        largest[row] = found


@numba.njit(nogil=True, inline="always")
def _mix(word: Any) -> Any:
    """:func:`hvd_adaptive.ops.mixing.mix` of u32; numba would go on in 64 bits, half as many at a time."""
    word ^= word >> np.uint32(16)
    word = np.uint32(word * np.uint32(0x21F0AAAD))
    word ^= word >> np.uint32(15)
    word = np.uint32(word * np.uint32(0x735A2D97))
    return word ^ (word >> np.uint32(15))


@numba.njit(nogil=True, cache=True)
def uniform_onto(numbers: npt.NDArray[np.float32], high: np.uint32, low: np.uint32) -> None:
    """Write :func:`hvd_adaptive.ops.mixing.uniform`, f32[n]."""
    for place in range(numbers.size):
        word = _mix(np.uint32(_mix(np.uint32(np.uint32(place) ^ high)) ^ low))
        numbers[place] = np.float32(word >> np.uint32(8)) * np.float32(2.0**-24)


@numba.njit(nogil=True, inline="always")
def _permute(high: npt.NDArray[np.uint32], low: npt.NDArray[np.uint32], keys: npt.NDArray[np.uint32], bits: int) -> None:
    """:func:`hvd_adaptive.ops.mixing.permute` of numbers in halves u32[m]; a round goes over all, several at a time."""
    low_bits = (bits + 1) // 2
    low_mask, high_mask = np.uint32((1 << low_bits) - 1), np.uint32((1 << (bits - low_bits)) - 1)
    for number in range(keys.shape[0]):
        first, second = keys[number, 0], keys[number, 1]
        for place in range(low.size):
            low[place] ^= _mix(high[place] ^ first) & low_mask
            high[place] ^= _mix(low[place] ^ second) & high_mask


@numba.njit(nogil=True, cache=True)
def sample_onto(
    positions: npt.NDArray[np.int64], n: int, keys: npt.NDArray[np.uint32], bits: int, work: npt.NDArray[np.uint32]
) -> None:
    """Write :func:`hvd_adaptive.ops.mixing.sample`.

    Args:
        positions: i64[k], written.
        n: above all of them.
        keys: u32[rounds, 2].
        bits: n <= 2^bits.
        work: u32[3, PAGE], overwritten.
    """
    low_bits = (bits + 1) // 2
    low_mask = np.int64((1 << low_bits) - 1)
    for start in range(0, positions.size, PAGE):
        block = positions[start : start + PAGE]
        for place in range(block.size):
            block[place] = start + place
            work[2, place] = place
        outside = block.size
        while outside:
            high, low, places = work[0, :outside], work[1, :outside], work[2, :outside]
            for number in range(outside):
                image = block[places[number]]
                high[number], low[number] = np.uint32(image >> low_bits), np.uint32(image & low_mask)
            _permute(high, low, keys, bits)
            left = 0
            for number in range(outside):
                place, image = places[number], (np.int64(high[number]) << low_bits) | np.int64(low[number])
                block[place] = image
                places[left] = place
                left += int(image >= n)
            outside = left


@numba.njit(nogil=True, cache=True)
def levels_onto(
    found: npt.NDArray[Any],
    x: npt.NDArray[Any],
    scale: npt.NDArray[Any],
    width: int,
    first: int,
    most: Any,
    numbers: npt.NDArray[np.float32],
) -> None:
    """Write :func:`hvd_adaptive.ops.mixing.levels_of`; ``most`` are the levels in the dtype of x."""
    zero, one = most * 0, most / most
    for row in range(scale.size):
        start, stop, largest = max(0, row * width - first), min(x.size, (row + 1) * width - first), scale[row]
        part, drawn, onto = x[start:stop], numbers[start:stop], found[start:stop]
        for place in range(part.size):
            height = abs(part[place]) / largest * most
            below = np.floor(height)
            up = one if drawn[place] < height - below else zero
            onto[place] = np.copysign(min(below + up, most), part[place])
