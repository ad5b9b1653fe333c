"""Never slower than dense, on simulated machines whose steps take a time that depends on the factor, with 3 % of noise.

Gains are 1 throughout where GraVAC steers, so what it picks is up to time alone.
"""

import logging

import numpy as np
import pytest
from simulated import simulate
from vectors import BAD_COUNTS, BAD_FACTORS

from hvd_adaptive import ConfigError, Fixed, GraVAC, WarmUp
from hvd_adaptive.control import DENSE, Controller, Decision, NeverSlower, Observation, Wanted

WINDOW = 100
FIRST = 5
"""Steps of the trial that opens a run: two dense ones, then three compressed ones."""
TRIAL = 6
"""Of a later one: three of both."""
INNERS = {"GraVAC": GraVAC(window=WINDOW).prepared(), "Fixed": NeverSlower(Fixed(1000), 1000, WINDOW)}
every_inner = pytest.mark.parametrize("controller", INNERS.values(), ids=INNERS)


def machine(dense, compressed, noise=0.03, seed=0):
    """Seconds of a step; ``dense`` and ``compressed`` may be functions of the step."""
    rng = np.random.default_rng(seed)

    def seconds(step, factor):
        taken = dense if factor == DENSE else compressed
        return (taken(step) if callable(taken) else taken) * (1 + noise * rng.standard_normal())

    return seconds


def run(controller, steps, seconds, caplog=None):
    """Decisions, whether something was wanted, and the seconds of each step."""
    spent = []

    def noted(step, factor):
        spent.append(seconds(step, factor))
        return spent[-1]

    if caplog is not None:
        caplog.clear()
    decisions, wants = simulate(controller, steps, noted)
    return decisions, wants, spent


def trials(decisions):
    """Steps at which one began, counting those that follow each other without a pause as several."""
    dense = [i for i in range(len(decisions)) if decisions[i].branch == "trial" and decisions[i].factor == DENSE]
    return [dense[0], *dense[2::3]]


@every_inner
def test_where_compression_pays_by_far_a_run_opens_with_two_dense_steps(controller, caplog):
    decisions, _, _ = run(controller, 500, machine(1.0, 0.3))
    assert [(d.factor, d.branch) for d in decisions[: FIRST + 1]] == [(1, "trial")] * 2 + [(1000, "trial")] * 4
    assert not any(d.factor == DENSE for d in decisions[2:])
    assert not caplog.records


@every_inner
def test_where_it_pays_a_trial_follows_every_twenty_windows(controller):
    decisions, _, _ = run(controller, 50 * WINDOW, machine(1.0, 0.3))
    begun = trials(decisions)
    assert len(begun) == 4
    assert begun[1] == FIRST + 1 + 500  # the first rests on one dense step, so it is soon confirmed
    assert all(20 * WINDOW <= pause <= 21 * WINDOW for pause in np.diff(begun[1:]))
    assert sum(d.factor == DENSE for d in decisions) == 2 + 3 * 3  # steered steps are compared, so nothing else is tried


@every_inner
@pytest.mark.parametrize("ratio", [1.1, 2.5, 10])
def test_where_it_does_not_pay_the_run_is_dense(controller, ratio, caplog):
    decisions, _, spent = run(controller, 5000, machine(1.0, ratio))
    assert sum(d.factor == DENSE for d in decisions) >= 0.97 * 5000
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    text = caplog.records[0].getMessage()
    assert "compression does not pay here" in text
    assert type(controller.inner).__name__ in text
    if ratio < 3:
        assert sum(spent) <= 1.05 * 5000


