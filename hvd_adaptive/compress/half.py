"""Half precision: every element travels as a float16.

Contract  |x - D(C(x))| <= 2^-11 |x| for 2^-14 <= |x| <= 65504; beyond, the element becomes infinite.
On wire   f16[n].
Source    stock Horovod's Compression.fp16.
Differs   may be gathered, where the sum is then taken in the gradient's own precision.
"""

import math
from dataclasses import dataclass

from hvd_adaptive.compress.base import Payload
from hvd_adaptive.compress.dense import Dense
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class Half(Dense):
    """Send every element as float16, half the bytes of float32."""

    def omega(self, n: int) -> float:
        """(1 + 2^-11)^2 - 1 where no element is below 2^-14 or overflows"""
        return (1 + 2.0**-11) ** 2 - 1

    def shorten(self, ops: Ops, x: Array) -> Array:
        return ops.cast(x, "float16")

    def keep_back(self, ops: Ops, x: Array, payload: Payload, draw: Draw) -> Array:
        rest = x - ops.cast(payload.fields[0].array, payload.dtype)  # not in place: of a float16 the payload is x itself
        return ops.where(abs(rest) < math.inf, rest, ops.full_like(rest, 0.0))  # an overflow is sent, not kept
