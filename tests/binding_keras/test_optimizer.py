"""The optimizer is one of the user's class: it is saved and loaded, takes over state, scales losses, takes sparse gradients."""

import warnings
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf
from fitted import BATCH, building, data, fitted, model, sgd, weights

import hvd_adaptive.keras as hvk
import hvd_adaptive.tensorflow as hva
from hvd_adaptive import TopK


def kind_and_config() -> tuple[bool, str, bool]:
    optimizer = hvk.DistributedOptimizer(sgd(name="own"))
    return (
        isinstance(optimizer, keras.optimizers.SGD),
        type(optimizer).__name__,
        optimizer.get_config() == sgd(name="own").get_config(),
    )


def test_it_is_of_the_given_class(ranks: Any) -> None:
    assert ranks(2).run(kind_and_config) == [(True, "SGD", True)] * 2


def saved_and_continued(folder: str) -> tuple[str, bool, bool, bool]:
    """A saved model loads without Horovod; wrapped again it has the state it had."""
    module, _ = fitted()
    file = Path(folder) / f"rank{hvd.rank()}.keras"
    with warnings.catch_warnings():
        # Keras takes numpy's view of a TensorFlow variable, which does not know numpy 2's keyword.
        warnings.filterwarnings("ignore", "__array__ implementation doesn't accept a copy keyword", DeprecationWarning)
        module.save(file)
        loaded = keras.models.load_model(file)
    stock = type(loaded.optimizer) is keras.optimizers.SGD
    again = hvk.DistributedOptimizer(loaded.optimizer)
    states = [[np.asarray(one) for one in optimizer.variables] for optimizer in (module.optimizer, again)]
    same = all(np.array_equal(one, other) for one, other in zip(*states, strict=True))
    loaded.compile(again, "mse")
    for one in (module, loaded):
        one.fit(*data(hvd.rank()), batch_size=BATCH, shuffle=False, verbose=0)
    return type(loaded.optimizer).__name__, stock, same, np.array_equal(weights(module), weights(loaded))


def test_save_load_and_go_on(ranks: Any, tmp_path: Path) -> None:
    assert ranks(2).run(saved_and_continued, str(tmp_path)) == [("SGD", True, True, True)] * 2


def what_no_configuration_holds() -> tuple[bool, bool, int]:
    """A bias excluded from weight decay; a schedule that cannot be saved; steps that an optimizer not yet built has done."""

    class Halved(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):  # annotations do not travel to the ranks
            return 0.2 / 2.0 ** tf.cast(step, tf.float32)

    inner = keras.optimizers.AdamW(Halved(), weight_decay=0.5)
    inner.exclude_from_weight_decay(var_names=["bias"])
    inner.iterations.assign(1)
    module = model()
    variables = module.trainable_variables
    for variable in variables:
        variable.assign(tf.ones_like(variable))
    optimizer = hvk.DistributedOptimizer(inner)
    optimizer.apply([tf.zeros_like(variable) for variable in variables], variables)
    kept = all(np.all(np.asarray(one) == 1) for one in variables if "bias" in one.path)
    rate = 0.2 / 2 * 0.5  # of the step after the first
    decayed = all(np.allclose(np.asarray(one), 1 - rate, rtol=1e-6) for one in variables if "kernel" in one.path)  # float32
    return kept, decayed, int(optimizer.iterations)


def test_what_no_configuration_holds_is_kept(ranks: Any) -> None:
    assert ranks(2).run(what_no_configuration_holds) == [(True, True, 2)] * 2


