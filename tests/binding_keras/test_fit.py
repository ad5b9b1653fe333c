"""``fit`` reduces gradients: with nothing dropped it is one process on all the data, with much dropped ranks stay together."""

from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf
from fitted import BATCH, alone, building, data, fitted, looped, model, sgd, weights

import hvd_adaptive.keras as hvk
import hvd_adaptive.tensorflow as hva
from hvd_adaptive import GraVAC, TopK

SCOPES = list(hva.SCOPES)
ROUNDING = 2e-5
"""Relative. A mean over ranks of means over batches is rounded otherwise than the mean over all, in float32 for 12 steps."""


def adamw() -> Any:
    return keras.optimizers.AdamW(
        keras.optimizers.schedules.ExponentialDecay(0.01, 3, 0.5), weight_decay=0.1, global_clipnorm=0.2, epsilon=1e-3
    )


def difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first - second).max() / np.abs(second).max())


def from_alone(kind: str) -> tuple[float, float]:
    """How far ``fit`` on all ranks is from one process, and how far one process is from one on this rank's data only."""
    if kind == "sum":
        return difference(weights(fitted(op=hvd.Sum)[0]), alone(sum_=True)), 0.0
    if kind == "factor 1 of a sum":
        return difference(weights(fitted(building("entire-model", TopK(1)), op=hvd.Sum)[0]), alone(sum_=True)), 0.0
    if kind == "predivide":
        return difference(weights(fitted(gradient_predivide_factor=2.0)[0]), alone()), 0.0
    if kind == "one by one":
        return difference(weights(fitted(groups=None)[0]), alone()), 0.0
    if kind == "clip, decay, schedule":
        return difference(weights(fitted(inner=adamw)[0]), alone(adamw)), 0.0
    if kind == "factor 1 of that":
        return difference(weights(fitted(building("entire-model", TopK(1)), adamw)[0]), alone(adamw)), 0.0
    return difference(weights(fitted()[0]), alone()), 0.0


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "kind", ["mean", "sum", "factor 1 of a sum", "predivide", "one by one", "clip, decay, schedule", "factor 1 of that"]
)
def test_it_equals_one_process_with_the_joined_batches(ranks: Any, size: int, kind: str) -> None:
    for distance, _ in ranks(size).run(from_alone, kind):
        assert distance <= ROUNDING


def in_two_sets(compress: bool) -> float:
    """Two process sets train at the same time, each with its own ranks' data."""
    sets = [hvd.add_process_set([0, 1]), hvd.add_process_set([2])]
    own = sets[hvd.rank() // 2]
    build = building("entire-model", TopK(1), process_set=own) if compress else None
    module, _ = fitted(build, **({} if compress else {"process_set": own}))
    for one in sets:
        hvd.remove_process_set(one)
    return difference(weights(module), alone(ranks=own.ranks))


@pytest.mark.parametrize("compress", [False, True])
def test_process_sets(ranks: Any, compress: bool) -> None:
    assert max(ranks(3).run(in_two_sets, compress)) <= ROUNDING


def against_dense_and_loop(scope: str) -> tuple[float, np.ndarray, np.ndarray, int]:
    """Factor 1 against dense; then factor 10: ``fit`` and the loop, and steps."""
    exact = difference(weights(fitted(building(scope, TopK(1)))[0]), weights(fitted()[0]))
    by_fit, compression = fitted(building(scope, TopK(10)))
    by_hand, _ = looped(building(scope, TopK(10)))
    return exact, weights(by_fit), weights(by_hand), compression.stats().steps


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("scope", SCOPES)
def test_every_scope_under_fit(ranks: Any, size: int, scope: str) -> None:
    answers = ranks(size).run(against_dense_and_loop, scope)
    for exact, by_fit, by_hand, steps in answers:
        assert exact <= ROUNDING
        assert steps == 12
        np.testing.assert_array_equal(by_fit, answers[0][1])  # ranks stay together, bit for bit
        assert difference(by_fit, by_hand) <= ROUNDING  # Keras's "mse" takes two means where the loop takes one


def by_steps(traced: bool) -> tuple[np.ndarray, np.ndarray]:
    """A loop of one's own around ``apply``, and ``fit``."""
    module = model()
    optimizer = hvk.DistributedOptimizer(sgd(), compression=building("entire-model", TopK(10))(module))
    criterion = keras.losses.MeanSquaredError()

    def step(inputs: tf.Tensor, targets: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = criterion(targets, module(inputs, training=True))
        optimizer.apply(tape.gradient(loss, module.trainable_variables), module.trainable_variables)

    step = tf.function(step) if traced else step
    inputs, targets = data(hvd.rank())
    for _ in range(2):
        for first in range(0, len(inputs), BATCH):
            step(tf.constant(inputs[first : first + BATCH]), tf.constant(targets[first : first + BATCH]))
    return weights(module), weights(fitted(building("entire-model", TopK(10)))[0])


@pytest.mark.parametrize("traced", [True, False])
def test_a_loop_of_ones_own(ranks: Any, traced: bool) -> None:
    for own, by_fit in ranks(2).run(by_steps, traced):
        assert difference(own, by_fit) <= ROUNDING


def gravac() -> tuple[np.ndarray, set[str]]:
    controller = GraVAC(min_factor=4, max_factor=64, epsilon=0.5, window=3, every=2, probe_dense=False)
    module, compression = fitted(building("entire-model", TopK(4), controller=controller))
    return weights(module), set(compression.stats().branches)


def test_gravac_under_fit(ranks: Any) -> None:
    (first, branches), (second, _) = ranks(2).run(gravac)
    np.testing.assert_array_equal(first, second)
    assert branches


def accumulated(build: bool, eager: bool) -> tuple[float, int | None]:
    """Two micro-steps a step against one process that accumulates too."""

    def inner() -> Any:
        return sgd(gradient_accumulation_steps=2, global_clipnorm=0.1)

    compiled = {"run_eagerly": eager}
    module, compression = fitted(building("entire-model", TopK(1)) if build else None, inner, compiled=compiled)
    return difference(weights(module), alone(inner)), compression and compression.stats().steps


@pytest.mark.parametrize(("build", "eager"), [(False, False), (True, False), (True, True)])
def test_keras_accumulates_and_reduces_once_in_so_many_steps(ranks: Any, build: bool, eager: bool) -> None:
    for distance, steps in ranks(2).run(accumulated, build, eager):
        assert distance <= ROUNDING
        assert steps in (None, 6)


def several_in_one_call() -> tuple[float, int]:
    module, compression = fitted(building("entire-model", TopK(10)), compiled={"steps_per_execution": 3})
    return difference(weights(module), weights(fitted(building("entire-model", TopK(10)))[0])), compression.stats().steps


def test_several_steps_in_one_execution(ranks: Any) -> None:
    assert ranks(2).run(several_in_one_call) == [(0.0, 12)] * 2
