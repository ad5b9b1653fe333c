"""QSGD: every element is rounded at random to one of 2 s + 1 levels between -norm and +norm.

Contract  D(C(x))_i = norm sign(x_i) l_i / s, where l_i is s |x_i| / norm rounded up or down so that its mean is exact: unbiased.
On wire   codes of ceil(log2(2 s + 1)) bits [n] and a norm f32 for each bucket; where codes are summed, the largest norm of all
          ranks.
Source    Alistarh et al. 2017, arXiv:1610.02132; Dutta et al. 2020, section 5.2, arXiv:1911.08250.
Differs   codes have a fixed width instead of Elias's; a bucket of zeros stays zeros instead of becoming NaN.
"""

from dataclasses import dataclass
from typing import Literal

from hvd_adaptive import checks
from hvd_adaptive.compress.levels import Levels, rounded_at_random
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw

_MOST_LEVELS = 2**20


@dataclass(frozen=True)
class QSGD(Levels):
    """Send every element as a level.

    Args:
        levels: s, steps between 0 and the norm; 7 takes 4 bits, 127 takes 8.
        norm: ``"l2"``, the Euclidean norm, or ``"max"``, the largest magnitude, which spreads the levels less.
        bucket: elements that share a norm; None for the whole unit. 512 is usual.

    Raises:
        ConfigError: if ``levels`` or ``bucket`` is not a whole number >= 1, or ``norm`` is another.
    """

    levels: int
    norm: Literal["l2", "max"] = "l2"
    bucket: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", checks.count("QSGD", "levels", self.levels, _MOST_LEVELS, "7 takes 4 bits"))
        if self.norm not in ("l2", "max"):
            raise ConfigError(f"QSGD: norm must be 'l2' or 'max', got {self.norm!r}")
        if self.bucket is not None:
            object.__setattr__(self, "bucket", checks.count("QSGD", "bucket", self.bucket, hint="512 is usual"))

    @property
    def top(self) -> int:
        return 2 * self.levels

    def width(self, n: int) -> int:
        return n if self.bucket is None else min(self.bucket, n)

    def omega(self, n: int) -> float:
        """b = bucket or n: min(b / 4 s^2, sqrt(b) / s); with max min(b / 4 s^2, (1 + sqrt(b)) / 2 s)"""
        b, s = self.width(n), self.levels
        return float(min(b / (4 * s * s), b**0.5 / s if self.norm == "l2" else (1 + b**0.5) / (2 * s)))

    def scale(self, ops: Ops, x: Array) -> Array:
        width = self.width(ops.size(x))
        largest = ops.row_max(x, width)
        if self.norm == "max":
            return largest
        norm = ops.row_norm(x, width)
        return ops.where(norm > largest, norm, largest)  # rounding may put the norm of a lone element below it

    def codes(self, ops: Ops, x: Array, scale: Array, draw: Draw) -> Array:
        return rounded_at_random(ops, x, scale, self.width(ops.size(x)), self.levels, draw)
