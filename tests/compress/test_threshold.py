"""Oracle: a loop with an if."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import DTYPES, positions_sent, sent, vectors

from hvd_adaptive import ConfigError, Threshold
from hvd_adaptive.feedback import Residual


@given(x=vectors(), value=st.sampled_from([0.5, 1.0, 1e-3, 100.0, 4096.0]))
def test_keeps_what_reaches_the_value_and_only_that(ops, x, value):
    value = float(x.dtype.type(value))
    expected = [i for i, element in enumerate(x.tolist()) if not -value < element < value]
    result = sent(ops, Threshold(value), x)
    assert positions_sent(result) == expected
    np.testing.assert_array_equal(result.y, [e if i in expected else 0 for i, e in enumerate(x)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_element_that_equals_the_value_is_kept(ops, dtype):
    x = np.array([0.5, -0.5, 0.25, np.nextafter(np.array(0.5, dtype), np.array(0, dtype)), -1], dtype)
    assert positions_sent(sent(ops, Threshold(0.5), x)) == [0, 1, 4]


@given(x=vectors())
def test_0_keeps_everything_even_zeros(ops, x):
    result = sent(ops, Threshold(0), x)
    assert positions_sent(result) == list(range(x.size))
    np.testing.assert_array_equal(result.y, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [4000, 1e5, 1e39, 1e300])
def test_a_value_beyond_every_element_or_the_dtype_sends_nothing(ops, dtype, value):
    result = sent(ops, Threshold(value), np.linspace(-3000, 3000, 9).astype(dtype))
    assert [field.size for field in result.fields] == [0, 0]
    assert not result.y.any()


def test_keeps_back_what_was_not_sent(ops):
    x = np.array([3, -1, 0.5, -4], np.float32)
    method, vector = Threshold(2), ops.from_numpy(x)
    payload = method.encode(ops, vector, None)
    np.testing.assert_array_equal(ops.to_numpy(method.keep_back(ops, vector, payload, None)), [0, -1, 0.5, 0])


def test_what_others_may_rely_on():
    assert Threshold(1).biased
    assert Threshold(1).feedback == Residual()
    assert Threshold(1).omega(10) == 0
    assert Threshold(np.float32(0.5)) == Threshold(0.5)


@pytest.mark.parametrize("value", [-1, -1e-9, float("nan"), float("inf"), "1", None, True, [1]])
def test_refuses_a_bad_value(value):
    with pytest.raises(ConfigError) as raised:
        Threshold(value)
    assert str(raised.value).startswith("Threshold: value must be a finite number >= 0")
    assert str(raised.value).endswith(f"got {value!r}")
