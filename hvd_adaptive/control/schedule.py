"""The controller that follows any function of the step."""

from collections.abc import Callable
from dataclasses import dataclass

from hvd_adaptive import checks
from hvd_adaptive.control.base import Controller, Decision
from hvd_adaptive.errors import ConfigError


@dataclass(frozen=True)
class Schedule(Controller):
    """A factor for each step.

    Args:
        function: tells the factor, >= 1, from the number of steps done; the same on every rank.

    Raises:
        ConfigError: if ``function`` cannot be called, or what it tells is no factor.
    """

    function: Callable[[int], float]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"Schedule: function must take a step and return a factor, got {self.function!r}")

    def decide(self, state: None, step: int) -> Decision:
        return Decision(checks.factor(f"Schedule: step {step}", self.function(step)), "scheduled")
