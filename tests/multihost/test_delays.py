"""Ranks that are late, and whose gradients come at other times than those of others, change nothing but the time."""

import random
import time
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from launcher import ONE_ORDER
from rank_pool import pools
from training import batches, building, flat, loss_of, model, optimizer_for

from hvd_adaptive import GraVAC, TopK

pytestmark = [pytest.mark.multihost, pytest.mark.quick, pytest.mark.timeout(300)]  # ranks start, and are late for 12 seconds
STEPS, SECONDS = 10, 2.0
TIMED = GraVAC(2, 100, window=3, every=1, smoothing=1, epsilon=0.5)


@pytest.fixture
def three_ranks() -> Any:
    """Horovod adds them up in one order, so that runs can be compared bit for bit."""
    return pools(ONE_ORDER)(3)


def trained(scope: str, seed: int | None, controller: Any = None) -> tuple[torch.Tensor, float]:
    """Parameters after some steps, and how long this rank was late; ``seed`` None for not at all."""
    module = model()
    optimizer = optimizer_for(module, building(scope, TopK(10), controller=controller)(module))
    chance = random.Random(f"{seed} {hvd.rank()}")  # noqa: S311 - delays keep no secret
    late = 0.0
    if seed is not None:
        for parameter in module.parameters():
            parameter.register_hook(lambda _: time.sleep(chance.random() / 100))
    victims = random.Random(seed).sample(range(STEPS), 2)  # noqa: S311
    for step in range(STEPS):
        if seed is not None and step in victims and hvd.rank() == (seed + step) % hvd.size():
            time.sleep(SECONDS)
            late += SECONDS
        optimizer.zero_grad()
        ((inputs, targets),) = batches(1, hvd.rank(), first=step)
        loss_of(module, inputs, targets).backward()
        optimizer.step()
    return flat(module), late


@pytest.mark.parametrize("scope", ["layer-wise", "entire-model", "bucketed"])
def test_nothing_differs(three_ranks: Any, scope: str) -> None:
    expected, *_ = three_ranks.run(trained, scope, None)
    answers = three_ranks.run(trained, scope, len(scope))
    assert sum(late for _, late in answers) == 2 * SECONDS
    for parameters, _ in answers:
        assert torch.equal(parameters, expected[0])


def test_a_controller_that_times_its_steps_decides_alike(three_ranks: Any) -> None:
    first, *others = three_ranks.run(trained, "entire-model", 1, TIMED)
    for parameters, _ in others:
        assert torch.equal(parameters, first[0])