def registered(folder: str) -> tuple[str, bool]:
    """A class of the user's that Keras knows by another name."""

    @keras.saving.register_keras_serializable(package="mine", name=f"Own{folder[-1]}")
    class Own(keras.optimizers.SGD):
        pass

    module, _ = fitted(inner=lambda: Own(0.05))
    file = Path(folder) / f"rank{hvd.rank()}.keras"
    with warnings.catch_warnings():
        # Keras takes numpy's view of a TensorFlow variable, which does not know numpy 2's keyword.
        warnings.filterwarnings("ignore", "__array__ implementation doesn't accept a copy keyword", DeprecationWarning)
        module.save(file)
        loaded = keras.models.load_model(file)
    return type(loaded.optimizer).__name__, type(loaded.optimizer) is Own


def test_a_class_that_was_registered_loads_again(ranks: Any, tmp_path: Path) -> None:
    assert ranks(2).run(registered, str(tmp_path)) == [("Own", True)] * 2


def scaled(initial: float, compress: bool) -> tuple[np.ndarray, float, int]:
    """After 12 steps under a loss scale; the scale and the steps taken."""

    def inner() -> Any:
        return keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=initial, dynamic_growth_steps=4)

    module, _ = fitted(building("entire-model", TopK(10)) if compress else None, inner)
    optimizer = module.optimizer
    return weights(module), float(optimizer.dynamic_scale), int(optimizer.inner_optimizer.iterations)


@pytest.mark.parametrize("compress", [False, True])
def test_a_loss_scale_changes_nothing(ranks: Any, compress: bool) -> None:
    plain = [weights_of(ranks, compress)] * 2
    for (found, scale, steps), expected in zip(ranks(2).run(scaled, 2.0**10, compress), plain, strict=True):
        np.testing.assert_array_equal(found, expected)  # powers of two round nothing, and what is held back is not scaled
        assert (scale, steps) == (2.0**13, 12)


def weights_of(ranks: Any, compress: bool) -> np.ndarray:
    return ranks(2).run(plain_weights, compress)[0]


def plain_weights(compress: bool) -> np.ndarray:
    return weights(fitted(building("entire-model", TopK(10)) if compress else None)[0])


def overflowing(compress: bool) -> tuple[np.ndarray, float, int]:
    """One rank's loss overflows in the first step."""
    module = model()
    inner = keras.optimizers.LossScaleOptimizer(sgd(), initial_scale=4.0)
    optimizer = hvk.DistributedOptimizer(inner, compression=building("entire-model", TopK(10))(module) if compress else None)
    optimizer.build(module.trainable_variables)
    before = weights(module)
    gradients = [tf.fill(v.shape, np.inf if hvd.rank() == 1 else 1.0) for v in module.trainable_variables]
    optimizer.apply(gradients, module.trainable_variables)
    return weights(module) - before, float(optimizer.dynamic_scale), int(optimizer.inner_optimizer.iterations)


@pytest.mark.parametrize("compress", [False, True])
def test_all_ranks_skip_a_step_that_overflows_on_one(ranks: Any, compress: bool) -> None:
    for moved, scale, steps in ranks(2).run(overflowing, compress):
        assert not moved.any()
        assert (scale, steps) == (2.0, 0)


def mixed() -> np.ndarray:
    """A float16 model, with the loss scale inside."""
    keras.utils.set_random_seed(1)
    layers = [keras.Input((12,)), keras.layers.Dense(40, dtype="mixed_float16"), keras.layers.Dense(3, dtype="mixed_float16")]
    module = keras.Sequential(layers)
    compression = hva.EntireModel(module.trainable_variables, TopK(10))
    optimizer = hvk.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(sgd()), compression=compression)
    module.compile(optimizer, "mse")
    module.fit(*data(hvd.rank()), batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    assert compression.stats().steps == 12
    return weights(module)


def test_mixed_precision(ranks: Any) -> None:
    first, second = ranks(2).run(mixed)
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()


def embedded(how: str) -> np.ndarray:
    """A model whose first gradients are sparse, and dense ones behind them."""
    keras.utils.set_random_seed(1)
    module = keras.Sequential([keras.Input((3,)), keras.layers.Embedding(50, 4), keras.layers.Flatten(), keras.layers.Dense(2)])
    compression, options = None, {}
    if how == "excluded":
        compression = hva.EntireModel(module.trainable_variables, TopK(1), exclude="*embeddings")
    elif how == "made dense":
        compression = hva.EntireModel(module.trainable_variables, TopK(1))
    options["sparse_as_dense"] = how == "made dense"
    optimizer = hvk.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=compression, **options)
    module.compile(optimizer, "mse")
    rng = np.random.default_rng(hvd.rank())
    module.fit(rng.integers(0, 50, (32, 3)), rng.standard_normal((32, 2)), batch_size=8, shuffle=False, verbose=0)
    return weights(module)


