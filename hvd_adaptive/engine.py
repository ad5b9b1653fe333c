"""One step of one unit: absorb -> launch -> rounds of collectives -> settle. State goes in and comes out; a binding keeps it.

A binding absorbs gradients as they arrive, launches and sends a unit when its last gradient is in, and collects after all units
were sent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hvd_adaptive import prng
from hvd_adaptive.collective import Collective
from hvd_adaptive.errors import UnsupportedError
from hvd_adaptive.exchange import Outcome, Round, Rounds, Situation
from hvd_adaptive.feedback import Gradients, UnitMemory
from hvd_adaptive.granularity import Slot
from hvd_adaptive.monitor import Meter, StepRecord
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.plan import UnitPlan

_MOST = 2**31
"""MPI counts the elements of a gather in 32 bits; in words of 8 bytes they go 8 times as far as in bytes."""


@dataclass
class Arrivals:
    """The gradients of one unit that are in, this step."""

    gradients: Gradients = field(default_factory=list)
    finite: bool = True


@dataclass
class Flight:
    """A unit between its last gradient and its mean.

    Attributes:
        round: the collective that is needed next, or under way; None when the ``outcome`` is there.
        number: of that round.
        bytes_sent: handed to collectives so far, this round included.
    """

    plan: UnitPlan
    step: int
    gradients: Gradients
    rounds: Rounds
    round: Round | None = None
    number: int = 0
    bytes_sent: int = 0
    handle: Any = None
    outcome: Outcome | None = None


class Engine:
    """Runs units over one backend and one network.

    Args:
        ops: the backend.
        collective: the ranks.
        seed: of all random choices; the same on every rank.
        label: prefix of every collective's name; the same on every rank, unique among the engines of a process.
        meter: counts what is sent and how long it took.
    """

    def __init__(self, ops: Ops, collective: Collective, seed: int, label: str, meter: Meter) -> None:
        self.ops = ops
        self.collective = collective
        self._root = prng.root(seed)
        self._label = label
        self._meter = meter

    def absorb(self, plan: UnitPlan, memory: UnitMemory, arrivals: Arrivals, slot: Slot, gradient: Array) -> UnitMemory:
        """Take in one gradient (any shape) of a unit; notes it in ``arrivals``, leaves ``gradient`` alone."""
        flat = self.ops.flatten(gradient)
        if plan.checks and not self.ops.all_finite(flat):
            arrivals.finite = False
            flat = self.ops.full_like(flat, 0.0)
        arrivals.gradients.append((slot, flat))
        return plan.feedback.absorb(self.ops, memory, plan.unit, slot, flat)

    def launch(self, plan: UnitPlan, memory: UnitMemory, arrivals: Arrivals, step: int) -> tuple[Flight, UnitMemory]:
        """Compress a complete unit. Returns what to send, and the memory to keep until :meth:`settle`."""
        rank, size = self.collective.rank, self.collective.size
        shared = prng.derive(prng.derive(self._root, step), plan.unit.number)
        x, memory = plan.feedback.complete(self.ops, memory, plan.unit, size)
        situation = Situation(
            ops=self.ops,
            rank=rank,
            size=size,
            step=step,
            draw=prng.Draw(shared, prng.derive(shared, rank + 1)),
            shape=plan.unit.shape,
            memory=memory,
            checks=plan.checks,
            healthy=arrivals.finite,
        )
        flight = Flight(plan, step, arrivals.gradients, plan.exchange.rounds(plan.compressor, x, situation))
        self._take(flight, next(flight.rounds))
        return flight, memory

    def send(self, flight: Flight) -> None:
        """Start the collective that ``flight`` needs next."""
        if flight.round is None:
            return
        kind, array = flight.round.kind, flight.round.array
        name = f"{self._label}.{flight.plan.unit.name}.{flight.number}"
        if kind == "gather" and self.collective.size * self.ops.size(array) >= _MOST:
            raise UnsupportedError(
                f"{name}: {self.collective.size} ranks with {self.ops.nbytes(array)} bytes each are more than one allgather can "
                f"carry ({_MOST} elements); use a larger factor, or Bucketed or LayerWise instead of EntireModel"
            )
        flight.handle = self.collective.start(kind, array, name, flight.round.splits)

    def collect(self, flights: Sequence[Flight]) -> None:
        """Finish the rounds of all sent ``flights``, those of later rounds side by side."""
        waiting = [flight for flight in flights if flight.round is not None]
        while waiting:
            for flight in waiting:
                with self._meter.time("exchange"):
                    brought = self.collective.wait(flight.handle)
                self.advance(flight, brought)
                self.send(flight)
            waiting = [flight for flight in waiting if flight.round is not None]

    def advance(self, flight: Flight, brought: Array) -> None:
        """Go on with what the collective brought, also if one of the caller's carried it."""
        with self._meter.time("decode"):
            try:
                self._take(flight, flight.rounds.send(brought))
                flight.number += 1
            except StopIteration as end:
                flight.round, flight.outcome = None, end.value

    def settle(self, flight: Flight, memory: UnitMemory, weight: float = 1.0) -> tuple[Array, UnitMemory]:
        """End the step of a unit whose outcome is there.

        Returns:
            ``weight`` times the mean over ranks, f[n], NaN throughout if the plan checks gradients and one was not finite on any
            rank; and the memory to keep.
        """
        plan, outcome, ops = flight.plan, flight.outcome, self.ops
        assert outcome is not None  # noqa: S101 - callers advance or collect first
        with self._meter.time("decode"):
            finite = outcome.mean is not None and (_is_looked_at(ops, plan, outcome.mean) or ops.all_finite(outcome.mean))
            self._count(plan, flight.step, outcome.kept, flight.bytes_sent, finite=finite)
            if outcome.mean is None:
                like = flight.gradients[0][1]
                nothing = ops.zeros(plan.unit.size, plan.unit.dtype, like=like)
                return ops.full_like(nothing, math.nan), plan.feedback.undo(ops, memory, plan.unit, flight.gradients)
            memory = plan.feedback.keep(ops, memory, plan.unit, outcome.keep_back, outcome.positions)
            mean = outcome.mean if weight == 1.0 else ops.scale(outcome.mean, weight)
            return mean, memory | outcome.memory

    def count_untouched(self, plan: UnitPlan, step: int, averaged: Array) -> None:
        """Count a unit whose gradient Horovod reduced as it was, to ``averaged``.

        It is looked at only where others are compressed: stock Horovod's way shall cost nothing.
        """
        finite = not plan.watched or self.ops.all_finite(self.ops.flatten(averaged))
        self._count(plan, step, plan.unit.size, plan.unit.nbytes, finite=finite)

    def _take(self, flight: Flight, needed: Round) -> None:
        flight.round = needed
        flight.bytes_sent += self.ops.nbytes(needed.array)

    def _count(self, plan: UnitPlan, step: int, kept: int, bytes_sent: int, *, finite: bool) -> None:
        unit = plan.unit
        self._meter.add(
            StepRecord(
                step=step,
                unit=unit.name,
                elements=unit.size,
                kept=kept,
                factor=unit.size / max(1, kept) if unit.size else 1.0,
                bytes_sent=bytes_sent,
                bytes_dense=unit.nbytes,
                finite=finite,
            )
        )


def _is_looked_at(ops: Ops, plan: UnitPlan, mean: Array) -> bool:
    """True if gradients were found finite, and the mean cannot well have overflowed since, as a float16 may."""
    return plan.checks and ops.dtype(mean) != "float16"
