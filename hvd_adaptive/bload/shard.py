"""The same number of full batches for every rank.

Source    the rule to split packs of the tail until their number divides is that of Megatron-Core's data-parallel scheduler.
Differs   a block is cut where its halves are most alike, which is one more entry of ``indptr``: no sequence moves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np

from hvd_adaptive import checks
from hvd_adaptive.bload.draws import I32, I64
from hvd_adaptive.bload.layout import bounds_of

if TYPE_CHECKING:
    from hvd_adaptive.bload.blocks import Blocks


def divide(indptr: I64, lengths: I32, multiple: int) -> tuple[I64, int, int]:
    """Make the number of blocks a multiple.

    Blocks of several sequences are split, those nearest the end first; once none is left, empty blocks are added at the end.

    Args:
        indptr: ``i64[blocks + 1]``, none of the blocks empty.
        lengths: ``i32[n]``.
        multiple: of what.

    Returns:
        The new ``indptr``, how many blocks splitting added, how many empty ones were added.
    """
    before = indptr.size - 1
    needed = -before % multiple
    ends = bounds_of(lengths)
    while needed and (several := np.flatnonzero(np.diff(indptr) > 1)[-needed:]).size:
        first, last = indptr[several], indptr[several + 1]
        middle = (ends[first] + ends[last]) // 2
        above = np.searchsorted(ends, middle)
        nearer = above - (middle - ends[above - 1] < ends[above] - middle)  # never first or last: no sequence is that long
        indptr = np.sort(np.concatenate([indptr, nearer]))
        needed -= several.size
    added = indptr.size - 1 - before
    return np.concatenate([indptr, np.repeat(indptr[-1], needed)]), added, needed


@dataclass(frozen=True, eq=False)
class Shard(Sequence[I64]):
    """One rank's batches of one epoch: a sequence of arrays ``i64[batch_size]`` of indices into ``blocks``.

    Made by :meth:`Blocks.shard`. All ranks hold as many batches; together they hold every block exactly once.

    Attributes:
        blocks: what the indices mean: the blocks that were sharded, some of them split, and empty ones at the end.
        rank: whose batches these are.
        size: number of ranks.
        batch_size: blocks in a batch.
        split: blocks that splitting added.
        empty: blocks that hold nothing but padding.
    """

    blocks: "Blocks"
    rank: int
    size: int
    batch_size: int
    split: int
    empty: int

    def __len__(self) -> int:
        return len(self.blocks) // (self.size * self.batch_size)

    @overload
    def __getitem__(self, index: int) -> I64: ...
    @overload
    def __getitem__(self, index: slice) -> list[I64]: ...
    def __getitem__(self, index: int | slice) -> I64 | list[I64]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        step = range(len(self))[index]  # so that -1 is the last, and too large an index an IndexError
        first = step * self.size * self.batch_size + self.rank
        # Ranks take turns, so that the empty blocks, which are the last, are shared out.
        return first + self.size * np.arange(self.batch_size, dtype=np.int64)

    @cached_property
    def filled(self) -> I64:
        """Elements in each batch of each rank that are no padding, ``i64[batches, size]``; every rank knows all of them."""
        filled: I64 = self.blocks.filled.reshape(len(self), self.batch_size, self.size).sum(1)
        return filled

    def rest(self, done: int) -> "Blocks":
        """The blocks that are left after every rank has done ``done`` batches, without the empty ones; shard them anew to go on.

        Raises:
            ConfigError: if there are fewer batches than that.
        """
        done = checks.count("Shard.rest", "done", done, len(self), "the number of batches", least=0)
        return self.blocks.after(done * self.size * self.batch_size)
