"""What is not legal is refused by an error of this package that says what was given and what to do."""

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import horovod.tensorflow as hvd
import keras
import pytest
import tensorflow as tf
from fitted import building, data, model, sgd

import hvd_adaptive.keras as hvk
import hvd_adaptive.tensorflow as hva
from hvd_adaptive import ConfigError, HvdAdaptiveError, TopK, UnsupportedError

WRAP: Any = hvk.DistributedOptimizer


def entire(module: Any) -> Any:
    return building("entire-model", TopK(10))(module)


def fit(module: Any, optimizer: Any, **compiled: Any) -> None:
    module.compile(optimizer, "mse", **compiled)
    module.fit(*data(hvd.rank()), batch_size=8, verbose=0)


def two_with_one_object() -> None:
    compression = entire(model())
    first = WRAP(sgd(), compression=compression)
    assert first is not WRAP(sgd(), compression=compression)


def one_by_one() -> None:
    module = model()
    fit(module, WRAP(sgd(), compression=entire(module), groups=None))


def scale_outside() -> None:
    module = model()
    fit(module, keras.optimizers.LossScaleOptimizer(WRAP(sgd(), compression=entire(module))))


def float16_by_itself() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        module = model()
        fit(module, WRAP(sgd()))
    finally:
        keras.config.set_dtype_policy("float32")


def compiled_by_xla(compress: bool) -> None:
    module = model()
    fit(module, WRAP(sgd(), compression=entire(module) if compress else None), jit_compile=True)


def of_another_model() -> None:
    other = model()
    fit(model(), WRAP(sgd(), compression=entire(other)))


def sparse() -> None:
    module = keras.Sequential([keras.Input((3,)), keras.layers.Embedding(50, 4)])
    optimizer = WRAP(sgd(), compression=hva.EntireModel(module.trainable_variables, TopK(2)))
    slices = tf.IndexedSlices(tf.ones((1, 4)), tf.constant([2]), tf.constant([50, 4]))
    optimizer.apply([slices], module.trainable_variables)


def keras_2() -> None:
    kind: Any = type("SGD", (), {"__module__": "tf_keras.src.optimizers.sgd"})
    WRAP(kind())


def for_torch() -> None:
    kind: Any = type("EntireModel", (), {"__module__": "hvd_adaptive.torch.scopes"})
    WRAP(sgd(), compression=kind())


def loaded() -> None:
    module = model()
    module.compile(sgd(), "mse")
    module.fit(*data(hvd.rank()), verbose=0, callbacks=[hvk.BroadcastGlobalVariablesCallback()])


class Taped(keras.Model):
    """Reduces in its own step."""

    compression: Any

    def train_step(self, given: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(given[0]) - given[1]) ** 2)
        tape = hvd.DistributedGradientTape(tape, compression=self.compression, groups=1)
        variables = [variable.value for variable in self.trainable_variables]
        self.optimizer.apply(tape.gradient(loss, variables), self.trainable_variables)
        return {"loss": loss}


def taped(distributed: bool) -> None:
    inner = model()
    module = Taped(inner.inputs, inner.outputs)
    module.compression = entire(module)
    module.compile(WRAP(sgd(), compression=module.compression) if distributed else sgd(), "mse")
    module.fit(*data(hvd.rank()), batch_size=8, verbose=0, callbacks=[hvk.BroadcastGlobalVariablesCallback()])


def unknown_ranks(callback: Any, **options: Any) -> None:
    callback(**options, process_set=hvd.ProcessSet([0, 1]))


