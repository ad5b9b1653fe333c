"""What a controller is: it decides the factor of the next step from agreed observations.

A controller is a pure function of its state and what was observed: no clock, no network, no framework. Every rank feeds it the
same bits, so every rank takes the same branch.
"""

import abc
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from hvd_adaptive.control.gain import GainName

AgreementName: TypeAlias = Literal["lagged", "exact"]
DENSE = 1.0
"""The factor at which nothing is dropped: gradients then ride Horovod's own allreduce, with what the residual holds."""


@dataclass(frozen=True)
class Wanted:
    """What a controller wants to be told of a step.

    Attributes:
        factors: whose gains to measure, ascending; none where times, bytes and norms will do.
        gain: the definition.
    """

    factors: tuple[float, ...] = ()
    gain: GainName = "energy"


@dataclass(frozen=True)
class Observation:
    """What all ranks agree on after a step: means over ranks, the same bits everywhere.

    Attributes:
        step: steps done.
        ranks: how many observed it.
        gains: at the wanted factors; empty if none was wanted, or a gradient of some rank was not finite.
        norm: Euclidean norm of the gradient before feedback; NaN if a gradient was not finite.
        bytes_sent: handed to collectives in a step, over those decided since the last observation; 0 if there was none.
        seconds: of a step by the factor it ran at: of those since the last observation, the (lower) median on each rank. A step
            after one at another factor does not count.
    """

    step: int
    ranks: int = 1
    gains: tuple[float, ...] = ()
    norm: float = 0.0
    bytes_sent: float = 0.0
    seconds: dict[float, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """How a step runs.

    Attributes:
        factor: >= 1; :data:`DENSE` drops nothing.
        branch: why, for the log.
        candidate: the factor that is tried out, if one is.
        gains: by factor, as the controller sees them.
    """

    factor: float
    branch: str = "fixed"
    candidate: float | None = None
    gains: dict[float, float] = field(default_factory=dict)


class Controller(abc.ABC):
    """Decides a factor: one for the model, or one for each unit.

    A subclass must say what it decides. The state it starts from, what it wants to be told and what it makes of that have
    defaults, for controllers without any.
    """

    agreement: AgreementName = "lagged"
    """``"lagged"``: what is observed in a step counts from the next one on. ``"exact"``: it is agreed before anything is sent."""
    per_unit: bool = False
    """True if each unit has a state of its own, and is decided for by itself."""

    def prepared(self) -> "Controller":
        """The controller that runs, where a setting asks for another around this one."""
        return self

    def start(self) -> Any:
        """The state before the first step: None, numbers, strings, lists, tuples and dicts, so that it can be saved."""
        return None

    def wants(self, state: Any, step: int) -> Wanted | None:
        """What to observe in the step after ``step`` steps; None for nothing, which costs nothing."""
        return None

    @abc.abstractmethod
    def decide(self, state: Any, step: int) -> Decision:
        """How the step after ``step`` steps runs."""

    def observe(self, state: Any, observation: Observation) -> Any:
        """The state after something that was wanted was observed."""
        return state

    def says(self, state: Any) -> tuple[str, ...]:
        """What a user should be told, once, of the last observation."""
        return ()
