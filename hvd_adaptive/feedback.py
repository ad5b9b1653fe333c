"""What is kept back and added next time.

A unit remembers named vectors f[n]. As gradients arrive they are absorbed; when the last one is in, the vector to compress is
ready; after the exchange what was sent is taken out again. With :class:`Residual` nothing is lost by construction:
sent + residual = gradient + previous residual.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias

from hvd_adaptive import checks
from hvd_adaptive.granularity import Slot, Unit
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.ops.verdicts import Verdict, spoilt

UnitMemory: TypeAlias = dict[str, Array]
"""What a unit remembers, by name. Functions that take one donate its arrays, and return the memory to go on with."""

Gradients: TypeAlias = list[tuple[Slot, Array]]
"""Flat gradients with their places in the unit."""

KeepBack: TypeAlias = Callable[[Array], Array]
"""Takes what was sent out of the vector that was compressed, x - D(C(x)); donates it."""


class Feedback(Protocol):
    """How a unit's memory is carried from step to step."""

    remembers: ClassVar[tuple[str, ...]]
    """Names of the vectors f[n] that a checkpoint must hold."""
    empties: ClassVar[bool]
    """True if nothing of them is left once all there is was sent."""

    def absorb(
        self, ops: Ops, memory: UnitMemory, unit: Unit, slot: Slot, gradient: Array, *, checks: bool
    ) -> tuple[UnitMemory, Verdict]:
        """Take in the flat gradient of one slot; zeros in its place, and False, if it ``checks`` and that is not finite."""

    def complete(self, ops: Ops, memory: UnitMemory, unit: Unit, ranks: int) -> tuple[Array, UnitMemory]:
        """All slots are in. Returns the vector to compress, f[n], one of the memory's own, and the memory."""

    def keep(self, ops: Ops, memory: UnitMemory, unit: Unit, keep_back: KeepBack, positions: Array | None) -> UnitMemory:
        """The memory after the vector was sent, or of it only the elements at ``positions``."""

    def undo(self, ops: Ops, memory: UnitMemory, unit: Unit, gradients: Gradients) -> UnitMemory:
        """The memory as it was before this step's ``gradients`` were absorbed; nothing was sent."""


@dataclass(frozen=True)
class Residual:
    """Error feedback: what compression dropped is added to the next gradient.

    Args:
        decay: what the residual is multiplied with before it is added, from 0 to 1.

    Raises:
        ConfigError: if ``decay`` is not a number from 0 to 1.

    Source: Seide et al. 2014; Karimireddy et al. 2019, "Error Feedback Fixes SignSGD", arXiv:1901.09847.
    """

    decay: float = 1.0
    remembers: ClassVar[tuple[str, ...]] = ("residual",)
    empties: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", checks.number("Residual", "decay", self.decay, 0, 1))

    def absorb(
        self, ops: Ops, memory: UnitMemory, unit: Unit, slot: Slot, gradient: Array, *, checks: bool
    ) -> tuple[UnitMemory, Verdict]:
        residual = memory.get("residual")
        if residual is None:
            residual = ops.zeros(unit.size, unit.dtype, like=gradient)
        residual, finite = ops.add_finite(residual, slot.start, gradient)  # always: what is not finite would stay for ever
        return memory | {"residual": residual}, finite

    def complete(self, ops: Ops, memory: UnitMemory, unit: Unit, ranks: int) -> tuple[Array, UnitMemory]:
        return memory["residual"], memory

    def keep(self, ops: Ops, memory: UnitMemory, unit: Unit, keep_back: KeepBack, positions: Array | None) -> UnitMemory:
        residual = keep_back(memory["residual"])
        changed = residual if positions is None else ops.take(residual, positions)  # the others are finite, as they were
        if ops.all_finite(changed) is not True:
            residual = without_overflow(ops, residual)
        return memory | {"residual": residual if self.decay == 1.0 else ops.scale(residual, self.decay)}

    def undo(self, ops: Ops, memory: UnitMemory, unit: Unit, gradients: Gradients) -> UnitMemory:
        residual = memory["residual"]
        for slot, gradient in gradients:
            residual = ops.add_slice(residual, slot.start, gradient, -1.0)
        return memory | {"residual": residual}


@dataclass(frozen=True)
class NoFeedback:
    """What compression dropped is gone."""

    remembers: ClassVar[tuple[str, ...]] = ()
    empties: ClassVar[bool] = True

    def absorb(
        self, ops: Ops, memory: UnitMemory, unit: Unit, slot: Slot, gradient: Array, *, checks: bool
    ) -> tuple[UnitMemory, Verdict]:
        return assembled(ops, memory, unit, slot, gradient, checks=checks)

    def complete(self, ops: Ops, memory: UnitMemory, unit: Unit, ranks: int) -> tuple[Array, UnitMemory]:
        return memory["gradient"], memory

    def keep(self, ops: Ops, memory: UnitMemory, unit: Unit, keep_back: KeepBack, positions: Array | None) -> UnitMemory:
        return kept_buffer(memory, unit)

    def undo(self, ops: Ops, memory: UnitMemory, unit: Unit, gradients: Gradients) -> UnitMemory:
        return kept_buffer(memory, unit)


