"""A small Keras 3 model, trained by ``fit`` on every rank, each on its own data, and by a loop written by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

import hvd_adaptive.keras as hvk
import hvd_adaptive.tensorflow as hva

BATCH = 8


def model(seed: int = 1) -> Any:
    """About 1,400 parameters in six variables; the same on every rank."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((12,)), layers.Dense(40, activation="tanh"), layers.Dense(20, activation="relu"), layers.Dense(3)]
    )


def data(rank: int, samples: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """Inputs f32[samples, 12] and targets f32[samples, 3] of a rank."""
    rng = np.random.default_rng(rank)
    return rng.standard_normal((samples, 12)).astype("float32"), rng.standard_normal((samples, 3)).astype("float32")


def batches(inputs: np.ndarray, targets: np.ndarray, size: int) -> tf.data.Dataset:
    """What ``fit`` makes of arrays, but without the tuner of tf.data, whose end may take as long as all before it."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(size).with_options(options)


def weights(module: Any) -> np.ndarray:
    """All weights as one vector."""
    return np.concatenate([np.asarray(weight).ravel() for weight in module.get_weights()])


def building(scope: str, compressor: Any, **options: Any) -> Callable[[Any], Any]:
    """Builds objects that compress every variable of a model; ``bucketed`` makes several buckets."""
    fixed: dict[str, Any] = {"dense_below": 0} | ({"bucket_bytes": 2000} if scope == "bucketed" else {})
    return lambda module: hva.compression(scope, module.trainable_variables, compressor, **(fixed | options))


def sgd(**options: Any) -> Any:
    return keras.optimizers.SGD(0.05, momentum=0.9, **options)


def fitted(
    build: Callable[[Any], Any] | None = None,
    inner: Callable[[], Any] = sgd,
    *,
    compiled: dict[str, Any] | None = None,
    callbacks: tuple[Any, ...] = (),
    **options: Any,
) -> tuple[Any, Any]:
    """A model after two epochs, and its compression object; ``build`` None is no compression."""
    module = model()
    compression = None if build is None else build(module)
    module.compile(hvk.DistributedOptimizer(inner(), compression=compression, **options), "mse", **(compiled or {}))
    module.fit(batches(*data(hvd.rank()), BATCH), epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))
    return module, compression


def looped(build: Callable[[Any], Any] | None = None) -> tuple[Any, Any]:
    """As :func:`fitted`, by Horovod's own tape."""
    module, optimizer = model(), sgd()
    compression = None if build is None else build(module)
    variables = [variable.value for variable in module.trainable_variables]
    optimizer.build(module.trainable_variables)
    options = {} if compression is None else {"compression": compression}

    @tf.function(autograph=False)
    def step(inputs: tf.Tensor, targets: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((module(inputs, training=True) - targets) ** 2)
        tape = hvd.DistributedGradientTape(tape, groups=1, **options)
        optimizer.apply(tape.gradient(loss, variables), module.trainable_variables)

    inputs, targets = data(hvd.rank())
    for _ in range(2):
        for first in range(0, len(inputs), BATCH):
            step(tf.constant(inputs[first : first + BATCH]), tf.constant(targets[first : first + BATCH]))
    return module, compression


def alone(inner: Callable[[], Any] = sgd, *, sum_: bool = False, ranks: Sequence[int] | None = None) -> np.ndarray:
    """Weights of one process that takes the batches of all ``ranks`` together; ``sum_`` adds up the ranks' losses."""
    module, parts = model(), [data(rank) for rank in ranks or range(hvd.size())]
    size = len(parts)
    joined = [
        np.concatenate([part[which][first : first + BATCH] for first in range(0, 48, BATCH) for part in parts])
        for which in (0, 1)
    ]
    module.compile(inner(), "mse", loss_weights=float(size) if sum_ else None)
    module.fit(batches(*joined, BATCH * size), epochs=2, shuffle=False, verbose=0)
    return weights(module)
