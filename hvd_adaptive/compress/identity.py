"""No compression: the gradient itself travels.

Contract  D(C(x)) = x.
On wire   f[n] in the gradient's dtype.
Source    stock Horovod's Compression.none.
Differs   may be gathered or sent as one vector per unit, and widens bfloat16, which Horovod cannot reduce.
"""

from dataclasses import dataclass

from hvd_adaptive.compress.base import Payload
from hvd_adaptive.compress.dense import Dense
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class Identity(Dense):
    """Send every element as it is."""

    def omega(self, n: int) -> float:
        """0"""
        return 0.0

    def shorten(self, ops: Ops, x: Array) -> Array:
        return x

    def keep_back(self, ops: Ops, x: Array, payload: Payload, draw: Draw) -> Array:
        return ops.full_like(x, 0.0)  # the payload is x, or is what a mean made of it
