"""GraVAC step by step: what was observed, and the factor and branch that follow, by hand.

Gains and times are binary fractions where they are compared exactly; with ``smoothing=1`` the newest gain is the gain.
"""

import copy
import io
import itertools
import math
import re

import numpy as np
import pytest
import torch
from vectors import BAD_COUNTS

from hvd_adaptive import ConfigError, GraVAC
from hvd_adaptive.control import Decision, NeverSlower, Observation, Wanted

NAN = float("nan")
PAPER = {"look_ahead": False, "smoothing": 1, "every": 1, "epsilon": 0.5}
AHEAD = {"smoothing": 1, "every": 1, "epsilon": 0.5}


def follow(controller, trace, ranks=1, state=None, start=0):
    """The decision of each step and the last state; ``trace`` tells by step the gain at any factor, or None if none is known.

    An entry may also be a pair of that and the seconds by factor.
    """
    state = controller.start() if state is None else state
    decisions, says = [], []
    for step, entry in enumerate(trace, start):
        gain_at, seconds = entry if isinstance(entry, tuple) else (entry, {})
        decisions.append(controller.decide(state, step))
        wanted = controller.wants(state, step)
        if wanted is not None:
            gains = () if gain_at is None else tuple(map(gain_at, wanted.factors))
            before = copy.deepcopy(state)
            after = controller.observe(state, Observation(step + 1, ranks, gains, seconds=seconds))
            assert state == before  # it is a value
            state = after
            says += controller.says(state)
    return decisions, state, says


def flat(gain):
    return lambda _: gain


def table(**gains):
    """Gains by factor: ``table(f10=.5)``."""
    return lambda factor: gains[f"f{factor:g}"]


def falling(scale):
    """A gain that falls with the factor: e^(-factor / scale)."""
    return lambda factor: math.exp(-factor / scale)


def branches(decisions):
    return [(decision.factor, decision.branch) for decision in decisions]


# ---- the paper's one candidate a window ----------------------------------------------------------------------------------------


def test_three_branches_from_step_to_step():
    """Lines 11, 16 and 21, and back: what is observed counts from the next step on."""
    high, middle, low = table(f10=0.75, f20=0.5), table(f10=0.5, f20=0.25), table(f10=0.25, f20=0.125)
    decisions, _, _ = follow(GraVAC(**PAPER, window=100), [high, middle, low, low, middle, high, high])
    assert branches(decisions) == [
        (10, "minimum"),  # nothing is known yet
        (20, "candidate"),
        (10, "minimum"),
        (1, "dense"),
        (1, "dense"),
        (10, "minimum"),
        (20, "candidate"),
    ]
    assert decisions[1] == Decision(20, "candidate", 20, {10: 0.75, 20: 0.5})
    assert decisions[3] == Decision(1, "dense", 20, {10: 0.25, 20: 0.125})


@pytest.mark.parametrize(("gain", "branch"), [(0.5, "candidate"), (math.nextafter(0.5, 0), "dense")])
def test_a_gain_of_epsilon_is_enough(gain, branch):
    for settings in (PAPER, AHEAD):
        decisions, _, _ = follow(GraVAC(**settings, window=100), [flat(gain)] * 2)
        assert decisions[1].branch == branch


def candidates(controller, gain_at, windows):
    """Smallest factor and candidate in each window of 3 steps."""
    found, state = [], controller.start()
    for number in range(windows):
        found.append((state["low"], state["candidate"]))
        _, state, _ = follow(controller, [gain_at] * 3, state=state, start=3 * number)
    return found


DROPPING = falling(50)
"""At least 1 % apart between any two of the factors."""


