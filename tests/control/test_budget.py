"""Budgets in the loop with a network whose bytes are tokens + 7 n / factor; the settled share is checked against the budget."""

import pytest
from simulated import simulate
from vectors import BAD_COUNTS, BAD_FACTORS

from hvd_adaptive import Budget, ConfigError
from hvd_adaptive.control import Observation, Wanted

N = 1_000_000


def network(tokens):
    return lambda factor: tokens + 7 * N / factor


REACHED = [
    (budget, tokens, most)
    for budget in (9_000, 20_000, 100_000, 5_000_000)
    for tokens in (0, 400, 5000)
    for most in (1000, 4000)
    if network(tokens)(most) <= budget
]


@pytest.mark.parametrize("every", [1, 2, 3, 4, 10, 25])
@pytest.mark.parametrize(("budget", "tokens", "most"), REACHED)
def test_settles_within_the_budget_and_stays_there(every, budget, tokens, most):
    """The first steps cost little, and few looks are enough."""
    sent = network(tokens)
    factors = [decision.factor for decision in simulate(Budget(budget, most, every), 400, sent=sent)[0]]
    used = [sent(factor) / budget for factor in factors]
    assert factors[0] == most
    settled = 8 * max(2, every)
    assert max(used[settled:]) <= 1
    assert min(used[settled:]) >= 0.9
    assert len(set(factors[settled:])) == 1


@pytest.mark.parametrize("every", [1, 2, 10])
@pytest.mark.parametrize("tokens", [0, 400])
def test_never_sends_more_than_the_budget_on_the_way(every, tokens):
    """What does not shrink makes the first turn too small, never too large; aiming at 95 % leaves the rest."""
    sent = network(tokens)
    used = [sent(decision.factor) / 100_000 for decision in simulate(Budget(100_000, 1000, every), 100, sent=sent)[0]]
    assert max(used) <= 1


@pytest.mark.parametrize(("budget", "factor"), [(5_000, 1000), (1, 1000), (8_000_000, 1), (1e12, 1)])
def test_what_cannot_be_reached_ends_at_a_bound(budget, factor):
    decisions, _ = simulate(Budget(budget, 1000), 200, sent=network(0))
    assert {decision.factor for decision in decisions[80:]} == {factor}


def test_a_largest_factor_of_1_is_the_only_one():
    assert {decision.factor for decision in simulate(Budget(10, 1), 30, sent=network(0))[0]} == {1}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (1000, 100),
        (900, 100),
        (950, 100),
        (899, 100 * 0.899 / 0.95),
        (1001, 100 * 1.001 / 0.95),
        (1900, 200),
        (95, 10),
        (9.5, 1),
        (0.1, 1),
        (1e6, 1000),
        (0, 100),  # nothing is known yet
    ],
)
def test_one_turn_by_hand(sent, expected):
    controller = Budget(1000, 1000)
    state = controller.observe({"factor": 100.0}, Observation(12, bytes_sent=sent))
    assert controller.decide(state, 12).factor == pytest.approx(expected, rel=1e-14, abs=0)  # two or three roundings


def test_looks_come_often_at_first_and_want_no_gains():
    controller = Budget(1000, every=10)
    wanted = [step for step in range(45) if controller.wants(controller.start(), step) is not None]
    assert wanted[0] in (1, 2)
    assert [step for step in wanted if step >= 10] == [11, 21, 31, 41]
    assert controller.wants(controller.start(), 11) == Wanted()


def test_a_network_that_changes_is_followed():
    sent = {"n": 1_000_000}
    factors = []

    def bytes_of(factor):
        factors.append(factor)
        if len(factors) == 200:
            sent["n"] *= 3
        return 7 * sent["n"] / factor

    simulate(Budget(100_000, 1000), 400, sent=bytes_of)
    assert 0.9 <= 7 * 1_000_000 / factors[198] / 100_000 <= 1
    assert 0.9 <= 7 * 3_000_000 / factors[-1] / 100_000 <= 1


@pytest.mark.parametrize(
    ("name", "value", "legal"),
    [
        *(("bytes_per_step", value, "a finite number >= 1 (bytes)") for value in BAD_FACTORS),
        *(("max_factor", value, "a finite number >= 1 (a factor)") for value in BAD_FACTORS),
        *(("every", value, "a whole number from 1 to ") for value in BAD_COUNTS),
    ],
)
def test_refuses_bad_input(name, value, legal):
    with pytest.raises(ConfigError) as raised:
        Budget(**{"bytes_per_step": 10, name: value})
    assert str(raised.value).startswith(f"Budget: {name} must be {legal}")
    assert str(raised.value).endswith(f"got {value!r}")
