"""Ranks as threads of one process: whatever each of them sees, all of them decide alike."""

import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest
from simulated import Alone, steering_of

from hvd_adaptive import Accordion, ConfigError, GraVAC
from hvd_adaptive.collective import Loopback
from hvd_adaptive.control import Controller, Decision, Observation, Wanted
from hvd_adaptive.measure import Measured
from hvd_adaptive.monitor import Meter
from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.steering import Steering

NAN, INF = math.nan, math.inf
OPS = NumpyOps()


def drive(steering, rank, steps, measured, seconds=lambda *_: None, start=0, units=1):
    """Decisions of all units in each step; ``measured(rank, step, unit, factors)`` and ``seconds(rank, step)``."""
    decisions = []
    for step in range(start, start + steps):
        steering.begin(step)
        for unit in range(units):
            wanted = steering.wanted(unit)
            if wanted is not None:
                steering.note(unit, measured(rank, step, unit, wanted.factors))
        if steering.waits:
            steering.agree(step)
        decisions.append([steering.decision(unit) for unit in range(units)])
        steering.report()
        steering.end(step, seconds(rank, step), 100 * (step + 1))
    return decisions


def on_ranks(ranks, controller, steps, measured, seconds=lambda *_: None, units=1, ops=OPS, states=None):
    """By rank: decisions, and the states at the end."""

    def of_rank(collective):
        steering = steering_of(controller, collective, units, ops)
        if states is not None:
            steering.restore(states)
        return drive(steering, collective.rank, steps, measured, seconds, units=units), steering.states

    return Loopback(ranks, ops, timeout=30).run(of_rank)


def same(results):
    """The decisions and states that all ranks have."""
    first = repr(results[0])
    assert all(repr(result) == first for result in results)
    return results[0]


def clocks(ranks, spread=0.2):
    rngs = [np.random.default_rng([5, rank]) for rank in range(ranks)]
    return lambda rank, _: 1 + spread * rngs[rank].random()


def gradients(ranks):
    """Energies that fall with the factor, at another rate on each rank and in each step."""
    rngs = [np.random.default_rng([6, rank]) for rank in range(ranks)]

    def measured(rank, step, _, factors):
        scale = math.exp(3 + 3 * math.sin(step / 40) + rngs[rank].random())
        return Measured(tuple(math.exp(-factor / scale) for factor in factors), 1.0, scale)

    return measured


@pytest.mark.parametrize("agreement", ["lagged", "exact"])
@pytest.mark.parametrize("probe", [True, False], ids=["probing", "plain"])
def test_ranks_that_see_different_gradients_and_clocks_take_the_same_branches(agreement, probe):
    controller = GraVAC(window=50, every=1, agreement=agreement, probe_dense=probe)
    decisions, _ = same(on_ranks(8, controller, 2000, gradients(8), clocks(8)))
    assert {"minimum", "candidate", "dense"} - {one.branch for (one,) in decisions} <= (
        {"candidate", "dense"} if probe else set()
    )


