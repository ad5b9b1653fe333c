"""What every unit of a compression object remembers from step to step, and how a checkpoint holds it."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from hvd_adaptive.errors import ConfigError
from hvd_adaptive.feedback import UnitMemory
from hvd_adaptive.ops import Array
from hvd_adaptive.plan import UnitPlan


class Storage(Protocol):
    """How a framework's checkpoint holds a vector."""

    def save(self, array: Array) -> Any:
        """A copy of ``array`` f[n] as it is saved."""

    def zeros(self, n: int, dtype: str) -> Any:
        """What is saved of ``n`` zeros."""

    def load(self, saved: Any, parameter: str) -> Array:
        """A copy of what was saved, on the device of ``parameter``."""

    def form(self, saved: Any) -> tuple[str, tuple[int, ...]] | None:
        """Dtype and shape of what was saved; None if it is no array of finite numbers."""


class Memories:
    """The memories of all units, by number, and which units are known to hold nothing back on any rank.

    Args:
        plans: of the units.
        storage: how they are saved.
    """

    def __init__(self, plans: Sequence[UnitPlan], storage: Storage) -> None:
        self._plans = plans
        self._storage = storage
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self._memory = defaultdict[int, UnitMemory](dict)
        self._empty = {number for number, plan in enumerate(self._plans) if plan.feedback.empties}

    def __getitem__(self, number: int) -> UnitMemory:
        return self._memory[number]

    def __setitem__(self, number: int, memory: UnitMemory) -> None:
        self._memory[number] = memory

    def check_device(self, number: int, gradient: Array) -> None:
        """
        Raises:
            ConfigError: if a ``gradient`` of the unit lives on another device than its memory.
        """
        for kept in self._memory[number].values():
            if kept.device != gradient.device:
                raise ConfigError(
                    f"unit {self._plans[number].unit.name!r} has gradients on {kept.device} and {gradient.device}; a unit lives "
                    "on one device, so use LayerWise, or build the compression object after the model has its final place"
                )

    def settle(self, number: int, memory: UnitMemory, *, emptied: bool) -> None:
        """A unit's step ends; ``emptied`` if all there was has been sent, by every rank."""
        self._empty.discard(number)
        feedback = self._plans[number].feedback
        if emptied and feedback.empties:
            self._empty.add(number)
            memory = {name: array for name, array in memory.items() if name not in feedback.remembers}
        self._memory[number] = memory

    def is_empty(self, number: int) -> bool:
        """True if no rank holds anything back of the unit."""
        return number in self._empty

    @property
    def empty(self) -> list[str]:
        """Names of the units of which no rank holds anything back."""
        return [self._plans[number].unit.name for number in sorted(self._empty)]

    def remembered(self, size: int) -> dict[str, dict[str, tuple[str, int]]]:
        """Dtype and length of each vector that a checkpoint holds, by unit and name, among ``size`` ranks."""
        return {
            plan.unit.name: {name: (plan.unit.dtype, length) for name, length in lengths.items()}
            for plan in self._plans
            if (lengths := plan.remembers(size))
        }

    def saved(self, size: int) -> dict[str, dict[str, Any]]:
        """Copies of those vectors, zeros for what is empty or no step has set."""
        saved = {}
        for number, plan in enumerate(self._plans):
            kept = self._memory[number]
            vectors = {
                name: self._storage.save(kept[name]) if name in kept else self._storage.zeros(length, plan.unit.dtype)
                for name, length in plan.remembers(size).items()
            }
            if vectors:
                saved[plan.unit.name] = vectors
        return saved

    def restore(self, saved: Mapping[str, Mapping[str, Any]], empty: Collection[str] | None) -> None:
        """Go on with copies of ``saved`` vectors, and with the ``empty`` units known."""
        self.restart()
        if empty is not None:
            self._empty = {number for number, plan in enumerate(self._plans) if plan.unit.name in empty}
        for number, plan in enumerate(self._plans):
            drop = plan.feedback.remembers if empty is not None and number in self._empty else ()
            self._memory[number] = {
                name: self._storage.load(vector, plan.unit.slots[0].parameter.name)
                for name, vector in saved.get(plan.unit.name, {}).items()
                if name not in drop
            }
