"""One step of one unit: absorb -> encode -> send -> receive. State goes in and comes out; a binding keeps it.

A binding absorbs gradients as they arrive, encodes and sends a unit when its last gradient is in, and receives after all
units were sent.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from hvd_adaptive import prng
from hvd_adaptive.collective import Collective
from hvd_adaptive.compress.base import Payload
from hvd_adaptive.feedback import Gradients
from hvd_adaptive.granularity import Slot
from hvd_adaptive.monitor import Meter, StepRecord
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.plan import UnitPlan


@dataclass
class Arrivals:
    """The gradients of one unit that are in, this step."""

    gradients: Gradients = field(default_factory=list)
    finite: bool = True


@dataclass(frozen=True)
class InFlight:
    """A unit between encoding and receiving."""

    plan: UnitPlan
    step: int
    key: prng.Key
    payload: Payload
    sent: Payload
    gradients: Gradients
    pending: Any = None


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

    def absorb(self, plan: UnitPlan, work: Array | None, arrivals: Arrivals, slot: Slot, gradient: Array) -> Array:
        """Take in one gradient (any shape) of a unit; notes it in ``arrivals``, donates ``work``, leaves ``gradient`` alone."""
        flat = self.ops.flatten(gradient)
        if plan.checks and not self.ops.all_finite(flat):
            arrivals.finite = False
            if plan.feedback.remembers:
                flat = self.ops.full_like(flat, 0.0)
        arrivals.gradients.append((slot, flat))
        return plan.feedback.absorb(self.ops, work, plan.unit, slot, flat)

    def encode(self, plan: UnitPlan, work: Array, arrivals: Arrivals, step: int) -> tuple[InFlight, Array | None]:
        """Compress a complete unit. Returns what to send, and the work vector to keep; donates ``work``."""
        key = prng.derive(prng.derive(self._root, step), plan.unit.number)
        payload = plan.compressor.encode(self.ops, work, key)
        sent = payload if arrivals.finite else plan.compressor.poison(self.ops, payload)
        kept = plan.feedback.keep(self.ops, work, plan.unit, plan.compressor, payload, key)
        return InFlight(plan, step, key, payload, sent, arrivals.gradients), kept

    def send(self, flight: InFlight) -> InFlight:
        """Start the unit's collectives."""
        name = f"{self._label}.{flight.plan.unit.name}"
        pending = flight.plan.exchange.start(self.ops, self.collective, flight.sent, name)
        return replace(flight, pending=pending)

    def receive(self, flight: InFlight, work: Array | None, weight: float = 1.0) -> tuple[Array, Array | None]:
        """Finish the collectives of a sent unit.

        Returns:
            ``weight`` times the mean over ranks, f[n], NaN throughout if the plan checks gradients and one was not finite on any
            rank; and the work vector to keep.
        """
        with self._meter.time("exchange"):
            received = flight.plan.exchange.wait(self.collective, flight.pending)
        return self.decode(flight, received, work, weight)

    def decode(
        self, flight: InFlight, received: tuple[Array, ...], work: Array | None, weight: float = 1.0
    ) -> tuple[Array, Array | None]:
        """As :meth:`receive`, for what the collectives brought; also if an allreduce of the caller's carried the payload."""
        with self._meter.time("decode"):
            plan, size = flight.plan, self.collective.size
            mean = plan.exchange.decode(self.ops, received, size, flight.sent, plan.compressor, flight.key, weight, plan.checks)
            sent = plan.exchange.nbytes(self.ops, flight.sent)
            finite = mean is not None and (plan.checks or self.ops.all_finite(mean))
            self._count(plan, flight.step, sent, finite=finite)
            if mean is not None:
                return mean, work
            work = plan.feedback.undo(self.ops, work, plan.compressor, flight.payload, flight.key, flight.gradients)
            nothing = self.ops.zeros(plan.unit.size, flight.payload.dtype, like=flight.payload.arrays[0])
            return self.ops.full_like(nothing, math.nan), work

    def count_untouched(self, plan: UnitPlan, step: int) -> None:
        """Count a unit whose gradient Horovod reduced as it was; it is not looked at, for that would cost a pass over it."""
        self._count(plan, step, plan.unit.nbytes, finite=True)

    def _count(self, plan: UnitPlan, step: int, bytes_sent: int, *, finite: bool) -> None:
        unit = plan.unit
        kept = plan.compressor.kept(unit.size)
        self._meter.add(
            StepRecord(
                step=step,
                unit=unit.name,
                elements=unit.size,
                kept=kept,
                factor=unit.size / kept if kept else 1.0,
                bytes_sent=bytes_sent,
                bytes_dense=unit.nbytes,
                finite=finite,
            )
        )