@pytest.mark.parametrize("reading", ["prose", "pseudocode"])
@pytest.mark.parametrize(
    ("policy", "most", "expected"),
    [("exponential", 1000, [20, 40, 160, 1000, 1000]), ("geometric", 100, [20, 40, 80, 100, 100]), ("geometric", 15, [15, 15])],
)
def test_gains_that_differ_move_the_candidate_up_window_by_window(reading, policy, most, expected):
    controller = GraVAC(**PAPER, window=3, max_factor=most, policy=policy, reading=reading)
    assert candidates(controller, DROPPING, len(expected)) == [(10, candidate) for candidate in expected]


@pytest.mark.parametrize(
    ("reading", "policy", "expected"),
    [
        ("prose", "exponential", [(10, 20), (20, 40), (40, 160), (160, 1000), (1000, 1000), (1000, 1000)]),
        ("prose", "geometric", [(10, 20), (20, 40), (40, 80), (80, 160)]),
        ("pseudocode", "exponential", [(10, 20), (40, 160), (640, 1000), (1000, 1000)]),
        ("pseudocode", "geometric", [(10, 20), (40, 160), (320, 1000), (1000, 1000)]),
    ],
)
def test_gains_that_are_alike_move_the_smallest_factor_up(reading, policy, expected):
    """Prose: to the candidate just evaluated. The literal walk: 20 was, the smallest becomes 40, the next candidate is 160."""
    assert candidates(GraVAC(**PAPER, window=3, policy=policy, reading=reading), flat(0.75), len(expected)) == expected


@pytest.mark.parametrize(("other", "low"), [(99.0, 20), (98.9, 10), (101.0, 20), (101.1, 10)])
def test_alike_is_omega_of_the_smallest_factors_gain(other, low):
    """100 and 99 stand for gains, so that 1 % is exact."""
    controller = GraVAC(**PAPER | {"smoothing": 1}, window=2)
    _, state, _ = follow(controller, [table(f10=100.0, f20=other)] * 2)
    assert state["low"] == low


def test_windows_end_where_the_count_of_steps_is_a_multiple():
    controller = GraVAC(**PAPER, window=4)
    seen = [decision.candidate for decision in follow(controller, [DROPPING] * 13)[0]]
    assert seen == [20] * 4 + [40] * 4 + [160] * 4 + [1000]


def test_windows_shorter_than_what_gains_are_smoothed_over():
    """Two steps a window and 2 % of the newest: the candidate goes on all the same, and ends."""
    controller = GraVAC(look_ahead=False, window=2, smoothing=0.02, every=1, epsilon=0.5)
    decisions, state, _ = follow(controller, [falling(30)] * 20)
    assert [decision.candidate for decision in decisions[::2]] == [20, 40, 160, 1000] + [1000] * 6
    assert state["gains"][1000] == pytest.approx(math.exp(-1000 / 30), rel=1e-12)  # a sum of equal numbers, rounded each step


def test_gains_are_smoothed_from_window_to_window():
    controller = GraVAC(look_ahead=False, window=2, smoothing=0.02, every=1, epsilon=0.5)
    before, after = math.exp(-10 / 30), math.exp(-10 / 300)
    _, state, _ = follow(controller, [falling(30)] * 4 + [falling(300)] * 7)
    assert state["gains"][10] == pytest.approx(after + 0.98**7 * (before - after), rel=1e-12)  # rounded each step


def test_only_the_two_factors_of_the_window_are_wanted():
    controller = GraVAC(**PAPER, window=3, gain="norm")
    state = controller.start()
    assert controller.wants(state, 0) == Wanted((10, 20), "norm")
    _, state, _ = follow(controller, [flat(1.0)] * 12, state=state)
    assert controller.wants(state, 12) == Wanted((1000,), "norm")


# ---- all factors at once -------------------------------------------------------------------------------------------------------


