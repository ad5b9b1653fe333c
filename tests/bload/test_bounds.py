"""Against the fewest blocks by brute force, the formula term by term, and examples where the bound is reached."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packers import LENGTHS, best_fit_decreasing, fewest

from hvd_adaptive.bload import POLICIES, pack
from hvd_adaptive.bload.bounds import ceil_bound, l2_bound, most_sequences
from hvd_adaptive.bload.layout import Limit


def l2_by_definition(lengths, block_length):
    best = 0
    for a in range(block_length // 2 + 1):
        alone = sum(length > block_length - a for length in lengths)
        apart = [length for length in lengths if block_length / 2 < length <= block_length - a]
        small = sum(length for length in lengths if a <= length <= block_length / 2)
        room = len(apart) * block_length - sum(apart)
        best = max(best, alone + len(apart) + max(0, math.ceil((small - room) / block_length)))
    return best


@given(lengths=LENGTHS, block_length=st.integers(40, 90))
def test_l2_is_its_definition_and_ceil_a_division(lengths, block_length):
    array, limit = np.array(lengths, np.int32), Limit(block_length)
    assert l2_bound(array, limit) == l2_by_definition(lengths, block_length)
    assert ceil_bound(array, limit) == math.ceil(sum(lengths) / block_length)


@settings(max_examples=100)
@given(lengths=st.lists(st.integers(1, 12), max_size=8))
def test_no_packing_is_below_the_bounds(lengths):
    array, limit = np.array(lengths, np.int32), Limit(12)
    assert ceil_bound(array, limit) <= l2_bound(array, limit) <= fewest(lengths, 12)


@given(lengths=LENGTHS, policy=st.sampled_from(list(POLICIES)), most=st.sampled_from([None, 1, 2, 5]))
def test_no_policy_is_below_the_bounds(lengths, policy, most):
    blocks = pack(lengths, 40, policy, max_sequences_per_block=most)
    assert blocks.lower_bound_ceil <= blocks.lower_bound_l2 <= len(blocks)


@pytest.mark.parametrize(
    ("lengths", "ceil", "l2"),
    [
        ([], 0, 0),
        ([10], 1, 1),
        ([6, 6, 6], 2, 3),  # two never share
        ([6, 6, 5, 5], 3, 3),
        ([7, 7, 4, 4, 4], 3, 4),  # 4 fits beside no 7, and two of three share: the bound is reached
        ([5, 5, 5, 5], 2, 2),
        ([9, 2, 9, 2], 3, 3),
    ],
)
def test_by_hand(lengths, ceil, l2):
    array, limit = np.array(lengths, np.int32), Limit(10)
    assert (ceil_bound(array, limit), l2_bound(array, limit)) == (ceil, l2)
    assert best_fit_decreasing(lengths, 10) == l2


def test_the_number_of_sequences_bounds_too():
    blocks = pack([1] * 10, 100, max_sequences_per_block=3)
    assert blocks.lower_bound_ceil == blocks.lower_bound_l2 == len(blocks) == 4


def test_sums_beyond_four_bytes():
    assert ceil_bound(np.full(10, 2**31 - 1, np.int32), Limit(2**31 - 1)) == 10
    assert l2_bound(np.full(10, 2**31 - 1, np.int32), Limit(2**31 - 1)) == 10


@given(lengths=LENGTHS, limit=st.none() | st.integers(1, 9), policy=st.sampled_from(list(POLICIES)))
def test_no_block_holds_more_than_the_most_sequences(lengths, limit, policy):
    most = most_sequences(np.array(lengths, np.int32), Limit(40, limit))
    assert all(block.ids.size <= most for block in pack(lengths, 40, policy, max_sequences_per_block=limit))
    shortest = sorted(lengths)
    assert sum(shortest[:most]) <= 40
    assert most == (limit or len(lengths) + 1) or sum(shortest[: most + 1]) > 40 or most >= len(lengths)


def test_the_most_sequences_by_hand():
    for lengths, limit, most in [([5, 1, 9, 4], None, 3), ([5, 1, 9, 4], 2, 2), ([10], None, 1), ([], None, 1), ([11], None, 1)]:
        assert most_sequences(np.array(lengths, np.int32), Limit(10, limit)) == most
