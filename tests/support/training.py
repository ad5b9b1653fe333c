"""A small model trained on every rank, each on its own data, the same way in every test."""

from collections.abc import Callable
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn

Compress = Callable[[nn.Module], Any]
"""Builds the ``compression=`` object for a model."""


def model(seed: int = 1) -> nn.Module:
    """About 4,000 parameters in six tensors; the same on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 40), nn.Tanh(), nn.Linear(40, 5))


def batches(steps: int, rank: int, *, first: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs f32[16, 20] and targets i64[16] that differ by rank and step."""
    found = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(1000 * rank + step)
        found.append(
            (torch.randn(16, 20, generator=generator), torch.randint(0, 5, (16,), generator=generator)),
        )
    return found


def optimizer_for(module: nn.Module, compression: Any, **options: Any) -> Any:
    """SGD with momentum under Horovod."""
    inner = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    if compression is not None:
        options["compression"] = compression
    return hvd.DistributedOptimizer(inner, named_parameters=module.named_parameters(), **options)


def train(module: nn.Module, optimizer: Any, steps: int, *, first: int = 0) -> None:
    """Plain training, one backward pass a step."""
    for inputs, targets in batches(steps, hvd.rank(), first=first):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        optimizer.step()


def flat(module: nn.Module) -> torch.Tensor:
    """All parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


def trained(compress: Compress | None, steps: int = 20, **options: Any) -> tuple[torch.Tensor, Any]:
    """Parameters after training from scratch, and the compression object; None is stock Horovod."""
    module = model()
    compression = None if compress is None else compress(module)
    train(module, optimizer_for(module, compression, **options), steps)
    return flat(module), compression
