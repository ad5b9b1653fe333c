"""Oracle: counting votes, and means in doubles; coins of the scalar generator."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_oracle import uniform
from vectors import DTYPES, draw, sent, vectors

from hvd_adaptive import ConfigError, SignSGD
from hvd_adaptive.feedback import NoFeedback, Residual


def oracle_signs(x, streams):
    coins = uniform(streams.own, x.size)
    return np.array([(1 if u < 0.5 else -1) if e == 0 else (1 if e > 0 else -1) for e, u in zip(x.tolist(), coins, strict=True)])


@given(x=vectors())
def test_unscaled_every_element_becomes_its_sign(ops, x):
    result = sent(ops, SignSGD(), x)
    expected = oracle_signs(x, draw()) if x.any() else np.zeros(x.size)
    np.testing.assert_array_equal(result.y, expected)
    assert result.fields[1].tolist() == [float(x.any())]
    assert result.bits[0] == 1


@given(x=vectors())
def test_scaled_it_is_times_the_mean_magnitude(ops, x):
    result = sent(ops, SignSGD(scaled=True), x)
    mean = math.fsum(abs(e) for e in x.tolist()) / x.size
    unit = np.finfo(x.dtype)
    np.testing.assert_allclose(result.y, mean * oracle_signs(x, draw()), rtol=2 * unit.eps, atol=unit.smallest_subnormal)
    assert result.bits[0] == 1


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_unit_of_zeros_stays_zeros(ops, scaled, dtype):
    assert not sent(ops, SignSGD(scaled), np.zeros(9, dtype)).y.any()


def test_scaled_by_hand(ops):
    np.testing.assert_array_equal(sent(ops, SignSGD(True), np.array([1, -2, 6, -7], np.float32)).y, [4, -4, 4, -4])


@given(
    votes=st.integers(1, 6).flatmap(
        lambda r: st.lists(st.lists(st.sampled_from([-3.0, 2.0]), min_size=r, max_size=r), min_size=1)
    )
)
def test_the_majority_of_ranks_decides_and_a_tie_is_0(ops, votes):
    """``votes`` holds for each element what every rank has."""
    method, ranks = SignSGD(), len(votes[0])
    codes = [
        sent(ops, method, np.array(own, np.float32), draw(rank=r)).fields[0] for r, own in enumerate(zip(*votes, strict=True))
    ]
    total, one = np.sum(codes, axis=0, dtype=np.int32), np.ones(1, np.float32)
    values = ops.to_numpy(method.values(ops, ops.from_numpy(total), ops.from_numpy(one), "float32", ranks))
    expected = [(sum(e > 0 for e in own) > ranks / 2) - (sum(e < 0 for e in own) > ranks / 2) for own in votes]
    assert values.tolist() == expected


def test_elements_that_are_0_vote_at_random_by_rank(ops):
    x = np.zeros(200, np.float32)
    x[0] = 1
    codes = [sent(ops, SignSGD(), x, draw(rank=rank)).fields[0].tolist() for rank in (0, 0, 1)]
    assert codes[0] == codes[1] != codes[2]
    assert codes[0] == sent(ops, SignSGD(), x, draw()._replace(shared=draw(1).shared)).fields[0].tolist()


def test_what_others_may_rely_on():
    assert SignSGD().votes
    assert not SignSGD(True).votes
    assert SignSGD().biased
    assert SignSGD(True).biased
    assert (SignSGD().feedback, SignSGD(True).feedback) == (NoFeedback(), Residual())
    assert (SignSGD().shared_by, SignSGD(True).shared_by) == ("max", "mean")
    assert (SignSGD().omega(9), SignSGD(True).omega(9)) == (math.inf, 0)


@pytest.mark.parametrize("scaled", [0, 1, None, "yes", 1.0])
def test_refuses_what_is_no_flag(scaled):
    with pytest.raises(ConfigError) as raised:
        SignSGD(scaled)
    assert str(raised.value) == f"SignSGD: scaled must be True or False, got {scaled!r}"
