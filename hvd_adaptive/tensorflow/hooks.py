"""What stock Horovod traces: ``compress`` for each gradient, ``decompress`` for each.

Both are traced once. They put two host calls around Horovod's own allreduce: one takes the gradients that Horovod hands over
together and launches their units, the other waits for the units' means. What is decided from step to step is decided within them,
so nothing is traced again when a factor changes.
"""

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from horovod.tensorflow.compression import Compressor as HorovodCompressor

from hvd_adaptive.binding.collective import RankSet
from hvd_adaptive.binding.on_instances import on_instances
from hvd_adaptive.binding.step import Place
from hvd_adaptive.binding.steps import Steps
from hvd_adaptive.binding.token import Tokens
from hvd_adaptive.binding.watch import Watch
from hvd_adaptive.errors import UnsupportedError
from hvd_adaptive.monitor import Meter
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.tensorflow import caller
from hvd_adaptive.tensorflow.threads import apart
from hvd_adaptive.tensorflow.tracing import Checks, Handed

_PRECISION = {"float32": 1e-5, "float64": 1e-9}
"""To which a mean over ranks of numbers up to 1 is good, by dtype; rounding adds up over thousands of ranks."""


@dataclass(eq=False)
class _Group:
    """Gradients that Horovod hands over together.

    Attributes:
        handed: whose they are, and what else the step brings.
        tensors: the gradients, as traced; variables may share one.
        dtype: of tokens; Horovod reduces together only what has one.
        sent: what Horovod allreduces of each.
        left: places of those that Horovod did not ask for yet.
        given: the gradients to use, once they are traced.
    """

    handed: Handed
    tensors: list[tf.Tensor]
    dtype: tf.DType
    sent: list[tf.Tensor]
    left: list[int]
    given: list[tf.Tensor] | None = None

    def place_of(self, tensor: tf.Tensor) -> int | None:
        """Where ``tensor`` is among those that are left."""
        return next((place for place in self.left if self.tensors[place] is tensor), None)


