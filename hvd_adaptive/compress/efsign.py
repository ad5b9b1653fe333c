"""EF-signSGD: every element becomes its sign times the mean magnitude of its bucket, and what that missed is added next time.

Contract  ||x - D(C(x))||^2 = ||x||^2 - sum over buckets of ||x_b||_1^2 / |b|. Biased, so error feedback is on by default.
On wire   codes of 1 bit [n] and a mean magnitude f32 for each bucket.
Source    Karimireddy et al. 2019, arXiv:1901.09847; buckets: Zheng, Huang, Kwok 2019, arXiv:1905.10936.
Differs   the learning rate stays in the optimizer, outside the residual; an element that is 0 tosses a coin.
"""

from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive import checks
from hvd_adaptive.compress.base import Contraction, ExchangeName
from hvd_adaptive.compress.levels import Levels, row_means, signs
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class EFSign(Contraction, Levels):
    """Send the sign of every element and a mean magnitude.

    Args:
        bucket: elements that share a mean magnitude; None for the whole unit.

    Raises:
        ConfigError: if ``bucket`` is neither None nor a whole number >= 1.
    """

    bucket: int | None = None
    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("gather", "two-sided")

    def __post_init__(self) -> None:
        if self.bucket is not None:
            object.__setattr__(self, "bucket", checks.count("EFSign", "bucket", self.bucket))

    @property
    def top(self) -> int:
        return 1

    def width(self, n: int) -> int:
        return n if self.bucket is None else min(self.bucket, n)

    def scale(self, ops: Ops, x: Array) -> Array:
        return row_means(ops, abs(x), self.width(ops.size(x)))

    def codes(self, ops: Ops, x: Array, scale: Array, draw: Draw) -> Array:
        return signs(ops, x, draw)
