"""The reference backend, and the oracle for the others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hvd_adaptive.ops import ascending, mixing, packing
from hvd_adaptive.ops.blocks import BLOCK

NDArray = npt.NDArray[Any]


class NumpyOps:
    """:class:`hvd_adaptive.ops.Ops` on ``numpy.ndarray``."""

    def dtype(self, x: NDArray) -> str:
        return x.dtype.name

    def size(self, x: NDArray) -> int:
        return x.size

    def nbytes(self, x: NDArray) -> int:
        return x.nbytes

    def from_numpy(self, x: NDArray, like: NDArray | None = None) -> NDArray:
        return x.copy()

    def to_numpy(self, x: NDArray) -> NDArray:
        return x

    def zeros(self, n: int, dtype: str, like: NDArray) -> NDArray:
        return np.zeros(n, dtype)

    def arange(self, n: int, like: NDArray) -> NDArray:
        return np.arange(n, dtype=np.int64)

    def flatten(self, x: NDArray) -> NDArray:
        return np.ascontiguousarray(x).reshape(-1)

    def cast(self, x: NDArray, dtype: str) -> NDArray:
        with np.errstate(over="ignore", invalid="ignore"):  # float16 overflows to inf, as every framework's cast does
            return x.astype(dtype, copy=False)

    def where(self, mask: NDArray, x: NDArray, y: NDArray) -> NDArray:
        return np.where(mask, x, y)

    def any(self, mask: NDArray) -> bool:
        return bool(mask.any())

    def all_finite(self, x: NDArray) -> bool:
        return bool(np.isfinite(x).all())

    def starts_with_nan(self, x: NDArray) -> bool:
        return x.size > 0 and bool(np.isnan(x[0]))

    def full_like(self, x: NDArray, value: float) -> NDArray:
        return np.full_like(x, value)

    def slice(self, x: NDArray, start: int, stop: int) -> NDArray:
        return x[start:stop]

    def set_slice(self, x: NDArray, start: int, values: NDArray) -> NDArray:
        x[start : start + values.size] = values
        return x

    def add_slice(self, x: NDArray, start: int, values: NDArray, weight: float = 1.0) -> NDArray:
        x[start : start + values.size] += values if weight == 1.0 else x.dtype.type(weight) * values
        return x

    def add_finite(self, x: NDArray, start: int, values: NDArray) -> tuple[NDArray, bool]:
        with np.errstate(over="ignore", invalid="ignore"):
            total = (x[start : start + values.size] + values).astype(x.dtype, copy=False)
        if not self.all_finite(total):
            return x, False
        return self.set_slice(x, start, total), True

    def scale(self, x: NDArray, weight: float) -> NDArray:
        scaled: NDArray = x * x.dtype.type(weight)
        return scaled

    def shift_left(self, x: NDArray, bits: int) -> NDArray:
        return x << bits

    def shift_right(self, x: NDArray, bits: int) -> NDArray:
        return x >> bits

    def take(self, x: NDArray, positions: NDArray) -> NDArray:
        return x[positions]

    def clear(self, x: NDArray, positions: NDArray) -> NDArray:
        x[positions] = 0
        return x

    def scatter_add(self, x: NDArray, positions: NDArray, values: NDArray) -> NDArray:
        x[positions] += values
        return x

    def top_positions(self, x: NDArray, k: int) -> NDArray:
        if k >= x.size:
            return np.arange(x.size)
        return np.sort(np.argpartition(np.abs(x), x.size - k)[x.size - k :])

    def largest_first(self, x: NDArray) -> NDArray:
        return np.argsort(-np.abs(x), kind="stable")

    def count(self, mask: NDArray) -> int:
        return int(np.count_nonzero(mask))

    def smallest(self, x: NDArray) -> NDArray:
        return x.min(keepdims=True)

    def nonzero(self, mask: NDArray, count: int | None = None) -> NDArray:
        return np.flatnonzero(mask)

    def ascending(self, positions: NDArray) -> NDArray:
        return np.sort(positions)

    def sign(self, x: NDArray) -> NDArray:
        return np.sign(x)

    def floor(self, x: NDArray) -> NDArray:
        return np.floor(x)

    def at_most(self, x: NDArray, limit: float) -> NDArray:
        return np.minimum(x, x.dtype.type(limit))

    def row_max(self, x: NDArray, width: int) -> NDArray:
        return np.abs(self._rows(x, width)).max(1)

    def row_sum(self, x: NDArray, width: int) -> NDArray:
        return self._rows(x, width).sum(1, dtype=np.float64)

    def row_norm(self, x: NDArray, width: int) -> NDArray:
        rows = self._rows(x, width)
        if x.dtype == np.float64:  # squares of the largest floats would overflow, of the smallest vanish
            largest = np.abs(rows).max(1)
            rows = rows / np.where(largest > 0, largest, 1.0)[:, None]
            with np.errstate(over="ignore"):
                norms = largest * np.sqrt(np.square(rows).sum(1))
        else:
            norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        return np.minimum(norms, np.finfo(x.dtype).max).astype(x.dtype)

    def repeat(self, x: NDArray, times: int, n: int) -> NDArray:
        return x if x.size == 1 else np.repeat(x, times)[:n]

    def matrix(self, x: NDArray, rows: int, columns: int) -> NDArray:
        if x.size < rows * columns:
            x = np.concatenate([x, np.zeros(rows * columns - x.size, x.dtype)])
        return x.reshape(rows, columns)

    def matmul(self, x: NDArray, y: NDArray) -> NDArray:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, as in every framework
            product: NDArray = x @ y
        return product

    def transpose(self, x: NDArray) -> NDArray:
        return x.T

    def orthonormal(self, x: NDArray) -> NDArray:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.linalg.qr(x)[0]

    def uniform(self, n: int, keys: Sequence[tuple[int, int]], like: NDArray) -> NDArray:
        return mixing.uniform(self, n, keys, like)

    def sample(self, k: int, n: int, keys: Sequence[tuple[int, int]], bits: int, like: NDArray) -> NDArray:
        return mixing.sample(self, k, n, keys, bits, like)

    def levels_of(self, x: NDArray, scale: NDArray, width: int, first: int, levels: int, numbers: NDArray) -> NDArray:
        return mixing.levels_of(self, x, scale, width, first, levels, numbers)

    def at_once(self, x: NDArray) -> int:
        return BLOCK

    def pack(self, codes: NDArray, bits: int) -> NDArray:
        return packing.pack(self, codes, bits)

    def unpack(self, packed: NDArray, bits: int, n: int, dtype: str) -> NDArray:
        return packing.unpack(self, packed, bits, n, dtype)

    def _rows(self, x: NDArray, width: int) -> NDArray:
        return self.matrix(x, -(-x.size // width), width)

    def encode_positions(self, positions: NDArray, n: int) -> NDArray:
        return np.asarray(ascending.encode(self, positions, n))

    def decode_positions(self, coded: NDArray, k: int, n: int) -> NDArray:
        return np.asarray(ascending.decode(self, coded, k, n))

    def to_bfloat16_bits(self, x: NDArray) -> NDArray:
        bits = self.cast(x, "float32").view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x40)  # rounding could carry a NaN's bits into an infinity
        return np.where(np.isnan(x), quiet_nan, rounded).astype(np.uint16).view(np.int16)

    def from_bfloat16_bits(self, bits: NDArray, dtype: str) -> NDArray:
        return (bits.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(dtype, copy=False)

    def to_bytes(self, x: NDArray) -> NDArray:
        return x.view(np.uint8)

    def from_bytes(self, raw: NDArray, dtype: str) -> NDArray:
        return raw.view(dtype)

    def concat(self, arrays: list[NDArray]) -> NDArray:
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
