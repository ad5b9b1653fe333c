"""Budget: so many bytes a step, and the factor follows.

Contract  once settled, no more than the budget is sent, and no less than 90 % of it unless a bound of the factor is reached.
Source    none; bytes sent are inversely proportional to the factor but for what does not shrink, so a few turns settle.
"""

from dataclasses import dataclass
from typing import TypedDict

from hvd_adaptive import checks
from hvd_adaptive.control.base import Controller, Decision, Observation, Wanted

_AIM = 0.95
_LEAST = 0.9


class _State(TypedDict):
    factor: float


@dataclass(frozen=True)
class Budget(Controller):
    """Send at most so many bytes in a step of this rank, mean over ranks; the first step uses ``max_factor``.

    Args:
        bytes_per_step: what one rank may hand to collectives in a step, tokens included.
        max_factor: the largest factor, >= 1.
        every: steps between looks at what was sent; the first ones follow each other sooner, and none in less than two.

    Raises:
        ConfigError: if one of them is not legal.
    """

    bytes_per_step: float
    max_factor: float = 1000.0
    every: int = 10

    def __post_init__(self) -> None:
        budget = checks.number("Budget", "bytes_per_step", self.bytes_per_step, 1, hint="bytes")
        object.__setattr__(self, "bytes_per_step", budget)
        object.__setattr__(self, "max_factor", checks.number("Budget", "max_factor", self.max_factor, 1, hint="a factor"))
        object.__setattr__(self, "every", checks.count("Budget", "every", self.every))

    def start(self) -> _State:
        return {"factor": self.max_factor}

    def wants(self, state: _State, step: int) -> Wanted | None:
        often = 2 if step < self.every else max(2, self.every)  # a step between looks must run at the factor of the last one
        return Wanted() if step % often == 1 else None

    def decide(self, state: _State, step: int) -> Decision:
        return Decision(state["factor"], "budget")

    def observe(self, state: _State, observation: Observation) -> _State:
        used = observation.bytes_sent / self.bytes_per_step
        if _LEAST <= used <= 1 or used <= 0:
            return state
        return {"factor": min(self.max_factor, max(1.0, state["factor"] * used / _AIM))}
