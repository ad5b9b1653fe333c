"""Whole steps of the engine over Loopback, against sums of all ranks' gradients in numpy's float64.

Gradients are multiples of 3 up to 48, so on 1, 2 and 8 ranks every sum and mean is exact and compared exactly, in float16 even
on 3.
"""

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from backends import also_on_a_device
from engine_runs import end
from fake_device import DeviceOps
from vectors import positions_bytes

from hvd_adaptive import BFloat16, Half, Identity, Memory, NoFeedback, RandomK, TopK, UnsupportedError
from hvd_adaptive.collective import Loopback
from hvd_adaptive.engine import Engine
from hvd_adaptive.exchange import Exchange, Outcome, Round
from hvd_adaptive.flight import Arrivals
from hvd_adaptive.granularity import Parameter, bucketed, entire_model, layer_wise
from hvd_adaptive.monitor import Meter
from hvd_adaptive.plan import Options, UnitPlan, build

SHAPES = {"conv": (2, 3, 2), "bias": (3,), "fc": (5, 4), "scale": ()}
SCOPES = {"layer-wise": layer_wise, "entire-model": entire_model, "bucketed": partial(bucketed, bucket_bytes=100)}
DROPPING = [TopK(4), RandomK(4)]
CARRYING = [Identity(), Half(), BFloat16(), TopK(1), RandomK(1)]


PLAIN = ("reduce", "gather")
"""The exchanges that send all of what a method keeps, so that what is kept back is all that is missing."""


def ways(methods):
    """Every method with each of its exchanges."""
    return pytest.mark.parametrize(
        ("method", "exchange"), [pytest.param(m, e, id=f"{m!r}-{e}") for m in methods for e in m.exchanges if e in PLAIN]
    )


RANKS = [1, 2, 3, 8]

every_way = ways([*CARRYING[:3], *DROPPING])
every_scope = pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)


def plans_of(method, scope, dtype="float64", exchange="auto", **changes):
    parameters = [Parameter(name, shape, dtype) for name, shape in SHAPES.items()]
    defaults = {"controller": None, "feedback": None, "dense_below": 0, "exclude": (), "seed": 0}
    return build(parameters, scope, Options(compressor=method, exchange=exchange, **defaults | changes))


def gradients_of(rank, step, dtype="float64"):
    rng = np.random.default_rng([rank, step])
    return {name: np.asarray(3 * rng.integers(-16, 17, shape)).astype(dtype) for name, shape in SHAPES.items()}


@dataclass
class Seen:
    """What one rank held after each step: the gradient it would use and the residual, by parameter."""

    means: list[dict[str, np.ndarray]] = field(default_factory=list)
    residuals: list[dict[str, np.ndarray]] = field(default_factory=list)
    records: list = field(default_factory=list)


def train(ops, ranks, plans, gradients, factors=(None,), weight=1.0):
    """``gradients(rank, step)`` through the engine on every rank, a factor a step, as a binding drives it."""

    def rank_of(collective):
        monitor, seen, memory = Memory(), Seen(), {}
        engine = Engine(ops, collective, seed=7, label="test", meter=Meter(monitor))
        for step, factor in enumerate(factors):
            now = [plan if factor is None or plan.dense else plan.at(factor) for plan in plans]
            arrays = {name: ops.from_numpy(g) for name, g in gradients(collective.rank, step).items()}
            flights = {}
            for number in reversed(range(len(now))):  # gradients become ready from the back
                plan, arrivals = now[number], Arrivals()
                for slot in reversed(plan.unit.slots):
                    name = slot.parameter.name
                    memory[number] = engine.absorb(plan, memory.get(number, {}), arrivals, slot, arrays[name])
                ready, memory[number] = engine.prepare(plan, memory[number], arrivals, step)
                flights[number] = engine.launch(plan, ready)
                engine.send(flights[number])
            engine.collect(list(flights.values()))
            means, residuals = {}, {}
            for number, flight in flights.items():
                plan = now[number]
                mean, memory[number] = end(engine, flight, memory[number], weight)
                assert ops.size(mean) == plan.unit.size
                for slot in plan.unit.slots:
                    name = slot.parameter.name
                    means[name] = ops.to_numpy(mean)[slot.start : slot.stop].copy()
                    if plan.feedback.remembers:
                        residuals[name] = ops.to_numpy(memory[number]["residual"])[slot.start : slot.stop].copy()
            engine.meter.end_step()
            seen.means.append(means)
            seen.residuals.append(residuals)
            for name, g in gradients(collective.rank, step).items():
                np.testing.assert_array_equal(ops.to_numpy(arrays[name]), g)  # the user's gradients are the user's
        seen.records = monitor.records
        return seen

    return Loopback(ranks, ops).run(rank_of)


