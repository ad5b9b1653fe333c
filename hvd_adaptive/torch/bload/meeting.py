"""Ranks that meet over Horovod."""

from typing import Any

import horovod.torch as hvd
import numpy as np
import torch
from numpy.typing import NDArray

from hvd_adaptive.bload import meeting
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.torch.collective import HorovodCollective


def joined(process_set: Any, owner: str) -> HorovodCollective:
    """The ranks of a process set.

    Raises:
        ConfigError: if Horovod does not know it, or this rank is not in it.
    """
    collective = HorovodCollective(process_set)
    if not collective.member:
        raise ConfigError(
            f"{owner}: rank {hvd.rank()} is not in its process set, which holds ranks {collective.ranks}; call it on those only"
        )
    return collective


class Meeting(meeting.Meeting):
    """Of the ranks of ``collective``, this one among them.

    Args:
        collective: the ranks.
        owner: begins every message.
        name: names the collectives; the same on every rank.
    """

    def __init__(self, collective: HorovodCollective, owner: str, name: str) -> None:
        def gather(own: NDArray[np.uint8]) -> NDArray[np.uint8]:
            heard: NDArray[np.uint8] = collective.wait(collective.start("gather", torch.from_numpy(own), name)).numpy()
            return heard

        super().__init__(owner, collective.ranks, gather)
