"""Units of plain vectors, fed as a backward pass feeds them."""

from typing import Any

from hvd_adaptive.feedback import Feedback, Gradients, UnitMemory
from hvd_adaptive.granularity import Parameter, Unit, entire_model
from hvd_adaptive.ops import Ops


def unit_of(sizes: tuple[int, ...], dtype: str) -> Unit:
    """One unit of vectors ``dtype[size]``."""
    return entire_model([Parameter(f"p{i}", (n,), dtype) for i, n in enumerate(sizes)])[0]


def absorbed(ops: Ops, feedback: Feedback, memory: UnitMemory, unit: Unit, gradient: Any) -> tuple[UnitMemory, Gradients]:
    """The memory after all slots of a numpy ``gradient`` came, last one first as in a backward pass; and the gradients."""
    gradients: Gradients = []
    for slot in reversed(unit.slots):
        gradients.append((slot, ops.from_numpy(gradient[slot.start : slot.stop])))
        memory, _ = feedback.absorb(ops, memory, unit, *gradients[-1], checks=False)
    return memory, gradients
