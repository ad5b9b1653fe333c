"""Tables against what one element after the other gives, and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packers import LENGTHS, made

from hvd_adaptive import ConfigError
from hvd_adaptive.bload import pack, tables


def one_by_one(blocks, block_length):
    """Valid, position, segment of each element, where sequences start, and where segments do."""
    valid, positions, segments, starts, firsts = [], [], [], [], []
    for row, block in enumerate(blocks):
        elements, begins = [], []
        for number, (_, offset, length) in enumerate(zip(*block, strict=True), 1):
            begins.append(len(elements))
            elements += [(True, offset + place, number) for place in range(length)]
        firsts += [row * block_length + place for place in begins]
        if len(elements) < block_length:
            firsts.append(row * block_length + len(elements))
        elements += [(False, 0, 0)] * (block_length - len(elements))
        for column, values in zip((valid, positions, segments), zip(*elements, strict=True), strict=True):
            column.append(list(values))
        starts.append(begins)
    return valid, positions, segments, starts, [*firsts, len(blocks) * block_length]


@given(lengths=LENGTHS.filter(bool), block_length=st.sampled_from([1, 7, 40, 41]), size=st.integers(1, 4), more=st.integers(0, 3))
def test_as_one_element_after_the_other(lengths, block_length, size, more):
    shard = pack(lengths, block_length, overlong="split").shard(0, size, 3)
    blocks = [shard.blocks[int(number)] for number in shard[-1]]
    valid, positions, segments, starts, firsts = one_by_one(blocks, block_length)
    most = max(1, *(block.lengths.size for block in blocks)) + more
    for width in (None, most):
        found = tables(blocks, block_length, width)
        assert found.valid.tolist() == valid
        assert found.position_ids.tolist() == positions
        assert found.segment_ids.tolist() == segments
        assert [[start for start in row if start < block_length] for row in found.starts.tolist()] == starts
        cut = found.cu_seqlens[: len(firsts)]
        assert cut.tolist() == firsts
        assert set(found.cu_seqlens[len(firsts) :].tolist()) <= {len(blocks) * block_length}
    assert found.starts.shape == (3, most)
    assert found.cu_seqlens.shape == (3 * (most + 1) + 1,)


def test_by_hand():
    blocks = made([[3, 2, 4], [10], [], [6]])
    found = tables([blocks[number] for number in range(4)], 10)
    assert found.starts.tolist() == [[0, 3, 5], [0, 10, 10], [10, 10, 10], [0, 10, 10]]
    assert found.cu_seqlens.tolist() == [0, 3, 5, 9, 10, 20, 30, 36, 40]
    assert found.position_ids[0].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3, 0]
    assert found.segment_ids[0].tolist() == [1, 1, 1, 2, 2, 3, 3, 3, 3, 0]
    assert found.valid.sum(1).tolist() == [9, 10, 0, 6]
    dtypes = {name: array.dtype.name for name, array in found._asdict().items()}
    assert dtypes == {
        "valid": "bool",
        "starts": "int64",
        "cu_seqlens": "int32",
        "position_ids": "int64",
        "segment_ids": "int64",
    }


def test_split_sequences_keep_their_places():
    blocks = pack([8], 5, overlong="split")
    found = tables([blocks[0], blocks[1]], 5)
    assert sorted(found.position_ids.tolist()) == [[0, 1, 2, 3, 4], [5, 6, 7, 0, 0]]
    assert found.starts.tolist() == [[0], [0]]


def test_the_reset_table_is_that_of_the_blocks():
    blocks = made([[3, 2, 4], [10]])
    found = tables([blocks[0], blocks[1]], 10)
    assert found.starts[0].tolist() == blocks.reset_table(0).tolist()


def test_bad_input():
    blocks = [made([[3, 2, 4], [10]])[number] for number in range(2)]
    with pytest.raises(ConfigError, match=r"block_length is 9, but blocks\[1\] holds 10 elements; give at least 10"):
        tables(blocks, 9)
    with pytest.raises(ConfigError, match=r"max_sequences is 2, but blocks\[0\] holds 3 sequences; give at least 3"):
        tables(blocks, 10, 2)
    with pytest.raises(ConfigError, match="max_sequences must be a whole number from 1"):
        tables(blocks, 10, 0)
    with pytest.raises(ConfigError, match="block_length must be a whole number from 1"):
        tables(blocks, np.float64(10))
    with pytest.raises(ConfigError, match=r"got 2 blocks of 2147483647; take fewer"):
        tables(blocks, 2**31 - 1)