def test_the_largest_factor_that_keeps_epsilon_is_taken():
    controller = GraVAC(**AHEAD, window=100)
    assert controller.wants(controller.start(), 0) == Wanted((10, 20, 40, 160, 1000), "energy")
    trace = [falling(scale) for scale in (10000, 300, 70, 30, 20, 10)]  # half is left at 6931, 208, 48.5, 20.8, 13.9, 6.9
    decisions, _, _ = follow(controller, [*trace, flat(1.0)])
    assert branches(decisions) == [
        (10, "minimum"),
        (1000, "candidate"),
        (160, "candidate"),
        (40, "candidate"),
        (20, "candidate"),
        (10, "minimum"),
        (1, "dense"),
    ]
    assert decisions[2].candidate == 160
    assert set(decisions[2].gains) == {10, 20, 40, 160, 1000}


def test_a_gain_that_is_not_falling_does_not_confuse():
    """RandomK's are noisy: the largest factor that is good enough counts, whatever lies below; the smallest cannot veto."""
    decisions, _, _ = follow(GraVAC(**AHEAD, window=100), [table(f10=0.1, f20=0.6, f40=0.1, f160=0.7, f1000=0.2)] * 2)
    assert branches(decisions)[1] == (160, "candidate")


def test_the_smallest_factor_rises_to_the_largest_that_is_alike():
    controller = GraVAC(**AHEAD, window=3)
    _, state, _ = follow(controller, [table(f10=1.0, f20=0.995, f40=0.9901, f160=0.98, f1000=0.1)] * 3)
    assert state["low"] == 40
    assert controller.wants(state, 3).factors == (40, 160, 1000)
    decisions, _, _ = follow(controller, [table(f40=0.25, f160=0.125, f1000=0.0)] * 2, state=state, start=3)
    assert branches(decisions)[1] == (1, "dense")  # 10 is not fallen back to


def test_one_factor_is_left_when_smallest_and_largest_are_the_same():
    for look_ahead in (True, False):
        controller = GraVAC(20, 20, look_ahead=look_ahead, smoothing=1, every=1, window=2, epsilon=0.5)
        assert controller.wants(controller.start(), 0).factors == (20,)
        decisions, _, _ = follow(controller, [flat(0.75), flat(0.25), flat(0.75), flat(0.75)])
        assert branches(decisions) == [(20, "minimum"), (20, "minimum"), (1, "dense"), (20, "minimum")]


# ---- throughput ----------------------------------------------------------------------------------------------------------------

SATURATED = {10.0: 1.0, 20.0: 0.5, 40.0: 0.25}
"""Seconds; with gains of 1, 1/2 and 1/4 ... the throughput is 1 at each."""


@pytest.mark.parametrize(("reading", "cap"), [("prose", 10), ("pseudocode", 20)])
def test_saturated_throughput_caps_the_factor(reading, cap):
    """10 sends 2 gains a second, 20 does 1.99: within 1 %. Prose keeps the lower one, pseudocode the second fastest."""
    gains = table(f10=1.0, f20=0.796875, f40=0.75, f160=0.7, f1000=0.6)
    seconds = {10.0: 0.5, 20.0: 0.796875 / 1.99}
    controller = GraVAC(**AHEAD, window=2, reading=reading)
    decisions, state, _ = follow(controller, [(gains, seconds)] * 5)
    assert state["cap"] == cap
    assert [decision.factor for decision in decisions] == [10, 1000, cap, cap, cap]


@pytest.mark.parametrize("look_ahead", [True, False])
def test_throughput_that_still_grows_caps_nothing(look_ahead):
    gains, seconds = table(f10=1.0, f20=0.75, f40=0.75, f160=0.7, f1000=0.6), {10.0: 1.0, 20.0: 0.5}
    _, state, _ = follow(GraVAC(**AHEAD, window=2, look_ahead=look_ahead), [(gains, seconds)] * 5)
    assert state["cap"] is None
    assert state["speeds"] == {10: 1.0, 20: 1.5}


