"""What becomes of sequences that are longer than a block: error, split, truncate or drop, always counted."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hvd_adaptive.bload.draws import I32
from hvd_adaptive.bload.layout import bounds_of
from hvd_adaptive.bload.lengths import MOST
from hvd_adaptive.errors import ConfigError


class Pieces(NamedTuple):
    """What is packed: sequences, or parts of them.

    Attributes:
        ids: ``i32[n]``, the sequence each comes from.
        offsets: ``i32[n]``, where in that sequence it starts.
        lengths: ``i32[n]``, none above the block length.
    """

    ids: I32
    offsets: I32
    lengths: I32


def _error(lengths: I32, block_length: int) -> Pieces:
    over = lengths > block_length
    if over.any():
        first = int(np.argmax(over))
        raise ConfigError(
            f"lengths[{first}] is {lengths[first]}, longer than block_length={block_length} (in all {int(over.sum())} are); "
            f"give overlong='split', 'truncate' or 'drop', or a block_length of {lengths.max()}, which is what None takes"
        )
    return Pieces(np.arange(lengths.size, dtype=np.int32), np.zeros_like(lengths), lengths)


def _split(lengths: I32, block_length: int) -> Pieces:
    numbers = -(-lengths.astype(np.int64) // block_length)
    firsts = bounds_of(numbers)
    if firsts[-1] > MOST:
        raise ConfigError(f"block_length={block_length} splits the sequences into {firsts[-1]} pieces; {MOST} are possible")
    ids = np.repeat(np.arange(lengths.size, dtype=np.int32), numbers)
    offsets = ((np.arange(ids.size) - firsts[ids]) * block_length).astype(np.int32)
    return Pieces(ids, offsets, np.minimum(lengths[ids] - offsets, block_length).astype(np.int32))


def _truncate(lengths: I32, block_length: int) -> Pieces:
    ids = np.arange(lengths.size, dtype=np.int32)
    return Pieces(ids, np.zeros_like(lengths), np.minimum(lengths, block_length).astype(np.int32))


def _drop(lengths: I32, block_length: int) -> Pieces:
    ids = np.flatnonzero(lengths <= block_length).astype(np.int32)
    return Pieces(ids, np.zeros_like(ids), lengths[ids])


OVERLONG: dict[str, Callable[[I32, int], Pieces]] = {"error": _error, "split": _split, "truncate": _truncate, "drop": _drop}
"""From lengths ``i32[n]`` and the block length to pieces that fit; ``error`` raises a ConfigError unless all do."""
