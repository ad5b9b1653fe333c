"""Oracle: the definition in doubles, with draws of the scalar generator."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_oracle import uniform
from vectors import BAD_COUNTS, draw, expected_levels, sent, usual_vectors, vectors

from hvd_adaptive import QSGD, ConfigError
from hvd_adaptive.feedback import NoFeedback

methods = st.builds(
    QSGD,
    st.sampled_from([1, 2, 7, 127, 128]),
    norm=st.sampled_from(["l2", "max"]),
    bucket=st.none() | st.integers(1, 70),
)


def norms_of(x, method):
    """One for each element."""
    width = method.bucket or x.size
    measure = max if method.norm == "max" else math.hypot
    rows = [np.abs(x[start : start + width]).astype(np.float64).tolist() for start in range(0, x.size, width)]
    norms = [measure(row) if method.norm == "max" else measure(*row) for row in rows]
    return norms, np.array([norms[i // width] for i in range(x.size)])


@given(x=vectors(), method=methods)
def test_norms_codes_and_values(ops, x, method):
    result = sent(ops, method, x)
    codes, scales = result.fields
    norms, per_element = norms_of(x, method)
    eps = 0.0 if method.norm == "max" else 4 * np.finfo(scales.dtype).eps
    np.testing.assert_allclose(scales, norms, rtol=eps, atol=np.finfo(scales.dtype).smallest_subnormal if eps else 0)
    own = np.repeat(scales, method.bucket or x.size)[: x.size]
    level, certain = expected_levels(x, own, method.levels, uniform(draw().own, x.size))
    found = codes.astype(np.int64) - method.levels
    np.testing.assert_array_equal((found * np.sign(x))[certain], level[certain])
    assert np.all(found[x == 0] == 0)
    expected = found / method.levels * own.astype(np.float64)
    unit = np.finfo(x.dtype)
    np.testing.assert_allclose(result.y, expected, rtol=2 * unit.eps, atol=unit.smallest_subnormal)
    assert np.all(np.abs(result.y.astype(np.float64) - x) <= per_element / method.levels * (1 + 1e-2) + unit.smallest_subnormal)


@pytest.mark.parametrize(
    ("levels", "bits"), [(1, 2), (2, 3), (3, 3), (4, 4), (7, 4), (8, 5), (127, 8), (128, 9), (2**19, 21), (2**20, 22)]
)
def test_codes_take_ceil_log2_of_the_number_of_levels(ops, levels, bits):
    assert bits == math.ceil(math.log2(2 * levels + 1))
    assert sent(ops, QSGD(levels), np.array([3, -4, 0], np.float32)).bits == [bits, 32]


@pytest.mark.parametrize("norm", ["l2", "max"])
@given(x=vectors())
def test_alone_in_its_bucket_an_element_arrives_as_it_was(ops, norm, x):
    np.testing.assert_array_equal(sent(ops, QSGD(3, norm, bucket=1), x).y, x)


def test_a_bucket_of_zeros_beside_others_stays_zeros(ops):
    x = np.array([0, 0, 5, -5, 0, 0, 1], np.float32)
    y = sent(ops, QSGD(4, norm="max", bucket=2), x).y
    np.testing.assert_array_equal(y, x)


def test_by_hand(ops):
    """3 and -4 have norm 5; of 5 levels they are exactly 3 and 4."""
    result = sent(ops, QSGD(5), np.array([3, -4, 0], np.float32))
    assert [field.tolist() for field in result.fields] == [[8, 1, 5], [5.0]]
    np.testing.assert_array_equal(result.y, np.array([3, -4, 0], np.float32))


def test_norms_whose_squares_overflow_or_vanish(ops):
    for size in (1e30, 1e-40):
        x = np.array([3, 4], np.float32) * np.float32(size)
        precision = 2e-5 if size == 1e-40 else 2.0**-22  # of a subnormal 17 bits are left
        np.testing.assert_allclose(sent(ops, QSGD(5), x).fields[1], [5 * size], rtol=precision)


def test_only_own_draws_decide(ops):
    x, method = np.linspace(-1, 1, 200).astype(np.float32), QSGD(3)
    codes = sent(ops, method, x).fields[0].tolist()
    assert codes == sent(ops, method, x).fields[0].tolist()
    assert codes == sent(ops, method, x, draw()._replace(shared=draw(1).shared)).fields[0].tolist()
    assert codes != sent(ops, method, x, draw(rank=1)).fields[0].tolist()
    assert codes != sent(ops, method, x, draw(1)._replace(shared=draw().shared)).fields[0].tolist()


@given(x=usual_vectors())
def test_a_bucket_beyond_the_unit_is_the_unit(ops, x):
    whole, wide = (sent(ops, QSGD(3, bucket=bucket), x) for bucket in (None, 1000))
    np.testing.assert_array_equal(whole.y, wide.y)


def test_what_others_may_rely_on():
    assert not QSGD(1).biased
    assert QSGD(1).feedback == NoFeedback()
    assert QSGD(1).exchanges == ("gather", "reduce", "two-sided")
    assert (QSGD(1).norm, QSGD(1).bucket) == ("l2", None)
    assert QSGD(np.int64(4)) == QSGD(4)
    assert replace(QSGD(4), bucket=np.int32(2)).bucket == 2


@pytest.mark.parametrize("value", [*BAD_COUNTS, None, 2**20 + 1])
def test_refuses_bad_levels(value):
    with pytest.raises(ConfigError) as raised:
        QSGD(value)
    assert str(raised.value).startswith("QSGD: levels must be a whole number from 1 to 1048576")
    assert str(raised.value).endswith(f"got {value!r}")


@pytest.mark.parametrize("value", BAD_COUNTS)
def test_refuses_a_bad_bucket(value):
    with pytest.raises(ConfigError) as raised:
        QSGD(4, bucket=value)
    assert str(raised.value).startswith("QSGD: bucket must be a whole number from 1 to ")
    assert str(raised.value).endswith(f"got {value!r}")


@pytest.mark.parametrize("norm", ["L2", "l1", "", None, 2, True])
def test_refuses_another_norm(norm):
    with pytest.raises(ConfigError) as raised:
        QSGD(4, norm=norm)
    assert str(raised.value) == f"QSGD: norm must be 'l2' or 'max', got {norm!r}"