def test_sparse_gradients(ranks: Any) -> None:
    expected, other = ranks(2).run(embedded, "gathered")
    np.testing.assert_allclose(expected, other, rtol=0, atol=1e-7)  # rows named twice are added up in another order
    for how in ("excluded", "made dense"):
        for found in ranks(2).run(embedded, how):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)  # so they are here, and rounded in float32


def unused(accumulated: int | None) -> tuple[np.ndarray, int, np.ndarray]:
    """A variable the loss does not depend on; it comes first."""
    module = model()
    spare = keras.Variable(np.ones(3, "float32"))
    variables = [spare, *module.trainable_variables]
    compression = hva.EntireModel(variables, TopK(2))
    optimizer = hvk.DistributedOptimizer(sgd(gradient_accumulation_steps=accumulated), compression=compression)
    optimizer.build(variables)
    gradients = [tf.fill(v.shape, float(hvd.rank())) for v in module.trainable_variables]
    optimizer._filter_empty_gradients = _quietly(optimizer)
    for _ in range(accumulated or 1):
        optimizer.apply([None, *gradients], variables)
    return np.asarray(spare), compression.stats().steps, weights(module)


def _quietly(optimizer: Any) -> Any:
    """Keras warns of gradients that are None, and warnings are errors here."""
    return lambda grads, variables: tuple(
        map(list, zip(*[(g, v) for g, v in zip(grads, variables, strict=True) if g is not None], strict=True))
    )


@pytest.mark.parametrize("accumulated", [None, 2])
def test_gradients_that_are_none(ranks: Any, accumulated: int | None) -> None:
    answers = ranks(2).run(unused, accumulated)
    for spare, steps, found in answers:
        assert spare.tolist() == [1, 1, 1]
        assert steps == 1
        np.testing.assert_array_equal(found, answers[0][2])


def overwritten(steps: int | None, compress: bool) -> tuple[list[list[float]], np.ndarray]:
    """A variable that gets the "gradient" itself, as the scales of float8 layers do, after each step; all other weights."""
    module = model()
    scale = keras.Variable(np.zeros(40, "float32"))
    scale.overwrite_with_gradient = True
    variables = [scale, *module.trainable_variables]
    compression = hva.EntireModel(variables, TopK(2)) if compress else None
    optimizer = hvk.DistributedOptimizer(sgd(gradient_accumulation_steps=steps), compression=compression)
    optimizer.build(variables)
    seen = []
    places = np.arange(40, dtype="float32")
    for _ in range(2):
        value = tf.constant(places * (1 + (places + hvd.rank()) % 2))  # no rank has the largest of all, in any step
        optimizer.apply([value, *(tf.fill(v.shape, float(hvd.rank())) for v in module.trainable_variables)], variables)
        seen.append(np.asarray(scale).tolist())
    return seen, weights(module)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("steps", [None, 2])
def test_next_values_are_the_largest_of_all_ranks(ranks: Any, steps: int | None, compress: bool) -> None:
    largest, before = [2.0 * place for place in range(40)], [0.0] * 40
    answers = ranks(2).run(overwritten, steps, compress)
    for seen, found in answers:
        assert seen == [before if steps else largest, largest]
        np.testing.assert_array_equal(found, answers[0][1])
