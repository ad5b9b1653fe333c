"""An epoch as one rank runs it: its share of the blocks that are left, and how many of its batches are done."""

from typing import Any, NamedTuple

from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.epoch import Cut, Epoch
from hvd_adaptive.bload.shard import Shard


class Dealt(NamedTuple):
    """Made by :func:`deal`.

    Attributes:
        epoch: what was dealt out.
        shard: this rank's share.
        done: batches of it that are done.
    """

    epoch: Epoch
    shard: Shard
    done: int

    def after(self, done: int) -> Epoch:
        """The epoch once ``done`` batches of the share are done on every rank."""
        return self.epoch.after(Cut(self.shard.size, self.shard.batch_size, done))

    def batch(self, step: int) -> list[Block]:
        """The blocks of one batch."""
        return [self.shard.blocks[int(number)] for number in self.shard[step]]

    def described(self, done: int) -> dict[str, Any]:
        """What must be the same on every rank before the batches from ``done`` on are run, as plain values."""
        return {
            "epoch": self.epoch.number,
            "done": done,
            "batch_size": self.shard.batch_size,
            "cuts": [list(cut) for cut in self.epoch.cuts],
            **self.epoch.described,
            "hash of blocks": self.shard.blocks.hash,
        }


def deal(epoch: Epoch, rank: int, size: int, batch_size: int) -> Dealt:
    """Deal out what is left of an epoch; where as many ranks go on as before, each with what is left of its own share."""
    epoch, done = epoch.resumed(size, batch_size)
    return Dealt(epoch, epoch.left.shard(rank, size, batch_size), done)