def finish(engine, plan, memory, arrivals, step=0):
    """The rest of a step of one unit: its mean and its memory."""
    ready, memory = engine.prepare(plan, memory, arrivals, step)
    flight = engine.launch(plan, ready)
    engine.send(flight)
    engine.collect([flight])
    return end(engine, flight, memory)


def flat(arrays):
    return np.concatenate([np.asarray(arrays[name], np.float64).ravel() for name in SHAPES])


def check_identical(seen):
    """The same bits on every rank, in every step."""
    for means in zip(*(rank.means for rank in seen), strict=True):
        for name in SHAPES:
            assert len({m[name].tobytes() for m in means}) == 1


def close_enough(ranks, dtype="float64"):
    """Exact over a power of two; else a rounding for each rank, in each of up to 4 steps, of numbers up to 4 * 48."""
    return 0 if ranks in (1, 2, 8) else ranks * 4 * 192 * float(np.finfo(dtype).eps)


@every_way
@every_scope
@pytest.mark.parametrize("ranks", RANKS)
def test_nothing_is_lost_and_ranks_stay_identical(ops, method, exchange, scope, ranks):
    """After each step, ranks times the means so far, plus all residuals, are all gradients so far."""
    factors = (None,) * (4 if ranks < 8 else 2)
    seen = train(ops, ranks, plans_of(method, scope, exchange=exchange, feedback=True), gradients_of, factors)
    check_identical(seen)
    absorbed, used = np.zeros(36), np.zeros(36)
    for step in range(len(factors)):
        absorbed += sum(flat(gradients_of(rank, step)) for rank in range(ranks))
        used += ranks * flat(seen[0].means[step])
        kept_back = sum(flat(rank.residuals[step]) for rank in seen)
        np.testing.assert_allclose(used + kept_back, absorbed, rtol=0, atol=close_enough(ranks))
    assert np.count_nonzero(used)


@pytest.mark.parametrize("method", DROPPING, ids=repr)
@every_scope
def test_nothing_is_lost_when_the_factor_changes(ops, method, scope):
    """Ending with factor 1, which empties the residual: then all that ever came has been used."""
    factors = (2, 30, 1.5, 1000, 3, 1)
    seen = train(ops, 2, plans_of(method, scope), gradients_of, factors)
    check_identical(seen)
    total = sum(flat(gradients_of(rank, step)) for rank in range(2) for step in range(len(factors)))
    np.testing.assert_array_equal(2 * sum(flat(means) for means in seen[0].means), total)
    for rank in seen:
        np.testing.assert_array_equal(flat(rank.residuals[-1]), 0)
        assert np.count_nonzero(flat(rank.residuals[3]))


@ways(CARRYING)
@every_scope
@pytest.mark.parametrize("ranks", RANKS)
def test_with_nothing_dropped_the_result_is_the_mean(ops, method, exchange, scope, ranks):
    """Whole numbers below 2^8 survive every code that sends them all."""
    for feedback in (True, False):
        plans = plans_of(method, scope, "float32", exchange, feedback=feedback)
        seen = train(ops, ranks, plans, partial(gradients_of, dtype="float32"), (None,) * 2)
        check_identical(seen)
        for step in range(2):
            expected = np.mean([flat(gradients_of(rank, step)) for rank in range(ranks)], axis=0)
            np.testing.assert_allclose(flat(seen[0].means[step]), expected, rtol=0, atol=close_enough(ranks, "float32"))


@pytest.mark.parametrize("method", [TopK(4), RandomK(4), Identity()], ids=repr)
def test_without_feedback_what_was_dropped_is_gone(ops, method):
    """Each step is as the first: with the same gradients and key, the same result."""
    plans = plans_of(method, entire_model, feedback=False)
    seen = train(ops, 2, plans, lambda rank, _: gradients_of(rank, 0), (None,) * 3)
    own = [flat(gradients_of(rank, 0)) for rank in range(2)]
    for means in seen[0].means:
        got = flat(means)
        possible = [np.zeros(36), own[0] / 2, own[1] / 2, (own[0] + own[1]) / 2]
        assert all(any(got[i] == p[i] for p in possible) for i in range(36))
    if isinstance(method, TopK):
        assert flat(seen[0].means[0]).tobytes() == flat(seen[0].means[2]).tobytes()


