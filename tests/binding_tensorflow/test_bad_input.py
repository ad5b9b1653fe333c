"""What cannot work is refused on every rank, with the reason and what to write instead."""

import importlib
import tempfile
from typing import Any

import horovod.tensorflow as hvd
import keras
import pytest
import tensorflow as tf
from taped import building, model, stepping, train

import hvd_adaptive.tensorflow as hva
from hvd_adaptive import GraVAC, PowerSGD, TopK


def built(scope: str = "entire-model", compressor: Any = None, **options: Any) -> Any:
    return building(scope, compressor or TopK(10), **options)(model())


def stepped(scope: str, compressor: Any = None, *, traced: bool = True, groups: Any = None, **options: Any) -> Any:
    variables = model()
    train(stepping(variables, building(scope, compressor or TopK(10), **options)(variables), traced=traced, groups=groups), 1)


def with_other_variables(left_out: int, added: int) -> Any:
    variables = model()
    compression = built() if added else hva.EntireModel(variables[: len(variables) - left_out], TopK(10))
    train(stepping(variables, compression, groups=1), 1)


def with_too_many() -> Any:
    variables = model()
    compression = hva.EntireModel([*variables, tf.Variable([1.0], name="more")], TopK(10))
    train(stepping(variables, compression, groups=1), 1)


def within_the_step() -> Any:
    variables = model()
    tf.function(lambda: hva.EntireModel(variables, TopK(10)))()


def in_every_step() -> Any:
    variables = model()
    for number in range(6):
        train(stepping(variables, hva.EntireModel(variables, TopK(10)), traced=False, groups=1), 1, first=number)


def compiled() -> Any:
    variables = model()
    step = stepping(variables, building("entire-model", TopK(10))(variables), traced=False, groups=1)
    train(tf.function(step, jit_compile=True), 1)


def allreduced() -> Any:
    hvd.allreduce(tf.ones([3]), compression=built())


def with_one_twice() -> Any:
    variables = model()
    compression = building("entire-model", TopK(10))(variables)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variables[0]) + tf.reduce_sum(variables[1])
    hvd.DistributedGradientTape(tape, compression=compression, groups=1).gradient(loss, [*variables, variables[0]])


def run_eagerly() -> Any:
    tf.config.run_functions_eagerly(True)
    try:
        stepped("entire-model", traced=False, groups=1)
    finally:
        tf.config.run_functions_eagerly(False)


def summed_by_adasum() -> Any:
    variables = model()
    train(stepping(variables, building("entire-model", TopK(10))(variables), groups=1, op=hvd.Adasum), 1)


def in_another_order() -> Any:
    variables = [tf.Variable(tf.ones([30]), name=name) for name in "ab"]
    hva.EntireModel(variables[:: -1 if hvd.rank() else 1], TopK(2))


class Own(keras.optimizers.SGD):
    """A class of the user's."""


def keras_3(module: str, kind: Any = keras.optimizers.SGD) -> Any:
    dense = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    compression = hva.EntireModel(dense.trainable_variables, TopK(10))
    importlib.import_module(module).DistributedOptimizer(kind(), compression=compression)


def differentiated_twice(*, traced: bool) -> Any:
    variables = [tf.Variable(tf.range(1.0, 31.0))]
    compression = building("entire-model", TopK(2))(variables)

    def second() -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variables[0] ** 3)
            (first,) = hvd.DistributedGradientTape(tape, compression=compression, groups=1).gradient(loss, variables)
        return outer.gradient(first, variables)

    return (tf.function(second) if traced else second)()


def saved_in_the_background() -> Any:
    compression = built()
    with tempfile.TemporaryDirectory() as folder:
        options = tf.train.CheckpointOptions(enable_async=True)
        tf.train.Checkpoint(compression=compression).save(f"{folder}/checkpoint", options=options)


def given_to_the_tape(compression: Any) -> Any:
    train(stepping(model(), compression, groups=1), 1)


