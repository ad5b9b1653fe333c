"""What Horovod hands over while TensorFlow traces: once, whatever changes from step to step, and also where gradients are few."""

from typing import Any
from unittest import mock

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from taped import batches, building, flat, model, stepping, train

import hvd_adaptive.tensorflow as hva
from hvd_adaptive import GraVAC, Memory, RandomK, Schedule, TopK
from hvd_adaptive.tensorflow.collective import HorovodCollective


def gradient_of(loss: Any, variables: Any, compression: Any, **tape_options: Any) -> Any:
    """One reduction of the gradients of ``loss()``."""
    with tf.GradientTape() as tape:
        value = loss()
    return hvd.DistributedGradientTape(tape, compression=compression, **tape_options).gradient(value, variables)


@pytest.mark.parametrize(("scope", "groups"), [("entire-model", 1), ("layer-wise", None)])
def test_nothing_is_traced_again_when_the_factor_changes(ranks: Any, scope: str, groups: int | None) -> None:
    def on_rank() -> Any:
        memory, variables = Memory(), model()
        controller = Schedule(lambda step: 1.0 + step % 7)
        compression = building(scope, TopK(10), controller=controller, monitor=memory)(variables)
        step = stepping(variables, compression, groups=groups)
        train(step, 7)  # every factor once
        with mock.patch.object(tf.__internal__.FuncGraph, "__init__", side_effect=AssertionError("something is traced again")):
            train(step, 193, first=7)
        return step.experimental_get_tracing_count(), len({round(r.factor, 1) for r in memory.records}), flat(variables)

    (first, *others) = ranks(2).run(on_rank)
    for traces, factors, variables in (first, *others):
        assert traces == 1
        assert factors >= 7
        assert variables.tobytes() == first[2].tobytes()


def test_eager_steps_are_traced_once_too(ranks: Any) -> None:
    """Horovod looks up by the object how to reduce, and hands each gradient over when that is traced."""

    def on_rank() -> Any:
        variables, handed = model(), []
        controller = Schedule(lambda step: 1.0 + step % 7)
        compression = building("entire-model", TopK(10), controller=controller)(variables)
        compress = compression.compress

        @tf.autograph.experimental.do_not_convert
        def noting(tensor):  # annotations do not travel to the ranks
            handed.append(tensor.shape)
            return compress(tensor)

        compression.compress = noting
        train(stepping(variables, compression, traced=False, groups=1), 10)
        return len(handed), compression.stats().steps

    assert ranks(2).run(on_rank) == [(5, 10)] * 2


@pytest.mark.parametrize("groups", [None, 1])
def test_the_tape_may_have_the_variables_in_another_order(ordered_ranks: Any, groups: int | None) -> None:
    def on_rank() -> Any:
        ends = []
        for order in (1, -1):
            variables = model()
            compression = building("layer-wise", TopK(10))(variables[::order])
            train(stepping(variables, compression, groups=groups), 5)
            ends.append(flat(variables).tobytes())
        return ends[0] == ends[1]

    assert all(ordered_ranks(2).run(on_rank))


def test_autograph_leaves_the_result_as_it_is(ordered_ranks: Any) -> None:
    """A user's tf.function has it, and then what is on the stack is code that it wrote."""

    def on_rank() -> Any:
        ends = []
        for autograph in (True, False):
            for scope, groups in (("entire-model", 1), ("layer-wise", None), ("layer-wise", 2)):
                variables = model()
                train(stepping(variables, building(scope, TopK(10))(variables), autograph=autograph, groups=groups), 5)
                ends.append(flat(variables).tobytes())
        return ends[:3] == ends[3:]

    assert all(ordered_ranks(2).run(on_rank))