@pytest.mark.parametrize("agreement", ["lagged", "exact"])
@pytest.mark.parametrize("look_ahead", [True, False])
def test_gains_an_ulp_around_epsilon_do_not_part_the_ranks(agreement, look_ahead):
    """Each rank by itself would often decide otherwise than the next; steps lean to one side or the other of it."""
    epsilon = 0.3
    near = [math.nextafter(epsilon, 0), epsilon, math.nextafter(epsilon, 1)]
    rngs = [np.random.default_rng([7, rank]) for rank in range(8)]

    def measured(rank, step, _, factors):
        lean = [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]][step // 5 % 2]
        return Measured(tuple(near[rngs[rank].choice(3, p=lean)] for _ in factors), 1.0, 1.0)

    settings = {"every": 1, "smoothing": 1, "look_ahead": look_ahead, "probe_dense": False}
    controller = GraVAC(10, 20, epsilon, 1e-300, 10**6, agreement=agreement, **settings)
    decisions, _ = same(on_ranks(8, controller, 2000, measured, clocks(8)))
    found = [one.branch for (one,) in decisions]
    assert min(found.count("candidate"), found.count("dense")) > 10


class Telling(Controller):
    """Its state is what it observed."""

    def __init__(self, agreement="lagged", per_unit=False, factors=(10.0, 20.0), gain="energy"):
        self.agreement, self.per_unit, self.wanted = agreement, per_unit, Wanted(factors, gain)

    def start(self):
        return []

    def wants(self, state, step):
        return self.wanted

    def decide(self, state, step):
        return Decision(10.0 + len(state))

    def observe(self, state, observation):
        return [*state, observation]

    def says(self, state):
        return (f"{len(state)} seen",)


every_agreement = pytest.mark.parametrize("agreement", ["lagged", "exact"])


@every_agreement
def test_what_is_observed_is_the_mean_over_ranks(ops, agreement):
    """Rank r keeps (r + 1)/8 and (r + 1)/16 of 4, its norm is 3 (r + 1), its step takes r + 1 seconds."""

    def measured(rank, step, _, factors):
        return Measured(((rank + 1) / 2, (rank + 1) / 4), 4.0, 9.0 * (rank + 1) ** 2)

    results = on_ranks(3, Telling(agreement), 3, measured, lambda rank, _: float(rank + 1), ops=ops)
    _, (seen,) = same(results)
    first = Observation(1, 3, (2 / 8, 2 / 16), 6.0, 0.0, {})
    assert seen[0] == first
    assert [one.step for one in seen] == [1, 2, 3]
    assert all(one.gains == first.gains and one.norm == 6 for one in seen)


@every_agreement
def test_exact_agreement_counts_at_once_and_lagged_from_the_next_step(agreement):
    decisions, _ = same(on_ranks(2, Telling(agreement), 3, lambda *_: Measured((1.0, 1.0), 1.0, 1.0)))
    assert [one.factor for (one,) in decisions] == ([11, 12, 13] if agreement == "exact" else [10, 11, 12])


@every_agreement
@pytest.mark.parametrize("bad", [Measured((NAN, NAN), NAN, NAN), Measured((), NAN, NAN), Measured((1.0, 1.0), INF, 1.0), None])
def test_one_rank_without_finite_energies_leaves_all_without_gains(agreement, bad):
    """Not a number, none measured, infinite, or no unit measured at all; in step 1 on rank 2."""

    def of_rank(collective):
        steering = steering_of(Telling(agreement), collective)
        for step in range(3):
            steering.begin(step)
            measured = bad if (collective.rank, step) == (2, 1) else Measured((0.5, 0.25), 1.0, 4.0)
            if measured is not None:
                steering.note(0, measured)
            if steering.waits:
                steering.agree(step)
            steering.report()
            steering.end(step, None, 0)
        return steering.states

    (seen,) = same(Loopback(4, OPS).run(of_rank))
    assert [one.gains for one in seen] == [(0.5, 0.25), (), (0.5, 0.25)]
    assert [one.norm for one in seen][::2] == [2, 2]


def test_a_norm_that_is_not_finite_is_told_as_such():
    _, (seen,) = same(on_ranks(2, Telling(), 1, lambda rank, *_: Measured((0.5, 0.25), 1.0, NAN if rank else 4.0)))
    assert math.isnan(seen[0].norm)
    assert seen[0].gains == (0.5, 0.25)


def test_a_gravac_that_saw_a_bad_gradient_decides_as_if_the_step_had_not_been():
    bad = Measured((), NAN, NAN)
    controller = GraVAC(every=1, smoothing=1, probe_dense=False, window=100)
    good = gradients(1)
    decisions, _ = same(on_ranks(3, controller, 8, lambda *a: bad if a[:2] == (1, 5) else good(0, *a[1:])))
    assert decisions[6] == decisions[5]


@pytest.mark.parametrize("gain", ["energy", "norm"])
def test_units_of_one_group_add_up(gain):
    kept = [1.0, 3.0]
    _, (seen,) = same(
        on_ranks(2, Telling(factors=(10.0,), gain=gain), 1, lambda *about: Measured((kept[about[2]],), 8.0, 8.0), units=2)
    )
    assert seen[0].gains == ((0.25,) if gain == "energy" else (0.5,))
    assert seen[0].norm == 4


def test_each_unit_has_a_state_of_its_own():
    """Unit 0 keeps all, unit 1 nothing, and the third is dense by choice."""
    controller = GraVAC(every=1, smoothing=1, probe_dense=False, per_unit=True, window=4)

    def all_or_nothing(*about):
        _, _, unit, factors = about
        return Measured((1.0 - unit,) * len(factors), 1.0, 1.0)

    def of_rank(collective):
        plans = [SimpleNamespace(dense=False), SimpleNamespace(dense=False), SimpleNamespace(dense=True)]
        steering = Steering(controller, plans, OPS, collective, "test", Meter())
        assert steering.decision(2) is None
        assert steering.wanted(2) is None
        return drive(steering, collective.rank, 6, all_or_nothing, units=2), steering.states

    decisions, states = same(Loopback(3, OPS).run(of_rank))
    assert [[one.factor for one in step] for step in decisions] == [[10, 10]] + [[1000, 1]] * 5
    assert [state["gains"][1000] for state in states] == [1, 0]


@pytest.mark.parametrize("per_unit", [True, False])
def test_states_are_restored_also_on_another_number_of_ranks(per_unit):
    """8 ranks stop, 3 go on with what any of the 8 saved; and on as many, it is as if none had stopped."""
    controller = GraVAC(every=1, window=5, per_unit=per_unit, probe_dense=False, smoothing=0.5)

    def measured(_, step, unit, factors):
        return Measured(tuple(math.exp(-factor / (20 + 300 * unit + step % 7)) for factor in factors), 1.0, 1.0)

    _, states = same(on_ranks(8, controller, 10, measured, units=2))

    def later(rank, step, *rest):
        return measured(rank, step + 10, *rest)

    fewer, _ = same(on_ranks(3, controller, 5, later, units=2, states=states))
    as_many, _ = same(on_ranks(8, controller, 5, later, units=2, states=states))
    whole, _ = same(on_ranks(8, controller, 15, measured, units=2))
    assert as_many == whole[10:]
    assert [[one.branch for one in step] for step in fewer] == [[one.branch for one in step] for step in as_many]


def test_restoring_needs_as_many_states_as_there_are():
    steering = steering_of(GraVAC(per_unit=True), Alone(), units=2)
    with pytest.raises(ValueError, match="zip"):
        steering.restore(steering.states[:1])


@every_agreement
def test_messages_are_logged_by_rank_0_only(caplog, agreement):
    same(on_ranks(4, Telling(agreement), 3, lambda *_: Measured((1.0, 1.0), 1.0, 1.0)))
    assert [record.getMessage() for record in caplog.records] == [f"step {n}: {n} seen" for n in (1, 2, 3)]
    assert {(record.name, record.levelno) for record in caplog.records} == {("hvd_adaptive", logging.WARNING)}


class Deciding(Controller):
    def __init__(self, decision, agreement="lagged"):
        self.decision, self.agreement = decision, agreement

    def wants(self, state, step):
        return Wanted()

    def decide(self, state, step):
        return self.decision


@every_agreement
@pytest.mark.parametrize("factor", [0, 0.5, -3, NAN, INF, "10", None, True])
def test_an_illegal_factor_is_refused_by_the_name_of_the_controller(factor, agreement):
    steering = steering_of(Deciding(Decision(factor), agreement), Alone())
    with pytest.raises(ConfigError, match=r"^Deciding decided: factor must be a finite number >= 1") as raised:
        drive(steering, 0, 1, lambda *_: Measured((), 1.0, 1.0))
    assert str(raised.value).endswith(f"got {factor!r}")


@every_agreement
@pytest.mark.parametrize("decision", [100.0, None, (100.0, "why"), "dense"])
def test_what_is_no_decision_is_refused_by_the_name_of_the_controller(decision, agreement):
    steering = steering_of(Deciding(decision, agreement), Alone())
    with pytest.raises(ConfigError, match=r"^Deciding decided: .*Decision\(100\.0\)") as raised:
        drive(steering, 0, 1, lambda *_: Measured((), 1.0, 1.0))
    assert str(raised.value).endswith(f"got {decision!r}")


class Clocked(Controller):
    """Follows a list of factors, and looks every so many steps."""

    def __init__(self, factors, every):
        self.factors, self.every = factors, every

    def start(self):
        return []

    def wants(self, state, step):
        return Wanted() if step % self.every == 0 else None

    def decide(self, state, step):
        return Decision(self.factors[step])

    def observe(self, state, observation):
        return [*state, observation]


def observed(factors, every, seconds):
    steering = steering_of(Clocked([float(factor) for factor in factors], every), Alone())
    drive(steering, 0, len(factors), lambda *_: Measured((), 1.0, 1.0), lambda _, step: seconds[step])
    return [one.seconds for one in steering.states[0]]


def test_seconds_are_the_median_by_factor_without_the_first_after_a_change():
    factors, seconds = [4, 4, 4, 4, 8, 8, 1, 4, 1], [9.0, 1.0, 5.0, 2.0, 9.0, 3.0, 9.0, 9.0, 9.0]
    assert observed(factors, 8, seconds)[1] == {4: 2.0, 8: 3.0}


def test_seconds_that_some_rank_does_not_know_are_not_told():
    assert observed([4] * 5, 4, [None, None, None, 2.0, 1.0])[1] == {4: 2.0}
    assert observed([4] * 5, 4, [None] * 5)[1] == {}


def test_seconds_are_means_of_medians_and_missing_ones_are_left_out():
    controller = Clocked([4.0] * 3 + [8.0] * 4, 6)

    def seconds(rank, step):
        return None if (rank, step) == (1, 4) else 2.0 + rank + (step == 2)

    def of_rank(collective):
        steering = steering_of(controller, collective)
        drive(steering, collective.rank, 7, lambda *_: Measured((), 1.0, 1.0), seconds)
        return steering.states

    (seen,) = same(Loopback(2, OPS).run(of_rank))
    assert seen[1].seconds == {4: 2.5, 8: 2.5}  # rank 0 took 2 and 3 s at factor 4, rank 1 took 3 and 4: the lower ones count


def test_bytes_are_those_of_a_step_that_what_was_observed_had_led_to():
    """100 in each step at first, then 700; observed in steps 0, 3 and 6, of which the bytes count nowhere."""
    steering = steering_of(Clocked([4.0] * 10, 3), Alone())
    total = 0
    for step in range(7):
        steering.begin(step)
        if steering.wanted(0) is not None:
            steering.note(0, Measured((), 1.0, 1.0))
        steering.report()
        total += 10_000 if step % 3 == 0 else 100 if step < 5 else 700
        steering.end(step, None, total)
    assert [one.bytes_sent for one in steering.states[0]] == [0, 100, 400]


def test_bytes_sent_before_a_restart_do_not_count():
    meter = Meter()
    steering = Steering(Clocked([4.0] * 9, 2), [SimpleNamespace(dense=False)], OPS, Alone(), "test", meter)
    meter.add_bytes(10**9)
    steering.restore(steering.states)
    for step in range(1, 3):
        steering.begin(step)
        if steering.wanted(0) is not None:
            steering.note(0, Measured((), 1.0, 1.0))
        steering.report()
        meter.add_bytes(64)
        steering.end(step, None, meter.bytes_sent)
    assert [one.bytes_sent for one in steering.states[0]] == [64]


def test_nothing_travels_in_steps_of_which_nothing_is_wanted():
    started = []

    class Counting(Alone):
        def start(self, kind, x, name, splits=()):
            started.append((kind, x.dtype.name, x.size, name))
            return x

    steering = steering_of(Accordion(every=4, window=4), Counting())
    drive(steering, 0, 9, lambda *_: Measured((), 1.0, 1.0), lambda *_: 1.0)
    assert [one[:2] + one[3:] for one in started] == [("gather", "int64", "test.observed")] * 3
    assert [one[2] for one in started] == [2, 3, 3]  # a norm and bytes; then seconds at the one factor that was used


def test_messages_name_the_unit_that_was_decided_for(caplog):
    plans = [SimpleNamespace(dense=False, unit=SimpleNamespace(name=name)) for name in ("conv", "fc")]
    steering = Steering(Telling(per_unit=True), plans, OPS, Alone(), "test", Meter())
    drive(steering, 0, 1, lambda *_: Measured((1.0, 1.0), 1.0, 1.0), units=2)
    assert [record.getMessage() for record in caplog.records] == ["step 1, unit 'conv' and 1 more: 1 seen"]


def test_reports_are_counted_as_sent():
    meter = Meter()
    steering = Steering(Telling(), [SimpleNamespace(dense=False)], OPS, Alone(), "test", meter)
    drive(steering, 0, 1, lambda *_: Measured((1.0, 1.0), 1.0, 1.0))
    assert meter.bytes_sent == 8 * 4