@every_inner
def test_trials_of_a_dense_run_become_rare(controller):
    decisions, _, _ = run(controller, 80 * WINDOW, machine(1.0, 3.0))
    pauses = np.diff(
        [i for i in range(1, len(decisions)) if decisions[i].branch == "trial" and decisions[i - 1].branch != "trial"]
    )
    stretches = [1, 2, 4, 8, 16, 16, 16, 16]
    first = next(i for i in range(len(decisions)) if decisions[i].branch == "faster dense")
    assert first == FIRST + 1  # one in which all ranks learn of it
    for pause, windows in zip(pauses, stretches[1:], strict=True):
        assert windows * WINDOW <= pause <= windows * WINDOW + 2 * (TRIAL + 1)


@every_inner
@pytest.mark.parametrize("ratio", [0.55, 0.7, 0.85, 0.97, 1.03, 1.2, 1.4, 1.8])
def test_what_is_not_clear_takes_four_trials_at_most(controller, ratio):
    for seed in range(5):
        decisions, _, _ = run(controller, 60, machine(1.0, ratio, seed=seed))
        begun = trials(decisions)
        expected = 1 if max(ratio, 1 / ratio) > 2.3 else 2 if max(ratio, 1 / ratio) > 1.7 else 4
        assert len(begun) <= expected
        assert all(d.branch != "trial" for d in decisions[begun[-1] + TRIAL :])
        if not 0.95 < ratio < 1.06:
            assert (decisions[59].branch == "faster dense") == (ratio > 1)


@pytest.mark.parametrize(
    ("ratios", "dense"),
    [
        ([0.5], False),
        ([2.0], True),
        ([0.51, 0.66], False),  # 1.5 times as fast
        ([1.9, 1.55], True),
        ([0.75, 0.76, 0.76], False),
        ([1.4, 1.3, 1.3], True),
        ([0.9, 0.9, 0.9, 0.9], False),
        ([1.1, 1.1, 1.1, 1.1], True),
        ([0.9, 0.9, 0.9, 1.05], False),  # medians count
        ([1.1, 1.1, 0.99, 1.1], True),
        ([1.0, 1.0, 1.0, 1.0], True),  # no faster is no reason
    ],
)
def test_how_many_trials_settle_it_by_hand(ratios, dense):
    controller = NeverSlower(Fixed(100), 100, WINDOW)
    state, step = controller.start(), 0
    for number, ratio in enumerate(ratios):
        steps = TRIAL if number else FIRST
        assert [controller.decide(state, step + i).branch for i in range(steps)] == ["trial"] * steps
        assert [controller.wants(state, step + i) for i in range(steps + 1)] == [None] * steps + [Wanted()]
        step += steps + 1
        state = controller.observe(state, Observation(step, seconds={1.0: 1.0, 100.0: ratio}))
        settled = number == len(ratios) - 1
        assert (state["phase"] != "trial") == settled
    assert state["phase"] == ("dense" if dense else "steered")
    assert bool(controller.says(state)) == dense


def test_steered_steps_slower_than_dense_end_in_a_dense_stretch(caplog):
    """The largest factor is fast, but what the other controller picks is not."""
    inner = WarmUp(1000, 10**6, first=10, stages=1)
    seconds = {DENSE: 1.0, 1000.0: 0.3, 10.0: 1.4}
    decisions, _, _ = run(NeverSlower(inner, 1000, WINDOW), 600, lambda _, factor: seconds[factor])
    steered = [i for i, d in enumerate(decisions) if d.branch == "warm-up"]
    dense = [i for i, d in enumerate(decisions) if d.branch == "faster dense"]
    assert steered[0] == FIRST + 1
    assert WINDOW <= dense[0] <= WINDOW + 30  # looks are believed after one window at the earliest; 1.4 takes three trials
    assert len(dense) >= WINDOW - 20
    assert ["does not pay here: a step takes 1.4 s at factor 10, 1 s dense" in r.getMessage() for r in caplog.records] == [True]


