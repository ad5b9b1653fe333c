"""Stock Horovod as the core's network, from within a step.

TensorFlow has no handles: a collective is an operation that ends when all ranks have come. Each runs in a thread of its own.
In eager execution Horovod forgets the name it is given, and ranks whose collectives overlap in another order get each other's
data, so that each runs as a function with one named node.
"""

import os
import re
import zlib
from collections.abc import Callable
from concurrent.futures import Future

import horovod.tensorflow as hvd
import tensorflow as tf

from hvd_adaptive.binding.collective import RankSet
from hvd_adaptive.collective import Kind
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.ops import Array
from hvd_adaptive.ops.tensorflow_ops import TensorFlowOps
from hvd_adaptive.tensorflow.threads import apart

_OPS = {"mean": hvd.Average, "sum": hvd.Sum, "max": hvd.Max}


class HorovodCollective(RankSet):
    """Named collectives among the ranks of a process set.

    Args:
        process_set: a Horovod process set; all ranks by default.

    Raises:
        ConfigError: if Horovod was not initialised, the process set was not added to it, or TensorFlow has one thread only.
    """

    def __init__(self, process_set: hvd.ProcessSet = hvd.global_process_set) -> None:
        super().__init__(hvd, process_set)
        _check_threads()
        self._ops = TensorFlowOps()
        self._functions: dict[tuple[Kind, str, str], Callable[..., tf.Tensor]] = {}

    def start(self, kind: Kind, x: Array, name: str, splits: tuple[int, ...] = ()) -> "Future[tf.Tensor]":
        key = kind, name, self._ops.dtype(x)
        if key not in self._functions:
            self._functions[key] = self._function(kind, _node(name), key[2])
        given = (tf.constant(x), tf.constant(splits)) if kind == "alltoall" else (tf.constant(x),)
        return apart(self._functions[key], *given)

    def wait(self, handle: "Future[tf.Tensor]") -> Array:
        return self._ops.flatten(handle.result())

    def _function(self, kind: Kind, node: str, dtype: str) -> Callable[..., tf.Tensor]:
        options = {"name": node, "ignore_name_scope": True, "process_set": self.process_set}
        signature = [tf.TensorSpec([None], dtype)]

        def run(x: tf.Tensor, splits: tf.Tensor | None = None) -> tf.Tensor:
            if kind == "gather":
                return hvd.allgather(x, **options)
            if kind == "alltoall":
                return hvd.alltoall(x, splits, **options)[0]  # it also tells the lengths
            return hvd.allreduce(x, op=_OPS[kind], **options)

        if kind == "alltoall":
            signature.append(tf.TensorSpec([None], tf.int32))
        with tf.init_scope():
            function: Callable[..., tf.Tensor] = tf.function(
                run, input_signature=signature, autograph=False
            ).get_concrete_function()
        return function


def _check_threads() -> None:
    """A step holds one of TensorFlow's threads while it waits for collectives, which need another."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if (tf.config.threading.get_inter_op_parallelism_threads() or cores) == 1:
        raise ConfigError(
            "TensorFlow has one thread for operations (one core, or inter_op_parallelism_threads=1), and the first step would "
            "wait for itself forever; call tf.config.threading.set_inter_op_parallelism_threads(2) at the start of the program. "
            "mpirun binds each rank to one core unless it gets --bind-to none"
        )


def _node(name: str) -> str:
    """A node's name, in which few characters are legal, as unique as ``name``."""
    return f"{re.sub('[^A-Za-z0-9_.]', '_', name)}.{zlib.crc32(name.encode()):08x}"
