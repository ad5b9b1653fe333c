"""Oracle: two lists and their means."""

import math

import numpy as np
import pytest
from hypothesis import given
from vectors import DTYPES, sent, usual_vectors, vectors

from hvd_adaptive import OneBit
from hvd_adaptive.feedback import Residual


def mean(numbers):
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


@given(x=vectors())
def test_every_element_becomes_the_mean_of_its_side(ops, x):
    below, above = mean([e for e in x.tolist() if e < 0]), mean([e for e in x.tolist() if e >= 0])
    result = sent(ops, OneBit(), x)
    assert result.fields[0].tolist() == [int(e >= 0) for e in x.tolist()]
    assert result.bits[0] == 1
    assert result.fields[1].dtype == ("float64" if x.dtype == "float64" else "float32")
    unit = np.finfo(x.dtype)
    expected = [above if e >= 0 else below for e in x.tolist()]
    np.testing.assert_allclose(result.y, expected, rtol=2 * unit.eps, atol=unit.smallest_subnormal)


@given(x=usual_vectors(("float64",)))
def test_the_mean_survives_and_the_error_is_that_of_two_means(ops, x):
    y = sent(ops, OneBit(), x).y
    sides = [[e for e in x.tolist() if (e >= 0) == side] for side in (True, False)]
    error = math.fsum((e - mean(side)) ** 2 for side in sides for e in side)
    limit = 1e-12 * max(1.0, math.fsum(x**2))
    assert abs(math.fsum(y) - math.fsum(x)) < limit + 1e-12
    assert abs(math.fsum((x - y) ** 2) - error) <= limit


def test_by_hand(ops):
    result = sent(ops, OneBit(), np.array([1, -2, 0, -6, 5], np.float32))
    assert [field.tolist() for field in result.fields] == [[1, 0, 1, 0, 1], [-4, 2]]
    np.testing.assert_array_equal(result.y, [2, -4, 2, -4, 2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", [0.0, 3.0, -3.0])
def test_with_one_side_empty_the_other_is_exact(ops, dtype, fill):
    x = np.full(5, fill, dtype)
    np.testing.assert_array_equal(sent(ops, OneBit(), x).y, x)


def test_what_others_may_rely_on():
    assert OneBit().biased
    assert OneBit().feedback == Residual()
    assert OneBit().omega(5) == 0
    assert OneBit().exchanges == ("gather", "two-sided")
