"""Oracle: positions of the scalar generator, values by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_oracle import sample
from vectors import draw, sent, usual_vectors

from hvd_adaptive import ConfigError, RandomK
from hvd_adaptive.feedback import NoFeedback, Residual


def rounded(n, factor):
    return min(n, max(1, int(n / factor + 0.5)))


@given(x=usual_vectors(), factor=st.sampled_from([1, 1.5, 2, 4, 7, 100]))
def test_what_is_kept_is_multiplied_by_n_over_k(ops, x, factor):
    n, k = x.size, rounded(x.size, factor)
    result = sent(ops, RandomK(factor, unbiased=True), x)
    kept = list(range(n)) if k == n else list(sample(draw().shared, k, n))
    assert ops.to_numpy(result.payload.support).tolist() == kept
    np.testing.assert_array_equal(result.fields[0], x[kept])  # as it was: the receiver multiplies
    expected = np.zeros(n)
    expected[kept] = x[kept].astype(np.float64) * n / k
    np.testing.assert_allclose(result.y, expected, rtol=4 * np.finfo(x.dtype).eps, atol=0)


@given(x=usual_vectors(), factor=st.sampled_from([1, 2, 4, 100]), unbiased=st.booleans())
def test_keeping_back_takes_out_what_was_decoded(ops, x, factor, unbiased):
    method, vector = RandomK(factor, unbiased), ops.from_numpy(x)
    payload = method.encode(ops, vector, draw())
    y = ops.to_numpy(method.decode(ops, payload, draw())).copy()
    kept = ops.to_numpy(method.keep_back(ops, vector, payload, draw()))
    largest = np.abs(x).max() * factor
    np.testing.assert_allclose(kept, x.astype(np.float64) - y, rtol=0, atol=2 * np.finfo(x.dtype).eps * largest)


@pytest.mark.parametrize(("unbiased", "left"), [(False, 0), (True, -3)])
def test_keeping_back_by_hand(ops, unbiased, left):
    """Two of eight: four times what was kept is taken out, or it itself."""
    x, method = np.arange(1, 9, dtype=np.float32), RandomK(4, unbiased)
    vector, kept = ops.from_numpy(x), list(sample(draw().shared, 2, 8))
    expected = x.copy()
    expected[kept] *= left
    payload = method.encode(ops, vector, draw())
    np.testing.assert_array_equal(ops.to_numpy(method.keep_back(ops, vector, payload, draw())), expected)


@pytest.mark.parametrize("unbiased", [False, True])
def test_positions_depend_on_shared_draws_only(ops, unbiased):
    x, method = np.arange(1, 301, dtype=np.float32), RandomK(10, unbiased)
    y = sent(ops, method, x).y.tolist()
    assert y == sent(ops, method, x, draw(rank=3)).y.tolist()
    assert y != sent(ops, method, x, draw(1)._replace(own=draw().own)).y.tolist()


@pytest.mark.parametrize("unbiased", [False, True])
def test_weights_and_sums(ops, unbiased):
    x, onto = np.arange(1, 9, dtype=np.float64), np.full(8, 100.0)
    method = RandomK(4, unbiased)
    payload = method.encode(ops, ops.from_numpy(x), draw())
    y = ops.to_numpy(method.decode(ops, payload, draw(), ops.from_numpy(onto), 0.5))
    expected = onto.copy()
    kept = list(sample(draw().shared, 2, 8))
    expected[kept] += 0.5 * x[kept] * (4 if unbiased else 1)
    np.testing.assert_array_equal(y, expected)


def test_what_others_may_rely_on():
    assert (RandomK(2).biased, RandomK(2, unbiased=True).biased) == (True, False)
    assert (RandomK(2).feedback, RandomK(2, unbiased=True).feedback) == (Residual(), NoFeedback())
    assert (RandomK(4).omega(8), RandomK(4, True).omega(8)) == (-0.75, 3)
    assert (RandomK(3).omega(5), RandomK(3, True).omega(5)) == (2 / 5 - 1, 1.5)


@pytest.mark.parametrize("unbiased", [0, 1, None, "yes"])
def test_refuses_what_is_no_flag(unbiased):
    with pytest.raises(ConfigError) as raised:
        RandomK(2, unbiased=unbiased)
    assert str(raised.value) == f"RandomK: unbiased must be True or False, got {unbiased!r}"