INSIDE = "DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer)"
CASES: dict[str, tuple[Callable[[], object], type[HvdAdaptiveError], list[str]]] = {
    "a name": (lambda: WRAP("sgd"), ConfigError, ["one of Keras 3", "keras.optimizers.SGD(0.01)", "'sgd'"]),
    "Keras 2": (keras_2, ConfigError, ["Keras 2", "horovod.tensorflow.keras.DistributedOptimizer"]),
    "distributed twice": (lambda: WRAP(WRAP(sgd())), ConfigError, ["reduces gradients already"]),
    "a method": (lambda: WRAP(sgd(), compression=TopK(9)), ConfigError, ["TopK(factor=9.0)", "EntireModel(model."]),
    "a scope's class": (lambda: WRAP(sgd(), compression=hva.EntireModel), ConfigError, ["the class EntireModel", "legal are"]),
    "text": (lambda: WRAP(sgd(), compression="topk"), ConfigError, ["'topk'", "legal are"]),
    "PyTorch's": (for_torch, ConfigError, ["hvd_adaptive.torch.scopes.EntireModel", "for PyTorch", "legal are"]),
    "Adasum": (lambda: WRAP(sgd(), op=hvd.Adasum), UnsupportedError, ["hvd.Average or op=hvd.Sum"]),
    "maximum": (lambda: WRAP(sgd(), op=hvd.Max), ConfigError, ["hvd.Average or hvd.Sum"]),
    "predivided by 0": (lambda: WRAP(sgd(), gradient_predivide_factor=0), ConfigError, ["finite number > 0, got 0"]),
    "a predivided sum": (lambda: WRAP(sgd(), op=hvd.Sum, gradient_predivide_factor=2), ConfigError, ["op=hvd.Average only"]),
    "passes": (lambda: WRAP(sgd(), backward_passes_per_step=4), UnsupportedError, ["gradient_accumulation_steps=4"]),
    "no passes": (lambda: WRAP(sgd(), backward_passes_per_step=0), ConfigError, ["must be 1, got 0"]),
    "groups of variables": (lambda: WRAP(sgd(), groups=[[1]]), ConfigError, ["None or a number >= 1", "[[1]]"]),
    "ranks": (lambda: WRAP(sgd(), process_set=[0]), ConfigError, ["hvd.add_process_set()", "[0]"]),
    "ranks that Horovod does not know": (lambda: unknown_ranks(hvk.MetricAverageCallback), ConfigError, ["hvd.add_process_set("]),
    "those to broadcast to": (lambda: unknown_ranks(hvk.BroadcastGlobalVariablesCallback), ConfigError, ["ranks=[0, 1]"]),
    "those of a warm-up": (lambda: unknown_ranks(hvk.LearningRateWarmupCallback, initial_lr=1), ConfigError, ["ranks=[0, 1]"]),
    "a loaded model": (loaded, ConfigError, ["SGD, does not reduce gradients", "hvd_adaptive.keras.DistributedOptimizer("]),
    "a copy": (lambda: copy.deepcopy(WRAP(sgd())), UnsupportedError, ["cannot be copied or pickled", "get_config()"]),
    "a tape, too": (lambda: taped(True), ConfigError, ["DistributedGradientTape and DistributedSGD use one"]),
    "two with one object": (two_with_one_object, ConfigError, ["another optimizer uses this compression object"]),
    "one by one": (one_by_one, ConfigError, ["at once", "groups=1"]),
    "a loss scale outside": (scale_outside, UnsupportedError, [INSIDE]),
    "float16": (float16_by_itself, UnsupportedError, [INSIDE]),
    "XLA": (lambda: compiled_by_xla(True), UnsupportedError, ["model.compile(jit_compile=False)"]),
    "XLA without compression": (lambda: compiled_by_xla(False), UnsupportedError, ["model.compile(jit_compile=False)"]),
    "another model's": (of_another_model, ConfigError, ["of which this compression object knows nothing"]),
    "sparse gradients": (sparse, UnsupportedError, ["sparse_as_dense=True", "exclude="]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_it_is_refused_in_words(ranks: Any, name: str) -> None:
    action, kind, words = CASES[name]
    answers = ranks(2).attempt(action)
    for error in answers:
        assert isinstance(error, kind), repr(error)
        assert [word for word in words if word not in str(error)] == [], error
    if words != [INSIDE]:  # Keras adds the addresses of objects to what comes up within its conditions
        assert len({str(error) for error in answers}) == 1


def test_a_step_of_ones_own_may_reduce_by_itself(ranks: Any) -> None:
    ranks(2).run(taped, False)


def test_what_must_be_there_first() -> None:
    script = """
import os, sys
os.environ["KERAS_BACKEND"] = sys.argv[1]
import keras, hvd_adaptive.keras as hvk
from hvd_adaptive import HvdAdaptiveError
try:
    hvk.DistributedOptimizer(keras.optimizers.SGD(0.1))
except HvdAdaptiveError as error:
    print(error)
"""
    for backend, said in (("tensorflow", "call hvd.init() first"), ("torch", "set KERAS_BACKEND=tensorflow before")):
        command = [sys.executable, "-c", script, backend]
        assert said in subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_one_thread_is_refused_where_it_would_wait_for_itself() -> None:
    script = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import horovod.tensorflow as hvd, tensorflow as tf, hvd_adaptive.tensorflow as hva
from hvd_adaptive import ConfigError, TopK
hvd.init()
try:
    hva.EntireModel([tf.Variable([1.0, 2.0])], TopK(2))
except ConfigError as error:
    print(error)
"""
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "set_inter_op_parallelism_threads(2)" in said
    assert "--bind-to none" in said
