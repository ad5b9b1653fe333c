"""What Horovod is handed, counted where all of its public functions for torch come together."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from horovod.torch import mpi_ops


@dataclass
class Counted:
    """Counts what Horovod is handed while the block runs, where all of its public functions for torch come together."""

    calls: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, elements and bytes of every tensor."""

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, _, nbytes in self.calls)

    def __enter__(self) -> "Counted":
        self._originals = {
            name: getattr(mpi_ops, name) for name in ("_allreduce_async", "_grouped_allreduce_async", "_allgather_async")
        }
        for name, original in self._originals.items():
            setattr(mpi_ops, name, self._counting(original))
        return self

    def __exit__(self, *error: object) -> None:
        for name, original in self._originals.items():
            setattr(mpi_ops, name, original)

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def counting(given: Any, output: Any, name: str, *others: Any) -> Any:
            for tensor in [given] if isinstance(given, torch.Tensor) else given:
                self.calls.append((name, tensor.numel(), tensor.numel() * tensor.element_size()))
            return original(given, output, name, *others)

        return counting
