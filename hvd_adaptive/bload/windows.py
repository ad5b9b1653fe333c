"""How many batches of a stream all ranks run before they talk again, so that none runs one that another does not.

A rank whose stream goes on has a whole window of batches before it reports, so ranks wait for the slowest source and for nothing
else. Empty blocks come only from ranks whose stream ended before another's.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hvd_adaptive import checks
from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.stream import Filled
from hvd_adaptive.errors import ConfigError


class Report(NamedTuple):
    """What one rank can give to the next window.

    Attributes:
        blocks: closed and waiting.
        ended: True if no more will come; then its open blocks are among them.
    """

    blocks: int
    ended: bool


class Window(NamedTuple):
    """What all ranks run before they report again.

    Attributes:
        steps: batches, on every rank.
        last: True if no rank has anything left after them.
    """

    steps: int
    last: bool


def next_window(reports: Sequence[Report], batch_size: int) -> Window:
    """The same on every rank, for it depends on what all of them reported and on nothing else.

    While any stream goes on, as many steps as all of those can fill; ranks whose stream ended give what they have, then empty
    blocks. Once all have ended, as many as the rank with the most blocks needs.

    Args:
        reports: of all ranks.
        batch_size: blocks in a batch.

    Raises:
        ConfigError: if a rank whose stream goes on has not even one batch, for then all would wait for ever.
    """
    running = [report.blocks // batch_size for report in reports if not report.ended]
    if not running:
        return Window(max(-(-report.blocks // batch_size) for report in reports), last=True)
    if min(running) < 1:
        raise ConfigError(f"a rank whose stream goes on must report a batch of {batch_size} or more blocks, got {list(reports)}")
    return Window(min(running), last=False)


@dataclass(frozen=True)
class StreamStats:
    """What one rank's stream came to so far.

    Attributes:
        sequences: read from it.
        overlong: of them longer than a block.
        deleted: their elements that were truncated or dropped.
        blocks: given out, empty ones among them.
        empty: given out with nothing in them, because another rank had more.
        elements: given out that are no padding.
        padding: given out that are.
        windows: that ranks agreed on.
    """

    sequences: int = 0
    overlong: int = 0
    deleted: int = 0
    blocks: int = 0
    empty: int = 0
    elements: int = 0
    padding: int = 0
    windows: int = 0


class Batches:
    """One rank's closed blocks, waiting to be given out in batches.

    Args:
        block_length: elements of a block.
        batch_size: blocks in a batch.
    """

    def __init__(self, block_length: int, batch_size: int) -> None:
        self._block_length = block_length
        self._batch_size = checks.count("Batches", "batch_size", batch_size)
        self._waiting: deque[Filled] = deque()
        self.stats = StreamStats()
        """Of what was given out; who fills knows the rest."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, filled: Iterable[Filled]) -> None:
        """Blocks that were closed, in the order in which they are given out."""
        self._waiting.extend(filled)

    def take(self, steps: int) -> list[list[Filled]]:
        """``steps`` full batches, the last of them of empty blocks where too few wait."""
        wanted = steps * self._batch_size
        taken = [self._waiting.popleft() for _ in range(min(wanted, len(self._waiting)))]
        empty = wanted - len(taken)
        elements = sum(int(filled.block.lengths.sum()) for filled in taken)
        self.stats = replace(
            self.stats,
            blocks=self.stats.blocks + wanted,
            empty=self.stats.empty + empty,
            elements=self.stats.elements + elements,
            padding=self.stats.padding + wanted * self._block_length - elements,
            windows=self.stats.windows + 1,
        )
        taken += [_empty() for _ in range(empty)]
        return [taken[first : first + self._batch_size] for first in range(0, wanted, self._batch_size)]


def _empty() -> Filled:
    return Filled(Block(*(np.zeros(0, np.int32) for _ in Block._fields)), [])