@dataclass(frozen=True)
class MomentumCorrection:
    """Momentum inside the residual: what waits to be sent gathers the momentum it would have had.

    The optimizer must be plain SGD without momentum.

    Args:
        momentum: from 0 to below 1.
        nesterov: take Nesterov's momentum.
        clip: a unit's gradient is cut to this norm, divided by the square root of the number of ranks, before it is added; None
            cuts nothing.
        masking: forget the momentum of what was sent, which has been waiting.

    Raises:
        ConfigError: if one of them is not legal.

    Source: Lin et al. 2018, "Deep Gradient Compression", arXiv:1712.01887, sections 3.2 and 3.3.
    """

    momentum: float = 0.9
    nesterov: bool = False
    clip: float | None = None
    masking: bool = True
    remembers: ClassVar[tuple[str, ...]] = ("residual", "velocity")
    empties: ClassVar[bool] = False

    def __post_init__(self) -> None:
        owner = type(self).__name__
        object.__setattr__(self, "momentum", checks.number(owner, "momentum", self.momentum, 0, 0.9999))
        if self.clip is not None:
            object.__setattr__(self, "clip", checks.number(owner, "clip", self.clip, 1e-30, 1e30, hint="a norm, or None"))
        for name in ("nesterov", "masking"):
            checks.flag(owner, name, getattr(self, name))

    def absorb(
        self, ops: Ops, memory: UnitMemory, unit: Unit, slot: Slot, gradient: Array, *, checks: bool
    ) -> tuple[UnitMemory, Verdict]:
        return assembled(ops, memory, unit, slot, gradient, checks=checks)

    def complete(self, ops: Ops, memory: UnitMemory, unit: Unit, ranks: int) -> tuple[Array, UnitMemory]:
        gradient = ops.cast(memory["gradient"], unit.dtype)
        if self.clip is not None:
            norm, limit = ops.row_norm(gradient, unit.size), self.clip / ranks**0.5
            gradient = gradient * (limit / ops.where(norm > limit, norm, ops.full_like(norm, limit)))
        zeros = ops.zeros(unit.size, unit.dtype, like=gradient)
        velocity = ops.scale(memory.get("velocity", zeros), self.momentum) + gradient
        moved = ops.scale(velocity, self.momentum) + gradient if self.nesterov else velocity
        compensated = memory.get("residual", zeros) + moved
        return compensated, memory | {"compensated": compensated, "next velocity": velocity}

    def keep(self, ops: Ops, memory: UnitMemory, unit: Unit, keep_back: KeepBack, positions: Array | None) -> UnitMemory:
        velocity = without_overflow(ops, memory["next velocity"])
        residual = without_overflow(ops, keep_back(memory["compensated"]))
        if self.masking and positions is not None:
            velocity = ops.clear(velocity, positions)
        return self.undo(ops, memory, unit, []) | {"residual": residual, "velocity": velocity}

    def undo(self, ops: Ops, memory: UnitMemory, unit: Unit, gradients: Gradients) -> UnitMemory:
        passing = ("compensated", "next velocity")  # the old residual and velocity are still there
        return {name: array for name, array in kept_buffer(memory, unit).items() if name not in passing}


def without_overflow(ops: Ops, x: Array) -> Array:
    """``x`` with zeros where it is not finite: what is too large for its dtype must not stay for ever."""
    return x if ops.all_finite(x) is True else ops.where(abs(x) < math.inf, x, ops.full_like(x, 0.0))


def assembled(
    ops: Ops, memory: UnitMemory, unit: Unit, slot: Slot, gradient: Array, *, checks: bool
) -> tuple[UnitMemory, Verdict]:
    """The gradients of a unit in one vector; one that fills it is that vector, where Horovod could reduce it."""
    finite = not checks or ops.all_finite(gradient)
    gradient = spoilt(ops, gradient, finite, 0.0)
    if slot.stop - slot.start == unit.size:
        whole = ops.cast(gradient, unit.dtype) if ops.dtype(gradient) == "bfloat16" else gradient
        return memory | {"gradient": whole}, finite
    buffer = memory.get("gradient")
    if buffer is None:
        buffer = ops.zeros(unit.size, unit.dtype, like=gradient)
    return memory | {"gradient": ops.set_slice(buffer, slot.start, gradient)}, finite


def kept_buffer(memory: UnitMemory, unit: Unit) -> UnitMemory:
    """``memory`` without a lone gradient, which belongs to its owner; the buffer of several serves again."""
    return memory if len(unit.slots) > 1 else {name: array for name, array in memory.items() if name != "gradient"}
