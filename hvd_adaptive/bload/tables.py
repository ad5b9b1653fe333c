"""Where each sequence of a batch of blocks lies, in the forms that models take."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hvd_adaptive import checks
from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.draws import I32, I64
from hvd_adaptive.bload.layout import bounds_of
from hvd_adaptive.errors import ConfigError


class Tables(NamedTuple):
    """Arrays over b blocks of T elements.

    Attributes:
        valid: ``bool[b, T]``, False for padding.
        starts: ``i64[b, k]``, the reset table: where in its block each sequence starts; T where a block has fewer than k.
        cu_seqlens: ``i32[s + 1]``, where in the b * T elements one after the other each segment starts, and b * T. A segment is a
            sequence or a block's padding, so that every element is in one. Where s is constant, segments of no element end it.
        position_ids: ``i64[b, T]``, each element's place in its sequence, also of a split one; 0 for padding.
        segment_ids: ``i64[b, T]``, which sequence of its block an element is of, from 1; 0 for padding.
    """

    valid: NDArray[np.bool_]
    starts: I64
    cu_seqlens: I32
    position_ids: I64
    segment_ids: I64


def tables(blocks: Sequence[Block], block_length: int, max_sequences: int | None = None) -> Tables:
    """The tables of a batch.

    Args:
        blocks: b of them, some of which may be empty.
        block_length: T.
        max_sequences: of a block: makes k this number and s ``b * (max_sequences + 1)``, whatever the blocks hold; None for as
            few as they hold.

    Raises:
        ConfigError: if a block holds more elements or sequences than that.
    """
    block_length = checks.count("tables", "block_length", block_length, 2**31 - 1)
    numbers = np.array([block.lengths.size for block in blocks], np.int64)
    filled = np.array([block.lengths.sum(dtype=np.int64) for block in blocks], np.int64)
    width = int(numbers.max(initial=0))
    if max_sequences is not None:
        width = checks.count("tables", "max_sequences", max_sequences, hint="None for as many as there are")
    _check(filled, block_length, "elements", "block_length")
    _check(numbers, width, "sequences", "max_sequences")
    if len(blocks) * block_length > np.iinfo(np.int32).max:
        raise ConfigError(f"tables: cu_seqlens counts to 2**31 - 1, got {len(blocks)} blocks of {block_length}; take fewer")
    lengths, offsets = _joined(block.lengths for block in blocks), _joined(block.offsets for block in blocks)
    rows = np.repeat(np.arange(len(blocks)), numbers)
    places = np.arange(lengths.size) - bounds_of(numbers)[rows]  # of a sequence in its block
    starts = bounds_of(lengths)[:-1] - bounds_of(filled)[rows]
    within = np.arange(lengths.sum()) - np.repeat(bounds_of(lengths)[:-1], lengths)  # of an element in its entry

    valid = np.arange(block_length) < filled[:, None]
    shape = (len(blocks), block_length)
    position_ids, segment_ids = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    position_ids[valid] = np.repeat(offsets, lengths) + within
    segment_ids[valid] = np.repeat(places + 1, lengths)
    table = np.full((len(blocks), width), block_length, np.int64)
    table[rows, places] = starts
    segments = None if max_sequences is None else len(blocks) * (width + 1)
    return Tables(
        valid, table, _cu_seqlens(rows * block_length + starts, filled, block_length, segments), position_ids, segment_ids
    )


def _cu_seqlens(firsts: I64, filled: I64, block_length: int, segments: int | None) -> I32:
    """``i32[s + 1]`` from where sequences start in all elements, and how many of them ``i64[b]`` each block holds."""
    padded = np.flatnonzero(filled < block_length)
    begins = np.sort(np.concatenate([firsts, padded * block_length + filled[padded]]))
    ends = 1 if segments is None else segments + 1 - begins.size
    return np.concatenate([begins, np.full(ends, filled.size * block_length)]).astype(np.int32)


def _joined(arrays: Iterable[I32]) -> I64:
    return np.concatenate([np.zeros(0, np.int64), *arrays])


def _check(found: I64, most: int, what: str, limit: str) -> None:
    over = found > most
    if over.any():
        index = int(np.argmax(over))
        raise ConfigError(
            f"tables: {limit} is {most}, but blocks[{index}] holds {found[index]} {what}; give at least {found.max()}, or what "
            "the sampler was given"
        )
