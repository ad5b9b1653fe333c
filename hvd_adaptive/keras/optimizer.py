"""An optimizer of Keras 3 that reduces gradients over ranks before it applies them."""

import sys
import weakref
from collections.abc import Sequence
from types import FrameType
from typing import Any, ClassVar

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from horovod.common.process_sets import ProcessSet

from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.keras import checks
from hvd_adaptive.keras.reduction import Reduction, is_value

_users = weakref.WeakKeyDictionary[Any, "weakref.ref[Any]"]()
"""Which optimizer uses a compression object."""


class Distributed:
    """Stands before an optimizer's own class, so that ``apply`` comes here first."""

    _reduction: ClassVar[Reduction]
    _waiting: ClassVar[list[tuple[bool, Any]] | None]
    """While Keras accumulates: all variables, each with whether its gradient comes to :meth:`_clip_gradients`."""
    _reduced: ClassVar[bool]
    """Whether they came."""

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Update the variables with the gradients of all ranks.

        Args:
            grads: of each variable, of this rank: a tensor, ``tf.IndexedSlices`` or None.
            trainable_variables: those; None for all that the optimizer was built with.

        Raises:
            UnsupportedError: within XLA or a LossScaleOptimizer, or if a sparse gradient must be compressed.
            ConfigError: if the compression object is of other variables.
        """
        _check_not_within(self)
        own: Any = super()
        grads = list(grads)
        trainable_variables = None if trainable_variables is None else list(trainable_variables)
        variables = self._trainable_variables if trainable_variables is None else trainable_variables  # type: ignore[attr-defined]  # Keras's
        if len(grads) != len(variables) or all(one is None for one in grads):
            own.apply(grads, trainable_variables)  # which has words for it
            return
        grads = self._reduction.of_values(grads, variables)
        if self.gradient_accumulation_steps:  # type: ignore[attr-defined]  # Keras's
            self._apply_some(grads, trainable_variables, variables)
        else:
            own.apply(self._reduction(grads, variables, self._scale()), trainable_variables)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Asked by ``copy`` and ``pickle``.

        Raises:
            UnsupportedError: a copy would reduce nothing.
        """
        raise UnsupportedError(
            "a distributed optimizer cannot be copied or pickled; copy the one that it was made of before, with "
            "type(optimizer).from_config(optimizer.get_config()), and make that one distributed"
        )

    def _apply_some(self, grads: list[Any], given: list[Any] | None, variables: Sequence[Any]) -> None:
        """Keras adds up gradients and clips and applies their mean in some steps, so reduce only in those."""
        own: Any = super()
        kind: Any = type(self)
        pairs = zip(grads, variables, strict=True)
        kind._waiting = [(one is not None and not is_value(v), v) for one, v in pairs]
        kind._reduced = False
        try:
            own.apply(grads, given)
        finally:
            kind._waiting = None
        steps, done = self.gradient_accumulation_steps, self._iterations  # type: ignore[attr-defined]  # Keras's
        if not kind._reduced and (not tf.executing_eagerly() or int(done) % steps == 0):
            raise UnsupportedError(
                f"Keras {keras.__version__} accumulates gradients in another way than hvd_adaptive.keras knows; leave out "
                "gradient_accumulation_steps"
            )

    def _clip_gradients(self, grads: list[Any]) -> Any:
        """What Keras calls with the gradients it is about to apply."""
        own: Any = super()
        kind: Any = type(self)
        if kind._waiting is not None:
            given = iter(grads)
            kind._reduced = True
            every = [next(given) if present else None for present, _ in kind._waiting]
            reduced = self._reduction(every, [variable for _, variable in kind._waiting])
            grads = [one for one, (present, _) in zip(reduced, kind._waiting, strict=True) if present]
        return own._clip_gradients(grads)

    def _scale(self) -> Any:
        """What a LossScaleOptimizer multiplies the loss with in this step; None for others."""
        if not isinstance(self, keras.optimizers.LossScaleOptimizer):
            return None
        return self.dynamic_scale.value if self.built else self.initial_scale