def test_a_hiccup_does_not_end_compression():
    """A trial that slow steps call for times what is slow anew, beside the dense steps."""
    controller = NeverSlower(Fixed(100), 100, WINDOW)
    for length in (40, 200):
        slow = range(3 * WINDOW, 3 * WINDOW + length)
        decisions, _, _ = run(controller, 10 * WINDOW, machine(1.0, lambda step, slow=slow: 5.0 if step in slow else 0.2))
        trial = next(i for i in slow if decisions[i].branch == "trial")
        assert decisions[trial + 3].factor == 100
        assert sum(d.branch == "faster dense" for d in decisions[slow.stop + 2 * WINDOW :]) == 0
    decisions, _, _ = run(controller, 10 * WINDOW, machine(1.0, lambda step: 5.0 if 300 <= step <= trial else 0.2))
    assert not any(d.branch == "faster dense" for d in decisions)


def test_a_stretch_is_one_window_again_once_compression_has_paid():
    controller = NeverSlower(Fixed(100), 100, WINDOW)
    state, step = controller.start(), FIRST + 1
    for stretch in (1, 2, 4):
        state = controller.observe(state, Observation(step, seconds={1.0: 1.0, 100.0: 3.0}))
        assert state["trial"] == step + stretch * WINDOW
        step = state["trial"] + TRIAL + 1
    state = controller.observe(state, Observation(step, seconds={1.0: 1.0, 100.0: 0.1}))
    assert state["phase"] == "steered"
    step = state["trial"] + TRIAL + 1
    state = controller.observe(state, Observation(step, seconds={1.0: 1.0, 100.0: 3.0}))
    assert state["trial"] == step + WINDOW


def test_three_looks_in_a_row_make_a_trial_and_fewer_do_not():
    controller = NeverSlower(Fixed(100), 100, WINDOW)
    state = controller.observe(controller.start(), Observation(FIRST + 1, seconds={1.0: 1.0, 100.0: 0.4}))
    confirmed = state["trial"]
    assert confirmed == FIRST + 1 + 500
    trial = confirmed + TRIAL + 1
    state = controller.observe(state, Observation(trial, seconds={1.0: 1.0, 100.0: 0.4}))
    due = state["trial"]
    assert due == trial + 20 * WINDOW
    for step, taken in enumerate([1.2, 1.2, 1.0, 1.2, 1.2, 1.05, 1.2, 1.2], trial + 1):
        state = controller.observe(state, Observation(step, seconds={100.0: taken}))
        assert state["trial"] == due
    state = controller.observe(state, Observation(trial + 9, seconds={100.0: 1.2}))
    assert state["trial"] == trial + WINDOW  # within a window of the last trial none follows
    for step in (trial + 10, trial + 11):
        state = controller.observe(state, Observation(step, seconds={100.0: 1.2}))
        assert state["trial"] == trial + WINDOW
    state = {**state, "trial": due}
    state = controller.observe(state, Observation(trial + 500, seconds={100.0: 1.2}))
    assert state["trial"] == trial + 500


@every_inner
def test_a_link_that_becomes_fast_is_noticed(controller):
    """Compression stops to pay: dense steps fall from 1 s to 0.1 s at step 700."""
    decisions, _, _ = run(controller, 1500, machine(lambda step: 1.0 if step < 700 else 0.1, 0.3))
    assert sum(d.factor != DENSE for d in decisions[:700]) >= 690
    # steered steps take as long as before, so only a trial in its turn can tell
    decisions, _, _ = run(controller, 26 * WINDOW, machine(lambda step: 1.0 if step < 700 else 0.1, 0.3))
    assert decisions[-1].branch == "faster dense"


@every_inner
def test_a_machine_on_which_compression_becomes_slow_is_noticed(controller):
    decisions, _, _ = run(controller, 1500, machine(1.0, lambda step: 0.3 if step < 700 else 1.5))
    assert sum(d.factor != DENSE for d in decisions[:700]) >= 690
    assert sum(d.factor == DENSE for d in decisions[760:]) >= 0.95 * 740  # three trials of up to four times, 4 of 740 each


