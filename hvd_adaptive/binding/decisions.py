"""How each unit is treated in a step: its plan, at the factor that a controller decides."""

from collections.abc import Sequence

from hvd_adaptive.binding.memories import Memories
from hvd_adaptive.binding.step import Step
from hvd_adaptive.control import DENSE, Decision
from hvd_adaptive.engine import UNSTEERED
from hvd_adaptive.plan import UnitPlan
from hvd_adaptive.steering import Steering


class Decisions:
    """Decides for the units of one compression object.

    Args:
        plans: of the units.
        steering: the controller's, if there is one.
        memories: of the units.
        lends: True if Horovod's own allreduce may carry gradients where the controller goes dense.
    """

    def __init__(self, plans: Sequence[UnitPlan], steering: Steering | None, memories: Memories, *, lends: bool) -> None:
        self._plans = plans
        self._steering = steering
        self._memories = memories
        self._lends = lends
        self._widened = {
            number for number, plan in enumerate(plans) if any(slot.parameter.dtype == "bfloat16" for slot in plan.unit.slots)
        }
        """Units with gradients of a dtype that Horovod cannot reduce."""
        self._planned: dict[int, tuple[float, UnitPlan]] = {}

    def of(self, number: int) -> Decision:
        """Why a unit goes as it does in this step."""
        decision = None if self._steering is None else self._steering.decision(number)
        return decision or UNSTEERED

    def make(self, number: int, step: Step) -> None:
        """Set the plan of a unit for this ``step``."""
        plan = self._plans[number]
        if self._steering is not None and not plan.dense:
            decision, before = self.of(number), self._planned.get(number)
            if before is None or before[0] != decision.factor:
                self._planned[number] = decision.factor, plan.at(decision.factor)
            plan = self._planned[number][1]
            dense = decision.factor == DENSE and self._steering.wanted(number) is None and self._memories.is_empty(number)
            bare = self._lends and dense
        else:
            bare = plan.untouched
        step.plans[number] = plan
        if bare and number not in self._widened and number not in step.ready:
            step.bare.add(number)
