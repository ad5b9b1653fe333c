"""No compression: the gradient itself travels.

Contract  D(C(x)) = x.
On wire   f[n] in the gradient's dtype.
Source    stock Horovod's Compression.none.
Differs   may be gathered or sent as one vector per unit, and widens bfloat16, which Horovod cannot reduce.
"""

from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive.compress.base import ExchangeName, FloatPayload, Payload
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key


@dataclass(frozen=True)
class Identity(FloatPayload):
    """Send every element as it is."""

    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("reduce", "gather")
    biased: ClassVar[bool] = False
    carries_all: ClassVar[bool] = True

    def encode(self, ops: Ops, x: Array, key: Key) -> Payload:
        return Payload((x,), ops.size(x), ops.dtype(x))

    def decode(self, ops: Ops, payload: Payload, key: Key, onto: Array | None = None, weight: float = 1.0) -> Array:
        (values,) = payload.arrays
        if onto is None:
            return values if weight == 1.0 else ops.scale(values, weight)
        return ops.add_slice(onto, 0, values, weight)

    def keep_back(self, ops: Ops, x: Array, payload: Payload, key: Key) -> Array:
        return ops.zeros(payload.n, payload.dtype, like=x)  # x may travel at this moment, so it is not cleared in place

    def kept(self, n: int) -> int:
        return n
