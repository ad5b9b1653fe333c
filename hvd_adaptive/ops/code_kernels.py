"""Compiled loops that put codes into few bits and take them out again; as in :mod:`hvd_adaptive.ops.kernels`."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

_PAGE = 1024
"""Bytes of each plane that are gone over for all codes in turn, which stay close to the core meanwhile."""


@numba.njit(nogil=True, cache=True)
def pack_onto(packed: npt.NDArray[np.uint8], codes: npt.NDArray[Any], bits: int) -> None:
    """Write ``codes``, u8[n], i32[n] or i64[n], into zeros u8[bits * ceil(n / 8)]; see :mod:`hvd_adaptive.ops.packing`."""
    width = packed.size // bits
    for start in range(0, width, _PAGE):
        for code in range(8):
            stop = min(start + _PAGE, width, codes.size - code * width)
            part = codes[code * width + start : max(code * width + stop, code * width + start)]
            for byte in range(code * bits // 8, (code * bits + bits + 7) // 8):
                plane = packed[byte * width + start : byte * width + start + part.size]
                up = code * bits - 8 * byte
                if up >= 0:
                    for place in range(part.size):
                        plane[place] |= np.uint8(part[place] << up)
                else:
                    for place in range(part.size):
                        plane[place] |= np.uint8(part[place] >> -up)


@numba.njit(nogil=True, cache=True)
def unpack_onto(codes: npt.NDArray[Any], packed: npt.NDArray[np.uint8], bits: int) -> None:
    """Write into zeros, u8[n], i32[n] or i64[n], what :func:`pack_onto` packed."""
    width, mask = packed.size // bits, (1 << bits) - 1
    for start in range(0, width, _PAGE):
        for code in range(8):
            stop = min(start + _PAGE, width, codes.size - code * width)
            part = codes[code * width + start : max(code * width + stop, code * width + start)]
            for byte in range(code * bits // 8, (code * bits + bits + 7) // 8):
                plane = packed[byte * width + start : byte * width + start + part.size]
                up = code * bits - 8 * byte
                if up >= 0:
                    for place in range(part.size):
                        part[place] |= (plane[place] >> up) & mask
                else:
                    for place in range(part.size):
                        part[place] |= (np.int64(plane[place]) << -up) & mask


@numba.njit(nogil=True, cache=True, boundscheck=True)
def climb_onto(flags: npt.NDArray[np.uint8], rest: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], low: int) -> None:
    """Set the flags, u8 zeros, of ascending ``positions`` i64[k], and write their ``low`` bits into ``rest`` i64[k].

    See :mod:`hvd_adaptive.ops.ascending`.
    """
    mask = (1 << low) - 1
    for place in range(positions.size):
        flags[(positions[place] >> low) + place] = 1
        rest[place] = positions[place] & mask


@numba.njit(nogil=True, cache=True)
def climbed_onto(high: npt.NDArray[np.int64], flags: npt.NDArray[np.uint8]) -> None:
    """Write into ``high`` i64[k + 1] how far the flags of :func:`climb_onto` have climbed at each position; the last is free."""
    found, last = 0, high.size - 1
    for place in range(flags.size):  # without a branch, which nobody could foresee
        high[found] = place - found
        found = min(found + flags[place], last)
