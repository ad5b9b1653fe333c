"""How an optimizer's gradients become those of all ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from horovod.common.process_sets import ProcessSet

from hvd_adaptive.errors import UnsupportedError
from hvd_adaptive.tensorflow import caller
from hvd_adaptive.tensorflow.compression import TensorFlowCompression


@dataclass(frozen=True, eq=False)
class Reduction:
    """Stock Horovod's reduction of the gradients of one optimizer.

    Attributes:
        name: of the optimizer; Horovod's operations begin with it.
        compression: as Horovod takes it.
        op: ``hvd.Average`` or ``hvd.Sum``.
        gradient_predivide_factor: as Horovod takes it.
        sparse_as_dense: make sparse gradients dense before they are reduced.
        groups: how many groups of gradients are handed over together; None for one by one.
        process_set: ranks to reduce over.
    """

    name: str
    compression: Any
    op: Any
    gradient_predivide_factor: float
    sparse_as_dense: bool
    groups: int | None
    process_set: ProcessSet

    @property
    def keeps_back(self) -> bool:
        """True if a later step may send what an earlier one did not."""
        return isinstance(self.compression, TensorFlowCompression)

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any], scale: Any = None) -> list[Any]:
        """The gradients to apply, on every rank the same.

        Args:
            gradients: of each variable: a tensor, ``tf.IndexedSlices`` or None, which stays None; values are left alone.
            variables: of Keras or of TensorFlow.
            scale: what the loss was multiplied with, if that changes from step to step.

        Raises:
            UnsupportedError: under XLA, or if a gradient is sparse that the compression object must compress.
        """
        caller.check_compiler()
        raw = [_raw(variable) for variable in variables]
        values = [one if is_value(variable) else None for one, variable in zip(gradients, variables, strict=True)]
        gradients = [None if value is not None else one for value, one in zip(values, gradients, strict=True)]
        dense = [
            tf.convert_to_tensor(one) if self.sparse_as_dense and isinstance(one, tf.IndexedSlices) else one for one in gradients
        ]
        sparse = [one if isinstance(one, tf.IndexedSlices) else None for one in dense]
        self._check_sparse(sparse, raw)
        dense = [None if one is not None else other for one, other in zip(sparse, dense, strict=True)]
        if any(one is not None for one in dense):
            dense = self._reduced(dense, raw, scale if self.keeps_back else None)
        # Apart from the others: among them, in one group, Horovod 0.28 gives sparse gradients the shape of another.
        reduced = _either(self._as_they_are(sparse, raw), dense)
        return _either(values, reduced)

    def of_values(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """``gradients``, in which those that are a variable's next value are the largest of all ranks.

        Keras 3 has them for the scales of float8 layers, and takes the largest where it accumulates, too.
        """
        values = [one if is_value(variable) else None for one, variable in zip(gradients, variables, strict=True)]
        return _either(self._as_they_are(values, [_raw(variable) for variable in variables], hvd.Max), gradients)

    def _as_they_are(self, gradients: list[Any], variables: list[tf.Variable], op: Any = None) -> list[Any]:
        """Reduced without compression, one by one, if there are any."""
        if all(one is None for one in gradients):
            return gradients
        return list(self._function(hvd.Compression.none, None, op)(gradients, variables))

    def _reduced(self, gradients: list[Any], variables: list[tf.Variable], scale: Any) -> list[Any]:
        if scale is not None:  # what is held back of this step is added to another, whose loss is scaled otherwise
            gradients = [None if one is None else one / tf.cast(scale, one.dtype) for one in gradients]
        reduced = self._function(self.compression, self.groups)(gradients, variables)
        if scale is not None:
            reduced = [None if one is None else one * tf.cast(scale, one.dtype) for one in reduced]
        return list(reduced)

    def _function(self, compression: Any, groups: int | None, op: Any = None) -> Any:
        """Horovod's, which keeps one for each set of arguments; ``op`` None is the optimizer's."""
        op, predivide = (self.op, self.gradient_predivide_factor) if op is None else (op, 1.0)
        return hvd._make_allreduce_grads_fn(self.name, "", "", compression, False, op, predivide, groups, self.process_set)

    def _check_sparse(self, sparse: list[Any], variables: list[tf.Variable]) -> None:
        if not self.keeps_back:
            return
        for one, variable in zip(sparse, variables, strict=True):
            if one is not None and not self.compression.excludes(variable):
                raise UnsupportedError(
                    f"the gradient of {variable.name!r} is tf.IndexedSlices, which Horovod sends past any compression; pass "
                    "sparse_as_dense=True to DistributedOptimizer, or exclude= the variable from the compression object"
                )


def is_value(variable: Any) -> bool:
    """True if Keras writes the "gradient" into the variable instead of taking a step."""
    return bool(getattr(variable, "overwrite_with_gradient", False))


def _either(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    return [other if one is None else one for one, other in zip(first, second, strict=True)]


def _raw(variable: Any) -> tf.Variable:
    """The variable that TensorFlow and Horovod know."""
    return variable.value if isinstance(variable, keras.Variable) else variable
