"""bfloat16: every element travels with 8 bits of precision and float32's range.

Contract  |x - D(C(x))| <= 2^-8 |x| for normal x.
On wire   i16[n], the bits of the bfloat16.
Source    Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training", arXiv:1905.12322.
Differs   gathered, because Horovod reduces no bfloat16; the sum is taken in the gradient's own precision.
"""

from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive.compress.base import ExchangeName
from hvd_adaptive.compress.dense import Dense
from hvd_adaptive.ops import Array, Ops


@dataclass(frozen=True)
class BFloat16(Dense):
    """Send every element as bfloat16, half the bytes of float32."""

    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("gather", "two-sided")

    def omega(self, n: int) -> float:
        """(1 + 2^-8)^2 - 1 where every element is normal"""
        return (1 + 2.0**-8) ** 2 - 1

    def shorten(self, ops: Ops, x: Array) -> Array:
        return ops.to_bfloat16_bits(x)

    def restore(self, ops: Ops, values: Array, dtype: str) -> Array:
        return ops.from_bfloat16_bits(values, dtype)
