"""Half precision: every element travels as a float16.

Contract  |x - D(C(x))| <= 2^-11 |x| for 2^-14 <= |x| <= 65504; beyond, the element becomes infinite.
On wire   f16[n].
Source    stock Horovod's Compression.fp16.
Differs   may be gathered, where the sum is then taken in the gradient's own precision.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive.compress.base import ExchangeName, FloatPayload, Payload
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key


@dataclass(frozen=True)
class Half(FloatPayload):
    """Send every element as float16, half the bytes of float32."""

    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("reduce", "gather")
    biased: ClassVar[bool] = False
    carries_all: ClassVar[bool] = True

    def encode(self, ops: Ops, x: Array, key: Key) -> Payload:
        return Payload((ops.cast(x, "float16"),), ops.size(x), ops.dtype(x))

    def decode(self, ops: Ops, payload: Payload, key: Key, onto: Array | None = None, weight: float = 1.0) -> Array:
        values = ops.cast(payload.arrays[0], payload.dtype)
        if onto is None:
            return values if weight == 1.0 else ops.scale(values, weight)
        return ops.add_slice(onto, 0, values, weight)

    def keep_back(self, ops: Ops, x: Array, payload: Payload, key: Key) -> Array:
        rest = x - ops.cast(payload.arrays[0], payload.dtype)
        return ops.where(abs(rest) < math.inf, rest, ops.zeros(payload.n, payload.dtype, like=x))  # an overflow is sent, not kept

    def kept(self, n: int) -> int:
        return n
