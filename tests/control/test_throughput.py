"""Compression throughputs by hand: how they are smoothed, and the factor to stay at once they are alike."""

import itertools

import pytest

from hvd_adaptive.control.throughput import READINGS, ideal, smoothed


def test_the_first_throughput_of_a_factor_is_its_gain_by_its_time():
    assert smoothed({}, {10.0: 0.5, 20.0: 0.25}, {10.0: 0.25, 20.0: 0.5}) == {10.0: 2.0, 20.0: 0.5}


def test_a_quarter_of_the_newest_counts():
    before = {10.0: 2.0, 40.0: 7.0}
    assert smoothed(before, {10.0: 1.0, 40.0: 1.0}, {10.0: 0.1}) == {10.0: 2.0 + 0.25 * (10.0 - 2.0), 40.0: 7.0}
    assert before == {10.0: 2.0, 40.0: 7.0}


def test_without_a_gain_or_a_time_there_is_none():
    assert smoothed({}, {10.0: 0.5}, {1.0: 0.1, 10.0: 0.0}) == {}
    assert smoothed({10.0: 3.0}, {}, {10.0: 0.1}) == {10.0: 3.0}


@pytest.mark.parametrize("reading", READINGS)
def test_the_papers_example(reading):
    """0.53 % apart, so both readings stay at 1280 where omega is 1 %, and go on where it is 0.5 %."""
    speeds = {1280.0: 1029.9, 2000.0: 1035.4}
    assert ideal(speeds, 0.01, reading) == 1280
    assert ideal(speeds, 0.005, reading) is None


@pytest.mark.parametrize(
    ("speeds", "prose", "pseudocode"),
    [
        ({10.0: 100.0, 20.0: 99.5}, 10, 20),  # the second highest is the larger factor's
        ({10.0: 99.5, 20.0: 100.0}, 10, 10),
        ({10.0: 50.0, 20.0: 100.0, 40.0: 99.5, 80.0: 1.0}, 20, 40),
        ({10.0: 50.0, 20.0: 50.0, 40.0: 100.0}, None, None),  # only the two highest count
        ({10.0: 100.0, 20.0: 101.0}, 10, 10),  # 1 % of the lower one exactly
        ({10.0: 100.0, 20.0: 101.001}, None, None),
        ({1.0: 100.0, 10.0: 100.5}, 1, 1),
        ({10.0: 0.0, 20.0: 0.0}, 10, 20),
    ],
)
def test_by_hand_whatever_the_order(speeds, prose, pseudocode):
    for order in itertools.permutations(speeds.items()):
        assert ideal(dict(order), 0.01, "prose") == prose
        assert ideal(dict(order), 0.01, "pseudocode") == pseudocode


def test_of_three_that_tie_the_smaller_two_are_the_highest():
    for order in itertools.permutations([10.0, 20.0, 40.0]):
        assert ideal(dict.fromkeys(order, 5.0), 0.01, "prose") == 10
        assert ideal(dict.fromkeys(order, 5.0), 0.01, "pseudocode") == 20


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("speeds", [{}, {10.0: 5.0}])
def test_fewer_than_two_say_nothing(speeds, reading):
    assert ideal(speeds, 0.5, reading) is None