def DistributedOptimizer(  # noqa: N802 - the name that Horovod's users know
    optimizer: Any,
    *,
    compression: Any = None,
    op: Any = hvd.Average,
    gradient_predivide_factor: float = 1.0,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    groups: int | None = 1,
    process_set: ProcessSet | None = None,
) -> Any:
    """Make ``optimizer`` apply the gradients of all ranks, by stock Horovod's reduction; it is changed, and returned.

    For Keras it stays what it was: a saved model loads without Horovod. Clipping and weight decay come after the reduction.

    With its own ``gradient_accumulation_steps``, gradients are reduced once in so many steps. Under a LossScaleOptimizer, which
    must be inside, all ranks skip a step in which one overflows; an object of this package compresses gradients at their true
    scale. An optimizer within that one accumulates what was reduced in every step.

    Args:
        optimizer: of Keras 3.
        compression: an object of ``hvd_adaptive.tensorflow``, Horovod's ``hvd.Compression.none`` or ``.fp16``; None for none.
        op: ``hvd.Average`` or ``hvd.Sum``.
        gradient_predivide_factor: splits the division by the number of ranks in two: before and after the sum.
        sparse_as_dense: make ``tf.IndexedSlices`` dense, so that they are compressed; else their parts are gathered.
        backward_passes_per_step: 1; see ``gradient_accumulation_steps`` of the optimizer for more.
        groups: how many groups of gradients go together; None for one by one, which EntireModel and Bucketed cannot do with.
        process_set: ranks to reduce over; None for the compression object's, or else all.

    Raises:
        ConfigError: if an argument is not legal, another optimizer uses the compression object, or Horovod is not initialised.
        UnsupportedError: for Adasum, accumulation in Horovod's way, another backend of Keras than TensorFlow, and a
            LossScaleOptimizer around a distributed optimizer.
    """
    checks.check_start()
    checks.check_optimizer(optimizer, Distributed)
    checks.check_passes(backward_passes_per_step)
    checks.check_reduction(op, gradient_predivide_factor, groups)
    compression = checks.checked_compression(compression)
    process_set = checks.chosen_process_set(process_set, compression)
    name, predivide = f"Distributed{type(optimizer).__name__}", float(gradient_predivide_factor)
    reduction = Reduction(name, compression, op, predivide, sparse_as_dense, groups, process_set)
    if reduction.keeps_back and compression in _users and _users[compression]() is not None:
        raise ConfigError(
            "another optimizer uses this compression object, and what it holds back for one must not reach the other's "
            "variables; build one for each (the optimizer that a model was compiled with is in use)"
        )
    _distribute(optimizer, reduction)
    if reduction.keeps_back:
        _users[compression] = weakref.ref(optimizer)
    return optimizer


def _distribute(optimizer: Any, reduction: Reduction) -> None:
    """Give the optimizer a class of its own, before which comes :class:`Distributed`.

    A new one from its configuration would lack what that does not hold: variables excluded from weight decay, schedules that
    cannot be saved.
    """
    kind = type(optimizer)
    # On the class and not on the object, where Keras and TensorFlow would save it with the model.
    own = {"_reduction": reduction, "_waiting": None, "_reduced": False}
    # Keras looks up by the object's class what a saved model shall name; type() tells the truth.
    shown = {"__class__": property(lambda _: kind), "__doc__": kind.__doc__}
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    object.__setattr__(optimizer, "__class__", type(kind.__name__, (Distributed, kind), own | shown | names))


def _check_not_within(optimizer: Any) -> None:
    """Refuse to be called by a LossScaleOptimizer, which Keras wraps around optimizers of float16 models."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        outer = frame.f_locals.get("self")
        if isinstance(outer, keras.optimizers.LossScaleOptimizer) and outer.inner_optimizer is optimizer:
            raise UnsupportedError(checks.wrong_way_round())
        frame = frame.f_back
