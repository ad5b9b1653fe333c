"""What lives within one step."""

from collections import defaultdict
from dataclasses import dataclass, field

from hvd_adaptive.flight import Arrivals, Flight, Ready
from hvd_adaptive.granularity import Slot
from hvd_adaptive.ops import Array
from hvd_adaptive.ops.verdicts import Verdict
from hvd_adaptive.plan import UnitPlan


@dataclass(frozen=True)
class Place:
    """Where a parameter's gradient goes: the number of its unit, and its place there."""

    unit: int
    slot: Slot


@dataclass
class Step:
    """One step under way.

    Attributes:
        mark: what :attr:`Steps.mark` told.
        arrived: names of the parameters whose gradients came.
        returned: how many were given back.
        plans: of this step, by unit, as soon as they are decided.
        bare: units whose gradients are left as they are.
        ready: units that wait until all ranks agree.
        untouched: what Horovod made of gradients that were left as they were, by unit.
        means: over ranks, flat, of the units that were sent, as soon as they are collected.
        ridden: units that came back from an allreduce of the caller's.
        finite: False once a gradient that was left as it was came back as none.
    """

    mark: int | None = None
    arrived: set[str] = field(default_factory=set)
    returned: int = 0
    plans: dict[int, UnitPlan] = field(default_factory=dict)
    bare: set[int] = field(default_factory=set)
    arrivals: dict[int, Arrivals] = field(default_factory=lambda: defaultdict(Arrivals))
    ready: dict[int, Ready] = field(default_factory=dict)
    flights: dict[int, Flight] = field(default_factory=dict)
    untouched: dict[int, list[Array]] = field(default_factory=lambda: defaultdict(list))
    means: dict[int, Array] = field(default_factory=dict)
    ridden: dict[int, Flight] = field(default_factory=dict)
    finite: Verdict = True
