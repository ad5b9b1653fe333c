"""Deep gradient compression: about the k largest elements, found by a threshold that a sample tells.

Contract  at most k elements, none smaller in magnitude than one left behind. Biased; feedback is momentum correction by default.
On wire   values f[k] and positions of about 2 + log2(n/k) bits; the number differs by rank and step.
Source    Lin et al. 2018, "Deep Gradient Compression", arXiv:1712.01887.
Differs   clipping by the norm of the unit, which entire-model is the model's. A threshold found too high is lowered, by a fifth
          and at most ten times; found too low, the k largest of what it let through are taken.
"""

from dataclasses import dataclass

from hvd_adaptive import checks
from hvd_adaptive.compress.base import kept_count
from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.feedback import MomentumCorrection
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw, sample

_SMALLEST_SAMPLE = 256
"""A sample of fewer tells little; units that have no more are looked through."""
_FEW = 0.8
_LOWER = 0.8
_TRIES = 10


@dataclass(frozen=True)
class DGC(Sparse):
    """Keep about one in ``factor`` elements of a unit, and correct the momentum for what waits.

    The momentum lives here, so the optimizer must be plain SGD without one.

    Args:
        factor: original elements / kept elements, >= 1. 1000 keeps 0.1 %.
        momentum: from 0 to below 1; see :class:`hvd_adaptive.MomentumCorrection` for this and the next three.
        nesterov: take Nesterov's momentum.
        clip: largest norm of the mean gradient of a unit; None clips nothing.
        masking: forget the momentum of what was sent.
        sample: fraction of the elements that the threshold is estimated from.

    Raises:
        ConfigError: if one of them is not legal.
    """

    factor: float
    momentum: float = 0.9
    nesterov: bool = False
    clip: float | None = None
    masking: bool = True
    sample: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", checks.factor("DGC", self.factor))
        object.__setattr__(self, "sample", checks.number("DGC", "sample", self.sample, 1e-6, 1))
        for name in ("momentum", "clip"):
            object.__setattr__(self, name, getattr(self.feedback, name))

    @property
    def feedback(self) -> MomentumCorrection:
        return MomentumCorrection(self.momentum, self.nesterov, self.clip, self.masking)

    def select(self, ops: Ops, x: Array, draw: Draw) -> Array:
        n = ops.size(x)
        k = kept_count(self.factor, n)
        looked_at = int(max(_SMALLEST_SAMPLE, n * self.sample))
        if looked_at >= n:
            return ops.top_positions(x, k)
        sampled = ops.take(x, sample(ops, draw.own, looked_at, n, x))
        largest = ops.take(sampled, ops.top_positions(sampled, kept_count(self.factor, looked_at)))
        threshold = ops.smallest(abs(largest))
        magnitude = abs(x)
        positions = ops.nonzero((magnitude >= threshold) & (magnitude > 0))
        for _ in range(_TRIES):
            if ops.size(positions) >= _FEW * k:
                break
            threshold = ops.scale(threshold, _LOWER)
            positions = ops.nonzero((magnitude >= threshold) & (magnitude > 0))
        if ops.size(positions) > k:
            positions = ops.take(positions, ops.top_positions(ops.take(x, positions), k))
        return positions