def test_variables_without_a_gradient_are_left_alone(ranks: Any) -> None:
    """Their gradient stays None, and the others are as if they had not been given."""

    def on_rank() -> Any:
        found = []
        for scope, groups in (("entire-model", 1), ("layer-wise", None), ("bucketed", 1)):
            variables = [
                tf.Variable(tf.ones([30]), name="a"),
                tf.Variable(tf.ones([40]), name="b"),
                tf.Variable(tf.ones([50]), name="c"),
            ]
            compression = building(scope, TopK(2))(variables)
            received = [np.zeros(30), None, np.zeros(50)]
            for step in range(4):
                x = np.random.default_rng([step, hvd.rank()]).standard_normal(50).astype(np.float32)

                def loss(x: Any = x, v: Any = variables) -> Any:
                    return tf.reduce_sum(v[0] * x[:30]) + tf.reduce_sum(v[2] * x)

                first, none, last = gradient_of(loss, variables, compression, groups=groups)
                received = [received[0] + first, none, received[2] + last]
            state = compression.state_dict()["memory"]
            kept = {unit: memory["residual"].tolist() for unit, memory in state.items()}
            found.append((none is None, [np.asarray(received[0]), np.asarray(received[2])], kept, compression.stats().steps))
        return found

    zero, one = ranks(2).run(on_rank)
    drawn = [[np.random.default_rng([step, rank]).standard_normal(50).astype(np.float32) for step in range(4)] for rank in (0, 1)]
    whole = np.mean([np.sum(d, 0) for d in drawn], 0)
    for (is_none, (first, last), kept, steps), (_, _, other, _) in zip(zero, one, strict=True):
        assert is_none
        assert steps == 4
        held = [np.concatenate([np.array(unit) for _, unit in sorted(part.items())]) for part in (kept, other)]
        if "bucket0" in kept:  # the last variables come first
            held = [np.concatenate([np.array(unit) for _, unit in sorted(part.items(), reverse=True)]) for part in (kept, other)]
        left = np.mean(held, 0)
        assert not left[30:70].any()
        # sent + residual is what came: float32 rounds the sums of four steps
        np.testing.assert_allclose(first + left[:30], whole[:30], rtol=0, atol=1e-5)
        np.testing.assert_allclose(last + left[70:], whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("groups", "agreement"), [(None, "lagged"), (1, "lagged"), (1, "exact")])
def test_units_without_a_gradient_are_sent_and_decided_for(ranks: Any, groups: int | None, agreement: str) -> None:
    """Once in a step, whoever comes first."""

    def on_rank() -> Any:
        started, start = [], HorovodCollective.start

        def noting(self, kind, x, name, splits=()):  # annotations do not travel to the ranks
            started.append((compression.stats().steps, name))
            return start(self, kind, x, name, splits)

        variables = [tf.Variable(tf.ones([40]), name=name) for name in "abc"]
        controller, memory = GraVAC(min_factor=2, max_factor=8, agreement=agreement), Memory()
        compression = building("layer-wise", TopK(2), controller=controller, monitor=memory)(variables)
        with mock.patch.object(HorovodCollective, "start", noting):
            for _ in range(3):
                gradient_of(lambda: tf.reduce_sum(variables[0] + 2 * variables[2]), variables, compression, groups=groups)
        return sorted((record.step, record.unit) for record in memory.records), len(started) - len(set(started))

    wanted = [(step, unit) for step in range(3) for unit in ("0.a", "1.b", "2.c")]
    assert ranks(2).run(on_rank, seconds=60) == [(wanted, 0)] * 2


@pytest.mark.parametrize(("scope", "groups"), [("entire-model", 1), ("layer-wise", None)])
def test_the_bytes_told_are_those_of_payloads_and_tokens(ranks: Any, scope: str, groups: int | None) -> None:
    """A token is a number of 4 bytes for each gradient, and in the first step one more."""

    def on_rank() -> Any:
        memory, variables = Memory(), model()
        compression = building(scope, TopK(10), monitor=memory)(variables)
        train(stepping(variables, compression, groups=groups), 3)
        return compression.stats().bytes_sent - sum(record.bytes_sent for record in memory.records)

    assert ranks(2).run(on_rank) == [5 * (8 + 4 + 4)] * 2


def test_gradients_that_are_missing_now_and_not_before_are_refused(ranks: Any) -> None:
    def on_rank() -> Any:
        variables = [tf.Variable(tf.ones([30]), name="a"), tf.Variable(tf.ones([40]), name="b")]
        compression = building("entire-model", TopK(2))(variables)
        gradient_of(lambda: tf.reduce_sum(variables[0]) + tf.reduce_sum(variables[1]), variables, compression, groups=1)
        gradient_of(lambda: tf.reduce_sum(variables[0]), variables, compression, groups=1)

    for error in ranks(2).attempt(on_rank):
        assert "in this trace '1.b' have a gradient and in an earlier one had none, or the reverse" in str(error)