@pytest.mark.parametrize("weight", [2.0, -0.25])
@every_scope
def test_the_result_is_weighted(ops, scope, weight):
    """The sum is the mean weighted by the number of ranks."""
    for method in (Identity(), TopK(1), RandomK(1)):
        seen = train(ops, 2, plans_of(method, scope), gradients_of, weight=weight)
        expected = weight * np.mean([flat(gradients_of(rank, 0)) for rank in range(2)], axis=0)
        np.testing.assert_array_equal(flat(seen[0].means[0]), expected)


# ---- gradients that are not finite -----------------------------------------------------------------------------------------


def spoiled(rank, step, value, where, at=2):
    """The gradients, with ``value`` in parameter ``fc`` of rank ``where`` in step ``at``."""
    gradients = gradients_of(rank, step)
    if (rank, step) == (where, at):
        gradients["fc"][3, 1] = value
    return gradients


@also_on_a_device
@every_way
@every_scope
@pytest.mark.parametrize(("ranks", "where", "value"), [(1, 0, np.inf), (2, 1, np.nan), (3, 0, -np.inf)])
def test_one_bad_element_makes_the_unit_nan_everywhere_and_leaves_no_trace(ops, method, exchange, scope, ranks, where, value):
    """The residual afterwards is the one before the step; training goes on, and nothing else is lost."""
    plans = plans_of(method, scope, exchange=exchange, feedback=True)
    steps = (None,) * 4
    seen = train(ops, ranks, plans, lambda rank, step: spoiled(rank, step, value, where), steps)
    check_identical(seen)
    hit = {name for plan in plans for name in names(plan) if "fc" in names(plan)}
    for rank in seen:
        for name in SHAPES:
            assert np.isnan(rank.means[2][name]).all() == (name in hit)
            assert np.isfinite(rank.means[2][name]).all() == (name not in hit)
            if name in hit:
                np.testing.assert_array_equal(rank.residuals[2][name], rank.residuals[1][name])
        assert all(np.isfinite(flat(rank.means[step])).all() for step in (0, 1, 3))
    for name in SHAPES:
        good = [step for step in range(4) if not (step == 2 and name in hit)]
        came = sum(gradients_of(rank, step)[name].ravel() for rank in range(ranks) for step in good)
        used = ranks * sum(seen[0].means[step][name] for step in good)
        kept_back = sum(rank.residuals[3][name] for rank in seen)
        np.testing.assert_allclose(used + kept_back, came, rtol=0, atol=close_enough(ranks))


def names(plan):
    return [slot.parameter.name for slot in plan.unit.slots]


@also_on_a_device
def test_residuals_are_restored_to_rounding_where_sums_are_rounded(ops):
    """Gradients of full precision: undoing adds and takes away again, an ulp of the largest term each."""
    rng = np.random.default_rng(0)
    given = {
        (r, s): {n: rng.standard_normal(shape).astype(np.float32) for n, shape in SHAPES.items()}
        for r in range(2)
        for s in range(3)
    }
    given[1, 2]["conv"][0, 0, 0] = np.nan
    seen = train(
        ops,
        2,
        plans_of(TopK(4), entire_model, "float32"),
        lambda r, s: {n: np.asarray(g) for n, g in given[r, s].items()},
        (None,) * 3,
    )
    for rank in seen:
        before, after = flat(rank.residuals[1]), flat(rank.residuals[2])
        assert np.isnan(flat(rank.means[2])).all()
        assert np.all(np.abs(after - before) <= 4 * 2.0**-23 * 8)
        assert np.count_nonzero(before) > 18


@also_on_a_device
@pytest.mark.parametrize("method", DROPPING, ids=repr)
@every_scope
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_without_feedback_a_bad_element_is_not_dropped_either(ops, method, scope, value):
    """Though it is not among those kept, all ranks see NaN throughout; the next step is clean."""
    seen = train(ops, 3, plans_of(method, scope, feedback=False), lambda r, s: spoiled(r, s, value, 1, at=0), (None, None))
    for rank in seen:
        assert np.isnan(rank.means[0]["fc"]).all()
        assert np.isfinite(flat(rank.means[1])).all()


@pytest.mark.parametrize("method", [Identity(), Half(), BFloat16()], ids=repr)
@every_scope
def test_dense_codes_show_a_bad_element_where_it_is(ops, method, scope):
    for value in (np.nan, np.inf):
        seen = train(ops, 2, plans_of(method, scope), lambda r, s, v=value: spoiled(r, s, v, 1, at=0))
        for rank in seen:
            assert not np.isfinite(rank.means[0]["fc"].reshape(5, 4)[3, 1])