def test_the_ideal_factor_is_the_candidate_of_the_paper():
    gains, seconds = table(f10=1.0, f20=0.75, f40=0.75, f160=0.5), {10.0: 1.0, 20.0: 0.75, 40.0: 0.76}
    controller = GraVAC(**PAPER | {"epsilon": 0.25}, window=2)
    decisions, state, _ = follow(controller, [(gains, {})] * 4 + [(gains, seconds)] * 4)
    assert [decision.candidate for decision in decisions] == [20, 20, 40, 40, 160, 160, 10, 10]
    assert (state["low"], state["candidate"], state["cap"]) == (10, 10, 10)
    assert branches(decisions)[-1] == (10, "minimum")


def test_the_ideal_factor_is_never_below_the_smallest():
    """A6 of the paper: 10 and 20 are alike in throughput, but the smallest factor has risen to 40."""
    gains = table(f10=1.0, f20=1.0, f40=1.0, f160=0.75, f1000=0.7)
    controller = GraVAC(**AHEAD, window=2)
    _, state, _ = follow(controller, [(gains, {10.0: 1.0, 20.0: 1.0})] * 2)
    assert (state["low"], state["cap"]) == (40, 40)


def test_dense_steps_have_a_throughput_only_in_the_pseudocode():
    gains = table(f10=0.75, f20=0.625, f40=0.5, f160=0.5, f1000=0.5)
    for reading, speeds in (("prose", {10: 1.5}), ("pseudocode", {1: 2.0, 10: 1.5})):
        _, state, _ = follow(GraVAC(**AHEAD, window=9, reading=reading), [(gains, {1.0: 0.5, 10.0: 0.5})] * 3)
        assert state["speeds"] == speeds


# ---- smoothing and how often ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "smoothing", "weight"), [(1, None, 0.01), (32, None, 0.32), (100, None, 1), (250, None, 1), (32, 0.125, 0.125)]
)
def test_gains_are_smoothed_by_ranks_in_a_hundred(ranks, smoothing, weight):
    controller = GraVAC(look_ahead=False, every=1, smoothing=smoothing)
    _, state, _ = follow(controller, [flat(1.0)], ranks)
    assert state["gains"] == {10: 1.0, 20: 1.0}  # the first is taken as it is
    _, state, _ = follow(controller, [flat(0.5), flat(0.25)], ranks, state, start=1)
    second = 1.0 + weight * (0.5 - 1.0)
    assert state["gains"][10] == pytest.approx(second + weight * (0.25 - second), rel=1e-14)  # the same few roundings


def measured_at(controller, gain, steps):
    """The steps of which it wants to know."""
    state, wanted = controller.start(), []
    for step in range(steps):
        if controller.wants(state, step) is not None:
            wanted.append(step)
            _, state, _ = follow(controller, [gain], state=state, start=step)
    return wanted


def test_steps_are_measured_ever_more_seldom():
    """After a fifth of the steps since the first one, at least one and at most ``every``."""
    assert measured_at(GraVAC(every=5), falling(1000), 42) == [*range(11), 12, 14, 16, 19, 22, 26, 31, 36, 41]
    assert measured_at(GraVAC(every=1), falling(1000), 42) == list(range(42))
    seldom = measured_at(GraVAC(), falling(1000), 5000)
    assert len(seldom) < 80
    assert np.diff(seldom)[-40:].tolist() == [100] * 40


def test_dense_steps_are_measured_once_a_window_at_least():
    assert np.diff(measured_at(GraVAC(window=7, epsilon=0.9), flat(0.1), 1000)).max() == 7
    assert np.diff(measured_at(GraVAC(window=7, epsilon=0.1), flat(0.2), 1000)).max() == 100


def test_a_measurement_that_stands_for_several_steps_weighs_as_much_as_they_would():
    """As if its gain had been seen in each of them."""
    often, seldom = GraVAC(every=1, smoothing=0.25, window=1000), GraVAC(every=4, smoothing=0.25, window=1000)
    first, second, third = falling(100), falling(300), falling(1000)
    _, each, _ = follow(often, [first, *[second] * 4, *[third] * 3])
    _, some, _ = follow(seldom, [first])
    _, some, _ = follow(seldom, [second], state=some, start=4)
    _, some, _ = follow(seldom, [third], state=some, start=7)
    for factor in often.factors:
        assert some["gains"][factor] == pytest.approx(each["gains"][factor], rel=1e-13)  # a dozen roundings


