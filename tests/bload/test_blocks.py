"""The figures of a packing against sums in Python; what cannot be is refused."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packers import LENGTHS, held, made

from hvd_adaptive import ConfigError
from hvd_adaptive.bload import POLICIES, pack


@given(lengths=LENGTHS, policy=st.sampled_from(list(POLICIES)))
def test_figures(lengths, policy):
    blocks = pack(lengths, 50, policy)
    filled = [sum(blocks[number].lengths.tolist()) for number in range(len(blocks))]
    assert blocks.filled.tolist() == filled
    assert blocks.padding == sum(50 - used for used in filled)
    assert blocks.padding_zero_pad == sum(max(lengths) - length for length in lengths)
    assert blocks.deleted == blocks.overlong == 0


def test_a_block_and_its_reset_table_by_hand():
    blocks = made([[3, 2, 4], [], [10]])
    assert [array.tolist() for array in blocks[0]] == [[0, 1, 2], [0, 0, 0], [3, 2, 4]]
    assert [blocks.reset_table(number).tolist() for number in range(3)] == [[0, 3, 5], [], [0]]
    assert blocks[-1].ids.tolist() == blocks[np.int64(2)].ids.tolist() == [3]
    assert (len(blocks), blocks.padding, blocks.padding_zero_pad) == (3, 11, 21)
    with pytest.raises(IndexError):
        blocks[3]


def test_the_papers_zero_padding_of_action_genome():
    """7,464 sequences of 166,785 frames, at most 94: 534,831 frames of padding."""
    lengths = np.full(7464, 22)
    lengths[:4] = 94
    lengths[4 : 4 + 166_785 - int(lengths.sum())] += 1
    assert (lengths.size, lengths.sum(), lengths.max()) == (7464, 166_785, 94)
    assert pack(lengths).padding_zero_pad == 534_831


def test_arrays_are_read_only_and_four_bytes_an_entry():
    blocks = pack([3, 4])
    assert (blocks.ids.dtype, blocks.offsets.dtype, blocks.lengths.dtype, blocks.indptr.dtype) == (*["int32"] * 3, "int64")
    for array in (blocks.ids, blocks.offsets, blocks.lengths, blocks.indptr):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_the_hash_tells_every_difference():
    one = made([[3, 2], [4]])
    others = [
        made([[3], [2, 4]]),
        made([[2, 3], [4]]),
        made([[3, 2], [4], []]),
        made([[3, 2], [4]], 11),
        replace(one, ids=np.array([1, 0, 2], np.int32)),
        replace(one, offsets=np.array([0, 0, 1], np.int32)),
        made([]),
    ]
    hashes = [one.hash, *(other.hash for other in others)]
    assert len(set(hashes)) == 8
    assert all(len(text) == 32 for text in hashes)
    assert made([[3, 2], [4]]).hash == one.hash


def test_worker_processes_get_the_same():
    blocks = pack([3, 4, 5, 1], 6)
    assert pickle.loads(pickle.dumps(blocks)).hash == blocks.hash  # noqa: S301 - its own bytes, as a loader's worker gets them
    shard = pickle.loads(pickle.dumps(blocks.shard(1, 2, 1)))  # noqa: S301 - likewise
    assert shard.blocks.hash == blocks.shard(0, 2, 1).blocks.hash


def test_the_blocks_after_some():
    blocks = made([[3, 2], [], [4], [], [1, 5], []])
    assert [held(blocks.after(start)) for start in (0, 1, 3, 6)] == [
        {0: [(0, 3)], 1: [(0, 2)], 2: [(0, 4)], 3: [(0, 1)], 4: [(0, 5)]},
        {2: [(0, 4)], 3: [(0, 1)], 4: [(0, 5)]},
        {3: [(0, 1)], 4: [(0, 5)]},
        {},
    ]
    assert [len(blocks.after(start)) for start in range(7)] == [3, 2, 2, 1, 1, 0, 0]
    for start in (-1, 7, 1.0):
        with pytest.raises(ConfigError, match=r"start must be a whole number from 0 to 6"):
            blocks.after(start)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"indptr": np.array([0, 3, 2, 3])}, "indptr rise from 0 to their number"),
        ({"indptr": np.array([0, 2])}, "indptr rise"),
        ({"indptr": np.array([1, 3])}, "indptr rise"),
        ({"indptr": np.zeros(0, np.int64)}, "indptr rise"),
        ({"offsets": np.zeros(2, np.int32)}, "as many"),
        ({"lengths": np.array([3, 2], np.int32)}, "as many"),
        ({"lengths": np.array([3, 8, 4], np.int32)}, "10 in all, got 11 in block 0"),
        ({"lengths": np.array([3, 0, 4], np.int32)}, "a least length of 0"),
        ({"block_length": 4}, "4 in all, got 5 in block 0"),
    ],
)
def test_blocks_that_cannot_be_are_refused(fields, said):
    with pytest.raises(ConfigError, match=said):
        replace(made([[3, 2], [4]]), **fields)
