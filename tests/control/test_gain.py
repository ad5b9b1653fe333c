"""Gains from energies, by hand."""

import math

import pytest

from hvd_adaptive.control.gain import GAINS, gain

NAN, INF = math.nan, math.inf
BY_HAND = [
    ("energy", 9.0, 36.0, 0.25),
    ("raw", 9.0, 36.0, 0.25),
    ("norm", 9.0, 36.0, 0.5),
    ("norm", 4.0, 100.0, 0.2),
    ("energy", 0.0, 5.0, 0.0),
    ("norm", 0.0, 5.0, 0.0),
]


@pytest.mark.parametrize(("name", "kept", "whole", "expected"), BY_HAND)
def test_by_hand(name, kept, whole, expected):
    assert gain(name, kept, whole) == expected


every_definition = pytest.mark.parametrize("name", GAINS)


@every_definition
def test_is_1_if_there_was_nothing_to_drop(name):
    assert gain(name, 0.0, 0.0) == gain(name, 7.0, 7.0) == 1


@every_definition
def test_is_1_at_most_however_sums_are_rounded(name):
    assert gain(name, math.nextafter(7.0, 8.0), 7.0) == 1


@every_definition
@pytest.mark.parametrize(("kept", "whole"), [(NAN, 1.0), (1.0, NAN), (INF, INF), (1.0, INF), (NAN, NAN), (INF, 1.0), (NAN, 0.0)])
def test_is_no_number_if_an_energy_is_none(name, kept, whole):
    assert math.isnan(gain(name, kept, whole))


@every_definition
def test_of_the_largest_and_smallest_energies(name):
    """Finite ones whose sum is not are finite."""
    assert gain(name, 1e308, 1e308) == gain(name, 5e-324, 5e-324) == 1
    assert gain(name, 5e-324, 1e308) == 0
