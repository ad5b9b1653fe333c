"""Lets a controller decide for the units of one compression object, from what all ranks observed.

What a rank observed travels in one small gather, and only in steps of which the controller wants to know. Its words have the
dtype of a payload's, so Horovod fuses the two.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hvd_adaptive import checks
from hvd_adaptive.collective import Collective
from hvd_adaptive.control import Controller, Decision, Wanted
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.group import Group
from hvd_adaptive.measure import Measured
from hvd_adaptive.monitor import Meter
from hvd_adaptive.ops import Ops
from hvd_adaptive.plan import UnitPlan

Floats: TypeAlias = npt.NDArray[np.float64]
GatherNow: TypeAlias = Callable[[Floats], Floats]
"""``f64[m]`` of this rank to ``f64[ranks * m]`` of all in rank order, at once."""

logger = logging.getLogger("hvd_adaptive")


class Steering:
    """Keeps a controller's states, and what it is to be told.

    Args:
        controller: decides.
        plans: of the units; one that is dense by choice is not decided for.
        ops: the backend.
        collective: the ranks.
        label: names the gathers; the same on every rank.
        meter: counts what they send.
        gather_now: where the controller wants exact agreement.
    """

    def __init__(
        self,
        controller: Controller,
        plans: Sequence[UnitPlan],
        ops: Ops,
        collective: Collective,
        label: str,
        meter: Meter,
        gather_now: GatherNow | None = None,
    ) -> None:
        self._controller = controller.prepared()
        self._ops = ops
        self._collective = collective
        self._meter = meter
        self._plans = plans
        self._name = f"{label}.observed"
        self._exact = self._controller.agreement == "exact"
        self._gather_now = gather_now or self._gather
        units = tuple(number for number, plan in enumerate(plans) if not plan.dense)
        self._units = [(number,) for number in units] if self._controller.per_unit else [units] if units else []
        self.restart()

    def restart(self) -> None:
        """Forget everything observed."""
        self._groups = [Group(units, self._controller.start()) for units in self._units]
        self._of = {number: group for group in self._groups for number in group.units}
        self._handle: Any = None
        self._heard = False
        self._sent = self._meter.bytes_sent
        self._met = not self._exact

    @property
    def states(self) -> list[Any]:
        """The controller's states, plain values: one, or with ``per_unit`` one for each unit."""
        return [group.state for group in self._groups]

    @property
    def first_states(self) -> list[Any]:
        """The states before the first step."""
        return [self._controller.start() for _ in self._units]

    def restore(self, states: Sequence[Any]) -> None:
        """Go on from saved :attr:`states`."""
        self.restart()
        for group, state in zip(self._groups, states, strict=True):
            group.state = state

    @property
    def meeting(self) -> bool:
        """True before the first step, and whenever all ranks start anew, if :meth:`meets` must be asked.

        With exact agreement, who went on from another state might wait for an agreement that no other rank takes part in. Without
        it, tokens tell, where any travel.
        """
        return not self._met and self._collective.rank >= 0

    def meets(self, mark: int) -> bool:
        """True if all ranks begin with the same ``mark``."""
        self._meter.add_bytes(8)
        self._met = bool((self._gather_now(np.array([mark], np.float64)) == mark).all())
        return self._met

    def begin(self, step: int) -> None:
        """A step begins, after ``step`` steps."""
        for group in self._groups:
            group.wanted = self._controller.wants(group.state, step)
            group.measured = {}
            group.decision = None if self._exact and group.wanted is not None else self._decide(group, step)

    @property
    def waits(self) -> bool:
        """True if nothing may be sent before :meth:`agree`, which follows when all units are measured."""
        return any(group.decision is None for group in self._groups)

    def decision(self, number: int) -> Decision | None:
        """For a unit, in this step; None if it is dense by choice, or while :attr:`waits`."""
        return self._of[number].decision if number in self._of else None

    def wanted(self, number: int) -> Wanted | None:
        """What to measure of a unit in this step."""
        return self._of[number].wanted if number in self._of else None

    def note(self, number: int, measured: Measured) -> None:
        """A unit was measured."""
        self._of[number].measured[number] = measured

    def agree(self, step: int) -> None:
        """Exact agreement: all ranks learn what each has measured, and decide."""
        observed = self._gather_now(self._report())
        self._observe(observed, step)
        for group in self._groups:
            group.decision = group.decision or self._decide(group, step)

    def report(self) -> None:
        """Lagged agreement: start telling the other ranks what was measured; to be called after all payloads were sent."""
        if self._exact or not any(group.wanted for group in self._groups):
            return
        self._handle = self._start(self._report())

    @property
    def listens(self) -> bool:
        """True if a report is on its way."""
        return self._handle is not None

    def hear(self, step: int) -> None:
        """Wait for what :meth:`report` started, and let the controllers know."""
        if self.listens:
            observed = self._wait(self._handle)
            self._handle, self._heard = None, True
            self._observe(observed, step)

    def end(self, step: int, seconds: float | None, bytes_sent: int) -> None:
        """A step ends, after ``step`` steps before it.

        Args:
            step: as in :meth:`begin`.
            seconds: that it took; None if it is not known.
            bytes_sent: by this rank in all steps so far.
        """
        self.hear(step)
        told, self._heard = self._heard, False
        for group in self._groups:
            factor = group.decision.factor if group.decision is not None else None
            if factor is not None:
                times = group.used.setdefault(factor, [])
                if factor == group.last and seconds is not None:
                    times.append(seconds)
            group.last = factor
            if not (told and group.wanted is not None):  # else it was decided before what it led to is known
                group.steps += 1
                group.bytes_sent += bytes_sent - self._sent
        self._sent = bytes_sent

    def _decide(self, group: Group, step: int) -> Decision:
        decision, name = self._controller.decide(group.state, step), type(self._controller).__name__
        if not isinstance(decision, Decision):
            raise ConfigError(f"{name} decided: this must be a decision such as Decision(100.0), got {decision!r}")
        checks.factor(f"{name} decided", decision.factor)
        return decision

    def _report(self) -> Floats:
        """What this rank observed, for every group of which something is wanted."""
        numbers = [number for group in self._groups if group.wanted is not None for number in group.told(group.wanted)]
        self._meter.add_bytes(8 * len(numbers))
        return np.array(numbers, np.float64)

    def _observe(self, observed: Floats, step: int) -> None:
        """All ranks' reports, the same on each, to the controllers."""
        ranks = self._collective.size
        columns = observed.reshape(ranks, -1).T.tolist()
        means = iter([math.fsum(column) / ranks for column in columns])  # exact sums, so no order and no machine matters
        said: dict[str, list[Group]] = {}
        for group in self._groups:
            if group.wanted is None:
                continue
            group.state = self._controller.observe(group.state, group.observed(group.wanted, means, step + 1, ranks))
            for text in self._controller.says(group.state):
                said.setdefault(text, []).append(group)
        for text, groups in said.items() if self._collective.rank == 0 else ():
            more = f" and {len(groups) - 1} more" if len(groups) > 1 else ""
            which = f", unit {self._plans[groups[0].units[0]].unit.name!r}{more}" if self._controller.per_unit else ""
            logger.warning("step %d%s: %s", step + 1, which, text)

    def _start(self, own: Floats) -> Any:
        return self._collective.start("gather", self._ops.from_numpy(own.view(np.int64)), self._name)

    def _wait(self, handle: Any) -> Floats:
        return np.asarray(self._ops.to_numpy(self._collective.wait(handle))).view(np.float64)

    def _gather(self, own: Floats) -> Floats:
        return self._wait(self._start(own))
