"""Every method under every legal exchange on real ranks: the same variables everywhere; runs that are saved and go on."""

from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from methods import INSTANCES
from taped import building, flat, model, stepping, train

from hvd_adaptive import GraVAC, Memory, StateError
from hvd_adaptive.compress import DGC, QSGD, Identity, PowerSGD, TopK
from hvd_adaptive.exchange import NAMES as EXCHANGES
from hvd_adaptive.exchange import TwoSided

CASES = [(methods[0], name) for methods in INSTANCES.values() for name in methods[0].exchanges if name in EXCHANGES]
STEERED = GraVAC(min_factor=4, max_factor=64, epsilon=0.5, omega=1e-12, window=10, every=4, probe_dense=False)
KEEPING = [
    ("layer-wise", PowerSGD(2), {"exchange": "reduce"}),
    ("bucketed", DGC(10, momentum=0.5), {"exchange": "shared-support"}),
    ("bucketed", TopK(5), {"exchange": TwoSided(QSGD(7), feedback=True)}),
    ("entire-model", QSGD(127, norm="max"), {"exchange": "reduce", "feedback": True}),
    ("layer-wise", TopK(4), {"controller": STEERED}),
]
NAMES = [{"residual", "q"}, {"residual", "velocity"}, {"residual", "master residual"}, {"residual"}, {"residual"}]
"""Of what is held back, of which not all is zero."""


@pytest.mark.parametrize(("size", "scope"), [(2, "entire-model"), (2, "bucketed"), (3, "layer-wise")])
def test_variables_stay_the_same_on_all_ranks(ranks: Any, size: int, scope: str) -> None:
    """Finite after two steps, and not where they began; every unit is counted in every step."""
    cases = CASES[:: size - 1]  # three ranks on two cores take three times as long

    def on_rank() -> Any:
        found = []
        for method, exchange in cases:
            variables, monitor = model(), Memory()
            compression = building(scope, method, exchange=exchange, monitor=monitor)(variables)
            train(stepping(variables, compression, groups=1), 2)
            units = {record.unit for record in monitor.records}
            found.append((flat(variables), len(monitor.records) == 2 * len(units), all(r.finite for r in monitor.records)))
        return found

    by_rank, start = ranks(size).run(on_rank, seconds=110), flat(model())  # about fifty functions are traced
    for case, *seen in zip(cases, *by_rank, strict=True):
        ends = [end for end, _, _ in seen]
        assert all(ends[0].tobytes() == end.tobytes() for end in ends), case
        assert np.isfinite(ends[0]).all(), case
        assert all(counted and finite for _, counted, finite in seen), case
        sends = type(case[0]).__name__ != "Threshold"  # no gradient of this model may reach it
        assert not sends or ends[0].tobytes() != start.tobytes(), case


def test_a_checkpointed_run_goes_on_bit_for_bit(ordered_ranks: Any, tmp_path: Path) -> None:
    """Residual, velocity, factors, what masters keep and the controller's state come back through tf.train.Checkpoint."""

    def on_rank() -> Any:
        found = []
        for number, (scope, method, options) in enumerate(KEEPING):
            build, prefix = building(scope, method, **options), str(tmp_path / f"{number}.{hvd.rank()}")
            variables = model()
            compression = build(variables)
            step = stepping(variables, compression, groups=1)
            train(step, 15)
            saved = tf.train.Checkpoint(variables=variables, compression=compression).save(prefix)
            train(step, 15, first=15)
            others = model(seed=2)
            other = build(others)
            tf.train.Checkpoint(variables=others, compression=other).restore(saved).assert_consumed()
            train(stepping(others, other, groups=1), 15, first=15)
            ended = other.state_dict()
            names = {name for vectors in ended["memory"].values() for name, vector in vectors.items() if vector.any()}
            found.append((flat(variables).tobytes() == flat(others).tobytes(), other.stats().steps, ended["steps"], names))
        return found

    for on_one in ordered_ranks(2).run(on_rank, seconds=100):  # ten functions are traced, and run 45 steps
        for case, kept, (same, steps, done, names) in zip(KEEPING, NAMES, on_one, strict=True):
            assert same, case
            assert (steps, done) == (30, 30), case
            assert names == kept, case


def test_a_state_is_not_changed_by_going_on(ranks: Any) -> None:
    """What was saved stays as it was, also where it was loaded."""

    def on_rank() -> Any:
        objects = [(variables, building("layer-wise", TopK(20))(variables)) for variables in (model(), model())]
        (_, first), (_, second) = objects
        steps = [stepping(variables, compression, groups=1) for variables, compression in objects]
        train(steps[0], 2)
        saved = first.state_dict()
        before = {unit: memory["residual"].tolist() for unit, memory in saved["memory"].items()}
        train(steps[0], 2, first=2)
        second.load_state_dict(saved)
        loaded = {unit: memory["residual"].tolist() for unit, memory in second.state_dict()["memory"].items()}
        train(steps[1], 2, first=2)
        after = {unit: memory["residual"].tolist() for unit, memory in saved["memory"].items()}
        later = {unit: memory["residual"].tolist() for unit, memory in second.state_dict()["memory"].items()}
        return before == after, before == loaded, [unit for unit in before if before[unit] == later[unit]]

    assert ranks(2).run(on_rank) == [(True, True, [])] * 2


