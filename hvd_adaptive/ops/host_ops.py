"""Numpy's backend where speed counts: compiled loops for what numpy and torch take several passes for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hvd_adaptive.ops import ascending, code_kernels, kernels, selection
from hvd_adaptive.ops.blocks import BLOCK
from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.ops.packing import packed_size

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
    selection.by_counting(x, 1)
    ops.add_finite(x, 0, x)
    ops.clear(x, positions)
    ops.scatter_add(x, positions, x)
    ops.row_norm(x, 1)
    ops.levels_of(x, ops.row_max(x, 1) + 1, 1, 0, 1, ops.uniform(1, [(0, 0)], x))
    ops.row_sum(x, 1)
    ops.sample(1, 1, [(0, 0)], 1, x)
    ops.decode_positions(ops.encode_positions(positions, 1), 1, 1)
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

    def row_max(self, x: NDArray, width: int) -> NDArray:
        if x.dtype not in _COMPILED:
            return super().row_max(x, width)
        kind = np.int32 if x.dtype == np.float32 else np.int64
        bits = np.empty(-(-x.size // width), kind)
        unsigned = kind(np.iinfo(kind).max)
        kernels.largest_onto(bits, _read_only(x).view(kind), width, unsigned)  # bits of NaN are above those of infinity
        return bits.view(x.dtype)

    def row_sum(self, x: NDArray, width: int) -> NDArray:
        if x.dtype not in _COMPILED:
            return super().row_sum(x, width)
        sums = np.empty(-(-x.size // width), np.float64)
        kernels.sums_onto(sums, _read_only(x), width)
        return sums

    def row_norm(self, x: NDArray, width: int) -> NDArray:
        if x.dtype != np.float32:
            return super().row_norm(x, width)
        sums = np.empty(-(-x.size // width), np.float64)
        kernels.sums_of_squares(sums, _read_only(x), width)
        return np.minimum(np.sqrt(sums), np.finfo(np.float32).max).astype(np.float32)

    def uniform(self, n: int, keys: Sequence[tuple[int, int]], like: NDArray) -> NDArray:
        numbers = np.empty(n, np.float32)
        for number, (high, low) in enumerate(keys):
            kernels.uniform_onto(numbers[number * BLOCK : (number + 1) * BLOCK], np.uint32(high), np.uint32(low))
        return numbers

    def sample(self, k: int, n: int, keys: Sequence[tuple[int, int]], bits: int, like: NDArray) -> NDArray:
        positions = np.empty(k, np.int64)
        kernels.sample_onto(positions, n, np.array(keys, np.uint32).reshape(-1, 2), bits, np.empty((3, kernels.PAGE), np.uint32))
        return positions

    def levels_of(self, x: NDArray, scale: NDArray, width: int, first: int, levels: int, numbers: NDArray) -> NDArray:
        if x.dtype not in _COMPILED or scale.dtype != x.dtype:
            return super().levels_of(x, scale, width, first, levels, numbers)
        found = np.empty_like(x)
        kernels.levels_onto(found, _read_only(x), _read_only(scale), width, first, x.dtype.type(levels), _read_only(numbers))
        return found

    def pack(self, codes: NDArray, bits: int) -> NDArray:
        if not bits or codes.dtype not in _CODES:
            return super().pack(codes, bits)
        packed = np.zeros(bits * -(-codes.size // 8), np.uint8)
        code_kernels.pack_onto(packed, _read_only(codes), bits)
        return packed

    def unpack(self, packed: NDArray, bits: int, n: int, dtype: str) -> NDArray:
        if not bits or np.dtype(dtype) not in _CODES:
            return super().unpack(packed, bits, n, dtype)
        codes = np.zeros(n, dtype)
        code_kernels.unpack_onto(codes, _read_only(packed), bits)
        return codes

    def encode_positions(self, positions: NDArray, n: int) -> NDArray:
        k = positions.size
        low = ascending.low_bits(k, n)
        flags, rest = np.zeros(ascending.flags_count(k, n, low), np.uint8), np.empty(k, np.int64)
        code_kernels.climb_onto(flags, rest, _read_only(positions), low)
        return np.concatenate([self.pack(rest, low), self.pack(flags, 1)])

    def decode_positions(self, coded: NDArray, k: int, n: int) -> NDArray:
        low = ascending.low_bits(k, n)
        cut = packed_size(k, low)
        high = np.empty(k + 1, np.int64)
        code_kernels.climbed_onto(high, _read_only(self.unpack(coded[cut:], 1, ascending.flags_count(k, n, low), "uint8")))
        positions = high[:k]
        positions <<= low
        positions |= self.unpack(coded[:cut], low, k, "int64")
        return positions


def _read_only(x: NDArray) -> NDArray:
    """A view; memory that frameworks lend for reading only would be compiled for apart."""
    view = x.view()
    view.flags.writeable = False
    return view
