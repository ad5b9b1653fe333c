"""Oracle: a mean for each slice, in doubles; coins of the scalar generator."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_oracle import uniform
from vectors import BAD_COUNTS, DTYPES, draw, sent, usual_vectors, vectors

from hvd_adaptive import ConfigError, EFSign
from hvd_adaptive.feedback import Residual

buckets = st.none() | st.integers(1, 70)


def means(x, bucket):
    """One for each bucket."""
    width = bucket or x.size
    rows = [np.abs(x[start : start + width]).tolist() for start in range(0, x.size, width)]
    return [math.fsum(row) / len(row) for row in rows], width


@given(x=vectors(), bucket=buckets)
def test_every_element_becomes_its_sign_times_the_mean_of_its_bucket(ops, x, bucket):
    result = sent(ops, EFSign(bucket), x)
    scales, width = means(x, bucket)
    assert result.fields[1].size == len(scales)
    coins = uniform(draw().own, x.size)
    positive = [u < 0.5 if e == 0 else e > 0 for e, u in zip(x.tolist(), coins, strict=True)]
    assert result.fields[0].tolist() == positive
    assert result.bits[0] == 1
    expected = [scales[i // width] * (1 if up else -1) for i, up in enumerate(positive)]
    unit = np.finfo(x.dtype)
    np.testing.assert_allclose(result.y, expected, rtol=2 * unit.eps, atol=unit.smallest_subnormal)


@given(x=usual_vectors(("float64",)), bucket=buckets)
def test_the_error_is_what_the_means_do_not_explain(ops, x, bucket):
    y = sent(ops, EFSign(bucket), x).y
    scales, width = means(x, bucket)
    sizes = [min(width, x.size - i * width) for i in range(len(scales))]
    energy = math.fsum(x**2)
    expected = energy - math.fsum(size * scale**2 for size, scale in zip(sizes, scales, strict=True))
    assert abs(math.fsum((x - y) ** 2) - expected) <= 1e-13 * x.size * energy


def test_by_hand_with_a_short_last_bucket(ops):
    x = np.array([1, -3, 5, 7, -8], np.float32)
    np.testing.assert_array_equal(sent(ops, EFSign(2), x).y, [2, -2, 6, 6, -8])
    np.testing.assert_array_equal(sent(ops, EFSign(4), x).y, [4, -4, 4, 4, -8])
    np.testing.assert_array_equal(sent(ops, EFSign(), x).y, np.array([4.8, -4.8, 4.8, 4.8, -4.8], np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_bucket_of_zeros_stays_zeros(ops, dtype):
    x = np.array([0, 0, 4, -4, 0], dtype)
    np.testing.assert_array_equal(sent(ops, EFSign(2), x).y, x)


def test_what_others_may_rely_on():
    assert EFSign().biased
    assert EFSign().feedback == Residual()
    assert EFSign(8).omega(50) == 0
    assert EFSign().exchanges == ("gather", "two-sided")  # not summed: ranks' means differ
    assert not EFSign().votes


@pytest.mark.parametrize("bucket", BAD_COUNTS)
def test_refuses_a_bad_bucket(bucket):
    with pytest.raises(ConfigError) as raised:
        EFSign(bucket)
    assert str(raised.value).startswith("EFSign: bucket must be a whole number from 1 to ")
    assert str(raised.value).endswith(f"got {bucket!r}")
