"""Stock Horovod as the core's network."""

from typing import Any

import horovod.torch as hvd
import torch

from hvd_adaptive.binding.collective import RankSet
from hvd_adaptive.collective import Kind

_OPS = {"mean": hvd.Average, "sum": hvd.Sum, "max": hvd.Max}


class HorovodCollective(RankSet):
    """Named collectives among the ranks of a process set.

    Args:
        process_set: a Horovod process set; all ranks by default.

    Raises:
        ConfigError: if Horovod was not initialised, or the process set was not added to it.
    """

    def __init__(self, process_set: hvd.ProcessSet = hvd.global_process_set) -> None:
        super().__init__(hvd, process_set)

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
