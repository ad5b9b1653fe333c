"""Nothing changes, to the bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hvd_adaptive import Identity
from hvd_adaptive.prng import Draw, Key

DRAW = Draw(Key(1, 2), Key(3, 4))


@given(x=st.sampled_from(["float16", "float32", "float64"]).flatmap(lambda d: hnp.arrays(d, st.integers(1, 40))))
def test_every_bit_arrives(ops, x):
    """NaN payloads, subnormals and the sign of zero too."""
    payload = Identity().encode(ops, ops.from_numpy(x), DRAW)
    assert ops.to_numpy(Identity().decode(ops, payload, DRAW)).tobytes() == x.tobytes()
    assert payload.kept == x.size


def test_nothing_is_copied_and_nothing_kept_back(ops):
    x = ops.from_numpy(np.array([1.0, -2.0]))
    payload = Identity().encode(ops, x, DRAW)
    assert payload.fields[0].array is x
    kept = Identity().keep_back(ops, x, payload, DRAW)
    np.testing.assert_array_equal(ops.to_numpy(kept), [0, 0])
    np.testing.assert_array_equal(ops.to_numpy(x), [1, -2])  # it may be travelling


@pytest.mark.parametrize("weight", [0.5, -2.0])
def test_a_weighted_copy_leaves_the_payload_alone(ops, weight):
    payload = Identity().encode(ops, ops.from_numpy(np.array([2.0, -4.0])), DRAW)
    y = Identity().decode(ops, payload, DRAW, weight=weight)
    np.testing.assert_array_equal(ops.to_numpy(y), [2 * weight, -4 * weight])
    np.testing.assert_array_equal(ops.to_numpy(payload.fields[0].array), [2, -4])


def test_is_summed_by_default():
    assert Identity().exchanges == ("reduce", "gather", "two-sided")
    assert Identity().carries_all
    assert not Identity().biased
    assert Identity().omega(10) == 0
