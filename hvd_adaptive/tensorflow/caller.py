"""What Horovod was about when it called ``compress`` or ``decompress``.

It passes one tensor, and no word of which variable's gradient that is, nor of the others of the step; but its own functions know,
and while TensorFlow traces them they are on the stack. Their arguments are read there: see docs/decisions/014.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import horovod
import horovod.tensorflow as hvd
import tensorflow as tf

from hvd_adaptive.errors import ConfigError, UnsupportedError


@dataclass(frozen=True)
class Call:
    """One reduction that Horovod traces.

    Attributes:
        variables: all whose gradients are reduced in the step.
        gradients: of each of them: a tensor, ``tf.IndexedSlices`` or None.
        tensors: the dense ones that are handed over together with this one.
        user: Horovod's name of the tape or the optimizer.
        op: how Horovod reduces them.
        reduction: the same object in all calls of one reduction, and in no other.
    """

    variables: list[tf.Variable]
    gradients: list[Any]
    tensors: list[tf.Tensor]
    user: str
    op: Any
    reduction: Any

    @property
    def whole(self) -> bool:
        """True if all dense gradients of the step are handed over together."""
        return len(self.tensors) == sum(isinstance(gradient, tf.Tensor) for gradient in self.gradients)


def current(tensor: tf.Tensor) -> Call:
    """The reduction in which Horovod hands over ``tensor``.

    Raises:
        ConfigError: if it is no gradient of a tape or an optimizer.
        UnsupportedError: under XLA.
    """
    frames = list(_frames())
    check_compiler()
    if tf.config.functions_run_eagerly():
        raise ConfigError(
            "tf.config.run_functions_eagerly(True) keeps Horovod's functions from being traced, which a compression object "
            "needs; leave it out: steps of your own may run eagerly, and Keras has compile(run_eagerly=True)"
        )
    whole = _innermost([frame for frame in frames if isinstance(frame.f_locals.get("vars"), list | tuple)], "grads", tensor)
    if tf.executing_eagerly() or whole is None:
        raise ConfigError(
            "a compression object serves hvd.DistributedGradientTape and the optimizers of hvd.tensorflow.keras, which tell "
            f"whose gradient a tensor is (Horovod 0.28, this is {horovod.__version__}); it cannot be passed to hvd.allreduce"
        )
    group = _innermost(frames, "tensor_list", tensor)
    reducing = next((frame.f_locals for frame in frames if frame.f_code.co_name.endswith("allreduce")), {})
    return Call(
        variables=list(whole["vars"]),
        gradients=list(whole["grads"]),
        tensors=[tensor] if group is None else list(group["tensor_list"]),
        user=next((frame.f_locals["name"] for frame in frames if _is_reduction(frame)), "a tape or optimizer"),
        op=reducing.get("op"),
        reduction=whole["grads"],
    )


def check_compiler() -> None:
    """Refuse to be traced for XLA.

    Raises:
        UnsupportedError: if XLA is to compile what is being traced.
    """
    if any(getattr(frame.f_locals.get("self"), "_jit_compile", None) for frame in _frames()):
        raise UnsupportedError(
            "XLA compiles this function, and neither Horovod's collectives nor this package run within it: use "
            "tf.function(jit_compile=False) and model.compile(jit_compile=False)"
        )


def reduced(tensor: tf.Tensor) -> list[tf.Tensor]:
    """All tensors that Horovod reduced together with ``tensor``, in the order in which they were handed over."""
    group = _innermost(list(_frames()), "summed_tensors_compressed", tensor)
    return [tensor] if group is None else list(group["summed_tensors_compressed"])


def check_user() -> None:
    """Refuse optimizers that would not reduce what they are asked to.

    Raises:
        ConfigError: if Horovod builds an optimizer that drops part of what it was given, or never reduces.
    """
    frames = list(_frames())
    built = next((frame for frame in frames if frame.f_code.co_name == "create_distributed_optimizer"), None)
    if built is None:
        return
    if any(kind.__module__.split(".")[0] == "keras" for kind in type(built.f_locals["optimizer"]).__mro__):
        raise ConfigError(
            "stock Horovod's DistributedOptimizer never reduces gradients under Keras 3, and ranks drift apart unnoticed; use "
            "hvd_adaptive.keras.DistributedOptimizer(optimizer, compression=compression), or Keras 2 "
            "(pip install tf_keras, and TF_USE_LEGACY_KERAS=1 in the environment before TensorFlow is imported)"
        )
    if any(frame.f_code is hvd.DistributedOptimizer.__code__ for frame in frames):
        raise ConfigError(
            "horovod.tensorflow.DistributedOptimizer drops op= and groups= with a Keras optimizer; write "
            "import horovod.tensorflow.keras as hvd and hvd.DistributedOptimizer(optimizer, compression=compression, groups=1)"
        )


def from_cache() -> bool:
    """True if Horovod asks on behalf of the cache in which it looks up how to reduce."""
    frame = sys._getframe(2)
    return frame.f_globals.get("__name__") == "horovod.tensorflow.util"


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_reduction(frame: FrameType) -> bool:
    """True for Horovod's function of all gradients, also as AutoGraph writes it."""
    return frame.f_code.co_name.endswith("allreduce_grads") and "name" in frame.f_locals


def _innermost(frames: list[FrameType], name: str, tensor: tf.Tensor) -> dict[str, Any] | None:
    """The variables of the innermost call with a list ``name`` that holds ``tensor``."""
    for frame in frames:
        found = frame.f_locals.get(name)
        if isinstance(found, list | tuple) and any(one is tensor for one in found):
            return frame.f_locals
    return None