def test_a_gradient_beyond_float16_does_not_stay_in_the_residual(ops):
    """Finite, but the code overflows: that step's result is not finite, the ones after it are."""

    def huge(rank, step):
        gradients = gradients_of(rank, step)
        if (rank, step) == (0, 0):
            gradients["bias"][1] = 1e6
        return gradients

    for rank in train(ops, 2, plans_of(Half(), layer_wise, feedback=True), huge, (None,) * 3):
        assert not np.isfinite(flat(rank.means[0])).all()
        assert np.isfinite(flat(rank.residuals[0])).all()
        assert np.isfinite(flat(rank.means[2])).all()


# ---- what is random, what is dense, what is told ---------------------------------------------------------------------------


def test_positions_differ_by_step_and_unit_and_a_run_repeats(ops):
    ones = {name: np.ones(shape) for name, shape in SHAPES.items()} | {"twin": np.ones((5, 4))}
    parameters = [Parameter(name, g.shape, "float64") for name, g in ones.items()]
    asked = Options(RandomK(4), None, False, "auto", 0, (), 0)
    plans = build(parameters, layer_wise, asked)
    runs = [train(ops, 2, plans, lambda *_: ones, (None,) * 10)[0] for _ in range(2)]
    chosen = [tuple(np.flatnonzero(means[name])) for means in runs[0].means for name in ("fc", "twin")]
    assert len(set(chosen)) > 15  # of 20 choices of 5 in 20
    assert chosen == [tuple(np.flatnonzero(means[name])) for means in runs[1].means for name in ("fc", "twin")]


def test_dense_parameters_are_plain_means(ops):
    seen = train(ops, 3, plans_of(TopK(1000), entire_model, dense_below=4, exclude=("conv",)), gradients_of, (None, 5))
    for step, kept in ((0, 1), (1, 4)):  # of 20
        for name in ("conv", "bias", "scale"):
            expected = np.mean([gradients_of(rank, step)[name].ravel() for rank in range(3)], axis=0)
            np.testing.assert_allclose(seen[1].means[step][name], expected, rtol=1e-15)
        assert set(seen[1].residuals[step]) == {"fc"}
        assert kept <= np.count_nonzero(seen[1].means[step]["fc"]) <= 3 * kept


def test_a_parameter_without_elements_passes(ops):
    plans = build([Parameter("empty", (0,), "float32")], layer_wise, Options(TopK(4), None, None, "auto", 0, (), 0))

    def step(collective):
        engine = Engine(ops, collective, 0, "test", Meter())
        arrivals, nothing = Arrivals(), ops.zeros(0, "float32", like=ops.from_numpy(np.ones(1)))
        memory = engine.absorb(plans[0], {}, arrivals, plans[0].unit.slots[0], nothing)
        return ops.size(finish(engine, plans[0], memory, arrivals)[0])

    assert Loopback(2, ops).run(step) == [0, 0]


@also_on_a_device
def test_records_say_what_happened(ops):
    """TopK(4) of 36 elements keeps 9: 9 doubles are 72 bytes, 9 positions of 2 low bits and 17 flags take 7; padded to 80.

    On a device a word more tells whether what follows is good.
    """
    seen = train(ops, 2, plans_of(TopK(4), entire_model), lambda r, s: spoiled(r, s, np.nan, 1, at=1), (None, None))
    taken = 88 if isinstance(ops, DeviceOps) else 80
    for rank in seen:
        first, second = rank.records
        assert (first.step, first.unit, first.elements, first.kept, first.factor) == (0, "model", 36, 9, 4.0)
        assert (first.bytes_sent, first.bytes_dense, first.finite) == (taken, 288, True)
        assert (second.step, second.kept, second.finite) == (1, 9, False)


