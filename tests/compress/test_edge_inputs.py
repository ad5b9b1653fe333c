"""Every method on gradients that break careless arithmetic: nothing turns into NaN, and payloads are what they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vectors import DTYPES, draw, sent, usual_vectors, vectors

from hvd_adaptive.compress import NAMES, QSGD, USUAL, EFSign, PowerSGD, SignSGD, TernGrad, Threshold
from hvd_adaptive.compress.levels import Levels

METHODS = [*USUAL, QSGD(1, norm="max"), QSGD(200, norm="max", bucket=3), EFSign(2), PowerSGD(1), TernGrad(clip=1), Threshold(0)]
every_method = pytest.mark.parametrize("method", METHODS, ids=repr)


def test_every_method_is_here():
    assert {type(method) for method in METHODS} == set(NAMES.values())


@every_method
@given(x=vectors())
def test_what_is_finite_stays_finite(ops, method, x):
    """But float16, where the method sends that and x is too large for it."""
    with np.errstate(over="ignore"):
        fits = type(method).__name__ != "Half" or np.isfinite(x.astype(np.float16)).all()
    y = sent(ops, method, x).y
    assert not np.isnan(y).any()
    assert np.isfinite(y).all() == fits


@every_method
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 40, 400])
def test_zero_in_zero_out(ops, method, dtype, n):
    assert not sent(ops, method, np.zeros(n, dtype)).y.any()


@every_method
@pytest.mark.parametrize("value", [1.0, -0.75, 1e-40, 2.0**-149, 2.0**100])
def test_an_element_alone_keeps_its_sign(ops, method, value):
    x = np.array([value], np.float32)
    assert sent(ops, method, x).y[0] * np.sign(value) >= 0


@every_method
def test_an_array_that_is_not_contiguous_is_read_in_row_major_order(ops, method):
    wide = np.arange(-60, 60, dtype=np.float32).reshape(10, 12) / 7
    given_one, plain = ops.flatten(ops.from_numpy(wide).T), ops.from_numpy(np.array(wide.T).reshape(-1))
    results = [ops.to_numpy(method.decode(ops, method.encode(ops, x, draw()), draw())) for x in (given_one, plain)]
    np.testing.assert_array_equal(results[0], results[1])


@every_method
@given(x=usual_vectors(least=30), weight=st.sampled_from([1.0, 0.5, -2.0]))
def test_decoding_onto_a_vector_adds_and_keeping_back_subtracts(ops, method, x, weight):
    """Up to the rounding of a product and a sum."""
    y = sent(ops, method, x).y.astype(np.float64)
    onto = np.linspace(-3, 3, x.size).astype(x.dtype)
    payload = method.encode(ops, ops.from_numpy(x), draw())
    found = ops.to_numpy(method.decode(ops, payload, draw(), ops.from_numpy(onto), weight))
    near = 4 * np.finfo(x.dtype).eps * (np.abs(weight * y).max() + 3 + np.abs(x).max())
    np.testing.assert_allclose(found, onto.astype(np.float64) + weight * y, rtol=0, atol=near)
    alone = ops.to_numpy(method.decode(ops, payload, draw(), None, weight))
    np.testing.assert_allclose(alone, weight * y, rtol=0, atol=near)
    vector = ops.from_numpy(x)
    payload = method.encode(ops, vector, draw())
    np.testing.assert_allclose(ops.to_numpy(method.keep_back(ops, vector, payload, draw())), x - y, rtol=0, atol=near)


@every_method
@given(x=usual_vectors())
def test_the_same_draw_gives_the_same_bits(ops, method, x):
    one, again = (sent(ops, method, x) for _ in range(2))
    assert [field.tobytes() for field in one.fields] == [field.tobytes() for field in again.fields]
    assert one.y.tobytes() == again.y.tobytes()


@pytest.mark.parametrize("method", [m for m in METHODS if isinstance(m, Levels) or m.feedback.remembers == ()], ids=repr)
@given(x=vectors())
def test_no_element_changes_its_sign(ops, method, x):
    y = sent(ops, method, x).y
    if not isinstance(method, (SignSGD, EFSign)) or np.all(x != 0):
        assert np.all(np.sign(y) * np.sign(x) >= 0)
