"""Runs the units of one compression object, step by step."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from hvd_adaptive.binding import token
from hvd_adaptive.binding.decisions import Decisions
from hvd_adaptive.binding.memories import Memories, Storage
from hvd_adaptive.binding.step import Place, Step
from hvd_adaptive.control import DENSE
from hvd_adaptive.engine import Engine
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.feedback import Gradients
from hvd_adaptive.flight import Flight, Ready
from hvd_adaptive.monitor import Meter
from hvd_adaptive.ops import Array
from hvd_adaptive.plan import UnitPlan
from hvd_adaptive.steering import Steering


class Steps:
    """Runs the units of one compression object through the engine.

    Args:
        engine: does the work.
        plans: how each unit is treated; a unit's number is its place here.
        steering: decides the factors, if there is a controller.
        meter: told how long compression takes.
        storage: how a checkpoint holds a vector.
        lends: True if Horovod's own allreduce may carry a payload or, where a controller goes dense, a gradient.
    """

    def __init__(
        self,
        engine: Engine,
        plans: Sequence[UnitPlan],
        steering: Steering | None,
        meter: Meter,
        storage: Storage,
        *,
        lends: bool = True,
    ) -> None:
        self._engine = engine
        self.plans = plans
        self._steering = steering
        self._meter = meter
        self._lends = lends
        self.memories = Memories(plans, storage)
        self._decisions = Decisions(plans, steering, self.memories, lends=lends)
        self.restart()

    def restart(self) -> None:
        """Forget everything, as if no step was done."""
        self.done = 0
        self.current = Step()
        self.memories.restart()
        if self._steering is not None:
            self._steering.restart()

    @property
    def control(self) -> dict[str, Any] | None:
        """What to save of the controller: its states, and the units of which no rank holds anything back."""
        if self._steering is None:
            return None
        return {"states": self._steering.states, "empty": self.memories.empty}

    @property
    def first_control(self) -> dict[str, Any] | None:
        """The same before the first step, with the names of all units: what a saved one must fit."""
        if self._steering is None:
            return None
        return {"states": self._steering.first_states, "empty": [plan.unit.name for plan in self.plans]}

    @property
    def mark(self) -> int:
        """32 bits that ranks share if they are at the same step, with the same controller's state as the step began."""
        if self.current.mark is None:
            self.current.mark = zlib.crc32(repr((self.done, self.control)).encode())
        return self.current.mark

    def arrive(self, name: str) -> None:
        """Note that the gradient of ``name`` came.

        Raises:
            ConfigError: if it came before, in this step, or ranks went on from different states.
        """
        if self.current.returned and name in self.current.arrived:  # the last step was cut short by an error
            self.current = Step()
        if not self.current.arrived:
            self._begin()
        if name in self.current.arrived:
            raise ConfigError(
                f"the gradient of {name!r} came twice in one step; give each optimizer a compression object of its own, and "
                "where an error cut a step short, call reset() on all ranks"
            )
        self.current.arrived.add(name)

    def _begin(self) -> None:
        if self._steering is not None:
            if self._steering.meeting and not self._steering.meets(self.mark):
                raise token.other_states()
            self._steering.begin(self.done)
        waits = self._steering is not None and self._steering.waits
        for number, plan in enumerate(self.plans):
            if plan.dense or not waits:
                self._decisions.make(number, self.current)

    def rides(self, place: Place) -> bool:
        """True if Horovod's own allreduce carries the payload."""
        plan = self.current.plans.get(place.unit)
        return self._lends and plan is not None and plan.rides

    def leaves_untouched(self, place: Place) -> bool:
        """True if Horovod's own allreduce carries the gradient itself."""
        return place.unit in self.current.bare

    def take(self, place: Place, gradient: Array) -> Flight | None:
        """Absorb a gradient; if it completes its unit, launch it, and send it unless it rides on an allreduce of the caller's.

        Returns:
            the unit, if its payload must ride.

        Raises:
            ConfigError: if the unit's gradients live on several devices.
        """
        with self._meter.time("compress"):
            self._absorb(place.unit, [(place.slot, gradient)])
            if len(self.current.arrivals[place.unit].gradients) < len(self.plans[place.unit].unit.slots):
                return None
        return self._complete(place.unit)

    def take_unit(self, number: int, gradients: Sequence[Array]) -> None:
        """Absorb all gradients of a unit, in the order of its slots, launch and send it.

        One pass over memory where :meth:`take` makes one for each gradient, unless arrays can be written to.

        Raises:
            ConfigError: if the unit's gradients live on several devices.
        """
        with self._meter.time("compress"):
            self._absorb(number, self._engine.joined(self.plans[number], gradients))
        self._complete(number)

    def _absorb(self, number: int, gradients: Gradients) -> None:
        plan, arrivals, memory = self.plans[number], self.current.arrivals[number], self.memories[number]
        for slot, gradient in gradients:
            self.memories.check_device(number, gradient)
            memory = self.memories[number] = self._engine.absorb(plan, memory, arrivals, slot, gradient)

    def _complete(self, number: int) -> Flight | None:
        """All gradients of a unit are in; returns it if its payload must ride."""
        plan, arrivals = self.plans[number], self.current.arrivals[number]
        with self._meter.time("compress"):
            wanted = None if self._steering is None else self._steering.wanted(number)
            ready, self.memories[number] = self._engine.prepare(plan, self.memories[number], arrivals, self.done, wanted)
            if self._steering is not None and ready.measured is not None:
                self._steering.note(number, ready.measured)
            if number in self.current.plans:
                return self._launch(number, ready)
            self.current.ready[number] = ready
        if len(self.current.ready) + len(self.current.plans) == len(self.plans):
            self._agree()
        return None

    def _launch(self, number: int, ready: Ready) -> Flight | None:
        """Start a unit; returns it if its payload must ride."""
        plan = self.current.plans[number]
        flight = self._engine.launch(plan, ready, self._decisions.of(number))
        if self._lends and plan.rides and number not in self.current.ready:
            return flight
        self._engine.send(flight)
        self.current.flights[number] = flight
        return None

    def _agree(self) -> None:
        """Every unit is ready: learn what all ranks measured, then start them all."""
        assert self._steering is not None  # noqa: S101 - nothing waits without
        with self._meter.time("exchange"):
            self._steering.agree(self.done)
        with self._meter.time("compress"):
            for number, ready in self.current.ready.items():
                self._decisions.make(number, self.current)
                self._launch(number, ready)

    def all_sent(self) -> None:
        """The last gradient of the step came."""
        if self._steering is not None:
            self._steering.report()

    def give_ridden(self, place: Place, flight: Flight, averaged: Array) -> Array:
        """The gradient to use, flat, of a unit whose payload rode."""
        self._engine.advance(flight, averaged)
        self.current.ridden[place.unit] = flight
        return self._engine.mean(flight)

    def give_untouched(self, place: Place, averaged: Array) -> Array:
        """The gradient to use of a parameter that Horovod reduced as it was."""
        plan, returned = self.plans[place.unit], self.current.untouched[place.unit]
        returned.append(averaged)
        if len(returned) == len(plan.unit.slots):
            finite = self._engine.count_untouched(plan, self.done, returned, self._decisions.of(place.unit))
            self.current.finite = self.current.finite & finite
        return averaged

    def give(self, place: Place, weight: float, *, alone: bool = False) -> Array:
        """The gradient to use, flat, of a slot of a unit that was sent.

        Args:
            place: which.
            weight: what means are multiplied with.
            alone: wait for this unit only; else the first call of a step receives all, later rounds side by side.
        """
        if place.unit not in self.current.means:
            self._collect([place.unit] if alone else list(self.current.flights), weight)
        return self.current.means[place.unit][place.slot.start : place.slot.stop]

    def _collect(self, numbers: Sequence[int], weight: float) -> None:
        flights = {number: self.current.flights[number] for number in numbers}
        self._engine.collect(list(flights.values()))
        self.current.means |= {number: self._engine.mean(flight, weight) for number, flight in flights.items()}

    def _settle(self) -> None:
        """Every mean was taken. A step with any gradient that is not finite is one that scalers of losses skip as a whole."""
        flights, steered = self.current.flights | self.current.ridden, self._steering is not None
        sent = self._engine.read(list(flights.values()), self.current.finite)
        for number, flight in flights.items():
            memory = self._engine.settle(flight, self.memories[number], sent=sent)
            self.memories.settle(number, memory, emptied=sent and steered and flight.decision.factor == DENSE)

    def finish(self) -> None:
        """End the step: the controller sees it, and the next one may begin."""
        self._collect([number for number in self.current.flights if number not in self.current.means], 1.0)  # none asked for
        self._settle()
        if self._steering is not None and self._steering.listens:
            with self._meter.time("exchange"):
                self._steering.hear(self.done)
        seconds = self._meter.end_step()
        if self._steering is not None:
            self._steering.end(self.done, seconds, self._meter.bytes_sent)
        self.done += 1
        self.current = Step()

    def restore(self, done: int, control: Mapping[str, Any] | None, memory: Mapping[str, Mapping[str, Any]]) -> None:
        """Continue after ``done`` steps with copies of the saved ``memory``."""
        self.restart()
        self.done = done
        self.memories.restore(memory, None if control is None else control["empty"])
        if self._steering is not None and control is not None:
            self._steering.restore(control["states"])