@pytest.mark.parametrize(("scope", "groups"), [("entire-model", 1), ("layer-wise", 1), ("layer-wise", None)])
def test_variables_that_share_a_gradient(ranks: Any, scope: str, groups: int | None) -> None:
    """TensorFlow gives variables that are added one and the same tensor."""

    def on_rank() -> Any:
        ends, shared = [], []
        for build in (building(scope, TopK(1)), lambda _: hvd.Compression.none):
            variables = [tf.Variable(np.random.default_rng(seed).standard_normal((40, 50)).astype("float32")) for seed in (0, 1)]
            compression = build(variables)

            @tf.function(autograph=False)
            def step(compression=compression, variables=variables):  # annotations do not travel to the ranks
                with tf.GradientTape(persistent=True) as tape:
                    loss = tf.reduce_sum((hvd.rank() + 1.0) * (variables[0] + variables[1]) ** 2)
                own = tape.gradient(loss, variables)
                shared.append(own[0] is own[1])
                reduced = hvd.DistributedGradientTape(tape, compression=compression, groups=groups).gradient(loss, variables)
                for variable, gradient in zip(variables, reduced, strict=True):
                    variable.assign_sub(1e-3 * gradient)

            for _ in range(3):
                step()
            ends.append((flat(variables), getattr(compression, "stats", lambda: None)()))
        (ours, stats), (stock, _) = ends
        return shared, stats.steps, (ours, stock)

    for shared, steps, (ours, stock) in ranks(2).run(on_rank):
        assert shared == [True, True]
        assert steps == 3
        np.testing.assert_allclose(ours, stock, rtol=1e-6)  # a mean of two is rounded once more when it is divided


def test_each_of_those_gets_what_was_sent_of_its_own(ranks: Any) -> None:
    """An odd number of elements is sent, so of one pair of equal ones a single one."""

    def on_rank() -> Any:
        variables = [tf.Variable(np.random.default_rng(seed).standard_normal((40, 50)).astype("float32")) for seed in (0, 1)]
        compression = building("entire-model", TopK(4000 / 401))(variables)

        @tf.function(autograph=False)
        def step():  # annotations do not travel to the ranks
            return gradient_of(lambda: tf.reduce_sum((variables[0] + variables[1]) ** 2), variables, compression, groups=1)

        return sorted(np.count_nonzero(one) for one in step())

    assert ranks(2).run(on_rank) == [[200, 201]] * 2


def test_after_a_reset_other_gradients_may_come(ranks: Any) -> None:
    def on_rank() -> Any:
        variables = [tf.Variable(tf.ones([30]), name="a"), tf.Variable(tf.ones([40]), name="b")]
        compression = building("layer-wise", TopK(1))(variables)
        found = []
        for number in (0, 1):
            found += gradient_of(lambda n=number: 3 * tf.reduce_sum(variables[n]), variables, compression, groups=1)
            compression.reset()
        return [None if one is None else (one.shape[0], float(tf.reduce_mean(one))) for one in found]

    assert ranks(2).run(on_rank) == [[(30, 3.0), None, None, (40, 3.0)]] * 2


def test_sparse_gradients(ranks: Any) -> None:
    """Of an embedding: dense on demand, or past compression if the variable is excluded, or refused."""

    def on_rank() -> Any:
        table, kernel = tf.Variable(tf.ones([20, 4]), name="embeddings"), tf.Variable(tf.ones([4]), name="kernel")
        rows = tf.constant([3, 5, 3 + hvd.rank()])

        def loss() -> Any:
            return tf.reduce_sum(tf.gather(table, rows) * kernel)

        dense = gradient_of(
            loss, [table, kernel], building("entire-model", TopK(1))([table, kernel]), groups=1, sparse_as_dense=True
        )
        compression = building("entire-model", TopK(1), exclude="*.embeddings")([table, kernel])
        sparse = gradient_of(loss, [table, kernel], compression)
        texts = []
        try:
            gradient_of(loss, [table, kernel], building("entire-model", TopK(1))([table, kernel]))
        except NotImplementedError as error:
            texts.append(str(error))
        return dense[0].numpy(), tf.convert_to_tensor(sparse[0]).numpy(), sparse[1].numpy(), dense[1].numpy(), texts

    for dense, sparse, kernel, dense_kernel, (text,) in ranks(2).run(on_rank):
        wanted = np.zeros((20, 4))
        wanted[3], wanted[4], wanted[5] = 1.5, 0.5, 1.0
        assert dense.tolist() == sparse.tolist() == wanted.tolist()
        assert kernel.tolist() == dense_kernel.tolist() == [3.0] * 4
        assert "the gradient of '0.embeddings' is tf.IndexedSlices" in text
        assert "sparse_as_dense=True" in text


