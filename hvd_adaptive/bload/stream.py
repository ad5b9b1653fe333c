"""Best fit of sequences as they come, their number unknown.

Contract  a sequence goes where it leaves least room, of equal rooms to the oldest block; if none has room and the bound on open
          blocks is reached, the fullest is closed. Nothing depends on what was not yet put.
Source    Csirik and Johnson 2001, "Bounded space on-line bin packing: best is better than first", Algorithmica 31 (at most 1.7
          times the fewest blocks, and a constant, from two open blocks on).
Differs   a block that is full is closed at once, which that bound allows.
"""

from bisect import bisect_left, insort
from typing import Any, NamedTuple

import numpy as np

from hvd_adaptive import checks
from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.lengths import MOST, read_one
from hvd_adaptive.bload.oversize import OVERLONG
from hvd_adaptive.errors import ConfigError


class Filled(NamedTuple):
    """A closed block.

    Attributes:
        block: what it holds.
        contents: what was put with each of its sequences, ``k`` of them.
    """

    block: Block
    contents: list[Any]


class _Piece(NamedTuple):
    sequence: int
    offset: int
    length: int
    content: Any


class OpenBlocks:
    """Packs a stream of sequences, of which it keeps no more than the open blocks hold.

    Args:
        block_length: elements of a block.
        open_blocks: that are kept open at most; more pad less, and keep more sequences waiting.
        overlong: as for :func:`hvd_adaptive.bload.pack`.
        max_sequences_per_block: or None for any number.

    Attributes:
        sequences: that were put.
        overlong: of them longer than a block.
        deleted: elements that were truncated or dropped.

    Raises:
        ConfigError: if an argument is not legal.
    """

    def __init__(
        self, block_length: int, open_blocks: int = 64, overlong: str = "error", max_sequences_per_block: int | None = None
    ) -> None:
        checks.one_of("OpenBlocks", "overlong", overlong, tuple(OVERLONG))
        self.block_length = checks.count("OpenBlocks", "block_length", block_length, MOST)
        self._most_open = checks.count("OpenBlocks", "open_blocks", open_blocks)
        self._most = MOST
        if max_sequences_per_block is not None:
            self._most = checks.count(
                "OpenBlocks", "max_sequences_per_block", max_sequences_per_block, hint="None for any number"
            )
        self._rule = overlong
        self._order: list[tuple[int, int]] = []  # (room, number) of the open blocks, so that the best fit is found by bisection
        self._held: dict[int, list[_Piece]] = {}
        self._opened = 0
        self.sequences = self.overlong = self.deleted = 0

    def put(self, length: object, content: Any = None) -> list[Filled]:
        """Put the next sequence. Returns the blocks that this closed.

        Its id is its place in the stream, counted in 31 bits.

        Args:
            length: a whole number from 1.
            content: whatever belongs to it.

        Raises:
            ConfigError: if the length is illegal, or above a block's under ``overlong="error"``; nothing was put then.
        """
        whole = read_one(length, f"sequence {self.sequences} of the stream")
        if whole <= self.block_length:
            placed = [(0, whole)]
        else:
            placed = self._cut(whole)
            self.overlong += 1
        sequence = self.sequences & MOST
        self.sequences += 1
        self.deleted += whole - sum(length for _, length in placed)
        closed: list[Filled] = []
        for offset, part in placed:
            self._place(_Piece(sequence, offset, part, content), closed)
        return closed

    def flush(self) -> list[Filled]:
        """Close all blocks, the oldest first."""
        numbers = sorted(self._held)
        self._order.clear()
        return [self._close(number) for number in numbers]

    def _cut(self, length: int) -> list[tuple[int, int]]:
        """(offset, length) of what is packed of a sequence that is too long."""
        if self._rule == "error":
            raise ConfigError(
                f"sequence {self.sequences} of the stream has length {length}, longer than block_length={self.block_length}; "
                "give overlong='split', 'truncate' or 'drop', or a larger block_length"
            )
        pieces = OVERLONG[self._rule](np.array([length], np.int32), self.block_length)
        return list(zip(pieces.offsets.tolist(), pieces.lengths.tolist(), strict=True))

    def _place(self, piece: _Piece, closed: list[Filled]) -> None:
        """Put one piece into a block, and into ``closed`` what that closes."""
        at = bisect_left(self._order, (piece.length, -1))
        if at < len(self._order):
            room, number = self._order.pop(at)
        else:
            room, number = self.block_length, self._opened
            self._opened += 1
            self._held[number] = []
        self._held[number].append(piece)
        room -= piece.length
        if room and len(self._held[number]) < self._most:
            insort(self._order, (room, number))
        else:
            closed.append(self._close(number))
        if len(self._order) > self._most_open:
            self._evict(number, closed)

    def _evict(self, newest: int, closed: list[Filled]) -> None:
        """Close the fullest block but the newest, which the sequence that came last has just opened."""
        at = 0 if self._order[0][1] != newest else 1
        closed.append(self._close(self._order.pop(at)[1]))

    def _close(self, number: int) -> Filled:
        pieces = self._held.pop(number)
        ids, offsets, lengths = (np.array([piece[field] for piece in pieces], np.int32) for field in range(3))  # i32[k] each
        return Filled(Block(ids, offsets, lengths), [piece.content for piece in pieces])
