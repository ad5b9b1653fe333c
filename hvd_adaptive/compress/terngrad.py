"""TernGrad: every element becomes -s, 0 or s, where s is the largest magnitude of the unit.

Contract  D(C(x))_i is s sign(x_i) with probability |x_i| / s, else 0: unbiased, unless clipped.
On wire   codes of 2 bits [n] and s f32[1]; where codes are summed, s is the largest of all ranks.
Source    Wen et al. 2017, arXiv:1705.07878; Dutta et al. 2020, section 5.2, arXiv:1911.08250.
Differs   a unit of zeros stays zeros instead of becoming NaN; clipping, an option, takes the deviation from zero, not from the
          mean.
"""

from dataclasses import dataclass

from hvd_adaptive import checks
from hvd_adaptive.compress.levels import Levels, rounded_at_random
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class TernGrad(Levels):
    """Send every element as one of three levels.

    Args:
        clip: elements beyond this many root mean squares are cut to it first; the authors use 2.5. None cuts nothing.

    Raises:
        ConfigError: if ``clip`` is neither None nor a number >= 1.
    """

    clip: float | None = None

    def __post_init__(self) -> None:
        if self.clip is not None:
            object.__setattr__(self, "clip", checks.number("TernGrad", "clip", self.clip, 1, hint="2.5 is usual"))

    @property
    def biased(self) -> bool:
        return self.clip is not None

    @property
    def top(self) -> int:
        return 2

    def omega(self, n: int) -> float:
        """(sqrt(n) - 1) / 2"""
        return float((n**0.5 - 1) / 2)

    def scale(self, ops: Ops, x: Array) -> Array:
        largest = ops.row_max(x, ops.size(x))
        if self.clip is None:
            return largest
        bound = self._bound(ops, x)
        return ops.where(bound < largest, bound, largest)

    def codes(self, ops: Ops, x: Array, scale: Array, draw: Draw) -> Array:
        limit = None if self.clip is None else self._bound(ops, x)
        if limit is not None and ops.any(limit < scale) is False:
            limit = None  # what is beyond it is at the last level as it is
        return rounded_at_random(ops, x, scale, ops.size(x), 1, draw, limit)

    def _bound(self, ops: Ops, x: Array) -> Array:
        """``f[1]``: the root mean square times ``clip``."""
        n = ops.size(x)
        return ops.scale(ops.row_norm(x, n), (self.clip or 0.0) / n**0.5)
