"""Every method under every legal exchange and scope on real ranks: the same parameters everywhere, and runs that go on."""

import math
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from methods import INSTANCES
from training import building, exchanges_of, flat, model, optimizer_for, train

import hvd_adaptive.torch as hva
from hvd_adaptive import Memory
from hvd_adaptive.compress import DGC, QSGD, Identity, PowerSGD, SignSGD, TopK
from hvd_adaptive.exchange import TwoSided

METHODS = [methods[0] for methods in INSTANCES.values()] + [SignSGD(scaled=True), PowerSGD(2)]
CASES = [(method, exchange) for method in METHODS for exchange in exchanges_of(method)]
SCOPES = list(hva.SCOPES)
KEEPING = [
    (PowerSGD(2), "reduce", None),
    (DGC(10, momentum=0.5), "gather", None),
    (DGC(10), "shared-support", None),
    (TopK(5), TwoSided(QSGD(7), feedback=True), None),
    (TopK(5), "two-sided", None),
    (QSGD(127, norm="max"), "reduce", True),
]


@pytest.mark.parametrize(("size", "scope"), [*((2, scope) for scope in SCOPES), (3, "layer-wise")])
def test_parameters_stay_the_same_on_all_ranks(ranks: Any, size: int, scope: str) -> None:
    """Finite after two steps, and not where they began; every unit is counted in every step."""

    def on_rank() -> Any:
        found = []
        for method, exchange in CASES:
            module, monitor = model(), Memory()
            compression = building(scope, method, exchange=exchange, monitor=monitor)(module)
            train(module, optimizer_for(module, compression), 2)
            units = {record.unit for record in monitor.records}
            found.append((flat(module), len(monitor.records) == 2 * len(units), all(r.finite for r in monitor.records)))
        return found

    by_rank, start = ranks(size).run(on_rank), flat(model())
    for case, *seen in zip(CASES, *by_rank, strict=True):
        ends = [end for end, _, _ in seen]
        assert all(torch.equal(ends[0], end) for end in ends), case
        assert torch.isfinite(ends[0]).all(), case
        assert all(counted and finite for _, counted, finite in seen), case
        sends = type(case[0]).__name__ != "Threshold"  # no gradient of this model may reach it
        assert not sends or not torch.equal(ends[0], start), case


@pytest.mark.parametrize("scope", SCOPES)
def test_a_run_goes_on_bit_for_bit(ordered_ranks: Any, scope: str) -> None:
    """Residual, velocity, factors and what masters keep come back with the state."""

    def on_rank() -> Any:
        found = []
        for method, exchange, feedback in KEEPING:
            build = building(scope, method, exchange=exchange, feedback=feedback)
            whole = model()
            train(whole, optimizer_for(whole, build(whole)), 4)
            first, second = model(), model(seed=9)
            before, after = build(first), build(second)
            old, new = optimizer_for(first, before), optimizer_for(second, after)
            train(first, old, 2)
            for target, source in ((second, first), (new, old), (after, before)):
                target.load_state_dict(source.state_dict())
            train(second, new, 2, first=2)
            found.append((torch.equal(flat(whole), flat(second)), before.state_dict()["memory"]))
        return found

    for found in ordered_ranks(2).run(on_rank):
        for (method, exchange, _), (same, memory) in zip(KEEPING, found, strict=True):
            assert same, (method, exchange)
            names = {name for vectors in memory.values() for name, vector in vectors.items() if vector.any()}
            assert "residual" in names
            assert ("velocity" in names) == isinstance(method, DGC)
            assert ("q" in names) == isinstance(method, PowerSGD)
            assert ("master residual" in names) == (exchange == "two-sided" or isinstance(exchange, TwoSided))


@pytest.mark.parametrize("scope", SCOPES)
def test_nan_on_one_rank_is_nan_on_all_and_counted(ranks: Any, scope: str) -> None:
    def on_rank(rank: int) -> Any:
        found = []
        for method, exchange in CASES:
            module, monitor = model(), Memory()
            optimizer = optimizer_for(module, building(scope, method, exchange=exchange, monitor=monitor)(module))
            optimizer.zero_grad()
            loss = sum((p * (math.nan if rank == 1 else 1.0)).sum() for p in module.parameters())
            loss.backward()
            optimizer.step()
            found.append((bool(torch.isnan(flat(module)).all()), any(record.finite for record in monitor.records)))
        return found

    pool = ranks(2)
    for found in pool.run(_with_rank, on_rank):
        for case, (everywhere, finite) in zip(CASES, found, strict=True):
            assert everywhere, case
            unseen = case == (Identity(), "reduce")  # which is stock Horovod's way
            assert finite == unseen, case


def _with_rank(function: Any) -> Any:
    return function(hvd.rank())
