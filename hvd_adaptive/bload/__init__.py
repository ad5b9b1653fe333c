"""BLoad: variable-length sequences packed into blocks of equal length, as many for every rank. Needs nothing but numpy.

Example:
    >>> blocks = pack([5, 3, 2, 4], block_length=7)
    >>> len(blocks), blocks.padding, blocks.padding_zero_pad
    (2, 0, 6)
    >>> [len(blocks.shard(rank, size=2, batch_size=1)) for rank in range(2)]
    [1, 1]
"""

from hvd_adaptive.bload.blocks import Block, Blocks
from hvd_adaptive.bload.epoch import Cut, Epoch, Options
from hvd_adaptive.bload.oversize import OVERLONG
from hvd_adaptive.bload.pack import POLICIES, pack
from hvd_adaptive.bload.shard import Shard
from hvd_adaptive.bload.stream import Filled, OpenBlocks
from hvd_adaptive.bload.tables import Tables, tables
from hvd_adaptive.bload.windows import Batches, Report, StreamStats, Window, next_window

__all__ = [
    "OVERLONG",
    "POLICIES",
    "Batches",
    "Block",
    "Blocks",
    "Cut",
    "Epoch",
    "Filled",
    "OpenBlocks",
    "Options",
    "Report",
    "Shard",
    "StreamStats",
    "Tables",
    "Window",
    "next_window",
    "pack",
    "tables",
]
