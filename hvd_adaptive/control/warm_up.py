"""The warm-up of deep gradient compression: little is dropped at first, when gradients change fastest."""

from dataclasses import dataclass

from hvd_adaptive import checks
from hvd_adaptive.control.base import Controller, Decision


@dataclass(frozen=True)
class WarmUp(Controller):
    """The density falls exponentially, stage by stage, to that of the final factor.

    By default, with ``factor=1024``, it is 4, 16, 64, 256 for a quarter of the steps each.

    Args:
        factor: the final one, >= 1.
        steps: after which it is reached.
        first: the factor of the first stage, from 1 to ``factor``.
        stages: equally long parts of the warm-up.

    Raises:
        ConfigError: if one of them is not legal.

    Source: Lin et al. 2018, "Deep Gradient Compression", arXiv:1712.01887, section 3.3: density 25 %, 6.25 %, ... by epochs.
    """

    factor: float
    steps: int
    first: float = 4.0
    stages: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", checks.factor("WarmUp", self.factor))
        object.__setattr__(self, "steps", checks.count("WarmUp", "steps", self.steps))
        object.__setattr__(self, "first", checks.number("WarmUp", "first", self.first, 1, self.factor, "up to factor"))
        object.__setattr__(self, "stages", checks.count("WarmUp", "stages", self.stages))

    def decide(self, state: None, step: int) -> Decision:
        if step >= self.steps:
            return Decision(self.factor, "settled")
        stage = step * self.stages // self.steps
        return Decision(self.first * (self.factor / self.first) ** (stage / self.stages), "warm-up")
