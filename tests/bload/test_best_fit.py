"""Against best fit decreasing one sequence at a time, and against the fewest blocks there can be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packers import LENGTHS, best_fit_decreasing, fewest, held, whole

from hvd_adaptive.bload import pack


@settings(max_examples=100)
@given(lengths=LENGTHS, block_length=st.integers(40, 100), most=st.sampled_from([None, 1, 2, 3, 50]))
def test_as_many_blocks_as_one_by_one(lengths, block_length, most):
    blocks = pack(lengths, block_length, max_sequences_per_block=most)
    assert len(blocks) == best_fit_decreasing(lengths, block_length, most)


@settings(max_examples=100)
@given(lengths=st.lists(st.integers(1, 12), max_size=8))
def test_optimal_where_best_fit_is(lengths):
    best = fewest(lengths, 12)
    blocks = pack(lengths, 12)
    assert len(blocks) >= best
    if best_fit_decreasing(lengths, 12) == best:
        assert len(blocks) == best


@pytest.mark.parametrize(
    ("lengths", "block_length", "number"),
    [([6, 5, 5, 4], 10, 2), ([3] * 10, 10, 4), ([10] * 3, 10, 3), ([7, 3, 6, 4, 5, 5], 10, 3), ([1] * 95, 94, 2), ([94], 94, 1)],
)
def test_by_hand(lengths, block_length, number):
    assert len(pack(lengths, block_length)) == number


def test_more_sequences_than_a_histogram_would_need():
    lengths = np.random.default_rng(0).integers(1, 301, 4000).tolist()
    assert len(pack(lengths, 300)) == best_fit_decreasing(lengths, 300)


def test_long_blocks_need_no_table_as_long():
    lengths = [2**30, 2**29, 2**29, 1]
    assert len(pack(lengths, 2**30)) == 3


def test_neither_blocks_nor_what_is_in_them_are_sorted_by_length():
    lengths = np.random.default_rng(1).integers(1, 65, 5000)
    blocks = pack(lengths, 256)
    longest = np.maximum.reduceat(blocks.lengths, blocks.indptr[:-1])
    assert abs(np.corrcoef(np.arange(len(blocks)), longest)[0, 1]) < 0.1
    first = blocks.lengths[blocks.indptr[:-1]]
    assert first.mean() < longest.mean() - 10


def test_which_sequence_of_a_length_goes_where_is_chance():
    """Two of four equal sequences share a block: each of the three pairs as often."""
    partners = [0, 0, 0, 0]
    for epoch in range(900):
        blocks = pack([5, 5, 5, 5], 10, epoch=epoch)
        held_together = next(set(blocks[number].ids.tolist()) for number in range(2) if 0 in blocks[number].ids)
        partners[(held_together - {0}).pop()] += 1
    assert all(225 < count < 375 for count in partners[1:]), partners  # 5 standard deviations are 71


@given(lengths=LENGTHS)
def test_every_sequence_is_there_once(lengths):
    assert held(pack(lengths, 64)) == whole(lengths)
