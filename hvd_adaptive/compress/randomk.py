"""Random-k sparsification: keep k elements chosen uniformly at random, the same positions on every rank.

Contract  E||x - D(C(x))||^2 = (1 - k/n) ||x||^2, and E[D(C(x))] = k/n x, so error feedback is on by default.
          Unbiased, the values are multiplied by n/k, the mean is x, and error feedback is off.
On wire   values f[k]; positions follow from (seed, step, unit), so values of all ranks sum and ride an allreduce.
Source    Dutta et al. 2020, section 5.2, arXiv:1911.08250; Stich et al. 2018, arXiv:1809.07599.
Differs   positions come from a counter-based generator, not from the framework's global one.
"""

from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive import checks
from hvd_adaptive.compress.base import Compressor, ExchangeName, Field, Payload, dtype_bits, kept_count
from hvd_adaptive.feedback import Feedback, NoFeedback, Residual
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw, sample


@dataclass(frozen=True)
class RandomK(Compressor):
    """Keep one in ``factor`` elements of a unit, chosen at random anew each step.

    Args:
        factor: original elements / kept elements, >= 1. 100 keeps 1 %.
        unbiased: multiply what is kept by n/k, so that its mean is the gradient; error feedback is then off by default.

    Raises:
        ConfigError: if ``factor`` is not a finite number >= 1, or ``unbiased`` not a bool.
    """

    factor: float
    unbiased: bool = False
    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("reduce", "gather", "two-sided")

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", checks.factor("RandomK", self.factor))
        checks.flag("RandomK", "unbiased", self.unbiased)

    @property
    def biased(self) -> bool:
        return not self.unbiased

    @property
    def feedback(self) -> Feedback:
        return NoFeedback() if self.unbiased else Residual()

    def omega(self, n: int) -> float:
        """n/k - 1 if unbiased, else k/n - 1 <= 0"""
        k = kept_count(self.factor, n)
        return n / k - 1 if self.unbiased else k / n - 1

    def ranked(self, ops: Ops, x: Array, draw: Draw) -> Array:
        n = ops.size(x)
        return sample(ops, draw.shared, kept_count(self.factor, n), n, x)  # whose start is that of every larger factor

    def encode(self, ops: Ops, x: Array, draw: Draw) -> Payload:
        n = ops.size(x)
        k = kept_count(self.factor, n)
        positions = ops.arange(n, x) if k == n else sample(ops, draw.shared, k, n, x)
        values = ops.take(x, positions)
        return Payload((Field(values, dtype_bits(ops.dtype(x))),), n, ops.dtype(x), k, positions)

    def decode(self, ops: Ops, payload: Payload, draw: Draw, onto: Array | None = None, weight: float = 1.0) -> Array:
        values = payload.fields[0].array
        if self.unbiased:
            weight *= payload.n / payload.kept
        if onto is None:
            onto = ops.zeros(payload.n, payload.dtype, like=values)
        return ops.scatter_add(onto, payload.support, values if weight == 1.0 else ops.scale(values, weight))

    def keep_back(self, ops: Ops, x: Array, payload: Payload, draw: Draw) -> Array:
        if not self.unbiased:
            return ops.clear(x, payload.support)
        return self.decode(ops, payload, draw, x, -1.0)

    def positions(self, payload: Payload) -> Array | None:
        return payload.support
