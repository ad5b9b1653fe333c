"""Ranks that meet over Horovod."""

import numpy as np
import torch
from numpy.typing import NDArray

from hvd_adaptive.bload import meeting
from hvd_adaptive.torch.collective import HorovodCollective


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
