"""What methods share that send a few bits for every element: evenly spaced levels between -scale and +scale.

Code ``c`` from 0 to ``top`` stands for ``scale * (2 c / top - 1)``. Codes under one scale sum, so ranks that share their scales
may add up codes in an allreduce.
"""

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

from hvd_adaptive.compress.base import Compressor, ExchangeName, Field, Payload, add_weighted, at_least_single, dtype_bits
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw, uniform


@dataclass(frozen=True)
class Levels(Compressor):
    """Sends codes of ceil(log2(top + 1)) bits and a scale for each bucket."""

    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("gather", "reduce", "two-sided")

    @property
    def shared_by(self) -> Literal["max", "mean"]:
        """How ranks agree on a scale where codes are summed."""
        return "max"

    @property
    @abc.abstractmethod
    def top(self) -> int:
        """The largest code."""

    def width(self, n: int) -> int:
        """Elements that share a scale."""
        return n

    @abc.abstractmethod
    def scale(self, ops: Ops, x: Array) -> Array:
        """``f[ceil(n / width)]`` for ``x`` f32[n] or f64[n]; none is negative, and each is 0 where all its elements are."""

    @abc.abstractmethod
    def codes(self, ops: Ops, x: Array, scale: Array, draw: Draw) -> Array:
        """``u8[n]``, or ``i32[n]`` where ``top`` needs it, for ``x`` and any ``scale`` that is not less than its own."""

    def values(self, ops: Ops, codes: Array, scale: Array, dtype: str, ranks: int = 1) -> Array:
        """What a code stands for, or the mean over ``ranks`` ranks of which ``codes`` is the sum: ``dtype[n]``."""
        wide = ops.dtype(scale) if 2 * self.top * ranks < 2**24 else "float64"
        fractions = (ops.cast(codes, wide) * 2 - self.top * ranks) / (self.top * ranks)
        n = ops.size(codes)
        values = ops.cast(fractions * ops.repeat(scale, self.width(n), n), dtype)
        return ops.sign(values) if self.votes else values

    def encode(self, ops: Ops, x: Array, draw: Draw) -> Payload:
        n, dtype = ops.size(x), ops.dtype(x)
        x = at_least_single(ops, x)
        scale = self.scale(ops, x)
        codes = self.codes(ops, x, scale, draw)
        return Payload((Field(codes, self.top.bit_length()), Field(scale, dtype_bits(ops.dtype(scale)))), n, dtype, n)

    def decode(self, ops: Ops, payload: Payload, draw: Draw, onto: Array | None = None, weight: float = 1.0) -> Array:
        codes, scale = (field.array for field in payload.fields)
        return add_weighted(ops, self.values(ops, codes, scale, payload.dtype), onto, weight)


def rounded_at_random(ops: Ops, x: Array, scale: Array, levels: int, draw: Draw) -> Array:
    """Codes 0 to 2 ``levels`` of ``levels * x / scale``, rounded up or down at random so that the mean is exact.

    Args:
        scale: ``f[1]`` or ``f[n]``; 0 only where ``x`` is.
    """
    height = abs(x) / ops.where(scale > 0, scale, ops.full_like(scale, 1.0)) * levels
    below = ops.floor(height)
    up = ops.cast(uniform(ops, draw.own, ops.size(x), x), ops.dtype(height)) < height - below
    level = ops.at_most(below + ops.cast(up, ops.dtype(height)), levels) * ops.sign(x)
    return ops.cast(level + levels, code_dtype(2 * levels))


def signs(ops: Ops, x: Array, draw: Draw) -> Array:
    """``u8[n]``: 1 for positive, 0 for negative elements; one bit holds no third, so an element that is 0 tosses a coin."""
    zero = x == 0
    positive = x > 0
    if ops.any(zero):
        positive = ops.where(zero, uniform(ops, draw.own, ops.size(x), x) < 0.5, positive)
    return ops.cast(positive, "uint8")


def row_means(ops: Ops, x: Array, width: int) -> Array:
    """The mean of each ``width`` elements in turn, the last of what is left, in the dtype of ``x``."""
    n = ops.size(x)
    sums = ops.row_sum(x, width)
    counts = ops.full_like(sums, float(width))
    counts = ops.set_slice(counts, ops.size(sums) - 1, ops.full_like(ops.slice(sums, 0, 1), float((n - 1) % width + 1)))
    return ops.cast(sums / counts, ops.dtype(x))


def code_dtype(top: int) -> str:
    """The dtype that codes up to ``top`` are held in."""
    return "uint8" if top < 256 else "int32"
