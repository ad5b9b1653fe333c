"""The small gather that exact agreement waits for, before a step's gradients are sent.

Where Horovod runs on MPI, it goes over a communicator of its own, past Horovod's queue; where on Gloo alone, through Horovod.
"""

import importlib.util

import horovod.torch as hvd
import numpy as np

from hvd_adaptive.steering import Floats, GatherNow
from hvd_adaptive.torch.collective import HorovodCollective


def gather_now(collective: HorovodCollective) -> GatherNow | None:
    """Over mpi4py among the ranks of ``collective``, all of which must call this; None where that cannot be."""
    # Horovod's thread calls MPI at the same time, so MPI must allow for that.
    if not (hvd.mpi_enabled() and hvd.mpi_threads_supported() and importlib.util.find_spec("mpi4py")):
        return None
    from mpi4py import MPI  # noqa: PLC0415 - it starts MPI where Horovod does without

    if MPI.COMM_WORLD.size != collective.world:  # Horovod was given a communicator of its own
        return None
    group = MPI.COMM_WORLD.Get_group().Incl(collective.ranks)
    communicator = MPI.COMM_WORLD.Create_group(group)

    def gather(own: Floats) -> Floats:
        gathered = np.empty(len(own) * collective.size, np.float64)
        communicator.Allgather(own, gathered)
        return gathered

    return gather