@also_on_a_device
@pytest.mark.parametrize(
    ("others", "exclude", "value", "finite"),
    [
        (Identity(), (), 1.0, True),
        (Identity(), ("conv",), 1.0, True),
        (TopK(4), ("conv",), 1.0, True),
        (TopK(4), ("conv",), np.nan, False),
    ],
)
def test_an_untouched_gradient_is_counted_as_sent(ops, others, exclude, value, finite):
    """Beside compressed ones it is looked at for NaN, whatever its shape; where none is compressed, nobody looks."""
    (plan,) = [p for p in plans_of(others, layer_wise, "float32", exclude=exclude) if p.unit.name == "conv"]
    watched = others != Identity()
    assert (plan.dense, plan.untouched, plan.watched) == (bool(exclude), True, watched)
    memory = Memory()
    averaged = np.ones((2, 3, 2), np.float32)
    averaged[1, 2, 0] = value

    def step(collective):
        engine = Engine(ops, collective, 0, "test", Meter(memory))
        engine.count_untouched(plan, 4, [ops.from_numpy(averaged) if watched else None])
        engine.read([])
        engine.meter.end_step()

    Loopback(1, ops).run(step)
    (record,) = memory.records
    assert (record.step, record.unit, record.elements, record.kept, record.factor) == (4, "conv", 12, 12, 1.0)
    assert (record.bytes_sent, record.bytes_dense, record.finite) == (48, 48, finite)


def test_collectives_are_named_by_label_and_unit(ops):
    names_by_rank = []

    class Listening:
        def __init__(self, collective):
            self.rank, self.size, self.wait = collective.rank, collective.size, collective.wait
            self._collective, self.names = collective, []
            names_by_rank.append(self.names)

        def start(self, kind, x, name, splits=()):
            self.names.append((kind, name))
            return self._collective.start(kind, x, name, splits)

    def step(collective):
        listening = Listening(collective)
        engine = Engine(ops, listening, 0, "label", Meter())
        for plan in (*plans_of(TopK(4), layer_wise), *plans_of(RandomK(4), entire_model)):
            arrivals, memory = Arrivals(), {}
            for slot in plan.unit.slots:
                gradient = ops.from_numpy(np.ones(slot.parameter.shape))
                memory = engine.absorb(plan, memory, arrivals, slot, gradient)
            finish(engine, plan, memory, arrivals)

    Loopback(2, ops).run(step)
    gathered = [("gather", f"label.{name}.0") for name in ("conv", "bias", "fc", "scale")]
    assert names_by_rank == [[*gathered, ("mean", "label.model.0")]] * 2


# ---- exchanges of several rounds -------------------------------------------------------------------------------------------


class Relay(Exchange):
    """The mean by one round for each rank: each in turn adds its vector, and all learn of it. Remembers how often it ran."""

    name = "gather"

    def __init__(self, rounds):
        self.number = rounds

    def rounds(self, compressor, x, situation):
        ops, total = situation.ops, None
        visits.append((situation.rank, situation.size, situation.step, situation.shape, situation.healthy))
        for number in range(self.number):
            own = x if number % situation.size == situation.rank else ops.full_like(x, 0.0)
            brought = yield Round("sum", own)
            total = brought if total is None else total + brought
        count = situation.memory.get("count", ops.zeros(1, "float64", like=x))
        mean = ops.scale(total, 1 / self.number)
        return Outcome(mean, 7, lambda vector: ops.full_like(vector, 0.0), None, {"count": count + 1})


visits = []


def relayed(ops, lengths, steps=1, listen=None):
    """Units ``a``, ``b``, ... whose exchanges take so many rounds each, on two ranks; the means and memories of each rank."""
    units = layer_wise([Parameter(chr(97 + i), (2, 3), "float64") for i in range(len(lengths))])
    plans = [UnitPlan(u, TopK(2), Relay(n), NoFeedback()) for u, n in zip(units, lengths, strict=True)]
    monitors = [Memory(), Memory()]
    visits.clear()

    def rank_of(collective):
        engine = Engine(ops, listen(collective) if listen else collective, 0, "label", Meter(monitors[collective.rank]))
        memories = [{} for _ in plans]
        for step in range(steps):
            flights = []
            for number, plan in enumerate(plans):
                arrivals, gradient = Arrivals(), ops.from_numpy(np.full((2, 3), 1.0 + collective.rank + 10 * number))
                memories[number] = engine.absorb(plan, memories[number], arrivals, plan.unit.slots[0], gradient)
                ready, memories[number] = engine.prepare(plan, memories[number], arrivals, step)
                flight = engine.launch(plan, ready)
                engine.send(flight)
                flights.append(flight)
            engine.collect(flights)
            means = []
            for number, flight in enumerate(flights):
                mean, memories[number] = end(engine, flight, memories[number])
                means.append(ops.to_numpy(mean).tolist())
            engine.meter.end_step()
        return means, [{name: ops.to_numpy(a).tolist() for name, a in memory.items()} for memory in memories]

    return Loopback(2, ops).run(rank_of), monitors


