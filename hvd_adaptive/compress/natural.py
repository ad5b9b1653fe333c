"""Natural compression: every element is rounded at random to one of the two powers of two around it.

Contract  D(C(x))_i is sign(x_i) 2^floor(log2 |x_i|) or twice that, so that the mean is exact: unbiased, variance at most ||x||^2
          / 8.
On wire   codes of 8 bits [n], float32's exponents, and of 1 bit [n], the signs.
Source    Horvath et al. 2019, "Natural Compression for Distributed Deep Learning", arXiv:1905.10988.
Differs   below 2^-126 the neighbours are 0 and 2^-126; beyond 2^127, where the upper one is infinite, the lower one is taken.
"""

from dataclasses import dataclass

from hvd_adaptive.compress.base import Compressor, Field, Payload, add_weighted
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw, uniform

_LARGEST_EXPONENT = 254
_MANTISSA = 2**23


@dataclass(frozen=True)
class NaturalCompression(Compressor):
    """Send the sign and exponent of every element."""

    def omega(self, n: int) -> float:
        """1 / 8 where every element is normal"""
        return 1 / 8

    def encode(self, ops: Ops, x: Array, draw: Draw) -> Payload:
        n = ops.size(x)
        bits = ops.from_bytes(ops.to_bytes(ops.cast(x, "float32")), "int32")
        up = uniform(ops, draw.own, n, x) * _MANTISSA < ops.cast(bits & (_MANTISSA - 1), "float32")
        exponent = ops.at_most((ops.shift_right(bits, 23) & 0xFF) + ops.cast(up, "int32"), _LARGEST_EXPONENT)
        fields = Field(ops.cast(exponent, "uint8"), 8), Field(ops.cast(bits < 0, "uint8"), 1)
        return Payload(fields, n, ops.dtype(x), n)

    def decode(self, ops: Ops, payload: Payload, draw: Draw, onto: Array | None = None, weight: float = 1.0) -> Array:
        exponents, negative = (field.array for field in payload.fields)
        powers = ops.from_bytes(ops.to_bytes(ops.shift_left(ops.cast(exponents, "int32"), 23)), "float32")
        values = powers * (1.0 - 2.0 * ops.cast(negative, "float32"))
        return add_weighted(ops, ops.cast(values, payload.dtype), onto, weight)
