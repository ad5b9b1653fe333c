"""Keeps what lives from step to step, the units' memories and the controller's state, and what lives within one."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hvd_adaptive.control import Controller, Observation
from hvd_adaptive.engine import Arrivals, Engine, Flight
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.feedback import UnitMemory
from hvd_adaptive.granularity import Slot
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
    flights: dict[int, Flight] = field(default_factory=dict)
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
        self._memory = defaultdict[int, UnitMemory](dict)

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

    def take(self, place: Place, gradient: torch.Tensor) -> Flight | None:
        """Absorb a gradient; if it completes its unit, launch it, and send it unless it rides on an allreduce of the caller's.

        Returns:
            the unit, if its payload must ride.

        Raises:
            ConfigError: if the unit's gradients live on several devices.
        """
        plan, arrivals, memory = self._plan(place.unit), self.current.arrivals[place.unit], self._memory[place.unit]
        for kept in memory.values():
            if kept.device != gradient.device:
                raise ConfigError(
                    f"unit {plan.unit.name!r} has gradients on {kept.device} and {gradient.device}; a unit lives on one device, "
                    "so use LayerWise, or build the compression object after the model has its final place"
                )
        flight = None
        with self._meter.time("compress"):
            memory = self._engine.absorb(plan, memory, arrivals, place.slot, gradient)
            if len(arrivals.gradients) == len(plan.unit.slots):
                flight, memory = self._engine.launch(plan, memory, arrivals, self.done)
        self._memory[place.unit] = memory
        if flight is None or plan.rides:
            return flight
        self._engine.send(flight)
        self.current.flights[place.unit] = flight
        return None

    def give_ridden(self, place: Place, flight: Flight, averaged: torch.Tensor) -> torch.Tensor:
        """The gradient to use, flat, of a unit whose payload rode."""
        self._engine.advance(flight, averaged)
        return self._settle(place.unit, flight)

    def give_untouched(self, place: Place, averaged: torch.Tensor) -> torch.Tensor:
        """The gradient to use of a unit that Horovod reduced as it was."""
        self._engine.count_untouched(self._plans[place.unit], self.done, averaged)
        return averaged

    def give(self, place: Place, weight: float) -> torch.Tensor:
        """The gradient to use, flat, of a slot of a unit that was sent. The first call of a step receives all units."""
        if self.current.means is None:
            flights = self.current.flights
            self._engine.collect(list(flights.values()))
            self.current.means = {number: self._settle(number, flight, weight) for number, flight in flights.items()}
        return self.current.means[place.unit][place.slot.start : place.slot.stop]

    def finish(self) -> None:
        """End the step: the controller sees it, and the next one may begin."""
        self.done += 1
        if self._controller is not None:
            self.control = self._controller.observe(self.control, Observation(self.done))
        self.current = Step()

    def remembered(self, size: int) -> dict[str, dict[str, tuple[str, int]]]:
        """Dtype and length of each vector that a checkpoint holds, by unit and name."""
        return {
            plan.unit.name: {name: (plan.unit.dtype, length) for name, length in lengths.items()}
            for plan in self._plans
            if (lengths := plan.remembers(size))
        }

    def memory(self, size: int) -> dict[str, dict[str, torch.Tensor]]:
        """Copies of those vectors; nothing before the first step, zeros for what no step has set."""
        memory = {}
        for number, plan in enumerate(self._plans if self.done else ()):
            kept, dtype = self._memory[number], getattr(torch, plan.unit.dtype)
            vectors = {
                name: kept[name].clone() if name in kept else torch.zeros(length, dtype=dtype)
                for name, length in plan.remembers(size).items()
            }
            if vectors:
                memory[plan.unit.name] = vectors
        return memory

    def restore(
        self,
        done: int,
        control: Any,
        memory: Mapping[str, Mapping[str, torch.Tensor]],
        devices: Mapping[str, torch.device],
    ) -> None:
        """Continue after ``done`` steps with copies of the saved ``memory``, on the ``devices`` of the parameters."""
        self.restart()
        self.done = done
        self.control = control
        for number, plan in enumerate(self._plans):
            if plan.unit.name in memory:
                device = devices[plan.unit.slots[0].parameter.name]
                self._memory[number] = {name: array.to(device, copy=True) for name, array in memory[plan.unit.name].items()}

    def _plan(self, number: int) -> UnitPlan:
        plan = self._plans[number]
        return plan if self._controller is None or plan.dense else plan.at(self._controller.decide(self.control))

    def _settle(self, number: int, flight: Flight, weight: float = 1.0) -> torch.Tensor:
        mean: torch.Tensor
        mean, self._memory[number] = self._engine.settle(flight, self._memory[number], weight)
        return mean
