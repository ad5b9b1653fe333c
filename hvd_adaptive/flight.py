"""What a unit is on its way through one step: gradients that arrive, a vector that is ready, a flight of collectives."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hvd_adaptive import prng
from hvd_adaptive.compress.ranking import Ranked
from hvd_adaptive.control import Decision
from hvd_adaptive.exchange import Outcome, Round, Rounds
from hvd_adaptive.feedback import Gradients, UnitMemory
from hvd_adaptive.measure import Measured
from hvd_adaptive.ops import Array
from hvd_adaptive.ops.verdicts import Verdict
from hvd_adaptive.plan import UnitPlan


@dataclass
class Arrivals:
    """The gradients of one unit that are in, this step.

    Attributes:
        gradients: flat; zeros in place of one that is known not to be finite.
        finite: whether all of them are.
        verdicts: on each of them.
    """

    gradients: Gradients = field(default_factory=list)
    finite: Verdict = True
    verdicts: list[Verdict] = field(default_factory=list)


@dataclass
class Ready:
    """A unit whose gradients are all in, and of which nothing is sent yet.

    Attributes:
        x: what is to be compressed, f[n].
        measured: what was wanted of it.
        ranked: what was selected on the way, from which any larger factor can be served.
    """

    x: Array
    memory: UnitMemory
    arrivals: Arrivals
    step: int
    draw: prng.Draw
    measured: Measured | None = None
    ranked: Ranked | None = None


@dataclass
class Flight:
    """A unit between its last gradient and its mean.

    Attributes:
        decision: why it goes as it does.
        round: the collective that is needed next, or under way; None when the ``outcome`` is there.
        number: of that round.
        bytes_sent: handed to collectives so far, this round included.
        finite: False once the mean was found not to be.
        verdicts: on each of the gradients.
    """

    plan: UnitPlan
    step: int
    gradients: Gradients
    rounds: Rounds
    decision: Decision
    round: Round | None = None
    number: int = 0
    bytes_sent: int = 0
    handle: Any = None
    outcome: Outcome | None = None
    finite: Verdict = True
    verdicts: Sequence[Verdict] = ()

    @property
    def result(self) -> Outcome:
        assert self.outcome is not None  # noqa: S101 - callers advance or collect first
        return self.outcome
