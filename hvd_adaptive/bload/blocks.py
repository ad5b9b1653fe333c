"""Blocks of equal length, and which sequences are in them."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hvd_adaptive import checks
from hvd_adaptive.bload.bounds import ceil_bound, l2_bound
from hvd_adaptive.bload.draws import I32, I64
from hvd_adaptive.bload.layout import Limit, bounds_of
from hvd_adaptive.bload.shard import Shard, divide
from hvd_adaptive.errors import ConfigError


class Block(NamedTuple):
    """What one block holds, in this order; padding follows.

    Attributes:
        ids: ``i32[k]``, of sequences.
        offsets: ``i32[k]``, the first element of the sequence that is in the block; above 0 only where a sequence was split.
        lengths: ``i32[k]``, elements in the block.
    """

    ids: I32
    offsets: I32
    lengths: I32


@dataclass(frozen=True, eq=False)
class Blocks:
    """Sequences packed into blocks; block b holds entries ``indptr[b]`` to ``indptr[b + 1]`` of the arrays, which are read-only.

    Args:
        block_length: elements of each block, with its padding.
        ids: ``i32[n]``, of sequences.
        offsets: ``i32[n]``, where in its sequence an entry starts.
        lengths: ``i32[n]``, elements of an entry.
        indptr: ``i64[blocks + 1]``, rising from 0 to n; a block whose ends are the same is empty.
        max_sequences_per_block: or None.
        overlong: sequences that were longer than a block.
        deleted: elements that were truncated or dropped.

    Raises:
        ConfigError: if the arrays do not fit each other, or a block holds more than it can.
    """

    block_length: int
    ids: I32
    offsets: I32
    lengths: I32
    indptr: I64
    max_sequences_per_block: int | None = None
    overlong: int = 0
    deleted: int = 0

    def __post_init__(self) -> None:
        n = self.ids.size
        rising = self.indptr.size > 0 and bool((np.diff(self.indptr) >= 0).all())
        if not (rising and self.indptr[0] == 0 and self.offsets.size == self.lengths.size == n == self.indptr[-1]):
            raise ConfigError("Blocks: ids, offsets and lengths must be as many, and indptr rise from 0 to their number")
        over = self.filled > self.block_length
        if n and (over.any() or self.lengths.min() < 1):
            raise ConfigError(
                f"Blocks: every length must be 1 or more, and those of a block {self.block_length} in all, got "
                f"{self.filled.max()} in block {int(np.argmax(self.filled))} and a least length of {self.lengths.min()}"
            )
        for array in (self.ids, self.offsets, self.lengths, self.indptr, self.filled):
            array.setflags(write=False)

    def __len__(self) -> int:
        return self.indptr.size - 1

    def __getitem__(self, index: int) -> Block:
        number = range(len(self))[index]  # so that -1 is the last, and too large an index an IndexError
        part = slice(int(self.indptr[number]), int(self.indptr[number + 1]))
        return Block(self.ids[part], self.offsets[part], self.lengths[part])

    def reset_table(self, block: int) -> I64:
        """Where in the block each of its sequences starts, ``i64[k]``; state carried from one to the next is reset there."""
        return bounds_of(self[block].lengths)[:-1]

    @cached_property
    def filled(self) -> I64:
        """Elements in each block that are no padding, ``i64[blocks]``."""
        return np.diff(bounds_of(self.lengths)[self.indptr])

    @property
    def padding(self) -> int:
        """Elements of padding in all blocks."""
        return len(self) * self.block_length - int(self.filled.sum())

    @property
    def padding_zero_pad(self) -> int:
        """Elements of padding if each entry were padded to the longest one instead."""
        return self.lengths.size * int(self.lengths.max(initial=0)) - int(self.filled.sum())

    @property
    def lower_bound_ceil(self) -> int:
        """Blocks that any packing takes: all elements over the block length, rounded up."""
        return ceil_bound(self.lengths, self._limit)

    @property
    def lower_bound_l2(self) -> int:
        """Blocks that any packing takes: Martello and Toth's bound, never below :attr:`lower_bound_ceil`."""
        return l2_bound(self.lengths, self._limit)

    @property
    def _limit(self) -> Limit:
        return Limit(self.block_length, self.max_sequences_per_block)

    @cached_property
    def hash(self) -> str:
        """32 hexadecimal digits; ranks whose blocks differ in anything have different ones."""
        digest = hashlib.blake2b(f"{self.block_length} {self.ids.size} {len(self)}".encode(), digest_size=16)
        for array in (self.ids, self.offsets, self.lengths, self.indptr):
            digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data)
        return digest.hexdigest()

    def after(self, start: int) -> "Blocks":
        """The blocks from ``start`` on, without the empty ones.

        Raises:
            ConfigError: if there are fewer blocks than that.
        """
        start = checks.count("Blocks.after", "start", start, len(self), "the number of blocks that are done", least=0)
        ends = self.indptr[start:]
        part = slice(int(ends[0]), None)
        kept = ends[np.concatenate([np.ones(1, np.bool_), np.diff(ends) > 0])] - ends[0]
        return self._with(kept, part)

    def shard(self, rank: int, size: int, batch_size: int) -> Shard:
        """The batches of one rank: as many full ones on every rank, every sequence in exactly one of them.

        Where their number does not divide, blocks of several sequences are split, the last first; only then empty ones are added.

        Raises:
            ConfigError: if ``rank`` is none of ``size``, or one of them is no whole number.
        """
        size = checks.count("Blocks.shard", "size", size)
        rank = checks.count("Blocks.shard", "rank", rank, size - 1, f"size is {size}", least=0)
        batch_size = checks.count("Blocks.shard", "batch_size", batch_size)
        ends = self.after(0).indptr
        indptr, split, empty = divide(ends, self.lengths, size * batch_size)
        return Shard(self._with(indptr), rank, size, batch_size, split, empty)

    def _with(self, indptr: I64, part: slice = slice(None)) -> "Blocks":
        """Other blocks of the same entries, or of a part of them."""
        return Blocks(
            self.block_length,
            self.ids[part],
            self.offsets[part],
            self.lengths[part],
            indptr,
            self.max_sequences_per_block,
            self.overlong,
            self.deleted,
        )
