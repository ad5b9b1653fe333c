"""Regimes by the mean norm of windows: traces by hand, whose norms are exact."""

import pytest
from vectors import BAD_COUNTS, BAD_FACTORS

from hvd_adaptive import Accordion, ConfigError
from hvd_adaptive.control import Observation, Wanted

NAN, INF = float("nan"), float("inf")


def decided(controller, norms):
    """Factor of each step, where step i has norm ``norms[i]``."""
    state, found = controller.start(), []
    for step, norm in enumerate(norms):
        found.append(controller.decide(state, step).factor)
        if controller.wants(state, step) is not None:
            state = controller.observe(state, Observation(step + 1, norm=norm))
    return found


def windows(norms):
    """Factor of each window of four steps."""
    found = decided(Accordion(10, 100, threshold=0.5, window=4, every=1), [norm for norm in norms for _ in range(4)])
    assert all(len(set(found[i : i + 4])) == 1 for i in range(0, len(found), 4))
    return found[::4]


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        ([8, 8, 8, 8], [10, 10, 100, 100]),  # the first has none before it
        ([8, 4, 4, 4], [10, 10, 10, 100]),  # half is half or more
        ([8, 4.5, 4.5, 4.5], [10, 10, 100, 100]),
        ([8, 12, 12, 12], [10, 10, 10, 100]),  # it may rise
        ([8, 11.5, 11.5, 11.5], [10, 10, 100, 100]),
        ([8, 8, 8, 16, 16, 16], [10, 10, 100, 100, 10, 100]),
        ([2, 2.75, 3.75, 5, 5], [10, 10, 100, 100, 100]),  # against the one before, not the last change
    ],
)
def test_regimes_by_hand(norms, expected):
    assert windows(norms) == expected


def test_the_mean_of_a_window_counts_not_its_last_step():
    norms = [8, 8, 8, 8, 1, 15, 1, 15, 8, 8]
    assert decided(Accordion(10, 100, threshold=0.1, window=4, every=1), norms)[-2:] == [100, 100]


def test_norms_that_are_not_finite_do_not_count():
    norms = [8, NAN, INF, 8, 8, 8, 8, NAN, 8, 8]
    assert decided(Accordion(10, 100, window=4, every=1), norms) == [10] * 8 + [100] * 2


def test_a_window_of_nothing_finite_changes_nothing():
    norms = [8] * 4 + [8] * 4 + [NAN] * 4 + [8] * 8
    assert decided(Accordion(10, 100, window=4, every=1), norms)[8:] == [100] * 12


def test_the_norm_is_looked_at_every_so_many_steps_and_no_gain_is_wanted():
    controller = Accordion(window=20, every=5)
    wanted = [controller.wants(controller.start(), step) for step in range(11)]
    assert [step for step in range(11) if wanted[step] is not None] == [0, 5, 10]
    assert wanted[5] == Wanted()


def test_branches_and_units():
    controller = Accordion(10, 100, window=1, every=1)
    state = controller.start()
    assert controller.decide(state, 0).branch == "critical"
    for step in range(2):
        state = controller.observe(state, Observation(step + 1, norm=3.0))
    assert controller.decide(state, 2).branch == "steady"
    assert Accordion().per_unit
    assert not Accordion(per_unit=False).per_unit


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        *(("low", factor, "a finite number >= 1 (a factor)") for factor in BAD_FACTORS),
        *(("high", factor, "a finite number >= 10 (at least low)") for factor in (9.9, NAN, INF, True, "100", None)),
        *(("threshold", value, "a finite number >= 1e-09") for value in (0, -1, NAN, INF, True, "1")),
        *(("window", value, "a whole number from 1 to ") for value in BAD_COUNTS),
        *(("every", value, "a whole number from 1 to 500 (at most window)") for value in [*BAD_COUNTS, 501]),
        *(("per_unit", value, "True or False") for value in (1, 0, "yes", None)),
    ],
)
def test_refuses_bad_input(name, value, legal):
    with pytest.raises(ConfigError) as raised:
        Accordion(**{"low": 10, name: value})
    assert str(raised.value).startswith(f"Accordion: {name} must be {legal}")
    assert str(raised.value).endswith(f"got {value!r}")
