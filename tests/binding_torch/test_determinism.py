"""Runs repeat bit for bit, and leave the user's random numbers alone."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from training import building, exchanges_of, flat, model, optimizer_for, train, trained

import hvd_adaptive.torch as hva
from hvd_adaptive import BFloat16, Half, Identity, RandomK, TopK

METHODS = [TopK(20), RandomK(20), Half(), BFloat16(), Identity()]
SCOPES = list(hva.SCOPES)
STEPS = 4


def random_states() -> tuple[bytes, bytes, object]:
    return torch.get_rng_state().numpy().tobytes(), repr(np.random.get_state()).encode(), random.getstate()


def draws() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()  # noqa: S311 - the global generator is what is watched


@pytest.mark.parametrize("scope", SCOPES)
def test_global_random_state_is_untouched(ranks: Any, scope: str) -> None:
    def on_rank() -> Any:
        found = {}
        for method in METHODS:
            for exchange in exchanges_of(method):
                module = model()
                states = [random_states()]
                compression = building(scope, method, exchange=exchange)(module)
                states.append(random_states())
                train(module, optimizer_for(module, compression), 2)
                states.append(random_states())
                compression.load_state_dict(compression.state_dict())
                compression.reset()
                states.append(random_states())
                found[f"{method} {exchange}"] = [state == states[0] for state in states]
        before = random_states()
        draws()
        assert random_states()[0] != before[0], "the states compared do not tell whether numbers were drawn"
        assert random_states()[1] != before[1]
        assert random_states()[2] != before[2]
        return found

    for found in ranks(2).run(on_rank):
        assert [name for name, untouched in found.items() if not all(untouched)] == []


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_same_seed_repeats_whatever_the_global_seed(ranks: Any, scope: str, method: Any) -> None:
    def on_rank(global_seed: int) -> list[torch.Tensor]:
        torch.manual_seed(global_seed)
        np.random.seed(global_seed)
        random.seed(global_seed)
        return [trained(building(scope, method, exchange=exchange, seed=5), STEPS)[0] for exchange in exchanges_of(method)]

    (first, _), (again, _) = ranks(2).run(on_rank, 1), ranks(2).run(on_rank, 2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("exchange", ["reduce", "gather"])
def test_another_seed_draws_other_elements(ranks: Any, scope: str, exchange: str) -> None:
    def on_rank() -> list[torch.Tensor]:
        seeds = (0, 1, -1, 2**32, 2**40)
        return [trained(building(scope, RandomK(20), exchange=exchange, seed=seed), 2)[0] for seed in seeds]

    ends, others = ranks(2).run(on_rank)
    assert all(torch.equal(a, b) for a, b in zip(ends, others, strict=True))
    assert not any(torch.equal(a, b) for number, a in enumerate(ends) for b in ends[:number])


@pytest.mark.parametrize("scope", SCOPES)
def test_steps_and_units_draw_different_elements(ranks: Any, scope: str) -> None:
    """With a gradient of ones, what arrives shows which elements were drawn."""

    def on_rank() -> list[torch.Tensor]:
        module = model()
        compression = building(scope, RandomK(20), feedback=False)(module)
        optimizer = optimizer_for(module, compression)
        seen = []
        for _ in range(3):
            optimizer.zero_grad()
            sum(p.sum() for p in module.parameters()).backward()
            optimizer.synchronize()
            seen.append(torch.cat([p.grad.flatten() for p in module.parameters()]))
        return seen

    first, second = ranks(2).run(on_rank)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    drawn = [set(torch.nonzero(seen).flatten().tolist()) for seen in first]
    assert all(150 <= len(d) <= 250 for d in drawn)  # 3,905 elements, of which small units keep one at least
    overlap = len(drawn[0] & drawn[1]) / len(drawn[0])
    assert overlap < 0.2  # 1/20 is expected, and small units have little choice


def test_layers_of_one_shape_draw_different_elements(ranks: Any) -> None:
    def on_rank() -> list[torch.Tensor]:
        twins = torch.nn.Sequential(torch.nn.Linear(20, 20, bias=False), torch.nn.Linear(20, 20, bias=False))
        compression = building("layer-wise", RandomK(20), feedback=False)(twins)
        optimizer = optimizer_for(twins, compression)
        sum(p.sum() for p in twins.parameters()).backward()
        optimizer.synchronize()
        return [p.grad.flatten() for p in twins.parameters()]

    first, second = ranks(2).run(on_rank)[0]
    assert first.count_nonzero() == second.count_nonzero() == 20
    assert (first * second).count_nonzero() < 10


@pytest.mark.parametrize("scope", SCOPES)
def test_several_objects_do_not_disturb_each_other(ranks: Any, scope: str) -> None:
    """An object built, and used, before and between leaves a run as it is."""

    def on_rank() -> list[torch.Tensor]:
        alone, _ = trained(building(scope, RandomK(20)), STEPS)
        module, other = model(), model(9)
        pair = [optimizer_for(net, building(scope, RandomK(20))(net)) for net in (other, module)]
        for step in range(STEPS):
            for net, optimizer in zip((other, module), pair, strict=True):
                train(net, optimizer, 1, first=step)
        return [alone, flat(module)]

    alone, beside = ranks(2).run(on_rank)[0]
    assert torch.equal(alone, beside)