@every_inner
def test_a_link_that_becomes_slow_is_noticed(controller):
    """Dense steps rise to 5 s at step 700; 600 dense steps later at most, for stretches have doubled to 4 windows."""
    decisions, _, _ = run(controller, 2000, machine(lambda step: 0.2 if step < 700 else 5.0, 0.3))
    assert sum(d.factor == DENSE for d in decisions[:700]) >= 650  # three trials of up to four times, 4 of 700 each
    assert not any(d.factor == DENSE for d in decisions[1600:])


class Watching(Controller):
    """Wants to know of each step, and counts what it was told."""

    def start(self):
        return 0

    def wants(self, state, step):
        return Wanted((100.0,))

    def decide(self, state, step):
        return Decision(100.0, "inner")

    def observe(self, state, observation):
        return state + 1


def test_while_dense_nothing_is_wanted_and_the_other_is_not_told():
    controller = NeverSlower(Watching(), 100, WINDOW)
    decisions, wants, _ = run(controller, 90, machine(1.0, 3.0))
    assert wants == [False] * FIRST + [True] + [False] * (89 - FIRST)
    assert [d.branch for d in decisions[FIRST : FIRST + 3]] == ["trial", "faster dense", "faster dense"]
    decisions, wants, _ = run(controller, 90, machine(1.0, 0.2))
    assert wants == [False] * FIRST + [True] * (90 - FIRST)


def test_of_a_trial_the_other_is_not_told():
    controller = NeverSlower(Watching(), 100, WINDOW)
    state = controller.observe(controller.start(), Observation(FIRST + 1, gains=(0.5,), seconds={1.0: 1.0, 100.0: 0.1}))
    assert (state["inner"], state["phase"]) == (1, "steered")
    assert controller.observe(state, Observation(FIRST + 2, gains=(0.5,)))["inner"] == 2


def test_times_that_are_not_known_settle_nothing():
    decisions, _, _ = run(NeverSlower(Fixed(100), 100, WINDOW), 60, lambda *_: None)
    assert {d.branch for d in decisions} == {"trial", "fixed"}


def test_what_the_other_says_is_said():
    class Saying(Watching):
        def says(self, state):
            return (f"told {state} times",)

    controller = NeverSlower(Saying(), 100, WINDOW)
    state = controller.observe(controller.start(), Observation(FIRST + 1, seconds={1.0: 1.0, 100.0: 0.1}))
    assert controller.says(state) == ("told 1 times",)
    state = controller.observe(controller.start(), Observation(FIRST + 1, seconds={1.0: 1.0, 100.0: 3.0}))
    assert controller.says(state)[0] == "told 1 times"
    assert "does not pay" in controller.says(state)[1]


def test_observing_leaves_the_state_alone():
    controller = GraVAC(window=WINDOW).prepared()
    start = controller.start()
    controller.observe(start, Observation(FIRST + 1, gains=(1.0,) * 5, seconds={1.0: 1.0, 1000.0: 0.1}))
    assert start == controller.start()


def test_agreement_and_units_are_the_others():
    for agreement in ("lagged", "exact"):
        for per_unit in (True, False):
            inner = GraVAC(agreement=agreement, per_unit=per_unit)
            assert (inner.prepared().agreement, inner.prepared().per_unit) == (agreement, per_unit)


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        *(("inner", value, "a controller such as Fixed(factor=100)") for value in (None, 100, Fixed, "fixed")),
        *(("largest", value, "a finite number >= 1 (a factor)") for value in BAD_FACTORS),
        *(("window", value, "a whole number from 1 to ") for value in BAD_COUNTS),
    ],
)
def test_refuses_bad_input(name, value, legal):
    with pytest.raises(ConfigError) as raised:
        NeverSlower(**{"inner": Fixed(10), "largest": 10, name: value})
    assert str(raised.value).startswith(f"NeverSlower: {name} must be {legal}")
    assert str(raised.value).endswith(f"got {value!r}")
