"""Long sequences against what each name promises, counted by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packers import held

from hvd_adaptive import ConfigError
from hvd_adaptive.bload import OVERLONG, pack

LENGTHS = [3, 12, 5, 10, 25]


def test_error_names_the_first_and_what_to_do():
    with pytest.raises(ConfigError, match=r"lengths\[1\] is 12, longer than block_length=5 \(in all 3 are\).*'split'.*25"):
        pack(LENGTHS, 5)


@pytest.mark.parametrize(
    ("overlong", "expected", "count", "deleted"),
    [
        ("error", {0: [(0, 3)], 2: [(0, 5)]}, 0, 0),
        (
            "split",
            {
                0: [(0, 3)],
                1: [(0, 10), (10, 12)],
                2: [(0, 5)],
                3: [(0, 10)],
                4: [(0, 10), (10, 20), (20, 25)],
            },
            2,
            0,
        ),
        ("truncate", {0: [(0, 3)], 1: [(0, 10)], 2: [(0, 5)], 3: [(0, 10)], 4: [(0, 10)]}, 2, 17),
        ("drop", {0: [(0, 3)], 2: [(0, 5)], 3: [(0, 10)]}, 2, 37),
    ],
)
def test_by_hand(overlong, expected, count, deleted):
    lengths = LENGTHS if overlong != "error" else [3, 1, 5]
    blocks = pack(lengths, 10, overlong=overlong)
    assert held(blocks) == expected | ({1: [(0, 1)]} if overlong == "error" else {})
    assert (blocks.overlong, blocks.deleted) == (count, deleted)


@given(
    lengths=st.lists(st.integers(1, 60), max_size=30),
    block_length=st.integers(1, 20),
    overlong=st.sampled_from(["split", "truncate", "drop"]),
)
def test_every_element_is_held_once_or_counted_as_deleted(lengths, block_length, overlong):
    blocks = pack(lengths, block_length, overlong=overlong)
    found = held(blocks)
    for sequence, parts in found.items():
        assert parts[0][0] == 0
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(parts))
        assert parts[-1][1] == lengths[sequence] if overlong == "split" else parts[-1][1] <= block_length
    kept = sum(parts[-1][1] for parts in found.values())
    assert kept + blocks.deleted == sum(lengths)
    assert blocks.overlong == sum(length > block_length for length in lengths)
    assert blocks.filled.max(initial=0) <= block_length


def test_the_longest_sequence_fits_in_any_block():
    blocks = pack([2**31 - 1, 2**31 - 1], 2**31 - 1)
    assert len(blocks) == 2
    assert blocks.padding == 0
    pieces = pack([2**31 - 1], 2**29, overlong="split")
    assert held(pieces) == {0: [(i * 2**29, min((i + 1) * 2**29, 2**31 - 1)) for i in range(4)]}


def test_more_pieces_than_can_be_numbered_are_refused():
    with pytest.raises(ConfigError, match=r"block_length=1 splits the sequences into 4294967294 pieces; 2147483647 are possible"):
        pack([2**31 - 1, 2**31 - 1], 1, overlong="split")


def test_the_names_are_those_of_the_table():
    assert list(OVERLONG) == ["error", "split", "truncate", "drop"]
    with pytest.raises(ConfigError, match="overlong must be 'error' or 'split' or 'truncate' or 'drop', got 'cut'"):
        pack(np.array([1]), overlong="cut")
