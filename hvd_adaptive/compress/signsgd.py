"""signSGD: every element becomes its sign, and the ranks vote.

Contract  Unscaled, the result is the majority's sign, -1, 0 (a tie) or 1. Scaled, a rank sends ||x||_1 / n sign(x), and the
          result is the mean; biased, so error feedback is on by default.
On wire   codes of 1 bit [n] and a scale f32[1]: ||x||_1 / n, or unscaled 1, which is 0 for a unit of zeros.
Source    Bernstein et al. 2018, arXiv:1802.04434, and 2019, arXiv:1810.05291 (majority vote); Dutta et al. 2020,
          arXiv:1911.08250.
Differs   an element that is 0 votes at random, and so does a rank of zeros where votes are summed. Scaled, ranks that sum votes
          share the mean of their scales.
"""

from dataclasses import dataclass
from typing import Literal

from hvd_adaptive import checks
from hvd_adaptive.compress.levels import Levels, row_means, signs
from hvd_adaptive.feedback import Feedback, NoFeedback, Residual
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class SignSGD(Levels):
    """Send the sign of every element.

    Args:
        scaled: False for the majority vote, whose result is -1, 0 or 1 and wants a small learning rate, such as Adam's; True for
            signs times their mean magnitude, averaged, with error feedback.

    Raises:
        ConfigError: if ``scaled`` is not a bool.
    """

    scaled: bool = False

    def __post_init__(self) -> None:
        checks.flag("SignSGD", "scaled", self.scaled)

    @property
    def biased(self) -> bool:
        return True

    @property
    def feedback(self) -> Feedback:
        return Residual() if self.scaled else NoFeedback()

    @property
    def votes(self) -> bool:
        return not self.scaled

    @property
    def shared_by(self) -> Literal["max", "mean"]:
        return "mean" if self.scaled else "max"

    @property
    def top(self) -> int:
        return 1

    def omega(self, n: int) -> float:
        """0 if scaled, else none: the result does not shrink with x"""
        return 0.0 if self.scaled else float("inf")

    def scale(self, ops: Ops, x: Array) -> Array:
        n = ops.size(x)
        return row_means(ops, abs(x), n) if self.scaled else ops.sign(ops.row_max(x, n))

    def codes(self, ops: Ops, x: Array, scale: Array, draw: Draw) -> Array:
        return signs(ops, x, draw)