def test_a_checkpoint_of_something_else_is_refused(ranks: Any, tmp_path: Path) -> None:
    def on_rank() -> Any:
        variables = model()
        saved = building("entire-model", TopK(20))(variables)
        prefix = tf.train.Checkpoint(compression=saved).save(str(tmp_path / str(hvd.rank())))
        texts = []
        for build in (building("entire-model", TopK(21)), building("layer-wise", TopK(20))):
            try:
                tf.train.Checkpoint(compression=build(variables)).restore(prefix)
            except StateError as error:
                texts.append(str(error))
        try:
            saved.deserialize(b"garbage")
        except StateError as error:
            texts.append(str(error))
        return texts

    for factor, scope, garbage in ranks(2).run(on_rank):
        assert "belongs to another compression object" in factor
        assert "TopK(factor=20.0)" in factor
        assert "this object has layer-wise" in scope
        assert garbage.startswith("this is no state of a compression object")


def test_gradients_that_are_not_finite_are_told_and_kept_out(ranks: Any) -> None:
    """A NaN on one rank makes that step's gradients NaN on all, and leaves what is held back as it was."""

    def on_rank() -> Any:
        found = []
        for method in (TopK(10), Identity()):
            for groups, scope in ((1, "entire-model"), (None, "layer-wise")):
                variables = [tf.Variable(tf.zeros([50]), name="kernel")]
                compression = building(scope, method)(variables)

                @tf.function(autograph=False)
                def step(x: Any, variables: Any = variables, compression: Any = compression, groups: Any = groups) -> Any:
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_sum(variables[0] * x)
                    return hvd.DistributedGradientTape(tape, compression=compression, groups=groups).gradient(loss, variables)

                x = np.linspace(-1, 1, 50, dtype=np.float32) * (hvd.rank() + 1)
                step(tf.constant(x))
                before = compression.state_dict()["memory"]
                bad = x.copy()
                bad[7] = np.nan if hvd.rank() == 1 else bad[7]
                gradient = step(tf.constant(bad))[0].numpy()
                after = compression.state_dict()["memory"]
                # The gradient was added and taken out again, which rounds.
                same = all(np.allclose(before[u]["residual"], after[u]["residual"], rtol=0, atol=1e-6) for u in before)
                found.append((bool(np.isnan(gradient[7])), same, compression.stats().nonfinite_steps))
        return found

    for on_one in ranks(2).run(on_rank):
        assert all(is_nan and same for is_nan, same, _ in on_one)
        assert [count for *_, count in on_one] == [1, 1, 0, 0]  # what is left untouched is not looked at


@pytest.mark.parametrize("spoilt", ["compressed", "excluded"])
@pytest.mark.parametrize("groups", [1, None])
def test_what_units_hold_back_stays_in_a_step_that_a_loss_scale_skips(ranks: Any, groups: int | None, spoilt: str) -> None:
    """One gradient is infinite on one rank: of no unit anything counts as sent."""

    def on_rank() -> Any:
        names = ["compressed", "another", "excluded"]
        variables = [tf.Variable(tf.zeros([50]), name=name) for name in names]
        compression = building("layer-wise", TopK(10), exclude="*excluded")(variables)

        @tf.function(autograph=False)
        def step(*given: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(variable * x) for variable, x in zip(variables, given, strict=True)])
            return hvd.DistributedGradientTape(tape, compression=compression, groups=groups).gradient(loss, variables)

        given = [tf.constant(np.linspace(-1, 1, 50, dtype=np.float32) * (hvd.rank() + 1)) for _ in names]
        step(*given)
        before = compression.state_dict()["memory"]
        given = [x + np.inf if hvd.rank() == 1 and name == spoilt else x for name, x in zip(names, given, strict=True)]
        finite = [bool(np.isfinite(one).all()) for one in step(*given)]
        return before, compression.state_dict()["memory"], finite == [name != spoilt for name in names]

    for before, after, as_expected in ranks(2).run(on_rank):
        assert as_expected
        assert set(before) == set(after) == {"0.compressed", "1.another"}
        for unit, kept in before.items():
            assert np.count_nonzero(kept["residual"]) == 45
            np.testing.assert_allclose(after[unit]["residual"], kept["residual"], rtol=0, atol=1e-6)  # taken out again, rounded
