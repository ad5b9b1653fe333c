"""What is kept back and added next time.

A unit owns one work vector ``f[n]``. Between steps it holds the residual; as gradients arrive they are absorbed into it, which
makes it the compensated gradient; after compression what was sent is taken out again. So nothing is lost by construction:
sent + residual = gradient + previous residual.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

from hvd_adaptive.compress.base import Compressor, Payload
from hvd_adaptive.granularity import Slot, Unit
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key

Gradients: TypeAlias = list[tuple[Slot, Array]]
"""Flat gradients with their places in the unit."""


class Feedback(Protocol):
    """How a unit's work vector is carried from step to step."""

    remembers: ClassVar[bool]
    """True if the work vector is state that a checkpoint must hold."""

    def absorb(self, ops: Ops, work: Array | None, unit: Unit, slot: Slot, gradient: Array) -> Array:
        """Take in the flat gradient of one slot; donates ``work``."""

    def keep(self, ops: Ops, work: Array, unit: Unit, compressor: Compressor, payload: Payload, key: Key) -> Array | None:
        """The work vector after ``payload`` was sent; donates ``work``."""

    def undo(
        self, ops: Ops, work: Array | None, compressor: Compressor, payload: Payload, key: Key, gradients: Gradients
    ) -> Array | None:
        """The work vector as it was before this step's ``gradients`` were absorbed and ``payload`` was sent; donates ``work``."""


@dataclass(frozen=True)
class Residual:
    """Error feedback: what compression dropped is added to the next gradient.

    Source: Seide et al. 2014; Karimireddy et al. 2019, "Error Feedback Fixes SignSGD", arXiv:1901.09847.
    """

    remembers: ClassVar[bool] = True

    def absorb(self, ops: Ops, work: Array | None, unit: Unit, slot: Slot, gradient: Array) -> Array:
        if work is None:
            work = ops.zeros(unit.size, unit.dtype, like=gradient)
        return ops.add_slice(work, slot.start, gradient)

    def keep(self, ops: Ops, work: Array, unit: Unit, compressor: Compressor, payload: Payload, key: Key) -> Array:
        return compressor.keep_back(ops, work, payload, key)

    def undo(self, ops: Ops, work: Array, compressor: Compressor, payload: Payload, key: Key, gradients: Gradients) -> Array:
        sent = compressor.decode(ops, payload, key)
        # What overflowed on its way was not kept back, so it cannot be taken back either.
        work = ops.add_slice(work, 0, ops.where(abs(sent) < math.inf, sent, ops.full_like(sent, 0.0)))
        for slot, gradient in gradients:
            work = ops.add_slice(work, slot.start, gradient, -1.0)
        return work


@dataclass(frozen=True)
class NoFeedback:
    """What compression dropped is gone."""

    remembers: ClassVar[bool] = False

    def absorb(self, ops: Ops, work: Array | None, unit: Unit, slot: Slot, gradient: Array) -> Array:
        if len(unit.slots) == 1:  # no copy; Horovod reduces every float but bfloat16
            return ops.cast(gradient, unit.dtype) if ops.dtype(gradient) == "bfloat16" else gradient
        if work is None:
            work = ops.zeros(unit.size, unit.dtype, like=gradient)
        return ops.set_slice(work, slot.start, gradient)

    def keep(self, ops: Ops, work: Array, unit: Unit, compressor: Compressor, payload: Payload, key: Key) -> Array | None:
        return work if len(unit.slots) > 1 else None  # the buffer serves again; a lone gradient belongs to its owner

    def undo(
        self, ops: Ops, work: Array | None, compressor: Compressor, payload: Payload, key: Key, gradients: Gradients
    ) -> Array | None:
        return work
