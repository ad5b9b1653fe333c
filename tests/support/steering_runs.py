"""Runs under a controller, and what tests compare of them."""

from typing import Any

import torch
from torch import nn
from training import building, flat, model, optimizer_for, train

from hvd_adaptive import GraVAC, Memory, StepRecord


def gravac(**changes: Any) -> GraVAC:
    """One whose decisions change within 50 steps, and do not depend on time."""
    usual: dict[str, Any] = {
        "min_factor": 4,
        "max_factor": 64,
        "epsilon": 0.5,
        "gain": "energy",
        "omega": 1e-12,
        "window": 10,
        "every": 4,
        "probe_dense": False,
    }
    return GraVAC(**(usual | changes))


def started(scope: str, compressor: Any, controller: Any, **options: Any) -> tuple[nn.Module, Any, Any]:
    """A model, its compression object and its optimizer; ``momentum`` is SGD's, ``horovod`` what its optimizer takes."""
    horovod, dtype = options.pop("horovod", {}), options.pop("dtype", torch.float32)
    module = model().to(dtype)
    compression = building(scope, compressor, controller=controller, **options)(module)
    return module, compression, optimizer_for(module, compression, **horovod)


def steered(scope: str, compressor: Any, controller: Any, steps: int = 50, **options: Any) -> tuple[torch.Tensor, Any, Any]:
    """Parameters after ``steps``, the records and the compression object."""
    memory = Memory()
    module, compression, optimizer = started(scope, compressor, controller, monitor=memory, **options)
    train(module, optimizer, steps, passes=options.get("horovod", {}).get("backward_passes_per_step", 1))
    return flat(module), memory.records, compression


def decided(records: list[StepRecord]) -> list[tuple[Any, ...]]:
    """What the controller decided and saw, by step and unit; the factor is what was sent, which may differ by rank for DGC."""
    return sorted((r.step, r.unit, r.branch, r.candidate or 0.0, sorted(r.gains.items())) for r in records)


def factors(records: list[StepRecord]) -> list[tuple[int, str, float]]:
    """Elements / kept elements, by step and unit."""
    return sorted((r.step, r.unit, r.factor) for r in records)


class Poison:
    """Makes one rank's gradient NaN in the given steps: the hook runs before Horovod sees the gradient."""

    def __init__(self, module: nn.Module, here: bool, steps: set[int]) -> None:
        self.step = -1
        self._here, self._steps = here, steps
        for parameter in module.parameters():
            parameter.register_hook(self._hook)

    def _hook(self, gradient: torch.Tensor) -> torch.Tensor:
        return torch.full_like(gradient, torch.nan) if self._here and self.step in self._steps else gradient
