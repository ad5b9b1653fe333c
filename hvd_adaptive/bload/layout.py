"""What policies are given and give back."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from hvd_adaptive.bload.draws import I32, I64, Draws, ordered


class Limit(NamedTuple):
    """What one block may hold.

    Attributes:
        length: elements.
        sequences: of them at most; None for any number.
    """

    length: int
    sequences: int | None = None


class Layout(NamedTuple):
    """Which sequences are in which block.

    Attributes:
        order: ``i32[n]``, a permutation of the sequences, block after block.
        indptr: ``i64[blocks + 1]``; block b holds ``order[indptr[b]:indptr[b + 1]]``.
    """

    order: I32
    indptr: I64


Policy: TypeAlias = Callable[[I32, Limit, Draws], Layout]
"""From lengths ``i32[n]``, each from 1 to the limit's, to a layout."""


def bounds_of(counts: I32 | I64) -> I64:
    """``i64[blocks + 1]``: where blocks of so many sequences begin, and where the last ends."""
    bounds = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds


def shuffled_blocks(block_of: I32, ranks: I32 | None, draws: Draws) -> Layout:
    """Blocks in random order.

    Args:
        block_of: ``i32[n]``, each sequence's block; every block up to the last holds one.
        ranks: ``i32[n]``, a permutation; within a block, sequences go by it. None for ``range(n)``.
        draws: for the order of the blocks.

    Returns:
        A layout whose ``order`` holds the ranks.
    """
    places = draws.permutation(int(block_of.max(initial=-1)) + 1)[block_of]
    return Layout(ordered(places, ranks), bounds_of(np.bincount(places)))
