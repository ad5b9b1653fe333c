"""One step of one unit: absorb -> launch -> rounds of collectives -> mean -> settle. State goes in and comes out.

A binding absorbs gradients as they arrive, launches and sends a unit when its last one is in, collects after all units were sent,
and settles after all means were taken, when it is known whether the step counts.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from hvd_adaptive import prng
from hvd_adaptive.collective import Collective
from hvd_adaptive.control import Decision, Wanted
from hvd_adaptive.errors import UnsupportedError
from hvd_adaptive.exchange import Round, Situation
from hvd_adaptive.feedback import Gradients, UnitMemory
from hvd_adaptive.flight import Arrivals, Flight, Ready
from hvd_adaptive.granularity import Parameter, Slot
from hvd_adaptive.measure import Measured, measure
from hvd_adaptive.monitor import Meter, StepRecord
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.ops.verdicts import Verdict, is_read, read
from hvd_adaptive.plan import UnitPlan

_MOST = 2**31
"""MPI counts the elements of a gather in 32 bits; in words of 8 bytes they go 8 times as far as in bytes."""

UNSTEERED = Decision(1.0, branch="")
"""Where no controller decides."""


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
        self.meter = meter

    def absorb(self, plan: UnitPlan, memory: UnitMemory, arrivals: Arrivals, slot: Slot, gradient: Array) -> UnitMemory:
        """Take in one gradient (any shape) of a unit; notes it in ``arrivals``, leaves ``gradient`` alone."""
        flat = self.ops.flatten(gradient)
        memory, finite = plan.feedback.absorb(self.ops, memory, plan.unit, slot, flat, checks=plan.checks)
        if finite is False:
            flat = self.ops.full_like(flat, 0.0)
        arrivals.finite = arrivals.finite & finite
        arrivals.gradients.append((slot, flat))
        arrivals.verdicts.append(finite)
        return memory

    def joined(self, plan: UnitPlan, gradients: Sequence[Array]) -> Gradients:
        """All gradients of a unit (any shapes), in the order of its slots, as one that takes up the whole unit."""
        unit, ops = plan.unit, self.ops
        if len(unit.slots) == 1:
            return [(unit.slots[0], gradients[0])]
        whole = Slot(Parameter(unit.name, unit.shape, unit.dtype), 0, unit.size)
        return [(whole, ops.concat([ops.cast(ops.flatten(gradient), unit.dtype) for gradient in gradients]))]

    def prepare(
        self, plan: UnitPlan, memory: UnitMemory, arrivals: Arrivals, step: int, wanted: Wanted | None = None
    ) -> tuple[Ready, UnitMemory]:
        """Make a complete unit ready to compress, and measure what is ``wanted`` of it.

        Returns:
            what to launch, under this plan or the same one at another factor, and the memory to keep until :meth:`settle`.
        """
        rank = self.collective.rank
        shared = prng.derive(prng.derive(self._root, step), plan.unit.number)
        x, memory = plan.feedback.complete(self.ops, memory, plan.unit, self.collective.size)
        ready = Ready(x, memory, arrivals, step, prng.Draw(shared, prng.derive(shared, rank + 1)))
        if wanted is not None:
            ready.measured, ready.ranked = measure(self.ops, plan, ready.x, ready.draw, arrivals.gradients, wanted)
            if not read(self.ops, [arrivals.finite])[0]:
                ready.measured = Measured((), math.nan, math.nan)
        return ready, memory

    def launch(self, plan: UnitPlan, ready: Ready, decision: Decision = UNSTEERED) -> Flight:
        """Compress a unit that is ready. Returns what to send."""
        compressor = plan.compressor
        if ready.ranked is not None and plan.ranks_whole and ready.ranked.least <= decision.factor:
            compressor = replace(ready.ranked, factor=decision.factor)
        situation = Situation(
            ops=self.ops,
            rank=self.collective.rank,
            size=self.collective.size,
            step=ready.step,
            draw=ready.draw,
            shape=plan.unit.shape,
            memory=ready.memory,
            checks=plan.checks,
            healthy=ready.arrivals.finite,
        )
        rounds = plan.exchange.rounds(compressor, ready.x, situation)
        flight = Flight(plan, ready.step, ready.arrivals.gradients, rounds, decision, verdicts=ready.arrivals.verdicts)
        self._take(flight, next(flight.rounds))
        return flight

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
        if flight.round.meanwhile is not None:
            with self.meter.time("decode"):
                flight.round.meanwhile()

    def collect(self, flights: Sequence[Flight]) -> None:
        """Finish the rounds of all sent ``flights``, those of later rounds side by side."""
        waiting = [flight for flight in flights if flight.round is not None]
        while waiting:
            for flight in waiting:
                with self.meter.time("exchange"):
                    brought = self.collective.wait(flight.handle)
                self.advance(flight, brought)
                self.send(flight)
            waiting = [flight for flight in waiting if flight.round is not None]

    def advance(self, flight: Flight, brought: Array) -> None:
        """Go on with what the collective brought, also if one of the caller's carried it."""
        with self.meter.time("decode"):
            try:
                self._take(flight, flight.rounds.send(brought))
                flight.number += 1
            except StopIteration as end:
                flight.round, flight.outcome = None, end.value

    def mean(self, flight: Flight, weight: float = 1.0) -> Array:
        """``weight`` times the mean over ranks of a unit whose outcome is there, f[n].

        It is NaN throughout if the plan checks gradients and one was not finite on any rank.
        """
        plan, mean, ops = flight.plan, flight.result.mean, self.ops
        with self.meter.time("decode"):
            flight.finite = mean is not None and flight.result.finite & (_is_looked_at(ops, plan, mean) or ops.all_finite(mean))
            self._count(plan, flight.step, flight.result.kept, flight.bytes_sent, flight.decision, finite=flight.finite)
            if mean is None:
                return ops.full_like(ops.zeros(plan.unit.size, plan.unit.dtype, like=flight.gradients[0][1]), math.nan)
            return mean if weight == 1.0 else ops.scale(mean, weight)

    def read(self, flights: Sequence[Flight], finite: Verdict = True) -> bool:
        """True if all means of ``flights`` are finite, and what else was ``finite``; every mean of the step was taken.

        Here a step waits for a device, once, if its arrays are on one; and counts the units that could not be before.
        """
        held, asked = self.meter.held, [finite, *(flight.finite for flight in flights)]
        own = [verdict for flight in flights for verdict in flight.verdicts]
        said = iter(read(self.ops, [*asked, *own, *(verdict for _, verdict in held)]))
        sent = [next(said) for _ in asked]
        for flight in flights:
            taken = [next(said) for _ in flight.verdicts]
            flight.gradients = [one for one, known in zip(flight.gradients, taken, strict=True) if known]
        for record, _ in held:
            self.meter.add(replace(record, finite=next(said)))
        held.clear()
        return all(sent)

    def settle(self, flight: Flight, memory: UnitMemory, *, sent: bool) -> UnitMemory:
        """The memory of a unit to keep once its mean was taken; as before the step if that does not count as ``sent``."""
        feedback, unit, outcome = flight.plan.feedback, flight.plan.unit, flight.result
        with self.meter.time("decode"):
            if not sent:
                return feedback.undo(self.ops, memory, unit, flight.gradients)
            return feedback.keep(self.ops, memory, unit, outcome.keep_back, outcome.positions) | outcome.memory

    def count_untouched(self, plan: UnitPlan, step: int, averaged: Sequence[Array], decision: Decision = UNSTEERED) -> Verdict:
        """Count a unit whose gradients Horovod reduced as they were, to ``averaged``. Returns False if they are not finite.

        They are looked at only where others are compressed: stock Horovod's way shall cost nothing.
        """
        finite: Verdict = True
        for gradient in averaged if plan.watched else ():
            finite = finite & self.ops.all_finite(self.ops.flatten(gradient))
        self._count(plan, step, plan.unit.size, plan.unit.nbytes, decision, finite=finite)
        return finite

    def _take(self, flight: Flight, needed: Round) -> None:
        flight.round = needed
        flight.bytes_sent += self.ops.nbytes(needed.array)

    def _count(self, plan: UnitPlan, step: int, kept: int, bytes_sent: int, decision: Decision, *, finite: Verdict) -> None:
        unit = plan.unit
        record = StepRecord(
            step=step,
            unit=unit.name,
            elements=unit.size,
            kept=kept,
            factor=unit.size / max(1, kept) if unit.size else 1.0,
            bytes_sent=bytes_sent,
            bytes_dense=unit.nbytes,
            finite=finite,
            branch=decision.branch,
            candidate=decision.candidate,
            gains=decision.gains,
        )
        self.meter.add(record) if is_read(finite) else self.meter.held.append((record, finite))


def _is_looked_at(ops: Ops, plan: UnitPlan, mean: Array) -> bool:
    """True if gradients were found finite, and the mean cannot well have overflowed since, as a float16 may."""
    return plan.checks and ops.dtype(mean) != "float16"
