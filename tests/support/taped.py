"""A small model of plain variables, trained through Horovod's tape on every rank, each on its own data."""

from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

import hvd_adaptive.tensorflow as hva

SHAPES = {"first/kernel": (20, 60), "first/bias": (60,), "second/kernel": (60, 40), "second/bias": (40,), "last/kernel": (40, 5)}


def model(dtype: str = "float32", seed: int = 1) -> list[tf.Variable]:
    """About 4,000 parameters in five variables; the same on every rank."""
    rng = np.random.default_rng(seed)
    return [tf.Variable((rng.standard_normal(shape) / 6).astype(dtype), name=name) for name, shape in SHAPES.items()]


def loss_of(variables: Sequence[tf.Variable], inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Squared error of a perceptron."""
    first, first_bias, second, second_bias, last = variables
    hidden = tf.tanh(tf.nn.relu(inputs @ first + first_bias) @ second + second_bias)
    return tf.reduce_mean((hidden @ last - targets) ** 2)


def batches(steps: int, rank: int, *, first: int = 0, dtype: str = "float32") -> list[tuple[Any, Any]]:
    """Inputs f[16, 20] and targets f[16, 5] that differ by rank and step."""
    found = []
    for step in range(first, first + steps):
        rng = np.random.default_rng([rank, step])
        found.append((rng.standard_normal((16, 20)).astype(dtype), rng.standard_normal((16, 5)).astype(dtype)))
    return found


def stepping(
    variables: Sequence[tf.Variable], compression: Any, *, traced: bool = True, autograph: bool = False, **tape_options: Any
) -> Callable[..., Any]:
    """One step of plain gradient descent: a function of inputs and targets that returns the gradients it took.

    Without AutoGraph it is traced much faster. An eager step has it all the same, for Horovod does not leave it out.
    """
    options = {} if compression is None else {"compression": compression}

    def step(inputs: tf.Tensor, targets: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = loss_of(variables, inputs, targets)
        tape = hvd.DistributedGradientTape(tape, **options, **tape_options)
        gradients = tape.gradient(loss, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)
        return gradients

    return tf.function(step, autograph=autograph) if traced else step


def train(step: Callable[..., Any], steps: int, *, first: int = 0, dtype: str = "float32") -> None:
    """Plain training."""
    for inputs, targets in batches(steps, hvd.rank(), first=first, dtype=dtype):
        step(tf.constant(inputs), tf.constant(targets))


def flat(arrays: Sequence[Any]) -> np.ndarray:
    """All of them as one vector."""
    return np.concatenate([np.asarray(one).ravel() for one in arrays])


def building(scope: str, compressor: Any, **options: Any) -> Callable[[Sequence[tf.Variable]], Any]:
    """Builds objects that compress every variable; ``bucketed`` makes three buckets of :func:`model`."""
    fixed: dict[str, Any] = {"dense_below": 0}
    if scope == "bucketed":
        fixed["bucket_bytes"] = 6000
    return lambda variables: hva.compression(scope, variables, compressor, **(fixed | options))


def trained(build: Callable[..., Any] | None, steps: int = 20, *, traced: bool = True, **tape_options: Any) -> tuple[Any, Any]:
    """Variables after training from scratch, as one vector, and the compression object; None is stock Horovod."""
    variables = model()
    compression = None if build is None else build(variables)
    train(stepping(variables, compression, traced=traced, **tape_options), steps)
    return flat(variables), compression
