"""What :func:`hvd_adaptive.keras.DistributedOptimizer` may be given, and what to do instead of the rest."""

import math
from typing import Any

import horovod.tensorflow as hvd
import keras
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow.compression import Compressor as HorovodCompressor

from hvd_adaptive.compress import Compressor
from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.tensorflow.compression import TensorFlowCompression

_LEGAL = (
    "legal are one of hvd_adaptive.tensorflow, such as EntireModel(model.trainable_variables, TopK(factor=100)), and "
    "horovod.tensorflow's hvd.Compression.none and hvd.Compression.fp16"
)


def check_start() -> None:
    """Refuse what Keras or Horovod is not ready for.

    Raises:
        ConfigError: if Horovod is not initialised.
        UnsupportedError: without Keras 3 on TensorFlow.
    """
    if int(keras.__version__.partition(".")[0]) < 3:
        raise UnsupportedError(
            f"this is Keras {keras.__version__}, and hvd_adaptive.keras is for Keras 3; use "
            "horovod.tensorflow.keras.DistributedOptimizer, which takes the same compression objects"
        )
    if keras.backend.backend() != "tensorflow":
        raise UnsupportedError(
            f"Keras runs on {keras.backend.backend()!r}, and hvd_adaptive.keras reduces gradients of TensorFlow only; set "
            "KERAS_BACKEND=tensorflow before Keras is imported. Loops of PyTorch use horovod.torch and hvd_adaptive.torch"
        )
    if not hvd.is_initialized():
        raise ConfigError("Horovod is not initialised; call hvd.init() first")


def check_optimizer(optimizer: Any, distributed: type) -> None:
    """Refuse what is no optimizer of Keras 3, or reduces gradients already.

    Args:
        optimizer: what the user gave.
        distributed: base of optimizers that reduce.

    Raises:
        ConfigError: as above.
    """
    modules = {kind.__module__.split(".")[0] for kind in type(optimizer).__mro__}
    if "tf_keras" in modules:
        raise ConfigError(
            f"{type(optimizer).__name__} is an optimizer of Keras 2; use horovod.tensorflow.keras.DistributedOptimizer, which "
            "takes the same compression objects, or an optimizer of keras.optimizers"
        )
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ConfigError(f"optimizer must be one of Keras 3, such as keras.optimizers.SGD(0.01), got {optimizer!r}")
    if isinstance(optimizer, distributed) or hasattr(optimizer, "_allreduce_grads"):
        raise ConfigError("the optimizer reduces gradients already; hand over the one it was made of")
    if isinstance(getattr(optimizer, "inner_optimizer", None), distributed):
        raise UnsupportedError(wrong_way_round())


def wrong_way_round() -> str:
    """Why a LossScaleOptimizer must not be around an optimizer that reduces."""
    return (
        "a LossScaleOptimizer around the distributed optimizer skips a step on the ranks alone whose own gradients overflow, and "
        "the others wait for them forever; put it inside, for float16 models, which model.compile() would wrap by itself: "
        "DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer), ...)"
    )


def checked_compression(compression: Any) -> Any:
    """What Horovod gets: ``compression``, or none where it is None.

    Raises:
        ConfigError: if it is nothing that Horovod's TensorFlow functions can call.
    """
    if compression is None:
        return hvd.Compression.none
    kind = compression if isinstance(compression, type) else type(compression)
    if issubclass(kind, HorovodCompressor) and kind not in {HorovodCompressor, TensorFlowCompression}:
        if isinstance(compression, type) and issubclass(kind, TensorFlowCompression):
            raise ConfigError(f"compression is the class {kind.__name__}; {_LEGAL}")
        return compression
    if isinstance(compression, Compressor):
        raise ConfigError(f"compression is {compression!r}, a method without the variables to use it on; {_LEGAL}")
    if kind.__module__.startswith(("hvd_adaptive.torch", "horovod.torch")):
        raise ConfigError(f"compression is {kind.__module__}.{kind.__name__}, which is for PyTorch; {_LEGAL}")
    raise ConfigError(f"compression is {compression!r}; {_LEGAL}")


def check_passes(passes: Any) -> None:
    """Refuse Horovod's own accumulation.

    Raises:
        UnsupportedError: if ``passes`` is more than 1.
        ConfigError: if it is no number of passes.
    """
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 1:
        raise ConfigError(f"backward_passes_per_step must be 1, got {passes!r}")
    if passes > 1:
        raise UnsupportedError(
            f"backward_passes_per_step={passes}: Keras 3 accumulates gradients itself, and takes their mean where Horovod takes "
            f"their sum; pass gradient_accumulation_steps={passes} to the optimizer, which reduces once in so many steps"
        )


def check_reduction(op: Any, gradient_predivide_factor: Any, groups: Any) -> None:
    """Refuse what Horovod could not do, or would do wrong.

    Raises:
        ConfigError: if an argument is not legal.
        UnsupportedError: with Adasum.
    """
    if op == hvd.Adasum:
        raise UnsupportedError(
            "op=hvd.Adasum combines whole updates, and Keras 3 shows gradients only; use op=hvd.Average or op=hvd.Sum"
        )
    if op not in {hvd.Average, hvd.Sum}:
        raise ConfigError(f"op must be hvd.Average or hvd.Sum, got {op!r}")
    factor = gradient_predivide_factor
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise ConfigError(f"gradient_predivide_factor must be a finite number > 0, got {factor!r}")
    if factor != 1 and op != hvd.Average:
        raise ConfigError(f"gradient_predivide_factor={factor!r} goes with op=hvd.Average only, which it splits in two divisions")
    if groups is not None and (isinstance(groups, bool) or not isinstance(groups, int) or groups < 1):
        raise ConfigError(
            f"groups must be None or a number >= 1, got {groups!r}; lists of variables go by their names, which Keras 3 gives "
            "more than once, and Horovod would lose gradients"
        )


def check_process_set(process_set: Any) -> None:
    """
    Raises:
        ConfigError: if it is no process set that Horovod knows.
    """
    if not isinstance(process_set, ProcessSet):
        raise ConfigError(f"process_set must be one from hvd.add_process_set(), got {process_set!r}")
    if process_set.process_set_id is None:
        raise ConfigError(
            f"process_set {process_set} is unknown to Horovod; call hvd.add_process_set(process_set) on all ranks first"
        )


def chosen_process_set(process_set: Any, compression: Any) -> ProcessSet:
    """The ranks to reduce over.

    Raises:
        ConfigError: if it is no process set that Horovod knows, or not the compression object's.
    """
    own = compression.process_set if isinstance(compression, TensorFlowCompression) else hvd.global_process_set
    if process_set is None:
        return own
    check_process_set(process_set)
    if isinstance(compression, TensorFlowCompression) and process_set.process_set_id != own.process_set_id:
        raise ConfigError(f"process_set is {process_set}, and the compression object's is {own}; give both the same process_set=")
    return process_set
