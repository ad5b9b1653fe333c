"""With nothing dropped the result is stock Horovod's; with much dropped ranks stay together and nothing is lost."""

from typing import Any

import horovod.torch as hvd
import pytest
import torch
from torch import nn
from training import batches, flat, model, optimizer_for, residuals, trained

import hvd_adaptive.torch as hva
from hvd_adaptive import BFloat16, Half, Identity, RandomK, TopK

FACTOR_1 = [(Identity(), "reduce"), (Identity(), "gather"), (TopK(1), "gather"), (RandomK(1), "reduce"), (RandomK(1), "gather")]
FACTOR_100 = [(TopK(100), "gather"), (RandomK(100), "reduce"), (RandomK(100), "gather")]
OTHERS = [(Identity(), "gather"), (Half(), "reduce"), (Half(), "gather"), (BFloat16(), "gather")]


def case_id(value: object) -> str:
    return str(value)


def difference_from_stock(scope: str, compressor: Any, exchange: str) -> float:
    def compress(module: nn.Module) -> Any:
        return hva.compression(scope, module.named_parameters(), compressor, exchange=exchange, dense_below=0)

    stock, _ = trained(None)
    ours, _ = trained(compress)
    return float((stock - ours).abs().max() / stock.abs().max())


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("scope", list(hva.SCOPES))
@pytest.mark.parametrize(("compressor", "exchange"), FACTOR_1, ids=case_id)
def test_factor_1_equals_stock_horovod(ordered_ranks: Any, size: int, scope: str, compressor: Any, exchange: str) -> None:
    for difference in ordered_ranks(size).run(difference_from_stock, scope, compressor, exchange):
        assert difference <= (0.0 if exchange == "reduce" else 1e-6)


def parameters_and_balance(scope: str, compressor: Any, exchange: str) -> tuple[torch.Tensor, float]:
    """Parameters after 50 steps, and how far sent + residual is from all gradients, relative to the largest sum."""
    module = model()
    compression = hva.compression(scope, module.named_parameters(), compressor, exchange=exchange, dense_below=0)
    optimizer = optimizer_for(module, compression)
    gradients, received = torch.zeros(flat(module).numel()), torch.zeros(flat(module).numel())
    for inputs, targets in batches(50, hvd.rank()):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        gradients += torch.cat([p.grad.flatten() for p in module.parameters()])  # the token travels, so .grad is still local
        optimizer.synchronize()
        received += torch.cat([p.grad.flatten() for p in module.parameters()])
        with optimizer.skip_synchronize():
            optimizer.step()
    saved = residuals(compression.state_dict())
    order = ["model"] if scope == "entire-model" else [n for n, _ in module.named_parameters()]
    if scope == "bucketed":
        order = sorted(saved, reverse=True)
    kept = torch.cat([saved[name] for name in order]) if saved else torch.zeros_like(received)
    missing = hvd.allreduce(gradients - kept, name="balance") - received
    return flat(module), float(missing.abs().max() / gradients.abs().max())


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("scope", list(hva.SCOPES))
@pytest.mark.parametrize(("compressor", "exchange"), FACTOR_100 + OTHERS, ids=case_id)
def test_ranks_stay_identical_and_nothing_is_lost(ranks: Any, size: int, scope: str, compressor: Any, exchange: str) -> None:
    (first, balance), *others = ranks(size).run(parameters_and_balance, scope, compressor, exchange)
    assert all(torch.equal(first, other) for other, _ in others)
    rounding = {Half: 2e-3, BFloat16: 1e-2}.get(type(compressor), 1e-5)
    assert all(b <= rounding for b in (balance, *(b for _, b in others)))
