"""Oracles of packing, one sequence at a time and slow: none of them knows a histogram or an array."""

import numpy as np
from hypothesis import strategies as st

from hvd_adaptive.bload import Blocks

LENGTHS = st.one_of(
    st.lists(st.integers(1, 40), max_size=60),
    st.lists(st.just(7), max_size=40),
    st.lists(st.just(1), max_size=40),
    st.lists(st.integers(1, 5), max_size=30).map(lambda rest: [40, *rest]),
    st.lists(st.sampled_from([1, 13, 14, 20, 21, 40]), max_size=60),
)
"""Of any kind, all equal, all 1, one giant, around a third and half of a block of 40; also none at all."""


def best_fit_decreasing(lengths, block_length, most=None):
    """Number of blocks; of those with equal room, the one that may take the fewest more is filled first."""
    blocks = []  # (room, sequences that still may come)
    for length in sorted(lengths, reverse=True):
        fitting = [block for block in blocks if block[0] >= length and block[1] > 0]
        best = min(fitting, default=None)
        if best is None:
            best = (block_length, most or len(lengths))
        else:
            blocks.remove(best)
        blocks.append((best[0] - length, best[1] - 1))
    return len(blocks)


def fewest(lengths, block_length):
    """The least number of blocks, by trying every way to put one sequence after the other."""
    best = [len(lengths)]

    def put(number, rooms):
        if len(rooms) >= best[0]:
            return
        if number == len(lengths):
            best[0] = len(rooms)
            return
        for room in {room for room in rooms if room >= lengths[number]}:
            rest = list(rooms)
            rest.remove(room)
            put(number + 1, [*rest, room - lengths[number]])
        put(number + 1, [*rooms, block_length - lengths[number]])

    put(0, [])
    return best[0]


def held(blocks, numbers=None):
    """Which parts of sequences blocks hold: ``{id: [(start, end), ...]}`` in order of their starts."""
    parts = {}
    for number in range(len(blocks)) if numbers is None else numbers:
        for sequence, offset, length in zip(*blocks[number], strict=True):
            parts.setdefault(int(sequence), []).append((int(offset), int(offset + length)))
    return {sequence: sorted(found) for sequence, found in parts.items()}


def whole(lengths):
    """What :func:`held` must find if every sequence is whole and there once."""
    return {number: [(0, length)] for number, length in enumerate(lengths)}


def made(rows, block_length=10, **fields):
    """Blocks of whole sequences with the lengths in ``rows``, numbered from 0."""
    lengths = np.array([length for row in rows for length in row], np.int32)
    indptr = np.array([sum(len(row) for row in rows[:number]) for number in range(len(rows) + 1)], np.int64)
    return Blocks(block_length, np.arange(lengths.size, dtype=np.int32), np.zeros_like(lengths), lengths, indptr, **fields)
