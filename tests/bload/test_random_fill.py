"""Against what the paper's rule says of any block, and of how often each choice comes."""

import collections
import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from packers import LENGTHS, held, whole

from hvd_adaptive.bload import pack
from hvd_adaptive.bload.draws import Draws
from hvd_adaptive.bload.layout import Limit
from hvd_adaptive.bload.random_fill import random_fill


@given(lengths=LENGTHS, block_length=st.integers(40, 90), most=st.sampled_from([None, 1, 3]))
def test_no_sequence_that_came_later_would_have_fitted(lengths, block_length, most):
    """Of any two blocks that may take more, the one that was closed first had no room for the shortest of the other."""
    blocks = pack(lengths, block_length, "random", max_sequences_per_block=most)
    assert held(blocks) == whole(lengths)
    found = [blocks[number].lengths.tolist() for number in range(len(blocks))]
    for one, other in itertools.combinations([inside for inside in found if most is None or len(inside) < most], 2):
        assert block_length - sum(one) < min(other) or block_length - sum(other) < min(one)


def first_picks(lengths, limit, times=3000):
    """How often each sequence comes first in the only block it can come first in."""
    counts = collections.Counter()
    for epoch in range(times):
        order, _ = random_fill(np.array(lengths, np.int32), limit, Draws(0, epoch))
        counts[int(order[0])] += 1
    return counts


def test_each_length_is_as_likely_however_many_sequences_have_it_and_each_sequence_of_a_length():
    counts = first_picks([2, 3, 3, 3, 3], Limit(14))
    assert abs(counts[0] - 1500) < 140  # 5 standard deviations
    assert all(abs(counts[number] - 375) < 91 for number in range(1, 5)), counts


def test_only_lengths_that_fit_are_picked():
    """After 5 only a 2 fits, after 2 either, after two 2 no 5."""
    for epoch in range(30):
        blocks = pack([5, 5, 2, 2], 7, "random", epoch=epoch)
        assert {tuple(sorted(blocks[number].lengths.tolist())) for number in range(len(blocks))} <= {(2, 5), (2, 2), (5,)}


def test_blocks_come_in_random_order():
    """What was left over, here the sequences too long for company, is not always last."""
    last = [len(pack([6, 6, 6, *[1] * 4], 10, "random", epoch=epoch)[-1].ids) for epoch in range(60)]
    assert {1} < set(last)
