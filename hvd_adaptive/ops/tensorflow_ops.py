"""The TensorFlow backend.

In the host's memory an array is a ``numpy.ndarray`` over the tensor's own memory: TensorFlow's kernels there take subnormals for
zero, which would leak, overwrite nothing in place, and cost ten times as much a call. On any other device it is a ``tf.Tensor``,
and stays one. Tensors come in by :meth:`TensorFlowOps.flatten`; TensorFlow takes arrays wherever it takes tensors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hvd_adaptive.ops import Array, ascending, mixing, packing
from hvd_adaptive.ops.host_ops import HostOps

_HOST, _NOTHING = HostOps(), np.empty(0)
_BFLOAT16 = tf.bfloat16.as_numpy_dtype
"""Which TensorFlow adds to numpy's."""


def _on_host(x: Array) -> bool:
    return isinstance(x, np.ndarray)


class TensorFlowOps:
    """:class:`hvd_adaptive.ops.Ops` on eager tensors: ``numpy.ndarray`` on the host, ``tf.Tensor`` elsewhere."""

    def dtype(self, x: Array) -> str:
        return x.dtype.name

    def size(self, x: Array) -> int:
        return x.size if _on_host(x) else x.shape.num_elements()

    def nbytes(self, x: Array) -> int:
        return self.size(x) * (x.dtype.itemsize if _on_host(x) else x.dtype.size)

    def from_numpy(self, x: npt.NDArray[Any], like: Array | None = None) -> Array:
        if like is None or _on_host(like):
            return x.copy()
        with tf.device(like.device):
            return tf.constant(x)

    def to_numpy(self, x: Array) -> npt.NDArray[Any]:
        return x if _on_host(x) else _memory(x)

    def zeros(self, n: int, dtype: str, like: Array) -> Array:
        if _on_host(like):
            return _HOST.zeros(n, dtype, like)
        with tf.device(like.device):
            return tf.zeros(n, dtype)

    def arange(self, n: int, like: Array) -> Array:
        if _on_host(like):
            return _HOST.arange(n, like)
        with tf.device(like.device):
            return tf.range(n, dtype=tf.int64)

    def flatten(self, x: Array) -> Array:
        if not _on_host(x) and "CPU" not in x.backing_device:
            return tf.reshape(x, [-1])
        return _HOST.flatten(self.to_numpy(x))

    def cast(self, x: Array, dtype: str) -> Array:
        return _HOST.cast(x, dtype) if _on_host(x) else tf.cast(x, dtype)

    def where(self, mask: Array, x: Array, y: Array) -> Array:
        return _HOST.where(mask, x, y) if _on_host(mask) else tf.where(mask, x, y)

    def any(self, mask: Array) -> bool:
        return _HOST.any(mask) if _on_host(mask) else bool(tf.reduce_any(mask))

    def all_finite(self, x: Array) -> bool:
        return _HOST.all_finite(x) if _on_host(x) else bool(tf.reduce_all(tf.math.is_finite(x)))

    def starts_with_nan(self, x: Array) -> bool:
        return self.size(x) > 0 and bool(np.isnan(x[0]) if _on_host(x) else tf.math.is_nan(x[0]))

    def full_like(self, x: Array, value: float) -> Array:
        return _HOST.full_like(x, value) if _on_host(x) else tf.fill(x.shape, _scalar(value, x))

    def slice(self, x: Array, start: int, stop: int) -> Array:
        return x[start:stop]

    def set_slice(self, x: Array, start: int, values: Array) -> Array:
        if _on_host(x):
            return _HOST.set_slice(x, start, values)
        return tf.concat([x[:start], tf.cast(values, x.dtype), x[start + self.size(values) :]], 0)

    def add_slice(self, x: Array, start: int, values: Array, weight: float = 1.0) -> Array:
        if _on_host(x):
            return _HOST.add_slice(x, start, values, weight)
        added = tf.cast(values, x.dtype) if weight == 1.0 else tf.cast(values, x.dtype) * _scalar(weight, x)
        return self.set_slice(x, start, x[start : start + self.size(values)] + added)

    def add_finite(self, x: Array, start: int, values: Array) -> tuple[Array, bool]:
        if _on_host(x):
            return _HOST.add_finite(x, start, values)
        total = x[start : start + self.size(values)] + tf.cast(values, x.dtype)
        return (self.set_slice(x, start, total), True) if self.all_finite(total) else (x, False)

    def scale(self, x: Array, weight: float) -> Array:
        return _HOST.scale(x, weight) if _on_host(x) else x * _scalar(weight, x)

    def shift_left(self, x: Array, bits: int) -> Array:
        return x << bits if _on_host(x) else tf.bitwise.left_shift(x, _scalar(bits, x))

    def shift_right(self, x: Array, bits: int) -> Array:
        return x >> bits if _on_host(x) else tf.bitwise.right_shift(x, _scalar(bits, x))

    def take(self, x: Array, positions: Array) -> Array:
        return _HOST.take(x, positions) if _on_host(x) else tf.gather(x, positions)

    def clear(self, x: Array, positions: Array) -> Array:
        if _on_host(x):
            return _HOST.clear(x, positions)
        return tf.tensor_scatter_nd_update(x, positions[:, None], tf.zeros(positions.shape, x.dtype))

    def scatter_add(self, x: Array, positions: Array, values: Array) -> Array:
        return _HOST.scatter_add(x, positions, values) if _on_host(x) else tf.tensor_scatter_nd_add(x, positions[:, None], values)

    def top_positions(self, x: Array, k: int) -> Array:
        if _on_host(x):
            return _HOST.top_positions(x, k)
        return tf.sort(tf.math.top_k(abs(x), min(k, self.size(x)), sorted=False, index_type=tf.int64).indices)

    def largest_first(self, x: Array) -> Array:
        return _HOST.largest_first(x) if _on_host(x) else tf.math.top_k(abs(x), self.size(x), index_type=tf.int64).indices

    def count(self, mask: Array) -> int:
        return _HOST.count(mask) if _on_host(mask) else int(tf.math.count_nonzero(mask))

    def smallest(self, x: Array) -> Array:
        return _HOST.smallest(x) if _on_host(x) else tf.reduce_min(x, keepdims=True)

    def nonzero(self, mask: Array, count: int | None = None) -> Array:
        return _HOST.nonzero(mask, count) if _on_host(mask) else tf.reshape(tf.where(mask), [-1])

    def ascending(self, positions: Array) -> Array:
        return _HOST.ascending(positions) if _on_host(positions) else tf.sort(positions)

    def sign(self, x: Array) -> Array:
        return _HOST.sign(x) if _on_host(x) else tf.sign(x)

    def floor(self, x: Array) -> Array:
        return _HOST.floor(x) if _on_host(x) else tf.floor(x)

    def at_most(self, x: Array, limit: float) -> Array:
        return _HOST.at_most(x, limit) if _on_host(x) else tf.minimum(x, _scalar(limit, x))

    def row_max(self, x: Array, width: int) -> Array:
        return _HOST.row_max(x, width) if _on_host(x) else tf.reduce_max(abs(self._rows(x, width)), 1)

    def row_sum(self, x: Array, width: int) -> Array:
        return _HOST.row_sum(x, width) if _on_host(x) else tf.reduce_sum(tf.cast(self._rows(x, width), tf.float64), 1)

    def row_norm(self, x: Array, width: int) -> Array:
        if _on_host(x):
            return _HOST.row_norm(x, width)
        rows = tf.cast(self._rows(x, width), tf.float64)
        largest = tf.reduce_max(abs(rows), 1)
        safe = tf.where(largest > 0, largest, 1.0)  # squares of the largest floats would overflow, of the smallest vanish
        norms = largest * tf.sqrt(tf.reduce_sum(tf.square(rows / safe[:, None]), 1))
        return tf.cast(tf.minimum(norms, x.dtype.max), x.dtype)

    def repeat(self, x: Array, times: int, n: int) -> Array:
        return _HOST.repeat(x, times, n) if _on_host(x) else x if self.size(x) == 1 else tf.repeat(x, times)[:n]

    def matrix(self, x: Array, rows: int, columns: int) -> Array:
        if _on_host(x):
            return _HOST.matrix(x, rows, columns)
        missing = rows * columns - self.size(x)
        return tf.reshape(tf.pad(x, [[0, missing]]) if missing else x, [rows, columns])

    def matmul(self, x: Array, y: Array) -> Array:
        return _HOST.matmul(x, y) if _on_host(x) else tf.matmul(x, y)

    def transpose(self, x: Array) -> Array:
        return _HOST.transpose(x) if _on_host(x) else tf.transpose(x)

    def orthonormal(self, x: Array) -> Array:
        return _HOST.orthonormal(x) if _on_host(x) else tf.linalg.qr(x)[0]

    def uniform(self, n: int, keys: Sequence[tuple[int, int]], like: Array) -> Array:
        return _HOST.uniform(n, keys, like) if _on_host(like) else mixing.uniform(self, n, keys, like)

    def sample(self, k: int, n: int, keys: Sequence[tuple[int, int]], bits: int, like: Array) -> Array:
        positions = _HOST.sample(k, n, keys, bits, _NOTHING)
        return positions if _on_host(like) else self.from_numpy(positions, like)

    def levels_of(self, x: Array, scale: Array, width: int, first: int, levels: int, numbers: Array) -> Array:
        if _on_host(x):
            return _HOST.levels_of(x, scale, width, first, levels, numbers)
        return mixing.levels_of(self, x, scale, width, first, levels, numbers)

    def at_once(self, x: Array) -> int:
        return _HOST.at_once(x) if _on_host(x) else max(1, self.size(x))

    def pack(self, codes: Array, bits: int) -> Array:
        return _HOST.pack(codes, bits) if _on_host(codes) else packing.pack(self, codes, bits)

    def unpack(self, packed: Array, bits: int, n: int, dtype: str) -> Array:
        return _HOST.unpack(packed, bits, n, dtype) if _on_host(packed) else packing.unpack(self, packed, bits, n, dtype)

    def _rows(self, x: Array, width: int) -> Array:
        return self.matrix(x, -(-self.size(x) // width), width)

    def encode_positions(self, positions: Array, n: int) -> Array:
        return _HOST.encode_positions(positions, n) if _on_host(positions) else ascending.encode(self, positions, n)

    def decode_positions(self, coded: Array, k: int, n: int) -> Array:
        return _HOST.decode_positions(coded, k, n) if _on_host(coded) else ascending.decode(self, coded, k, n)

    def to_bfloat16_bits(self, x: Array) -> Array:
        if _on_host(x):
            return _HOST.cast(x, _BFLOAT16).view(np.int16)
        return tf.bitcast(tf.cast(tf.cast(x, tf.float32), tf.bfloat16), tf.int16)

    def from_bfloat16_bits(self, bits: Array, dtype: str) -> Array:
        return _HOST.cast(bits.view(_BFLOAT16), dtype) if _on_host(bits) else tf.cast(tf.bitcast(bits, tf.bfloat16), dtype)

    def to_bytes(self, x: Array) -> Array:
        return _HOST.to_bytes(x) if _on_host(x) else tf.reshape(tf.bitcast(x, tf.uint8), [-1])

    def from_bytes(self, raw: Array, dtype: str) -> Array:
        if _on_host(raw):
            return _HOST.from_bytes(raw, dtype)
        width = tf.as_dtype(dtype).size
        return tf.bitcast(raw if width == 1 else tf.reshape(raw, [-1, width]), dtype)

    def concat(self, arrays: list[Array]) -> Array:
        if len(arrays) == 1:
            return arrays[0]
        return np.concatenate(arrays) if _on_host(arrays[0]) else tf.concat(arrays, 0)


def _memory(x: tf.Tensor) -> npt.NDArray[Any]:
    """The elements of ``x``: on the host its very memory, which nobody may write to."""
    memory = np.asarray(x.__array__())
    memory.flags.writeable = False
    return memory


def _scalar(value: float, like: tf.Tensor) -> tf.Tensor:
    return tf.constant(value, like.dtype)
