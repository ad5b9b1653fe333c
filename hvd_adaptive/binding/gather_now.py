"""Small exchanges past Horovod's queue, over a communicator of their own, where Horovod runs on MPI.

Exact agreement waits for one before a step's gradients are sent.
"""

import importlib.util
from typing import Any

import numpy as np

from hvd_adaptive.binding.collective import RankSet
from hvd_adaptive.steering import Floats, GatherNow


def mpi_works(collective: RankSet) -> bool:
    """True if :func:`communicator` can be called."""
    # Horovod's thread calls MPI at the same time, so MPI must allow for that.
    if not (collective.on_mpi and importlib.util.find_spec("mpi4py")):
        return False
    from mpi4py import MPI  # noqa: PLC0415 - it starts MPI where Horovod does without

    return bool(MPI.COMM_WORLD.size == collective.world)  # else Horovod was given a communicator of its own


def communicator(collective: RankSet) -> Any:
    """Among the ranks of ``collective``, all of which must call this; whoever needs it no more calls its ``Free``."""
    from mpi4py import MPI  # noqa: PLC0415 - it starts MPI where Horovod does without

    return MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.Get_group().Incl(collective.ranks))


def gather_now(collective: RankSet) -> GatherNow | None:
    """Over mpi4py among the ranks of ``collective``, all of which must call this; None where that cannot be."""
    if not mpi_works(collective):
        return None
    group = communicator(collective)

    def gather(own: Floats) -> Floats:
        gathered = np.empty(len(own) * collective.size, np.float64)
        group.Allgather(own, gathered)
        return gathered

    return gather