def test_gains_that_were_not_finite_change_nothing():
    for controller in (GraVAC(**AHEAD), GraVAC(**PAPER), GraVAC(**AHEAD, window=2)):
        _, before, _ = follow(controller, [falling(100)] * 3)
        decisions, after, _ = follow(controller, [None] * 2, state=before, start=3)
        assert after["gains"] == before["gains"]
        assert len(set(branches(decisions))) == 1
    decisions, _, _ = follow(GraVAC(**AHEAD, window=2), [None] * 6)
    assert branches(decisions) == [(10, "minimum")] * 6  # nothing is known of any factor


# ---- what a user is told -------------------------------------------------------------------------------------------------------


def told(text):
    """The epsilon that a message names."""
    return float(re.search(r"epsilon=(\S+) would have compressed$", text)[1])


@pytest.mark.parametrize("look_ahead", [True, False])
@pytest.mark.parametrize("gain", [0.25, 0.2999, 0.123456, 0.05, 0.0196, 0.00099, 0.00012378, 1.9996e-7])
def test_a_window_of_dense_steps_names_an_epsilon_that_would_have_compressed(look_ahead, gain):
    settings = {"smoothing": 1, "every": 1, "window": 5, "look_ahead": look_ahead}
    trace = [(lambda factor, g=gain * share: g * 10 / factor) for share in (1, 0.5, 0.75, 1, 0.25) * 3]
    decisions, _, says = follow(GraVAC(epsilon=0.3, **settings), trace)
    assert [decision.branch for decision in decisions] == ["minimum"] + ["dense"] * 14
    assert len(says) == 2  # the first window had a step that was not dense
    assert f"every step of the last 5 was dense, because the gain at factor 10 was {gain:.3g} at most" in says[0]
    assert "below epsilon=0.3;" in says[0]
    named = told(says[0])
    assert 0.99 * gain <= named <= gain  # three digits of it
    decisions, _, says = follow(GraVAC(epsilon=named, **settings), trace)
    assert "minimum" in {decision.branch for decision in decisions[5:10]}
    assert not says


def test_no_advice_where_a_step_of_the_window_compressed():
    trace = ([flat(0.1)] * 9 + [flat(0.9)]) * 3 + [flat(0.1)] * 10
    _, _, says = follow(GraVAC(**AHEAD, window=10), trace)
    assert says == []
    _, _, says = follow(GraVAC(**AHEAD, window=10), [*trace, *[flat(0.1)] * 10])
    assert len(says) == 1


def test_no_advice_where_no_epsilon_would_help():
    """Gradients of zeros at every factor, or never a finite one."""
    assert follow(GraVAC(**AHEAD, window=5), [flat(0.0)] * 20)[2] == []
    assert follow(GraVAC(**AHEAD, window=5), [None] * 20)[2] == []


def test_advice_is_given_once_a_window_though_gains_are_measured_seldom():
    _, _, says = follow(GraVAC(smoothing=1, every=4, window=20, epsilon=0.5), [flat(0.125)] * 90)
    assert len(says) == 3
    assert "the last 20 was dense" in says[0]
    assert told(says[0]) == 0.125


# ---- states --------------------------------------------------------------------------------------------------------------------


def plain(value):
    if isinstance(value, dict):
        return all(map(plain, value)) and all(map(plain, value.values()))
    return all(map(plain, value)) if type(value) in (list, tuple) else type(value) in (type(None), bool, int, float, str)


