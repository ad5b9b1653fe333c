"""Oracle: the definition. Which positions are chosen, and that they are uniform, is tested with the generator."""

import numpy as np
import pytest
from backends import BACKENDS, backend
from hypothesis import given
from hypothesis import strategies as st

from hvd_adaptive import ConfigError, NoFeedback, RandomK, Residual
from hvd_adaptive.prng import Draw, derive, root


def draw_of(step, rank=0):
    shared = derive(derive(root(0), step), 9)
    return Draw(shared, derive(shared, rank + 1))


def decoded(ops, method, x, step=0, rank=0):
    payload = method.encode(ops, ops.from_numpy(x), draw_of(step, rank))
    values = ops.to_numpy(payload.fields[0].array)
    assert payload.kept == values.size
    return values, ops.to_numpy(method.decode(ops, payload, draw_of(step)))


@given(n=st.integers(1, 200), factor=st.floats(1, 50), step=st.integers(0, 2**40))
def test_k_elements_arrive_as_they_were_and_the_rest_is_zero(ops, n, factor, step):
    x = np.arange(1, n + 1, dtype=np.float64)
    values, y = decoded(ops, RandomK(factor), x, step)
    assert values.size == np.count_nonzero(y)
    assert set(y[y != 0].tolist()) == set(values.tolist()) == set(x[y != 0].tolist())


@pytest.mark.parametrize(("n", "factor", "k"), [(100, 14, 7), (100, 1000, 1), (1, 100, 1), (10, 4, 3), (5, 1, 5), (3, 2, 2)])
def test_k_by_hand(ops, n, factor, k):
    """n / factor to the nearest, a half going up, and one at least."""
    values, _ = decoded(ops, RandomK(factor), np.ones(n, np.float32))
    assert values.size == k


def test_positions_are_the_same_on_every_rank_and_backend():
    """They do not travel, so values of another gradient must land where this one's would."""
    one, other = np.arange(1.0, 401.0), np.full(400, -2.0)
    for step in range(5):
        places = [
            np.flatnonzero(decoded(o, RandomK(10), x, step, rank)[1]).tolist()
            for o in map(backend, BACKENDS)
            for rank, x in enumerate((one, other))
        ]
        assert len(places) == 6
        assert all(place == places[0] for place in places)
        assert len(places[0]) == 40


def test_positions_change_with_the_step(ops):
    places = {tuple(np.flatnonzero(decoded(ops, RandomK(10), np.ones(400), step)[1])) for step in range(20)}
    assert len(places) == 20


def test_each_element_arrives_once_in_factor_steps(ops):
    """200 steps, p = 1/5: counts lie within 6 standard deviations of 40."""
    arrived = np.sum([decoded(ops, RandomK(5), np.ones(20, np.float32), step)[1] for step in range(200)], axis=0)
    assert arrived.sum() == 200 * 4
    assert np.all(np.abs(arrived - 40) < 6 * np.sqrt(200 * 0.2 * 0.8))


def test_factor_1_sends_everything_in_order(ops):
    x = np.arange(9, dtype=np.float32)
    values, y = decoded(ops, RandomK(1), x)
    np.testing.assert_array_equal(values, x)
    np.testing.assert_array_equal(y, x)


def test_may_be_summed_or_gathered_and_needs_feedback():
    assert RandomK(2).exchanges == ("reduce", "gather", "two-sided")
    assert RandomK(2).biased
    assert RandomK(2).feedback == Residual()


@pytest.mark.parametrize(("n", "factor", "k"), [(100, 14, 7), (10, 4, 3), (5, 1, 5), (8, 100, 1)])
def test_unbiased_multiplies_what_it_keeps_by_n_over_k(ops, n, factor, k):
    """The values travel as they are, so the factor is not rounded into them; what is kept back is x less n/k times them."""
    x = np.arange(1, n + 1, dtype=np.float64)
    method = RandomK(factor, unbiased=True)
    values, y = decoded(ops, method, x)
    places = np.flatnonzero(y)
    assert sorted(values.tolist()) == x[places].tolist()
    np.testing.assert_allclose(y[places], x[places] * n / k, rtol=2.0**-51, atol=0)
    payload = method.encode(ops, ops.from_numpy(x), draw_of(0))
    rest = ops.to_numpy(method.keep_back(ops, ops.from_numpy(x), payload, draw_of(0)))
    np.testing.assert_allclose(rest, x - y, rtol=0, atol=2.0**-50 * n * n)
    assert np.count_nonzero(rest) >= n - k


def test_unbiased_needs_no_feedback():
    assert not RandomK(2, unbiased=True).biased
    assert RandomK(2, unbiased=True).feedback == NoFeedback()
    assert RandomK(2, unbiased=True) != RandomK(2)


def test_omega_by_hand():
    assert RandomK(4).omega(100) == 0.25 - 1
    assert RandomK(4, unbiased=True).omega(100) == 3
    assert RandomK(1).omega(7) == RandomK(1, unbiased=True).omega(7) == 0
    assert RandomK(1000, unbiased=True).omega(10) == 9


@pytest.mark.parametrize("unbiased", [1, 0, None, "yes"])
def test_refuses_what_is_no_truth_value(unbiased):
    with pytest.raises(ConfigError) as raised:
        RandomK(2, unbiased=unbiased)
    assert str(raised.value) == f"RandomK: unbiased must be True or False, got {unbiased!r}"


@pytest.mark.parametrize("factor", [0, 0.5, -1, float("nan"), float("inf"), "10", None, True])
def test_refuses_a_bad_factor(factor):
    with pytest.raises(ConfigError) as raised:
        RandomK(factor)
    assert str(raised.value).startswith("RandomK: factor must be a finite number >= 1")
    assert str(raised.value).endswith(f"got {factor!r}")
