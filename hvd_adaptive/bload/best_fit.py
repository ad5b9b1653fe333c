"""Best fit decreasing: the longest sequences first, each into the open block where it leaves least room.

Contract  as many blocks as best fit decreasing over all sequences one by one: for many, at most 11/9 of the fewest possible.
Source    Johnson, Demers, Ullman, Garey, Graham 1974, SIAM J. Comput. 3(4) (the bound); Krell, Kosec, Perez, Fitzgibbon 2021,
          arXiv:2107.02027 (packing a histogram of lengths instead of sequences).
Differs   open blocks are told apart by the room they have left, not by what is in them, so their kinds stay few; which of the
          sequences of a length goes where is random, and so are the orders of blocks and within them.
"""

from bisect import bisect_left, insort

import numpy as np

from hvd_adaptive.bload.draws import I32, Draws, ordered
from hvd_adaptive.bload.layout import Layout, Limit, shuffled_blocks


def best_fit(lengths: I32, limit: Limit, draws: Draws) -> Layout:
    """Pack ``lengths i32[n]``, each from 1 to the limit's."""
    shuffle = draws.permutation(lengths.size)
    shuffled = lengths[shuffle]
    falling = ordered(limit.length - shuffled)  # the longest first, those of a length in random order
    order, indptr = shuffled_blocks(_Open(limit).fill(shuffled[falling]), falling, draws)
    return Layout(shuffle[order], indptr)


class _Open:
    """Open blocks by the room left in them, and what went where.

    A kind of block is one number, room times ``base`` plus the sequences it may still take, so that kinds sort by room. The first
    kind with room for a length fits it best, and a block of that kind stays the best fit until the length no longer fits.
    """

    def __init__(self, limit: Limit) -> None:
        self.most = limit.sequences or 0
        self.base = self.most + 1
        self.fresh = limit.length * self.base + self.most
        self.kinds: list[int] = []
        self.blocks: dict[int, list[I32]] = {}
        self.opened = 0
        self.targets: list[I32] = []
        self.times: list[int] = []

    def fill(self, lengths: I32) -> I32:
        """The block of each sequence ``i32[n]``; ``lengths i32[n]`` never rise."""
        starts = np.concatenate([np.zeros(min(lengths.size, 1), np.int64), np.flatnonzero(lengths[1:] != lengths[:-1]) + 1])
        counts = np.diff(starts, append=lengths.size)
        for length, count in zip(lengths[starts].tolist(), counts.tolist(), strict=True):
            self._place(length, count)
        if not self.targets:
            return np.zeros(0, np.int32)
        each = np.repeat(np.array(self.times, np.int32), [target.size for target in self.targets])
        return np.repeat(np.concatenate(self.targets), each)

    def _place(self, length: int, left: int) -> None:
        """Put ``left`` sequences of ``length`` into open blocks, then into new ones."""
        first = at = bisect_left(self.kinds, length * self.base)
        changed: list[tuple[int, I32]] = []
        while left and at < len(self.kinds):
            kind = self.kinds[at]
            chunks = self.blocks.pop(kind)
            left = self._take(chunks[0] if len(chunks) == 1 else np.concatenate(chunks), kind, length, left, changed)
            at += 1
        del self.kinds[first:at]
        if left:
            needed = -(-left // self._fitting(self.fresh, length))
            new = np.arange(self.opened, self.opened + needed, dtype=np.int32)
            self.opened += needed
            self._take(new, self.fresh, length, left, changed)
        for kind, blocks in changed:
            if kind in self.blocks:
                self.blocks[kind].append(blocks)
            else:
                insort(self.kinds, kind)
                self.blocks[kind] = [blocks]

    def _fitting(self, kind: int, length: int) -> int:
        """How many sequences of ``length`` a block takes."""
        room, slots = divmod(kind, self.base)
        return min(room // length, slots) if self.most else room // length

    def _take(self, blocks: I32, kind: int, length: int, left: int, changed: list[tuple[int, I32]]) -> int:
        """Fill ``blocks`` of one kind, noting in ``changed`` what kinds they become; returns how many sequences are left."""
        each = self._fitting(kind, length)
        whole, over = divmod(left, each)
        whole = min(whole, blocks.size)
        part = int(over > 0 and whole < blocks.size)
        for chosen, times in ((blocks[:whole], each), (blocks[whole : whole + part], over), (blocks[whole + part :], 0)):
            if not chosen.size:
                continue
            if times:
                self.targets.append(chosen)
                self.times.append(times)
            after = kind - times * (length * self.base + (self.most > 0))
            if after >= self.base and (not self.most or after % self.base):  # else it is full
                changed.append((after, chosen))
        return left - whole * each - part * over
