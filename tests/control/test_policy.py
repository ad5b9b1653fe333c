"""The factors that GraVAC tries: the paper's two sequences, by hand, and where they end."""

import math

import pytest

from hvd_adaptive.control.policy import POLICIES, factors, multiple

BY_HAND = [
    ("exponential", 10, 1000, [10, 20, 40, 160, 1000]),
    ("geometric", 10, 2000, [10, 20, 40, 80, 160, 320, 640, 1280, 2000]),
    ("geometric", 1.5, 48, [1.5, 3, 6, 12, 24, 48]),
    ("exponential", 1.5, 48, [1.5, 3, 6, 24, 48]),
    ("exponential", 1, 300, [1, 2, 4, 16, 256, 300]),
    ("geometric", 1, 9, [1, 2, 4, 8, 9]),
    ("exponential", 10, 2560, [10, 20, 40, 160, 2560]),
    ("exponential", 10, 2561, [10, 20, 40, 160, 2560, 2561]),
    ("geometric", 10, 20, [10, 20]),
    ("geometric", 10, 19.5, [10, 19.5]),
]
"""Policy, smallest and largest factor, the sequence; the first three are printed in the paper."""


@pytest.mark.parametrize(("policy", "least", "most", "expected"), BY_HAND)
def test_sequences_by_hand(policy, least, most, expected):
    assert factors(policy, least, most) == tuple(expected)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("only", [1.0, 10.0, 1.5])
def test_a_range_of_one_factor_has_no_other(policy, only):
    assert factors(policy, only, only) == (only,)


def test_multiples_by_hand():
    assert [multiple("exponential", number) for number in range(1, 7)] == [2, 4, 16, 256, 65536, 2**32]
    assert [multiple("geometric", number) for number in range(1, 7)] == [2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("least", "most"), [(1.0, 1e30), (1.0, 1.7e308), (1e300, 1.7e308), (3.0, 1e100)])
def test_any_range_of_finite_factors_ends(policy, least, most):
    """A largest factor that means none at all must not be climbed to for ever."""
    found = factors(policy, least, most)
    assert (found[0], found[-1]) == (least, most)
    assert list(found) == sorted(set(found))
    assert len(found) <= 1026


@pytest.mark.parametrize("policy", POLICIES)
def test_multiples_never_fall_and_never_fail_however_many_windows_pass(policy):
    found = [multiple(policy, number) for number in (1, 2, 8, 9, 10, 11, 12, 1000, 1023, 1024, 10**6)]
    assert found == sorted(found)
    assert found[-1] == math.inf
