"""Stock Horovod as the core's network."""

from typing import Any

import horovod.torch as hvd
import torch

from hvd_adaptive.collective import Kind
from hvd_adaptive.errors import ConfigError

_OPS = {"mean": hvd.Average, "sum": hvd.Sum, "max": hvd.Max}


class HorovodCollective:
    """Named collectives among the ranks of a process set.

    Args:
        process_set: a Horovod process set; all ranks by default.

    Raises:
        ConfigError: if Horovod was not initialised, or the process set was not added to it.
    """

    def __init__(self, process_set: hvd.ProcessSet = hvd.global_process_set) -> None:
        if not hvd.is_initialized():
            raise ConfigError("Horovod is not initialised; call hvd.init() first")
        if not isinstance(process_set, hvd.ProcessSet):
            raise ConfigError(f"process_set must be one from hvd.add_process_set(), got {process_set!r}")
        if process_set.process_set_id is None:
            raise ConfigError(f"{process_set} is not known to Horovod; pass it to hvd.init() or hvd.add_process_set() first")
        self.process_set = process_set
        self.world = int(hvd.size())
        """Number of ranks, members or not."""
        self.ranks = [int(rank) for rank in process_set.ranks or range(self.world)]
        """Global ranks of the members."""
        self.member = bool(process_set.included())
        """True if this rank is in the process set."""
        self.rank = int(process_set.rank()) if self.member else -1
        """This rank's place among the members; -1 if it is none."""
        self.size = len(self.ranks)

    def start(self, kind: Kind, x: torch.Tensor, name: str, splits: tuple[int, ...] = ()) -> int:
        if kind == "gather":
            return int(hvd.allgather_async(x, name=name, process_set=self.process_set))
        if kind == "alltoall":
            return int(hvd.alltoall_async(x, torch.tensor(splits, dtype=torch.int32), name=name, process_set=self.process_set))
        return int(hvd.allreduce_async(x, name=name, op=_OPS[kind], process_set=self.process_set))

    def wait(self, handle: Any) -> torch.Tensor:
        result = hvd.synchronize(handle)
        joined: torch.Tensor = result[0] if isinstance(result, tuple) else result  # alltoall also tells the lengths
        return joined
