"""What methods share that send a few bits for every element: evenly spaced levels between -scale and +scale.

Code ``c`` from 0 to ``top`` stands for ``scale * (2 c / top - 1)``. Codes under one scale sum, so ranks that share their scales
may add up codes in an allreduce.
"""

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

from hvd_adaptive.compress.base import Compressor, ExchangeName, Field, Payload, at_least_single, dtype_bits
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.ops.blocks import in_blocks
from hvd_adaptive.ops.mixing import spread
from hvd_adaptive.prng import Draw, uniform

_MOST_LISTED = 2**12
"""Codes of which a table tells what they stand for, which stays in a core's cache."""


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
        return self.add_values(ops, codes, scale, dtype, None, 1.0, ranks)

    def add_values(
        self, ops: Ops, codes: Array, scale: Array, dtype: str, onto: Array | None, weight: float, ranks: int = 1
    ) -> Array:
        """``onto + weight * values``; donates ``onto``."""
        n, top, width = ops.size(codes), self.top * ranks, self.width(ops.size(codes))
        wide = ops.dtype(scale) if 2 * top < 2**24 else "float64"
        put = ops.set_slice if onto is None else ops.add_slice

        def fractions(numbers: Array) -> Array:
            return (ops.cast(numbers, wide) * 2 - top) / top

        table = fractions(ops.arange(top + 1, codes)) if top < min(n, _MOST_LISTED) else None
        total = ops.zeros(n, dtype, like=codes) if onto is None else onto
        step = ops.at_once(codes)
        for start in range(0, n, step):
            stop = min(start + step, n)
            part = ops.slice(codes, start, stop)
            heights = fractions(part) if table is None else ops.take(table, ops.cast(part, "int64"))
            scales = ops.slice(scale, start // width, -(-stop // width))
            values = ops.cast(heights * spread(ops, scales, width, start % width, stop - start), dtype)
            values = ops.sign(values) if self.votes else values
            total = put(total, start, values if weight == 1.0 else ops.scale(values, weight))
        return total

    def encode(self, ops: Ops, x: Array, draw: Draw) -> Payload:
        n, dtype = ops.size(x), ops.dtype(x)
        x = at_least_single(ops, x)
        scale = self.scale(ops, x)
        codes = self.codes(ops, x, scale, draw)
        return Payload((Field(codes, self.top.bit_length()), Field(scale, dtype_bits(ops.dtype(scale)))), n, dtype, n)

    def decode(self, ops: Ops, payload: Payload, draw: Draw, onto: Array | None = None, weight: float = 1.0) -> Array:
        codes, scale = (field.array for field in payload.fields)
        return self.add_values(ops, codes, scale, payload.dtype, onto, weight)


def rounded_at_random(ops: Ops, x: Array, scale: Array, width: int, levels: int, draw: Draw, limit: Array | None = None) -> Array:
    """Codes 0 to 2 ``levels`` of ``levels * x / scale``, rounded up or down at random so that the mean is exact.

    Args:
        scale: one for each ``width`` elements; 0 only where all of them are.
        limit: ``f[1]``, to which magnitudes are cut first; None cuts none.
    """
    scale = ops.where(scale > 0, scale, ops.full_like(scale, 1.0))

    def codes(start: int, stop: int) -> Array:
        part = ops.slice(x, start, stop)
        if limit is not None:
            part = ops.where(abs(part) > limit, ops.sign(part) * limit, part)
        scales = ops.slice(scale, start // width, -(-stop // width))
        level = ops.levels_of(part, scales, width, start % width, levels, uniform(ops, draw.own, stop - start, part, start))
        return ops.cast(level + levels, code_dtype(2 * levels))

    return in_blocks(ops, x, codes)


def signs(ops: Ops, x: Array, draw: Draw) -> Array:
    """``u8[n]``: 1 for positive, 0 for negative elements; one bit holds no third, so an element that is 0 tosses a coin."""

    def codes(start: int, stop: int) -> Array:
        part = ops.slice(x, start, stop)
        zero, positive = part == 0, part > 0
        if ops.any(zero) is not False:
            positive = ops.where(zero, uniform(ops, draw.own, stop - start, part, start) < 0.5, positive)
        return ops.cast(positive, "uint8")

    return in_blocks(ops, x, codes)


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
