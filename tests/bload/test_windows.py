"""The agreement of N ranks in one process: as many steps for all, and no more than the longest stream needs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_adaptive import ConfigError
from hvd_adaptive.bload import Batches, OpenBlocks, Report, Window, next_window


class Rank:
    """One rank that reads, reports and takes, as bindings do."""

    def __init__(self, lengths, block_length, batch_size):
        self.lengths = iter(lengths)
        self.blocks = OpenBlocks(block_length, 3)
        self.batches = Batches(block_length, batch_size)
        self.ended = False
        self.taken = []

    def report(self, enough):
        while not self.ended and len(self.batches) < enough:
            length = next(self.lengths, None)
            self.ended = length is None
            self.batches.add(self.blocks.flush() if self.ended else self.blocks.put(length))
        return Report(len(self.batches), self.ended)


def run(streams, batch_size, window, block_length=10):
    """All ranks to the end of the longest stream."""
    ranks = [Rank(lengths, block_length, batch_size) for lengths in streams]
    last = False
    while not last:
        steps, last = next_window([rank.report(window * batch_size) for rank in ranks], batch_size)
        for rank in ranks:
            rank.taken += rank.batches.take(steps)
    return ranks


STREAMS = st.lists(st.lists(st.integers(1, 10), max_size=40), min_size=1, max_size=5)


@settings(max_examples=200)
@given(streams=STREAMS, batch_size=st.integers(1, 3), window=st.integers(1, 4))
def test_equal_full_batches_with_every_sequence_once(streams, batch_size, window):
    ranks = run(streams, batch_size, window)
    assert len({len(rank.taken) for rank in ranks}) == 1
    for lengths, rank in zip(streams, ranks, strict=True):
        assert {len(batch) for batch in rank.taken} <= {batch_size}
        blocks = [filled.block for batch in rank.taken for filled in batch]
        found = [pair for block in blocks for pair in zip(block.ids.tolist(), block.lengths.tolist(), strict=True)]
        assert sorted(found) == list(enumerate(lengths))
        assert len(rank.batches) == 0


@settings(max_examples=200)
@given(streams=STREAMS, batch_size=st.integers(1, 3), window=st.integers(1, 4))
def test_no_more_steps_than_the_rank_with_most_blocks_needs(streams, batch_size, window):
    ranks = run(streams, batch_size, window)
    full = [sum(filled.block.ids.size > 0 for batch in rank.taken for filled in batch) for rank in ranks]
    steps = len(ranks[0].taken)
    assert steps == max(-(-blocks // batch_size) for blocks in full)
    for blocks, rank in zip(full, ranks, strict=True):
        sizes = [filled.block.ids.size for batch in rank.taken for filled in batch]
        assert 0 not in sizes[:blocks], "empty blocks come last"
        assert rank.batches.stats.empty == steps * batch_size - blocks


@given(streams=STREAMS, batch_size=st.integers(1, 3), window=st.integers(1, 4))
def test_counts_are_those_of_what_was_taken(streams, batch_size, window):
    for lengths, rank in zip(streams, run(streams, batch_size, window), strict=True):
        stats = rank.batches.stats
        assert stats.blocks == batch_size * len(rank.taken)
        assert stats.elements == sum(lengths)
        assert stats.padding == 10 * stats.blocks - sum(lengths)
        assert stats.windows >= 1


@pytest.mark.parametrize(
    ("reports", "batch_size", "expected"),
    [
        ([(8, False), (8, False)], 2, Window(4, False)),
        ([(8, False), (11, False)], 2, Window(4, False)),  # splitting a long sequence brings more than was asked for
        ([(3, True), (8, False)], 2, Window(4, False)),
        ([(90, True), (8, False)], 2, Window(4, False)),
        ([(3, True), (8, True)], 2, Window(4, True)),
        ([(3, True), (9, True)], 2, Window(5, True)),
        ([(0, True), (1, True)], 2, Window(1, True)),
        ([(0, True), (0, True)], 2, Window(0, True)),
    ],
)
def test_by_hand(reports, batch_size, expected):
    assert next_window([Report(*report) for report in reports], batch_size) == expected


def test_a_stream_that_goes_on_must_bring_a_batch():
    with pytest.raises(ConfigError, match="must report a batch of 3 or more"):
        next_window([Report(2, False), Report(9, True)], 3)


def test_a_long_stream_is_taken_in_order_and_a_window_at_a_time():
    (rank,) = run([[10] * 9], batch_size=2, window=2)
    assert [[filled.block.ids.tolist() for filled in batch] for batch in rank.taken] == [
        [[0], [1]],
        [[2], [3]],
        [[4], [5]],
        [[6], [7]],
        [[8], []],
    ]
    assert rank.batches.stats.windows == 3


def test_empty_blocks_do_not_share_their_arrays():
    (batch,) = Batches(10, 2).take(1)
    first, second = (filled.block for filled in batch)
    assert not any(a is b for a, b in zip(first, second, strict=True))
    assert batch[0].contents == []


def test_bad_input():
    with pytest.raises(ConfigError, match="batch_size must be a whole number from 1"):
        Batches(10, 0)
