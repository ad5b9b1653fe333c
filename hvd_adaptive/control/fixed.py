"""The controller that changes nothing."""

from dataclasses import dataclass

from hvd_adaptive import checks
from hvd_adaptive.control.base import Controller, Decision


@dataclass(frozen=True)
class Fixed(Controller):
    """One factor for the whole run.

    Args:
        factor: original elements / kept elements, >= 1.

    Raises:
        ConfigError: if the factor is not a finite number >= 1.
    """

    factor: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", checks.factor("Fixed", self.factor))

    def decide(self, state: None, step: int) -> Decision:
        return Decision(self.factor)
