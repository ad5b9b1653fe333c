"""The controller protocol: decides the factor of each unit for the next step, from agreed observations.

A controller is a pure function of its state and what was observed: no clock, no network, no framework. Every rank
feeds it the same bits, so every rank takes the same decision.
"""

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Observation:
    """What all ranks agree on after a step.

    Attributes:
        step: number of steps done.
    """

    step: int


class Controller(Protocol):
    """Decides the factor that all units use."""

    def start(self) -> Any:
        """The state before the first step: plain numbers, strings, tuples and dicts, so that it can be saved."""

    def decide(self, state: Any) -> float:
        """The factor of the coming step, >= 1."""

    def observe(self, state: Any, observation: Observation) -> Any:
        """The state after a step."""
