"""1-bit SGD: every element becomes the mean of the unit's elements of its own sign.

Contract  D(C(x))_i is the mean of all x_j >= 0 if x_i >= 0, else the mean of all x_j < 0. Biased, so error feedback is on by
          default.
On wire   codes of 1 bit [n] and two means f32[2].
Source    Seide et al. 2014, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training".
Differs   one pair of means for the unit, where the authors take one for each column of a matrix.
"""

from dataclasses import dataclass

from hvd_adaptive.compress.base import Contraction, Field, Payload, add_weighted, at_least_single, dtype_bits
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class OneBit(Contraction):
    """Send which of two means every element is nearest to in sign."""

    def encode(self, ops: Ops, x: Array, draw: Draw) -> Payload:
        n, dtype = ops.size(x), ops.dtype(x)
        x = at_least_single(ops, x)
        positive = x >= 0
        count = ops.count(positive)
        nothing = ops.full_like(x, 0.0)
        above = ops.row_sum(ops.where(positive, x, nothing), n) / (count + (count == 0))  # at least 1, also of what is not read
        below = ops.row_sum(ops.where(positive, nothing, x), n) / (n - count + (count == n))
        means = ops.cast(ops.concat([below, above]), ops.dtype(x))
        return Payload((Field(ops.cast(positive, "uint8"), 1), Field(means, dtype_bits(ops.dtype(means)))), n, dtype, n)

    def decode(self, ops: Ops, payload: Payload, draw: Draw, onto: Array | None = None, weight: float = 1.0) -> Array:
        codes, means = (field.array for field in payload.fields)
        values = ops.where(codes == 1, ops.slice(means, 1, 2), ops.slice(means, 0, 1))
        return add_weighted(ops, ops.cast(values, payload.dtype), onto, weight)