GROUPS_1 = "pass groups=1 to hvd.DistributedGradientTape or DistributedOptimizer"
CASES = {
    "no variables": (lambda: hva.EntireModel([], TopK(10)), ["there are no variables", "call it once or build it first"]),
    "a variable": (
        lambda: hva.EntireModel(tf.Variable([1.0]), TopK(10)),
        ["variables is ResourceVariable", "trainable_variables"],
    ),
    "tensors": (lambda: hva.EntireModel([tf.ones([3])], TopK(10)), ["must hold variables, got EagerTensor"]),
    "pairs": (lambda: hva.EntireModel([("a", tf.Variable([1.0]))], TopK(10)), ["must hold variables, got tuple"]),
    "whole numbers": (lambda: hva.EntireModel([tf.Variable([1])], TopK(10)), ["is int32", "float16, bfloat16, float32, float64"]),
    "frozen": (lambda: hva.EntireModel([tf.Variable([1.0], trainable=False)], TopK(10)), ["every parameter is frozen"]),
    "no such scope": (lambda: hva.compression("per-layer", model(), TopK(10)), ["unknown scope 'per-layer'", "entire-model"]),
    "no compressor": (lambda: hva.EntireModel(model(), 10), ["compressor must be an instance such as TopK(factor=100), got 10"]),
    "entire model one by one": (lambda: stepped("entire-model"), ["unit 'model' needs the gradients of 5 variables", GROUPS_1]),
    "entire model in two groups": (lambda: stepped("entire-model", groups=2), ["needs the gradients of 5 variables", GROUPS_1]),
    "eager, one by one": (lambda: stepped("entire-model", traced=False), ["needs the gradients of 5 variables", GROUPS_1]),
    "several rounds one by one": (lambda: stepped("layer-wise", PowerSGD(2)), ["takes several rounds", GROUPS_1]),
    "exact agreement one by one": (
        lambda: stepped("layer-wise", TopK(10), controller=GraVAC(agreement="exact")),
        ["agreement='exact' needs every gradient before it decides", GROUPS_1],
    ),
    "fewer variables than the tape": (lambda: with_other_variables(1, 0), ["gradients of 'last/kernel:0' are handed over"]),
    "other variables": (
        lambda: with_other_variables(0, 1),
        ["of which this compression object knows nothing", "build it from the variables that the tape or the optimizer gets"],
    ),
    "another order on one rank": (in_another_order, ["'0.a'", "'0.b'"]),
    "more variables than the tape": (with_too_many, ["does not get '5.more'", "from the same variables"]),
    "a variable twice for the tape": (with_one_twice, ["gets '0.first/kernel' more than once", "list each variable once"]),
    "functions run eagerly": (run_eagerly, ["run_functions_eagerly(True) keeps Horovod's functions", "leave it out"]),
    "built within the step": (within_the_step, ["built within a tf.function", "build one before training"]),
    "built in every eager step": (
        in_every_step,
        ["one more compression object for the same variables", "the 4 before did one step each", "build one before training"],
    ),
    "second derivatives": (lambda: differentiated_twice(traced=False), ["second derivatives from a plain tf.GradientTape"]),
    "second derivatives, traced": (lambda: differentiated_twice(traced=True), ["a compressed gradient was differentiated"]),
    "saved in the background": (saved_in_the_background, ["enable_async=True", "compression.state_dict()"]),
    "a method": (lambda: given_to_the_tape(TopK(9)), ["TopK(factor=9.0)", "compression=EntireModel(parameters, TopK("]),
    "a class": (lambda: given_to_the_tape(hva.EntireModel), ["is the class EntireModel", "build one before training"]),
    "under XLA": (compiled, ["XLA compiles this function", "jit_compile=False"]),
    "hvd.allreduce": (allreduced, ["serves hvd.DistributedGradientTape", "cannot be passed to hvd.allreduce"]),
    "Adasum": (summed_by_adasum, ["op=hvd.Adasum combines whole updates", "op=hvd.Average"]),
    "Keras 3": (lambda: keras_3("horovod.tensorflow.keras"), ["never reduces gradients under Keras 3", "hvd_adaptive.keras"]),
    "Keras 3, a class of one's own": (
        lambda: keras_3("horovod.tensorflow.keras", Own),
        ["never reduces gradients under Keras 3", "hvd_adaptive.keras.DistributedOptimizer(optimizer, compression=compression)"],
    ),
    "Keras 3, past the tape's module": (lambda: keras_3("horovod.tensorflow"), ["never reduces gradients under Keras 3"]),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(ranks: Any, case: str) -> None:
    call, words = CASES[case]
    texts = set()
    for answer in ranks(2).attempt(call):
        assert isinstance(answer, ValueError | NotImplementedError), answer
        assert all(word in str(answer) for word in words), answer
        texts.add(str(answer).rsplit("Error: ", 1)[-1])
    assert len(texts) == 1


def test_ranks_with_other_arguments_are_told(ranks: Any) -> None:
    def on_rank() -> Any:
        hva.EntireModel(model(), TopK(10 + hvd.rank()))

    texts = {str(answer) for answer in ranks(2).attempt(on_rank)}
    assert len(texts) == 1
    assert "TopK(factor=10.0)" in texts.pop()


def test_horovod_must_be_initialised() -> None:
    with pytest.raises(ValueError, match=r"call hvd\.init"):
        hva.EntireModel(model(), TopK(10))
