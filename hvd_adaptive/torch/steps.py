"""Keeps what lives from step to step, work vectors and the controller's state, and what lives within one."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hvd_adaptive.control import Controller, Observation
from hvd_adaptive.engine import Arrivals, Engine, InFlight
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.granularity import Slot, Unit
from hvd_adaptive.monitor import Meter
from hvd_adaptive.plan import UnitPlan


@dataclass(frozen=True)
class Place:
    """Where a parameter's gradient goes.

    Attributes:
        unit: the number of its unit.
        slot: its place there.
        rides: Horovod's allreduce of the gradient carries the payload.
        untouched: the payload is the gradient itself.
    """

    unit: int
    slot: Slot
    rides: bool
    untouched: bool


@dataclass
class Step:
    """One step under way."""

    arrived: set[str] = field(default_factory=set)
    returned: int = 0
    arrivals: dict[int, Arrivals] = field(default_factory=lambda: defaultdict(Arrivals))
    flights: dict[int, InFlight] = field(default_factory=dict)
    means: dict[int, torch.Tensor] | None = None


class Steps:
    """Runs the units of one compression object through the engine.

    Args:
        engine: does the work.
        plans: how each unit is treated; a unit's number is its place here.
        controller: decides the factor, if there is one.
        meter: told how long compression takes.
    """

    def __init__(self, engine: Engine, plans: Sequence[UnitPlan], controller: Controller | None, meter: Meter) -> None:
        self._engine = engine
        self._plans = plans
        self._controller = controller
        self._meter = meter
        self.restart()

    def restart(self) -> None:
        """Forget everything, as if no step was done."""
        self.done = 0
        self.current = Step()
        self.control: Any = None if self._controller is None else self._controller.start()
        self._work: dict[int, torch.Tensor] = {}

    def arrive(self, name: str) -> None:
        """Note that the gradient of ``name`` came.

        Raises:
            ConfigError: if it came before, in this step.
        """
        if self.current.returned:  # the last step was cut short by an error
            self.current = Step()
        if name in self.current.arrived:
            raise ConfigError(
                f"the gradient of {name!r} came twice in one step; give each optimizer a compression object of its own"
            )
        self.current.arrived.add(name)

    def take(self, place: Place, gradient: torch.Tensor) -> InFlight | None:
        """Absorb a gradient; if it completes its unit, encode it, and send it unless it rides on an allreduce of the caller's.

        Returns:
            the unit, if its payload must ride.

        Raises:
            ConfigError: if the unit's gradients live on several devices.
        """
        plan, arrivals, work = self._plan(place.unit), self.current.arrivals[place.unit], self._work.get(place.unit)
        if work is not None and work.device != gradient.device:
            raise ConfigError(
                f"unit {plan.unit.name!r} has gradients on {work.device} and {gradient.device}; a unit lives on one device, so "
                "use LayerWise, or build the compression object after the model has its final place"
            )
        with self._meter.time("compress"):
            work = self._engine.absorb(plan, work, arrivals, place.slot, gradient)
            flight = None
            if len(arrivals.gradients) == len(plan.unit.slots):
                flight, work = self._engine.encode(plan, work, arrivals, self.done)
        self._keep(place.unit, work)
        if flight is None or plan.rides:
            return flight
        self.current.flights[place.unit] = self._engine.send(flight)
        return None

    def give_ridden(self, place: Place, flight: InFlight, averaged: torch.Tensor) -> torch.Tensor:
        """The gradient to use, flat, of a unit whose payload rode."""
        mean: torch.Tensor
        mean, work = self._engine.decode(flight, (averaged,), self._work.get(place.unit))
        self._keep(place.unit, work)
        return mean

    def give_untouched(self, place: Place, averaged: torch.Tensor) -> torch.Tensor:
        """The gradient to use of a unit that Horovod reduced as it was."""
        self._engine.count_untouched(self._plans[place.unit], self.done)
        return averaged

    def give(self, place: Place, weight: float) -> torch.Tensor:
        """The gradient to use, flat, of a slot of a unit that was sent. The first call of a step receives all units."""
        if self.current.means is None:
            means = {}
            for number, flight in self.current.flights.items():
                means[number], work = self._engine.receive(flight, self._work.get(number), weight)
                self._keep(number, work)
            self.current.means = means
        return self.current.means[place.unit][place.slot.start : place.slot.stop]

    def finish(self) -> None:
        """End the step: the controller sees it, and the next one may begin."""
        self.done += 1
        if self._controller is not None:
            self.control = self._controller.observe(self.control, Observation(self.done))
        self.current = Step()

    def units(self) -> dict[str, Unit]:
        """Those that keep a residual, by name."""
        return {plan.unit.name: plan.unit for plan in self._plans if plan.feedback.remembers}

    def residuals(self) -> dict[str, torch.Tensor]:
        """Copies of the residuals by unit."""
        return {
            self._plans[number].unit.name: work.clone()
            for number, work in self._work.items()
            if self._plans[number].feedback.remembers
        }

    def restore(self, done: int, control: Any, residuals: Mapping[str, torch.Tensor]) -> None:
        """Continue after ``done`` steps; takes the ``residuals`` over."""
        self.restart()
        self.done = done
        self.control = control
        numbers = {plan.unit.name: number for number, plan in enumerate(self._plans) if plan.feedback.remembers}
        self._work = {numbers[name]: residual for name, residual in residuals.items()}

    def _plan(self, number: int) -> UnitPlan:
        plan = self._plans[number]
        return plan if self._controller is None or plan.dense else plan.at(self._controller.decide(self.control))

    def _keep(self, number: int, work: torch.Tensor | None) -> None:
        if work is None:
            self._work.pop(number, None)
        else:
            self._work[number] = work
