"""A small model trained on every rank, each on its own data, the same way in every test."""

from collections.abc import Callable
from typing import Any

import horovod.torch as hvd
import torch
from torch import nn

import hvd_adaptive.torch as hva
from hvd_adaptive.exchange import NAMES as EXCHANGES

Compress = Callable[[nn.Module], Any]
"""Builds the ``compression=`` object for a model."""


def model(seed: int = 1) -> nn.Module:
    """About 4,000 parameters in six tensors; the same on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 40), nn.Tanh(), nn.Linear(40, 5))


def building(scope: str, compressor: Any, **options: Any) -> Compress:
    """Builds objects that compress every parameter of a model; ``bucketed`` makes three buckets of :func:`model`."""
    fixed: dict[str, Any] = {"dense_below": 0}
    if scope == "bucketed":
        fixed["bucket_bytes"] = 6000

    def build(module: nn.Module) -> Any:
        return hva.compression(scope, module.named_parameters(), compressor, **(fixed | options))

    return build


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
    return distributed(inner, module, compression, **options)


def distributed(inner: torch.optim.Optimizer, module: nn.Module, compression: Any, **options: Any) -> Any:
    """``inner`` under Horovod; None for stock Horovod without compression."""
    if compression is not None:
        options["compression"] = compression
    return hvd.DistributedOptimizer(inner, named_parameters=module.named_parameters(), **options)


def loss_of(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross entropy in the dtype of the model."""
    return nn.functional.cross_entropy(module(inputs.to(next(module.parameters()).dtype)), targets)


def train(module: nn.Module, optimizer: Any, steps: int, *, first: int = 0, passes: int = 1) -> None:
    """Plain training, ``passes`` backward passes a step."""
    for step in range(first, first + steps):
        optimizer.zero_grad()
        for inputs, targets in batches(passes, hvd.rank(), first=step * passes):
            loss_of(module, inputs, targets).backward()
        optimizer.step()


def exchanges_of(compressor: Any) -> list[str]:
    """Names of the exchanges that it may use."""
    return [name for name in compressor.exchanges if name in EXCHANGES]


def residuals(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The residuals in the state of a compression object, by unit; it must remember nothing else."""
    assert all(set(memory) == {"residual"} for memory in state["memory"].values())
    return {unit: memory["residual"] for unit, memory in state["memory"].items()}


def flat(module: nn.Module) -> torch.Tensor:
    """All parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


def flat_gradient(module: nn.Module) -> torch.Tensor:
    """All gradients as one vector."""
    return torch.cat([p.grad.flatten() for p in module.parameters()]).clone()


def trained(compress: Compress | None, steps: int = 20, **options: Any) -> tuple[torch.Tensor, Any]:
    """Parameters after training from scratch, and the compression object; None is stock Horovod."""
    module = model()
    compression = None if compress is None else compress(module)
    train(module, optimizer_for(module, compression, **options), steps)
    return flat(module), compression


def attempt_soon(pool: Any, function: Callable[..., Any], *arguments: Any, seconds: float = 10.0) -> list[Any]:
    """As ``pool.attempt``, but what ranks import, and their start, takes none of the seconds."""
    pool.run(_ready)
    return pool.attempt(function, *arguments, seconds=seconds)


def refused_alike(pool: Any, kind: type[Exception], function: Callable[..., Any], *arguments: Any, seconds: float = 10.0) -> str:
    """The text of the error of that kind that every rank raised, soon, and all with the same words."""
    answers = attempt_soon(pool, function, *arguments, seconds=seconds)
    assert [type(answer) for answer in answers] == [kind] * len(answers), answers
    (text,) = {str(answer) for answer in answers}
    return text


def _ready() -> bool:
    trained(None, 1)
    return bool(hva.SCOPES)
