"""A step in which any gradient is not finite, which scalers of losses skip as a whole."""

from typing import Any

import horovod.torch as hvd
import pytest
import torch
from training import batches, building, loss_of, model, optimizer_for, train

import hvd_adaptive.torch as hva
from hvd_adaptive import Fixed, Half, RandomK, TopK

SPOILT = {"compressed": "2.weight", "excluded": "0.bias"}


def held_back(compression: Any) -> dict[tuple[str, str], torch.Tensor]:
    """By unit and name."""
    memory = compression.state_dict()["memory"]
    return {(unit, name): vector for unit, vectors in memory.items() for name, vector in vectors.items()}


def before_and_after(scope: str, compressor: Any, spoilt: str, options: dict[str, Any]) -> Any:
    """What is held back before and after such a step, and whether some of its gradients were finite."""
    module = model()
    compression = building(scope, compressor, exclude="0.bias", **options)(module)
    optimizer = optimizer_for(module, compression)
    train(module, optimizer, 2)
    before = held_back(compression)
    if hvd.rank() == 1:
        module.get_parameter(SPOILT[spoilt]).register_hook(lambda gradient: gradient + float("inf"))
    optimizer.zero_grad()
    ((inputs, targets),) = batches(1, hvd.rank(), first=2)
    loss_of(module, inputs, targets).backward()
    optimizer.synchronize()
    finite = [bool(p.grad.isfinite().all()) for p in module.parameters()]
    return before, held_back(compression), any(finite) and not all(finite)


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize(
    ("compressor", "options"),
    [
        (TopK(10), {}),
        (TopK(10), {"exchange": "two-sided"}),
        (RandomK(10), {"exchange": "reduce"}),  # rides
        (Half(), {"exchange": "reduce", "feedback": True}),
        (TopK(10), {"controller": Fixed(10)}),
    ],
    ids=str,
)
@pytest.mark.parametrize("scope", hva.SCOPES)
def test_what_is_held_back_stays_of_every_unit(
    ranks: Any, scope: str, compressor: Any, options: dict[str, Any], spoilt: str
) -> None:
    """Also of those that were finite, and had sent some of it."""
    for before, after, in_part in ranks(2).run(before_and_after, scope, compressor, spoilt, options):
        assert in_part
        assert set(before) == set(after)
        assert sum(int(vector.count_nonzero()) for vector in before.values()) > 1000
        for name, vector in before.items():
            torch.testing.assert_close(after[name], vector, rtol=0, atol=1e-7)  # added and taken out again, which rounds
