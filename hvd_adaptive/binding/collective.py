"""The ranks of a Horovod process set, whichever framework reduces among them."""

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from horovod.common.process_sets import ProcessSet

from hvd_adaptive.collective import Kind
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.ops import Array


class RankSet(ABC):
    """Named collectives among the ranks of a process set: :class:`hvd_adaptive.collective.Collective`.

    Args:
        hvd: Horovod's module for the framework, such as ``horovod.torch``.
        process_set: a Horovod process set.

    Raises:
        ConfigError: if Horovod was not initialised, or the process set was not added to it.
    """

    def __init__(self, hvd: Any, process_set: ProcessSet) -> None:
        if not hvd.is_initialized():
            raise ConfigError("Horovod is not initialised; call hvd.init() first")
        if not isinstance(process_set, ProcessSet):
            raise ConfigError(f"process_set must be one from hvd.add_process_set(), got {process_set!r}")
        if process_set.process_set_id is None:
            raise ConfigError(f"{process_set} is not known to Horovod; pass it to hvd.init() or hvd.add_process_set() first")
        self.process_set = process_set
        self.world = int(hvd.size())
        """Number of ranks, members or not."""
        self.world_rank = int(hvd.rank())
        """This rank among them."""
        self.ranks = [int(rank) for rank in process_set.ranks or range(self.world)]
        """Global ranks of the members."""
        self.member = bool(process_set.included())
        """True if this rank is in the process set."""
        self.rank = int(process_set.rank()) if self.member else -1
        """This rank's place among the members; -1 if it is none."""
        self.size = len(self.ranks)
        self.on_mpi = bool(hvd.mpi_enabled() and hvd.mpi_threads_supported())
        """True if Horovod runs on an MPI that others may call at the same time."""

    @abstractmethod
    def start(self, kind: Kind, x: Array, name: str, splits: tuple[int, ...] = ()) -> Any: ...

    @abstractmethod
    def wait(self, handle: Any) -> Array: ...


T = TypeVar("T", bound=RankSet)


def joined(collective: T, owner: str) -> T:
    """``collective``, of which this rank must be a member.

    Raises:
        ConfigError: if it is none.
    """
    if not collective.member:
        raise ConfigError(
            f"{owner}: rank {collective.world_rank} is not in its process set, which holds ranks {collective.ranks}; call it on "
            "those only"
        )
    return collective
