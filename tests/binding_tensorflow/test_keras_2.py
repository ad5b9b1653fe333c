"""Stock ``horovod.tensorflow.keras`` with Keras 2: ``fit``, accumulated passes, groups, mixed precision."""

from typing import Any

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf

import hvd_adaptive.tensorflow as hva
from hvd_adaptive import ConfigError, Identity, TopK


def network() -> Any:
    """The same on every rank."""
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential([tf.keras.Input((12,)), tf.keras.layers.Dense(40, activation="tanh"), tf.keras.layers.Dense(3)])


def data(samples: int = 96) -> tuple[np.ndarray, np.ndarray]:
    """Others on every rank."""
    rng = np.random.default_rng(hvd.rank())
    return rng.standard_normal((samples, 12)).astype("float32"), rng.standard_normal((samples, 3)).astype("float32")


def weights(module: Any) -> np.ndarray:
    return np.concatenate([weight.ravel() for weight in module.get_weights()])


def fitted(build: Any, *, optimizer: Any = None, **options: Any) -> tuple[np.ndarray, Any]:
    """Weights after two epochs; ``build`` None is stock Horovod."""
    module = network()
    compression = None if build is None else build(module.trainable_variables)
    if compression is not None:
        options["compression"] = compression
    inner = optimizer or tf.keras.optimizers.SGD(0.05, momentum=0.9)
    module.compile(hvd_keras.DistributedOptimizer(inner, **options), "mse")
    module.fit(*data(), batch_size=16, epochs=2, shuffle=False, verbose=0)
    return weights(module), compression


def entire(compressor: Any) -> Any:
    return lambda variables: hva.EntireModel(variables, compressor)


def test_fit_equals_stock_horovod_at_factor_1(keras_2_ranks: Any) -> None:
    def on_rank() -> Any:
        found = []
        for options in (
            {"groups": 1},
            {"groups": 1, "backward_passes_per_step": 2},
            {"groups": 1, "gradient_predivide_factor": 2.0},
        ):
            stock, _ = fitted(None, **options)
            ours, compression = fitted(entire(Identity()), **options)
            found.append((float(abs(stock - ours).max()), compression.stats().steps))
        stock, _ = fitted(None)
        layer_wise, compression = fitted(lambda v: hva.LayerWise(v, TopK(1), dense_below=0))
        found.append((float(abs(stock - layer_wise).max()), compression.stats().steps))
        return found

    for on_one in keras_2_ranks.run(on_rank):
        assert all(difference <= 1e-6 for difference, _ in on_one)  # float32's rounding of reductions in another order
        assert [steps for _, steps in on_one] == [12, 6, 12, 12]


def test_fit_keeps_ranks_together(keras_2_ranks: Any) -> None:
    def on_rank() -> Any:
        ends = [fitted(entire(TopK(20)), groups=1)[0]]
        ends.append(fitted(entire(TopK(20)), groups=1, optimizer=tf.keras.optimizers.legacy.Adam(0.01))[0])
        tf.keras.mixed_precision.set_global_policy("mixed_float16")
        try:
            ends.append(fitted(entire(TopK(20)), groups=1)[0])
        finally:
            tf.keras.mixed_precision.set_global_policy("float32")
        return [(end.tobytes(), bool(np.isfinite(end).all())) for end in ends]

    one, other = keras_2_ranks.run(on_rank)
    assert one == other
    assert all(finite for _, finite in one)


def test_a_model_rebuilt_in_the_same_process(keras_2_ranks: Any) -> None:
    """Keras counts its names up; what was saved for the first model fits the second."""

    def on_rank() -> Any:
        first, second = network(), network()
        one, two = hva.EntireModel(first.trainable_variables, TopK(5)), hva.EntireModel(second.trainable_variables, TopK(5))
        two.load_state_dict(one.state_dict())
        return [fitted(entire(TopK(5)), groups=1)[0] for _ in range(2)]

    for one, two in keras_2_ranks.run(on_rank):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)  # float32's rounding of what Horovod fuses in another order


def test_the_tensorflow_modules_optimizer_is_refused(keras_2_ranks: Any) -> None:
    def on_rank() -> Any:
        compression = hva.EntireModel(network().trainable_variables, TopK(5))
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(), compression=compression, groups=1)

    for answer in keras_2_ranks.attempt(on_rank):
        assert isinstance(answer, ConfigError)
        assert "drops op= and groups= with a Keras optimizer; write import horovod.tensorflow.keras as hvd" in str(answer)