class Hooks(HorovodCompressor):  # type: ignore[misc]  # untyped
    """The methods Horovod calls; whoever inherits them sets what they work with."""

    _collective: RankSet
    _meter: Meter
    _ops: Ops
    _places: dict[str, Place]
    _steps: Steps
    _tokens: Tokens
    _watch: Watch
    _checks: Checks
    _variables: dict[str, tf.Variable]

    def _prepare_hooks(self) -> None:
        self._lock = threading.Lock()
        self._groups = weakref.WeakKeyDictionary[Any, _Group]()
        dtypes = [slot.parameter.dtype for plan in self._steps.plans if plan.untouched for slot in plan.unit.slots]
        # One only, for what Horovod reduces together must have one, and then tokens have it, too.
        self._lent_dtype = next((dtype for dtype in dtypes if dtype in _PRECISION), None)

    def __hash__(self) -> int:
        # Horovod looks up by it how to reduce, before any gradient comes: the first sight of who is going to use this object.
        if caller.from_cache():
            caller.check_user()
        return id(self)

    @on_instances
    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def compress(self, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Traced by Horovod with a variable's gradient. Returns the tensor it shall allreduce, and a context."""
        graph = tf.compat.v1.get_default_graph()
        group = self._groups.get(graph)
        place = None if group is None else group.place_of(tensor)
        if group is None or place is None:
            group = self._groups[graph] = self._trace(caller.current(tensor))
            place = next(place for place, one in enumerate(group.tensors) if one is tensor)
        group.left.remove(place)
        return group.sent[place], (group, place)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def decompress(self, tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Traced by Horovod with what its allreduce made of :meth:`compress`'s tensor. Returns the gradient to use."""
        group, place = ctx
        if group.given is None:
            group.given = self._trace_end(group, caller.reduced(tensor))
        return group.given[place]

    def _trace(self, call: caller.Call) -> _Group:
        """Put the first host call into the graph."""
        handed = self._checks.handed(call)
        lent = [self._is_lent(name) for name in handed.names]
        dtype = next((tensor.dtype for tensor, is_lent in zip(call.tensors, lent, strict=True) if is_lent), tf.float32)
        group = _Group(handed, call.tensors, dtype, [], list(range(len(call.tensors))))
        taken = [tensor for tensor, is_lent in zip(call.tensors, lent, strict=True) if not is_lent]
        tokens = tf.py_function(_on_host(self._begin, group), taken, [dtype] * len(taken))
        left = iter(tokens if taken else ())
        with tf.control_dependencies([tokens] if isinstance(tokens, tf.Operation) else tokens):
            for tensor, is_lent in zip(call.tensors, lent, strict=True):
                group.sent.append(tf.identity(tensor) if is_lent else tf.ensure_shape(next(left), [None]))
        return group

    def _trace_end(self, group: _Group, reduced: list[tf.Tensor]) -> list[tf.Tensor]:
        """Put the second host call into the graph."""
        lent = [self._is_lent(name) for name in group.handed.names]
        dtypes = [tensor.dtype for tensor, is_lent in zip(group.tensors, lent, strict=True) if not is_lent]
        flat = tf.py_function(_on_host(self._end, group), reduced, dtypes)
        left = iter(flat if dtypes else ())
        given = []
        with tf.control_dependencies([flat] if isinstance(flat, tf.Operation) else flat):
            for name, tensor, is_lent in zip(group.handed.names, reduced, lent, strict=True):
                shape = self._places[name].slot.parameter.shape
                given.append(tf.identity(tensor) if is_lent else _final(tf.reshape(next(left), shape)))
        return given

    def _is_lent(self, name: str) -> bool:
        """True if Horovod's own allreduce carries the gradient itself, in every step."""
        place = self._places[name]
        return self._steps.plans[place.unit].untouched and place.slot.parameter.dtype == self._lent_dtype

    def _begin(self, group: _Group, *gradients: tf.Tensor) -> list[Array]:
        """Within a step: take a group's gradients, those that are not lent. Returns their tokens."""
        with self._lock:
            self._watch.note()
            steps, given = self._steps, iter(gradients)
            opens = not steps.current.arrived or group.handed.names[0] in steps.current.arrived
            for name in group.handed.names:
                steps.arrive(name)
            taken = {name: next(given) for name in group.handed.names if not self._is_lent(name)}
            units = dict.fromkeys(self._places[name].unit for name in taken)
            for number in [*(group.handed.silent if opens else ()), *units]:
                steps.take_unit(number, [self._gradient(slot.parameter.name, taken) for slot in steps.plans[number].unit.slots])
            if len(steps.current.arrived) == group.handed.expected:
                steps.all_sent()
            tokens = [np.array(self._tokens.make(name, lambda: steps.mark), group.dtype.as_numpy_dtype) for name in taken]
            self._meter.add_bytes(sum(token.nbytes for token in tokens))
            return tokens

    def _gradient(self, name: str, taken: dict[str, tf.Tensor]) -> Array:
        """The gradient of a variable, flat; zeros where the loss does not depend on it."""
        return self._ops.flatten(taken[name] if name in taken else tf.zeros_like(self._variables[name]))

    def _end(self, group: _Group, *reduced: tf.Tensor) -> list[Array]:
        """Within a step: the gradients to use of a group, flat, those that are not lent."""
        with self._lock:
            steps, flat = self._steps, []
            for name, tensor in zip(group.handed.names, reduced, strict=True):
                place = self._places[name]
                if self._is_lent(name):
                    steps.give_untouched(place, self._ops.flatten(tensor))
                else:
                    precision = _PRECISION[group.dtype.name]
                    self._tokens.read(
                        name, tensor.numpy().tolist, lambda: steps.mark, first=not steps.current.means, precision=precision
                    )
                    mean = steps.give(place, self._tokens.weight, alone=len(group.handed.names) < group.handed.expected)
                    flat.append(self._ops.cast(mean, place.slot.parameter.dtype))
                steps.current.returned += 1
            if steps.current.returned == group.handed.expected:
                steps.finish()
                self._watch.rest()
            return flat


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _final(gradient: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """``gradient``, of which no tape may ask how it came about: host calls would answer zero."""

    def differentiated(_: tf.Tensor) -> tf.Tensor:
        raise UnsupportedError(
            "a compressed gradient was differentiated, which has no answer: take second derivatives from a plain "
            "tf.GradientTape, and let the distributed tape see the loss only, outside of other tapes"
        )

    return tf.identity(gradient), differentiated


def _on_host(function: Callable[..., list[Array]], group: _Group) -> Callable[..., list[Array]]:
    """``function`` of a group, in a thread in which no tape records it, and what overflows is infinite, as in TensorFlow."""

    def run(*tensors: tf.Tensor) -> list[Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(group, *tensors)

    return lambda *tensors: apart(run, *tensors).result()