def test_units_may_take_different_numbers_of_rounds(ops):
    results, monitors = relayed(ops, [2, 4, 2])
    for means, memories in results:
        assert means == [[1.5] * 6, [11.5] * 6, [21.5] * 6]
        assert memories == [{"count": [1.0]}] * 3
    for monitor in monitors:  # every round counts, 6 doubles each
        assert [(r.unit, r.kept, r.bytes_sent) for r in monitor.records] == [("a", 7, 96), ("b", 7, 192), ("c", 7, 96)]


def test_an_exchange_sees_its_memory_again_and_where_it_is(ops):
    results, _ = relayed(ops, [2], steps=3)
    assert all(memories == [{"count": [3.0]}] for _, memories in results)
    assert sorted(visits) == [(rank, 2, step, (2, 3), True) for rank in range(2) for step in range(3)]


def test_later_rounds_of_all_units_are_under_way_together(ops):
    """While one unit is waited for, the others' next collectives have been started; names tell unit and round."""
    events = []

    class Listening:
        def __init__(self, collective):
            self.rank, self.size, self._collective = collective.rank, collective.size, collective

        def start(self, kind, x, name, splits=()):
            if self.rank == 0:
                events.append(("start", name))
            return name, self._collective.start(kind, x, name, splits)

        def wait(self, handle):
            if self.rank == 0:
                events.append(("wait", handle[0]))
            return self._collective.wait(handle[1])

    relayed(ops, [2, 4], listen=Listening)
    assert {name for kind, name in events if kind == "start"} == {
        *(f"label.a.{number}" for number in range(2)),
        *(f"label.b.{number}" for number in range(4)),
    }
    assert len(events) == 12
    for number in range(2):  # both units' round is started before either of that round is waited for
        waited = min(events.index(("wait", f"label.{unit}.{number}")) for unit in "ab")
        assert all(events.index(("start", f"label.{unit}.{number}")) < waited for unit in "ab")


def test_a_caller_may_carry_a_unit_itself(ops):
    """As Horovod's optimizer does with what rides: the round's array goes out, what it brought comes back."""
    (plan,) = build([Parameter("w", (4,), "float64")], layer_wise, Options(RandomK(1), None, True, "reduce", 0, (), 0))
    assert plan.rides

    def rank_of(collective):
        engine, arrivals = Engine(ops, collective, 0, "label", Meter()), Arrivals()
        gradient = ops.from_numpy(np.arange(4.0) * (1 + collective.rank))
        memory = engine.absorb(plan, {}, arrivals, plan.unit.slots[0], gradient)
        ready, memory = engine.prepare(plan, memory, arrivals, 0)
        flight = engine.launch(plan, ready)
        assert flight.round.kind == "mean"
        averaged = collective.wait(collective.start("mean", flight.round.array, "the caller's"))
        engine.advance(flight, averaged)
        assert flight.round is None
        mean, memory = end(engine, flight, memory)
        return ops.to_numpy(mean).tolist(), ops.to_numpy(memory["residual"]).tolist()

    assert Loopback(2, ops).run(rank_of) == [([0.0, 1.5, 3.0, 4.5], [0.0] * 4)] * 2


def test_a_gather_that_mpi_could_not_count_is_refused_before_it_starts(ops):
    """2^31 elements of all ranks together, in words of 8 bytes; a rank pretends to be one of very many."""
    (plan,) = build([Parameter("w", (300,), "float32")], layer_wise, Options(TopK(1), None, None, "gather", 0, (), 0))

    class Many:
        rank, started = 0, 0

        def __init__(self, size):
            self.size = size

        def start(self, *_):
            self.started += 1

    words = -(-(300 * 4 + positions_bytes(300, 300)) // 8)
    most = (2**31 - 1) // words
    for size, refused in ((most, False), (most + 1, True)):
        collective, arrivals = Many(size), Arrivals()
        engine = Engine(ops, collective, 0, "label", Meter())
        gradient = ops.from_numpy(np.ones(300, np.float32))
        memory = engine.absorb(plan, {}, arrivals, plan.unit.slots[0], gradient)
        ready, memory = engine.prepare(plan, memory, arrivals, 0)
        flight = engine.launch(plan, ready)
        if refused:
            with pytest.raises(UnsupportedError, match=rf"^label\.w\.0: {size} ranks with {8 * words} bytes each are more"):
                engine.send(flight)
        else:
            engine.send(flight)
        assert collective.started == (not refused)
