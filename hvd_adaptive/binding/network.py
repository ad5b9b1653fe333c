"""What the network of a set of ranks takes, measured with collectives of theirs."""

import math
import time

import numpy as np

from hvd_adaptive.binding.collective import RankSet
from hvd_adaptive.exchange import Network
from hvd_adaptive.ops import Ops

WORDS = 2**17
"""Of 8 bytes, in the long gathers: a MiB."""
_TIMES = 5
_SHORTEST = 1e-9
"""Seconds. A clock that saw none pass would mean no end of bandwidth."""


def measured(ops: Ops, collective: RankSet, label: str) -> Network:
    """The network, the same on every rank: the mean of what each measured, to the nearest power of two.

    Collective, of two ranks at least. Takes as long as six gathers of a MiB from each.

    Args:
        ops: the backend.
        collective: the ranks.
        label: names the collectives; the same on every rank.
    """

    def seconds(words: int) -> float:
        """The least of a few, for what else ranks do only adds to it; all of the first."""
        taken = []
        for number in range(1 + _TIMES):
            array = ops.from_numpy(np.zeros(words, np.int64))
            start = time.perf_counter()
            collective.wait(collective.start("gather", array, f"{label}.network.{words}.{number}"))
            taken.append(time.perf_counter() - start)
        return min(taken[1:])

    others = collective.size - 1
    short, long = seconds(1), seconds(WORDS)
    own = np.array([short / others, max(_SHORTEST, long - short) / (others * 8 * WORDS)])
    told = collective.wait(collective.start("gather", ops.from_numpy(own.view(np.int64)), f"{label}.network"))
    latency, per_byte = np.asarray(ops.to_numpy(told)).view(np.float64).reshape(-1, 2).T.tolist()
    return Network(_rounded(latency), 1 / _rounded(per_byte))


def _rounded(values: list[float]) -> float:
    """So that runs on the same network mostly find the same."""
    return float(2.0 ** round(math.log2(math.fsum(values) / len(values))))