def test_two_optimizers_have_an_object_each(ranks: Any) -> None:
    """As in a GAN; each object keeps to its own variables."""

    def on_rank() -> Any:
        players = [model(seed=1), model(seed=2)]
        objects = [
            building("entire-model", method)(player) for player, method in zip(players, (TopK(10), RandomK(5)), strict=True)
        ]
        steps = [stepping(player, compression, groups=1) for player, compression in zip(players, objects, strict=True)]
        for number in range(10):
            for step in steps:
                train(step, 1, first=number)
        alone = model(seed=1)
        train(stepping(alone, building("entire-model", TopK(10))(alone), groups=1), 10)
        return [flat(player) for player in players], flat(alone), [o.stats().steps for o in objects]

    (first, *others) = ranks(2).run(on_rank)
    for (one, two), alone, steps in (first, *others):
        assert steps == [10, 10]
        assert (one.tobytes(), two.tobytes()) == (first[0][0].tobytes(), first[0][1].tobytes())
        np.testing.assert_allclose(one, alone, rtol=0, atol=1e-6)  # reductions that overlap are summed in another order


def test_two_objects_name_their_collectives_apart(ranks: Any) -> None:
    """In one function both may be under way at once, and Horovod tells data apart by names."""

    def on_rank() -> Any:
        named, start = [], HorovodCollective.start

        def noting(self, kind, x, name, splits=()):  # annotations do not travel to the ranks
            named[-1].add(name)
            return start(self, kind, x, name, splits)

        for scope in ("layer-wise", "layer-wise", "entire-model"):
            variables = model()
            compression = building(scope, TopK(10))(variables)
            named.append(set())
            with mock.patch.object(HorovodCollective, "start", noting):
                train(stepping(variables, compression, groups=1), 2)
        return [len(names) for names in named], len(set.union(*named))

    assert ranks(2).run(on_rank) == [([5, 5, 1], 11)] * 2


def test_a_loop_within_one_function(ranks: Any) -> None:
    def on_rank() -> Any:
        ends = []
        for looped in (True, False):
            variables = model()
            step = stepping(variables, building("entire-model", TopK(10))(variables), traced=not looped, groups=1)
            stacked = [tf.constant(np.stack(parts)) for parts in zip(*batches(6, hvd.rank()), strict=True)]
            if looped:

                @tf.function
                def steps(inputs: Any, targets: Any, step: Any = step) -> None:
                    for number in tf.range(6):
                        step(inputs[number], targets[number])

                steps(*stacked)
            else:
                train(step, 6)
            ends.append(flat(variables))
        return float(abs(ends[0] - ends[1]).max())

    assert all(difference <= 1e-6 for difference in ranks(2).run(on_rank))  # float32's rounding: code is fused otherwise


def test_gravac_steers_as_over_torch_and_in_graphs(ranks: Any) -> None:
    """Where dense steps are faster the run goes dense; all ranks decide alike, also with one controller a unit."""

    def on_rank() -> Any:
        found = []
        for scope, groups, options in (
            ("entire-model", 1, {}),
            ("layer-wise", None, {"per_unit": True}),
            ("entire-model", 1, {"agreement": "exact"}),
        ):
            variables, memory = model(), Memory()
            controller = GraVAC(min_factor=4, max_factor=64, window=10, every=4, **options)
            train(
                stepping(variables, building(scope, TopK(4), controller=controller, monitor=memory)(variables), groups=groups), 60
            )
            found.append((flat(variables).tobytes(), sorted((r.step, r.unit, r.branch, r.factor) for r in memory.records)))
        return found

    first, *others = ranks(2).run(on_rank)
    assert all(other == first for other in others)
    assert all(record[2] == "trial" for _, records in first for record in records if record[0] < 5)


def test_other_process_sets_than_the_tapes_are_told(ranks: Any) -> None:
    def on_rank() -> Any:
        chosen = hvd.add_process_set([0, 1])
        variables = [tf.Variable(tf.ones([30]), name="a")]
        compression = hva.EntireModel(variables, TopK(2), process_set=chosen)
        found = None
        if hvd.rank() < 2:
            found = gradient_of(
                lambda: tf.reduce_sum(variables[0]) * (hvd.rank() + 1), variables, compression, process_set=chosen
            )[0]
        hvd.remove_process_set(chosen)
        return None if found is None else found.numpy().sum(), compression.stats().note

    zero, one, two = ranks(3).run(on_rank)
    assert zero[0] == one[0] == 1.5 * 15  # half of thirty
    assert two[0] is None
    assert "not in the process set" in two[1]
