"""Ranks that are late, and whose gradients come at other times than those of others, change nothing but the time."""

import random
import time
from collections.abc import Iterator
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from launcher import ONE_ORDER
from rank_pool import RankPool
from training import batches, building, flat, loss_of, model, optimizer_for

from hvd_adaptive import GraVAC, TopK

pytestmark = [pytest.mark.multihost, pytest.mark.quick, pytest.mark.timeout(300)]  # ranks start, and are late for 4 s a run
STEPS, SECONDS = 10, 2.0
LATE_STEPS = 2
"""Of a run."""
TIMED_STEPS = 40
"""Enough for several decisions by time."""
TIMED = GraVAC(2, 100, window=3, every=1, smoothing=1, epsilon=0.5)


@pytest.fixture(scope="module", params=["mpi", "gloo"])
def three_ranks(request: pytest.FixtureRequest) -> Iterator[RankPool]:
    """Horovod adds them up in one order, so that runs can be compared bit for bit."""
    pool = RankPool(3, gloo=request.param == "gloo", environment=ONE_ORDER)
    yield pool
    pool.close()


def trained(
    scope: str, seed: int | None, controller: Any = None, steps: int = STEPS
) -> tuple[torch.Tensor, float, dict[str, int]]:
    """Parameters after some steps, how long this rank was late, and what was decided; ``seed`` None for no delay at all."""
    module = model()
    compression = building(scope, TopK(10), controller=controller)(module)
    optimizer = optimizer_for(module, compression)
    chance = random.Random(f"{seed} {hvd.rank()}")  # noqa: S311 - delays keep no secret
    late = 0.0
    if seed is not None:
        for parameter in module.parameters():
            parameter.register_hook(lambda _: time.sleep(chance.random() / 100))
    victims = random.Random(seed).sample(range(steps), LATE_STEPS)  # noqa: S311
    for step in range(steps):
        if seed is not None and step in victims and hvd.rank() == (seed + step) % hvd.size():
            time.sleep(SECONDS)
            late += SECONDS
        optimizer.zero_grad()
        ((inputs, targets),) = batches(1, hvd.rank(), first=step)
        loss_of(module, inputs, targets).backward()
        optimizer.step()
    return flat(module), late, dict(compression.stats().branches)


@pytest.mark.parametrize("scope", ["layer-wise", "entire-model", "bucketed"])
def test_nothing_differs(three_ranks: RankPool, scope: str) -> None:
    (expected, *_), *_ = three_ranks.run(trained, scope, None)
    answers = three_ranks.run(trained, scope, len(scope))
    assert sum(late for _, late, _ in answers) == LATE_STEPS * SECONDS
    for parameters, *_ in answers:
        assert torch.equal(parameters, expected)


def test_a_controller_that_times_its_steps_decides_alike(three_ranks: RankPool) -> None:
    (expected, _, decided), *others = three_ranks.run(trained, "entire-model", 1, TIMED, TIMED_STEPS)
    assert sum(decided.values()) == TIMED_STEPS > decided["trial"] > 0  # it timed dense steps and others, and then chose
    for parameters, _, branches in others:
        assert torch.equal(parameters, expected)
        assert branches == decided
