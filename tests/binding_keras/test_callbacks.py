"""Horovod's callbacks, for Keras 3."""

import math
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
from fitted import BATCH, building, data, model, sgd, weights

import hvd_adaptive.keras as hvk
from hvd_adaptive import ConfigError, TopK, UnsupportedError


class Lazy(keras.Model):
    """Builds a layer when it is first called with data."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.dense(x)


class First(keras.callbacks.Callback):
    """Keeps the weights before the first batch."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not hasattr(self, "weights"):
            self.weights = weights(self.model) if self.model.built else None


def broadcast(root: int, lazy: bool) -> tuple[Any, np.ndarray, np.ndarray]:
    """Ranks that begin with other weights and momenta; the weights before the first batch, and in the end, and momenta."""
    keras.utils.set_random_seed(hvd.rank())
    module = Lazy() if lazy else model(seed=hvd.rank())
    optimizer = hvk.DistributedOptimizer(sgd(), compression=None if lazy else building("entire-model", TopK(5))(module))
    if not lazy:
        optimizer.build(module.trainable_variables)
        for one in optimizer.variables[2:]:
            one.assign(np.full(one.shape, hvd.rank() / 1000, "float32"))
    first = First()
    module.compile(optimizer, "mse")
    callbacks = [hvk.BroadcastGlobalVariablesCallback(root), first]
    module.fit(*data(hvd.rank()), batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    return first.weights, weights(module), np.concatenate([np.asarray(one).ravel() for one in optimizer.variables])


@pytest.mark.parametrize("root", [0, 1])
def test_all_begin_with_the_roots_variables(ranks: Any, root: int) -> None:
    expected = ranks(2).run(own_weights)[root]
    for first, last, state in (answers := ranks(2).run(broadcast, root, False)):
        np.testing.assert_array_equal(first, expected)
        np.testing.assert_array_equal(last, answers[0][1])
        np.testing.assert_array_equal(state, answers[0][2])
        assert np.isfinite(state).all()  # else all are equal


def own_weights() -> np.ndarray:
    return weights(model(seed=hvd.rank()))


def test_models_that_are_not_built(ranks: Any) -> None:
    (_, first, state), (_, second, other) = ranks(2).run(broadcast, 0, True)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(state, other)


def averaged() -> tuple[dict[str, list[float]], float]:
    """The history of two epochs with validation, and this rank's own loss of the same."""
    module = model()
    module.compile(keras.optimizers.SGD(0.0), "mse")  # no step changes anything
    inputs, targets = data(hvd.rank())
    history = module.fit(
        inputs, targets, epochs=2, verbose=0, validation_data=(inputs, targets), callbacks=[hvk.MetricAverageCallback()]
    )
    return history.history, float(module.evaluate(inputs, targets, verbose=0))


@pytest.mark.parametrize("size", [2, 3])
def test_figures_are_means_over_ranks(ranks: Any, size: int) -> None:
    answers = ranks(size).run(averaged)
    mean = sum(own for _, own in answers) / size
    assert len({own for _, own in answers}) == size
    for history, _ in answers:
        assert set(history) == {"loss", "val_loss"}
        assert history["val_loss"] == pytest.approx([mean, mean], rel=1e-6)  # float32
        assert history == answers[0][0]


def of_a_process_set() -> tuple[float, bool, bool]:
    """The mean of a figure; whether this rank has the weights of rank 1, and those it began with."""
    sets = [hvd.add_process_set([0, 1]), hvd.add_process_set([2])]
    own, logs = sets[hvd.rank() // 2], {"loss": float(hvd.rank())}
    hvk.MetricAverageCallback(process_set=own).on_epoch_end(0, logs)
    module = model(seed=hvd.rank())
    module.compile(hvk.DistributedOptimizer(sgd(), process_set=own), "mse")
    callback = hvk.BroadcastGlobalVariablesCallback(own.ranks[-1], process_set=own)
    callback.set_model(module)
    callback.on_train_begin()
    for one in sets:
        hvd.remove_process_set(one)
    found = weights(module)
    return logs["loss"], np.array_equal(found, weights(model(seed=1))), np.array_equal(found, own_weights())


def test_process_sets(ranks: Any) -> None:
    assert ranks(3).run(of_a_process_set) == [(0.5, True, False), (0.5, True, True), (2.0, False, True)]


def without_a_mean() -> dict[str, float]:
    signs = {"both": math.inf * (1 - 2 * hvd.rank()), "one": math.inf * hvd.rank() if hvd.rank() else 1.0, "nan": math.nan}
    hvk.MetricAverageCallback().on_epoch_end(0, logs := dict(signs))
    return logs


def test_figures_that_are_not_finite(ranks: Any) -> None:
    for logs in ranks(2).run(without_a_mean):
        assert math.isnan(logs["both"])
        assert logs["one"] == math.inf
        assert math.isnan(logs["nan"])


def validated_on_one() -> None:
    callback = hvk.MetricAverageCallback()
    callback.on_epoch_end(3, {"loss": 1.0} | ({"val_loss": 1.0} if hvd.rank() == 0 else {}))


def test_figures_of_one_rank_only_are_refused_by_all(ranks: Any) -> None:
    for error in ranks(2).attempt(validated_on_one):
        assert isinstance(error, ConfigError)
        assert "['val_loss'] after epoch 3" in str(error)


class Rates(keras.callbacks.Callback):
    """Keeps the learning rate of each batch."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(float(self.model.optimizer.learning_rate))


def warmed_up() -> list[float]:
    module, rates = model(), Rates()
    module.compile(hvk.DistributedOptimizer(sgd()), "mse")
    callbacks = [hvk.LearningRateWarmupCallback(0.4, warmup_epochs=2), rates]
    module.fit(*data(hvd.rank(), 16), batch_size=BATCH, epochs=3, verbose=0, callbacks=callbacks)
    return rates.seen


def test_the_learning_rate_warms_up(ranks: Any) -> None:
    for seen in ranks(2).run(warmed_up):
        assert seen == pytest.approx([0.25, 0.3, 0.35, 0.4, 0.4, 0.4])


def refused() -> list[str]:
    found = []
    for action in (
        lambda: hvk.BroadcastGlobalVariablesCallback(7),
        lambda: hvk.LearningRateWarmupCallback(0.0),
        lambda: hvk.LearningRateWarmupCallback(0.1, momentum_correction=True),
    ):
        try:
            action()
        except (ConfigError, UnsupportedError) as error:
            found.append(str(error))
    return found


def test_what_is_not_legal(ranks: Any) -> None:
    root, rate, momentum = ranks(2).run(refused)[0]
    assert "one of the ranks [0, 1], got 7" in root
    assert "initial_lr must be a finite number > 0, got 0.0" in rate
    assert "leave it out" in momentum
