"""Density falls in equal stages; the paper's 25 %, 6.25 %, ... by hand, and a count of steps for all else."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import BAD_COUNTS, BAD_FACTORS

from hvd_adaptive import ConfigError, WarmUp


def decided(controller, steps):
    return [controller.decide(controller.start(), step).factor for step in range(steps)]


def test_the_papers_stages():
    """Powers of 4 come out of a floating power, so to some ulp."""
    expected = [4] * 25 + [16] * 25 + [64] * 25 + [256] * 25 + [1024] * 10
    assert decided(WarmUp(1024, 100), 110) == pytest.approx(expected, rel=1e-14, abs=0)
    assert WarmUp(1024, 100).decide(None, 99).branch == "warm-up"
    assert WarmUp(1024, 100).decide(None, 100).branch == "settled"


def test_stages_that_steps_do_not_divide_into():
    """Stage s begins with the first step that is s/4 of 10 or later."""
    assert decided(WarmUp(16, 10, first=1), 11) == [1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 16]


@given(steps=st.integers(1, 60), stages=st.integers(1, 70), factor=st.floats(1, 1e6), share=st.floats(0, 1))
def test_stages_are_equally_long_and_fall_by_the_same_ratio(steps, stages, factor, share):
    first = min(factor, max(1.0, factor**share))
    found = decided(WarmUp(factor, steps, first, stages), steps + 2)
    assert found[0] == first
    assert found[steps:] == [factor, factor]
    for step in range(steps):
        stage = max(s for s in range(stages) if s * steps <= step * stages)
        expected = math.exp(math.log(first) + stage / stages * (math.log(factor) - math.log(first)))
        assert found[step] == pytest.approx(expected, rel=1e-13, abs=0)  # logarithms up to 14, an ulp each, exponentiated


@pytest.mark.parametrize("factor", BAD_FACTORS)
def test_refuses_a_bad_factor(factor):
    with pytest.raises(ConfigError, match=r"^WarmUp: factor must be a finite number >= 1") as raised:
        WarmUp(factor, 10)
    assert str(raised.value).endswith(f"got {factor!r}")


@pytest.mark.parametrize("name", ["steps", "stages"])
@pytest.mark.parametrize("value", BAD_COUNTS)
def test_refuses_a_bad_count(name, value):
    with pytest.raises(ConfigError, match=f"^WarmUp: {name} must be a whole number from 1 ") as raised:
        WarmUp(**{"factor": 100, "steps": 10, name: value})
    assert str(raised.value).endswith(f"got {value!r}")


@pytest.mark.parametrize("first", [0.9, 100.5, float("nan"), True, "4", None])
def test_refuses_a_first_factor_outside_of_the_range(first):
    with pytest.raises(ConfigError, match=r"^WarmUp: first must be a number from 1 to 100 ") as raised:
        WarmUp(100, 10, first=first)
    assert str(raised.value).endswith(f"got {first!r}")
