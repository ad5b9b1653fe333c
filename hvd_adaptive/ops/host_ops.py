"""Numpy's backend where speed counts: compiled loops for what numpy and torch take several passes for."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from hvd_adaptive.ops import kernels, selection
from hvd_adaptive.ops.numpy_ops import NumpyOps

NDArray = npt.NDArray[Any]

_COMPILED = (np.dtype(np.float32), np.dtype(np.float64))
"""Floats that loops are compiled for."""
_INFINITE = np.uint64(0x7F800000)
"""The bits of infinity, above which there is only NaN."""
_CODES = (np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.int64))


def load() -> None:
    """Compile what steps call on float32, or take it from disk, so that no step has to wait for it."""
    ops, x, positions = HostOps(), np.zeros(1, np.float32), np.zeros(1, np.int64)
    kernels.positions_from(x, np.float32(1), positions, x)
    ops.add_finite(x, 0, x)
    ops.clear(x, positions)
    ops.scatter_add(x, positions, x)
    ops.row_norm(x, 1)
    for dtype in _CODES:
        ops.unpack(ops.pack(positions.astype(dtype), 1), 1, 1, dtype.name)


class HostOps(NumpyOps):
    """:class:`hvd_adaptive.ops.Ops` on ``numpy.ndarray``, with the results of :class:`NumpyOps`."""

    def add_finite(self, x: NDArray, start: int, values: NDArray) -> tuple[NDArray, bool]:
        if x.dtype != values.dtype or x.dtype not in _COMPILED:
            return super().add_finite(x, start, values)
        part = x[start : start + values.size]
        added = kernels.add_while_finite(part, _read_only(values))
        if added == part.size:
            return x, True
        part[:added] -= values[:added]
        return x, False

    def clear(self, x: NDArray, positions: NDArray) -> NDArray:
        if x.dtype not in _COMPILED or positions.dtype != np.int64:
            return super().clear(x, positions)
        kernels.clear_at(x, _read_only(positions))
        return x

    def scatter_add(self, x: NDArray, positions: NDArray, values: NDArray) -> NDArray:
        if x.dtype not in _COMPILED or x.dtype != values.dtype or positions.dtype != np.int64:
            return super().scatter_add(x, positions, values)
        kernels.add_at(x, _read_only(positions), _read_only(values))
        return x

    def top_positions(self, x: NDArray, k: int) -> NDArray:
        found = selection.top_positions(x, k)
        return super().top_positions(x, k) if found is None else found

    def largest_first(self, x: NDArray) -> NDArray:
        if x.dtype != np.float32 or not 0 < x.size < 2**32:
            return super().largest_first(x)
        # Floats that are not negative are in the order of their bits. Below those, the place makes every key another, so that
        # the fastest sort will do.
        keys = np.abs(x).view(np.uint32).astype(np.uint64)
        if keys.max() > _INFINITE:
            return super().largest_first(x)  # which knows where NaN goes
        keys = (_INFINITE - keys) << np.uint64(32) | np.arange(x.size, dtype=np.uint64)
        keys.sort()
        return (keys & np.uint64(2**32 - 1)).view(np.int64)

    def row_norm(self, x: NDArray, width: int) -> NDArray:
        if x.dtype != np.float32 or width != x.size:
            return super().row_norm(x, width)
        norm = math.sqrt(kernels.sum_of_squares(_read_only(x)))
        return np.full(1, min(norm, float(np.finfo(np.float32).max)), np.float32)

    def pack(self, codes: NDArray, bits: int) -> NDArray:
        if not bits or codes.dtype not in _CODES:
            return super().pack(codes, bits)
        packed = np.zeros(bits * -(-codes.size // 8), np.uint8)
        kernels.pack_onto(packed, _read_only(codes), bits)
        return packed

    def unpack(self, packed: NDArray, bits: int, n: int, dtype: str) -> NDArray:
        if not bits or np.dtype(dtype) not in _CODES:
            return super().unpack(packed, bits, n, dtype)
        codes = np.zeros(n, dtype)
        kernels.unpack_onto(codes, _read_only(packed), bits)
        return codes


def _read_only(x: NDArray) -> NDArray:
    """A view; memory that frameworks lend for reading only would be compiled for apart."""
    view = x.view()
    view.flags.writeable = False
    return view
