"""Oracle: the definition in doubles, with draws of the scalar generator."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_oracle import uniform
from vectors import DTYPES, draw, expected_levels, sent, usual_vectors, vectors

from hvd_adaptive import ConfigError, TernGrad
from hvd_adaptive.feedback import NoFeedback


@given(x=vectors())
def test_the_largest_magnitude_and_codes(ops, x):
    result = sent(ops, TernGrad(), x)
    codes, scale = result.fields
    largest = max(abs(e) for e in x.tolist())
    assert scale.tolist() == [largest]
    assert result.bits[0] == 2
    assert set(codes.tolist()) <= {0, 1, 2}
    level, certain = expected_levels(x, np.repeat(scale, x.size), 1, uniform(draw().own, x.size))
    np.testing.assert_array_equal((codes.astype(int) - 1)[certain], (level * np.sign(x))[certain])
    assert result.y.tolist() == [largest * (int(c) - 1) for c in codes]


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_of_the_largest_magnitude_always_survive_and_zeros_never_do(ops, dtype):
    x = np.array([-2, 2, 0, 0], dtype)
    for step in range(10):
        np.testing.assert_array_equal(sent(ops, TernGrad(), x, draw(step)).y, x)


@given(x=usual_vectors(), clip=st.sampled_from([1, 1.5, 2.5]))
def test_clipping_cuts_to_a_multiple_of_the_root_mean_square(ops, x, clip):
    result = sent(ops, TernGrad(clip), x)
    codes, scale = result.fields
    wide = x.astype(np.float64)
    bound = clip * math.sqrt(math.fsum(wide**2) / x.size)
    expected = min(bound, np.abs(wide).max())
    np.testing.assert_allclose(scale, [expected], rtol=4 * np.finfo(x.dtype).eps)
    cut = np.clip(wide, -expected, expected)
    level, certain = expected_levels(cut, np.full(x.size, expected), 1, uniform(draw().own, x.size))
    np.testing.assert_array_equal((codes.astype(int) - 1)[certain], (level * np.sign(x))[certain])
    beyond = np.abs(wide) > bound * (1 + 1e-6)
    np.testing.assert_array_equal(result.y[beyond], (np.sign(x) * scale[0])[beyond])


def test_clipping_by_hand(ops):
    """Root mean square 5: a lone 10 among 4 is cut to 1.5 times that, and so certain; under 2.5 times nothing is cut."""
    x = np.array([-10, 0, 0, 0], np.float32)
    np.testing.assert_array_equal(sent(ops, TernGrad(1.5), x).y, [-7.5, 0, 0, 0])
    np.testing.assert_array_equal(sent(ops, TernGrad(2.5), x).y, x)


def test_only_own_draws_decide(ops):
    x = np.linspace(-1, 1, 200).astype(np.float32)
    for method in (TernGrad(), TernGrad(1.5)):
        codes = sent(ops, method, x).fields[0].tolist()
        assert codes == sent(ops, method, x).fields[0].tolist()
        assert codes == sent(ops, method, x, draw()._replace(shared=draw(1).shared)).fields[0].tolist()
        assert codes != sent(ops, method, x, draw(rank=1)).fields[0].tolist()


def test_what_others_may_rely_on():
    assert not TernGrad().biased
    assert TernGrad(2.5).biased
    assert TernGrad().feedback == TernGrad(2.5).feedback == NoFeedback()
    assert TernGrad().shared_by == "max"
    assert TernGrad(3) == TernGrad(clip=3.0)


@pytest.mark.parametrize("clip", [0, 0.5, -1, float("nan"), float("inf"), "2.5", True, [2.5]])
def test_refuses_a_bad_clip(clip):
    with pytest.raises(ConfigError) as raised:
        TernGrad(clip)
    assert str(raised.value).startswith("TernGrad: clip must be a finite number >= 1")
    assert str(raised.value).endswith(f"got {clip!r}")
