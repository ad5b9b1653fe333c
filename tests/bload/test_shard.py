"""Ranks' batches against each other and the data set; splitting by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packers import LENGTHS, held, made, whole

from hvd_adaptive import ConfigError
from hvd_adaptive.bload import POLICIES, pack


def rows(blocks):
    return [blocks[number].lengths.tolist() for number in range(len(blocks))]


@settings(max_examples=150)
@given(
    lengths=LENGTHS,
    size=st.integers(1, 64),
    batch_size=st.sampled_from([1, 2, 3, 8]),
    policy=st.sampled_from(list(POLICIES)),
)
def test_equal_batches_whose_union_is_the_data_set(lengths, size, batch_size, policy):
    packed = pack(lengths, 50, policy)
    shards = [packed.shard(rank, size, batch_size) for rank in range(size)]
    first = shards[0]
    assert {shard.blocks.hash for shard in shards} == {first.blocks.hash}
    assert {len(shard) for shard in shards} == {len(first.blocks) // (size * batch_size)}
    assert {len(batch) for shard in shards for batch in shard} <= {batch_size}
    drawn = [int(number) for shard in shards for batch in shard for number in batch]
    assert sorted(drawn) == list(range(len(first.blocks)))
    assert held(first.blocks, drawn) == whole(lengths)
    assert len(first.blocks) == len(packed) + first.split + first.empty < len(packed) + size * batch_size


@given(lengths=LENGTHS, size=st.integers(1, 64), batch_size=st.integers(1, 4))
def test_blocks_are_empty_only_when_no_other_can_be_split(lengths, size, batch_size):
    shard = pack(lengths, 50).shard(0, size, batch_size)
    sizes = [len(row) for row in rows(shard.blocks)]
    assert sizes.count(0) == shard.empty
    assert not shard.empty or max(sizes, default=0) <= 1
    assert 0 not in sizes[: len(sizes) - shard.empty]


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=30), size=st.integers(1, 8), batch_size=st.integers(1, 3))
def test_empty_blocks_are_shared_out(lengths, size, batch_size):
    shards = [pack(lengths, 9).shard(rank, size, batch_size) for rank in range(size)]
    numbers = [sum(shard.blocks.filled[batch].astype(bool).sum() for batch in shard) for shard in shards]
    assert max(numbers) - min(numbers) <= 1


@pytest.mark.parametrize(
    ("given_rows", "size", "expected", "split", "empty"),
    [
        ([[1, 2], [3]], 2, [[1, 2], [3]], 0, 0),
        ([[1, 2], [3]], 3, [[1], [2], [3]], 1, 0),
        ([[4, 4], [3, 2, 1], [5]], 4, [[4, 4], [3], [2, 1], [5]], 1, 0),  # the last that can be split, in equal halves
        ([[7, 1, 1, 1]], 2, [[7], [1, 1, 1]], 1, 0),
        ([[1, 1, 1, 7]], 2, [[1, 1, 1], [7]], 1, 0),
        ([[1, 1, 1, 1, 1]], 4, [[1], [1], [1], [1, 1]], 3, 0),
        ([[1, 2], [3]], 8, [[1], [2], [3], [], [], [], [], []], 1, 5),
        ([[3]], 2, [[3], []], 0, 1),
        ([[3], [], [4]], 2, [[3], [4]], 0, 0),
        ([], 5, [], 0, 0),
    ],
)
def test_splitting_by_hand(given_rows, size, expected, split, empty):
    shard = made(given_rows).shard(0, size, 1)
    assert rows(shard.blocks) == expected
    assert (shard.split, shard.empty) == (split, empty)


def test_what_was_sharded_stays_as_it_was():
    packed = pack([1, 2, 3, 4], 10)
    before = packed.hash
    packed.shard(0, 7, 1)
    assert packed.hash == before
    assert rows(packed) != rows(packed.shard(0, 7, 1).blocks)


@given(lengths=LENGTHS, size=st.integers(1, 9), done=st.integers(0, 9), resized=st.integers(1, 64))
def test_what_is_left_after_some_batches_is_left_to_any_number_of_ranks(lengths, size, done, resized):
    shards = [pack(lengths, 50).shard(rank, size, 2) for rank in range(size)]
    done = min(done, len(shards[0]))
    seen = held(shards[0].blocks, [number for shard in shards for batch in shard[:done] for number in batch])
    rests = {shard.rest(done).hash: shard.rest(done) for shard in shards}
    assert len(rests) == 1
    rest = rests.popitem()[1]
    again = [rest.shard(rank, resized, 1) for rank in range(resized)]
    left = held(again[0].blocks, [number for shard in again for batch in shard for number in batch])
    assert seen.keys().isdisjoint(left)
    assert seen | left == whole(lengths)


def test_the_same_ranks_go_on_with_the_same_batches():
    shards = [pack(range(1, 41), 50, seed=3).shard(rank, 3, 2) for rank in range(3)]
    assert len(shards[0]) == 3
    for shard in shards:
        again = shard.rest(1).shard(shard.rank, 3, 2)
        assert [held(again.blocks, batch) for batch in again] == [held(shard.blocks, batch) for batch in shard[1:]]


def test_a_shard_is_a_sequence():
    shard = pack([5] * 12, 5).shard(1, 2, 2)
    assert len(shard) == 3
    assert [batch.tolist() for batch in shard] == [[1, 3], [5, 7], [9, 11]]
    assert shard[-1].tolist() == shard[2].tolist()
    assert [batch.tolist() for batch in shard[1:]] == [[5, 7], [9, 11]]
    with pytest.raises(IndexError):
        shard[3]


@given(lengths=LENGTHS, size=st.integers(1, 9), batch_size=st.integers(1, 3))
def test_every_rank_knows_how_much_all_have(lengths, size, batch_size):
    shards = [pack(lengths, 50).shard(rank, size, batch_size) for rank in range(size)]
    found = [[sum(int(shard.blocks.filled[number]) for number in batch) for batch in shard] for shard in shards]
    assert shards[0].filled.shape == (len(shards[0]), size)
    assert shards[-1].filled.T.tolist() == found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((2, 2, 1), r"rank must be a whole number from 0 to 1 \(size is 2\), got 2"),
        ((-1, 2, 1), "rank must be"),
        ((0, 0, 1), "size must be a whole number from 1"),
        ((0, 1, 0), "batch_size must be a whole number from 1"),
        ((0, 1, 2.0), "batch_size must be"),
        ((True, 2, 1), "rank must be"),
    ],
)
def test_bad_input(arguments, said):
    with pytest.raises(ConfigError, match=said):
        pack([1, 2]).shard(*arguments)


@pytest.mark.parametrize("done", [-1, 4, 1.5])
def test_more_batches_than_there_are_cannot_be_done(done):
    with pytest.raises(ConfigError, match="done must be a whole number from 0 to 3"):
        pack([5] * 12, 5).shard(1, 2, 2).rest(done)


def test_a_million_sequences_are_sharded_without_a_copy():
    packed = pack(np.ones(1_000_000, np.int32), 7)
    shard = packed.shard(63, 64, 8)
    assert len(shard) == 280  # 142,858 blocks by 512, rounded up
    assert shard.empty == 0
    assert np.shares_memory(shard.blocks.ids, packed.ids)
