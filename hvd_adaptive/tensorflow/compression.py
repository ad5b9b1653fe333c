"""The object that stock Horovod takes as ``compression=``."""

import weakref
from collections.abc import Iterable
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from hvd_adaptive.binding.compression import Compression
from hvd_adaptive.compress import Compressor
from hvd_adaptive.errors import ConfigError, StateError
from hvd_adaptive.granularity import Parameter
from hvd_adaptive.ops import Array
from hvd_adaptive.ops.tensorflow_ops import TensorFlowOps
from hvd_adaptive.plan import Options
from hvd_adaptive.tensorflow import checkpoint
from hvd_adaptive.tensorflow.collective import HorovodCollective
from hvd_adaptive.tensorflow.hooks import Hooks
from hvd_adaptive.tensorflow.tracing import Checks
from hvd_adaptive.tensorflow.variables import checked, described

_latest: "dict[int, tuple[weakref.ref[TensorFlowCompression], int]]" = {}
"""The latest object by the id of its first variable, and how many before it, in a row, did one step each."""
_IN_A_ROW = 4
"""As many are no experiment any more."""


class TensorFlowCompression(Hooks, Compression, tf.train.experimental.PythonState):  # type: ignore[misc]  # untyped
    """Base of :class:`LayerWise`, :class:`EntireModel` and :class:`Bucketed`: pass an instance as ``compression=``.

    ``tf.train.Checkpoint(compression=compression)`` saves what an interrupted run needs; every rank saves its own.

    Args:
        variables: ``model.trainable_variables``, those of the tape, of Keras 2 or 3.
        compressor: the method, such as ``TopK(factor=100)``.
        **options: see :class:`hvd_adaptive.binding.compression.Compression`, also for what is raised.
    """

    lends = False

    def __init__(self, variables: Iterable[Any], compressor: Compressor, **options: Any) -> None:
        if tf.inside_function():
            raise ConfigError(
                "a compression object was built within a tf.function, so anew for every trace and without what it held back; "
                "build one before training"
            )
        super().__init__(variables, compressor, **options)
        self._check_not_in_step()
        controller = options.get("controller")
        exact = controller is not None and controller.agreement == "exact"
        self._checks = Checks(self._variables, self._excluded, self._steps.plans, exact=exact)
        self._prepare_hooks()

    def _join(self, process_set: hvd.ProcessSet) -> HorovodCollective:
        return HorovodCollective(process_set)

    def _backend(self) -> TensorFlowOps:
        return TensorFlowOps()

    def _checkpoints(self) -> "_Arrays":
        return _Arrays(self._variables)

    def _read(self, parameters: Iterable[Any], options: Options) -> list[tuple[Parameter, bool]]:
        given = checked(parameters)
        self._variables = {name: variable for name, variable in given.items() if variable.trainable}
        if self._variables:
            self._excluded = options.excluded(list(self._variables))
        return [(described(name, variable), variable.trainable) for name, variable in given.items()]

    def _check_not_in_step(self) -> None:
        """Refuse what an eager step builds again and again: what it holds back would be lost, and Horovod keeps each for ever."""
        key = id(next(iter(self._variables.values())))
        reference, row = _latest.get(key, (lambda: None, 0))
        before = reference()
        row = row + 1 if before is not None and before.stats().steps == 1 else 0
        if row >= _IN_A_ROW:
            raise ConfigError(
                f"this is one more compression object for the same variables, and the {row} before did one step each, so what "
                "they held back is lost; build one before training, and use it in every step"
            )
        _latest[key] = weakref.ref(self), row

    def reset(self) -> None:
        """Forget residuals, steps, totals and which gradients came, as if just built, on all ranks or none."""
        super().reset()
        self._checks.restart()

    @property
    def process_set(self) -> hvd.ProcessSet:
        """Whose ranks the object speaks to."""
        return self._collective.process_set

    def excludes(self, variable: tf.Variable) -> bool:
        """True if ``exclude=`` names the variable, whose gradient may then be sparse."""
        return any(self._variables[name] is variable for name in self._excluded)

    def serialize(self) -> bytes:
        """Called by ``tf.train.Checkpoint``: :meth:`state_dict` as bytes."""
        return checkpoint.packed(self.state_dict())

    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        """Called by ``tf.train.Checkpoint`` in place of :meth:`serialize`, which another thread shall call later.

        Raises:
            StateError: what is held back would then be of another step than the variables.
        """
        raise StateError(  # TensorFlow takes a NotImplementedError for a warning
            "a compression object cannot be saved in the background: leave out CheckpointOptions(enable_async=True), or save "
            "compression.state_dict() by yourself"
        )

    def deserialize(self, string_value: bytes) -> None:
        """Called by ``tf.train.Checkpoint``: :meth:`load_state_dict` of what :meth:`serialize` gave."""
        self.load_state_dict(checkpoint.unpacked(string_value))


class _Arrays:
    """Checkpoints hold numpy's arrays."""

    def __init__(self, variables: dict[str, tf.Variable]) -> None:
        self._variables = variables
        self._ops = TensorFlowOps()

    def save(self, array: Array) -> npt.NDArray[Any]:
        return np.array(self._ops.to_numpy(array))

    def zeros(self, n: int, dtype: str) -> npt.NDArray[Any]:
        return np.zeros(n, dtype)

    def load(self, saved: npt.NDArray[Any], parameter: str) -> Array:
        device = self._variables[parameter].device
        if "CPU" in device:
            return np.array(saved)  # what is over a tensor's memory cannot be written to
        with tf.device(device):
            return tf.constant(saved)

    def form(self, saved: Any) -> tuple[str, tuple[int, ...]] | None:
        if not isinstance(saved, np.ndarray) or saved.dtype.kind != "f" or not np.isfinite(saved).all():
            return None
        return saved.dtype.name, saved.shape
