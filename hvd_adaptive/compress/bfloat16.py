"""bfloat16: every element travels with 8 bits of precision and float32's range.

Contract  |x - D(C(x))| <= 2^-8 |x| for normal x.
On wire   i16[n], the bits of the bfloat16.
Source    Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training", arXiv:1905.12322.
Differs   gathered, because Horovod reduces no bfloat16; the sum is taken in the gradient's own precision.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from hvd_adaptive.compress.base import ExchangeName, Payload
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key

_NAN_BITS = 0x7FC0


@dataclass(frozen=True)
class BFloat16:
    """Send every element as bfloat16, half the bytes of float32."""

    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("gather",)
    biased: ClassVar[bool] = False
    carries_all: ClassVar[bool] = True

    def encode(self, ops: Ops, x: Array, key: Key) -> Payload:
        return Payload((ops.to_bfloat16_bits(x),), ops.size(x), ops.dtype(x))

    def decode(self, ops: Ops, payload: Payload, key: Key, onto: Array | None = None, weight: float = 1.0) -> Array:
        values = ops.from_bfloat16_bits(payload.arrays[0], payload.dtype)
        if onto is None:
            return values if weight == 1.0 else ops.scale(values, weight)
        return ops.add_slice(onto, 0, values, weight)

    def keep_back(self, ops: Ops, x: Array, payload: Payload, key: Key) -> Array:
        return ops.add_slice(x, 0, ops.from_bfloat16_bits(payload.arrays[0], payload.dtype), -1.0)

    def kept(self, n: int) -> int:
        return n

    def poison(self, ops: Ops, payload: Payload) -> Payload:
        return replace(payload, arrays=(ops.full_like(payload.arrays[0], _NAN_BITS),))

    def is_poisoned(self, ops: Ops, payload: Payload) -> bool:
        return ops.starts_with_nan(ops.from_bfloat16_bits(ops.slice(payload.arrays[0], 0, 1), "float32"))