def noisy(seed, steps):
    """Gains, times, steps without gains."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        scale, level = float(rng.choice([20, 100, 3000, 1e6])), rng.random()
        gain = None if rng.random() < 0.1 else (lambda factor, s=scale, v=level: v * math.exp(-factor / s))
        yield gain, {factor: 0.1 + rng.random() for factor in rng.choice([1.0, 10.0, 20.0, 40.0, 160.0, 1000.0], 3).tolist()}


VARIANTS = [
    dict(zip(("look_ahead", "reading", "policy", "every", "window"), values, strict=True))
    for values in itertools.product([True, False], ["prose", "pseudocode"], ["exponential", "geometric"], [1, 3], [2, 7])
]


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_states_are_plain_values_that_can_be_saved_anywhere(settings):
    """Decisions go on as if nothing had happened; they stay within the range, and are the same on a second run."""
    controller, trace = GraVAC(epsilon=0.3, smoothing=0.5, **settings), list(noisy(1, 120))
    whole, end, said = follow(controller, trace)
    assert follow(controller, trace) == (whole, end, said)
    first, state, _ = follow(controller, trace[:50])
    assert plain(state)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert loaded == state == copy.deepcopy(state)
    second, last, _ = follow(controller, trace[50:], state=loaded, start=50)
    assert (first + second, last) == (whole, end)
    assert all(decision.factor == 1 or 10 <= decision.factor <= 1000 for decision in whole)
    assert {"dense", "minimum"} <= {decision.branch for decision in whole}


def test_is_wrapped_by_default_so_that_it_is_never_slower():
    controller = GraVAC(max_factor=500, window=70)
    assert controller.prepared() == NeverSlower(controller, 500, 70)
    controller = GraVAC(probe_dense=False)
    assert controller.prepared() is controller


# ---- bad input -----------------------------------------------------------------------------------------------------------------

NO_FACTORS = [0, 0.5, -1, 0.999, NAN, math.inf, "10", None, True, 1j, [10]]
NO_SHARES = [0, -0.1, 1.0001, NAN, math.inf, "0.5", True]


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        *(("min_factor", value, "a finite number >= 1 ") for value in NO_FACTORS),
        *(("max_factor", value, "a finite number >= 10 (min_factor)") for value in (9.9, 1, NAN, math.inf, "100", None, True)),
        *(("epsilon", value, "a number above 0, up to 1") for value in [*NO_SHARES, None]),
        *(("smoothing", value, "a number above 0, up to 1") for value in NO_SHARES),
        *(("omega", value, "a finite number above 0") for value in (0, -0.01, NAN, math.inf, "0.01", None, True)),
        *(("window", value, "a whole number from 1 to ") for value in [*BAD_COUNTS, 2.5]),
        *(("every", value, "a whole number from 1 to ") for value in BAD_COUNTS),
        *(("policy", value, "'exponential' or 'geometric'") for value in ("linear", "", None, 2, True, ["geometric"])),
        *(("gain", value, "'energy' or 'norm' or 'raw'") for value in ("Energy", None, 1, ["raw"])),
        *(("agreement", value, "'lagged' or 'exact'") for value in ("eager", None, False)),
        *(("reading", value, "'prose' or 'pseudocode'") for value in ("code", None, {})),
        *((name, value, "True or False") for name in ("per_unit", "look_ahead", "probe_dense") for value in (1, 0, "no", None)),
    ],
)
def test_refuses_bad_input(name, value, legal):
    with pytest.raises(ConfigError) as raised:
        GraVAC(**{name: value})
    assert str(raised.value).startswith(f"GraVAC: {name} must be {legal}")
    assert str(raised.value).endswith(f"got {value!r}")


def test_takes_what_is_a_number_and_keeps_it_as_a_float():
    controller = GraVAC(1, 1, epsilon=1, omega=5, smoothing=1, window=1, every=1)
    kept = (controller.min_factor, controller.max_factor, controller.epsilon, controller.omega, controller.smoothing)
    assert {type(value) for value in kept} == {float}
    with pytest.raises(AttributeError):
        controller.window = 3
