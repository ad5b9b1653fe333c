"""The same promises where Horovod talks over Gloo, without MPI."""

from typing import Any

import horovod.torch as hvd
import torch
from rank_pool import RankPool
from training import building, flat, model, optimizer_for, train, trained

import hvd_adaptive.torch as hva
from hvd_adaptive import ConfigError, Half, Identity, RandomK, TopK

SCOPES = list(hva.SCOPES)
FACTOR_1 = [(TopK(1), "gather"), (RandomK(1), "reduce"), (RandomK(1), "gather"), (Identity(), "reduce"), (Identity(), "gather")]
FACTOR_100 = [(TopK(100), "gather"), (RandomK(100), "reduce"), (RandomK(100), "gather"), (Half(), "reduce")]
STEPS = 4


def cases(methods: list[tuple[Any, str]]) -> list[tuple[str, Any, str]]:
    return [(scope, compressor, exchange) for scope in SCOPES for compressor, exchange in methods]


def test_ranks_talk_over_gloo(gloo_ranks: RankPool) -> None:
    def on_rank() -> Any:
        return hvd.gloo_enabled(), hvd.mpi_enabled(), hvd.size()

    assert gloo_ranks.run(on_rank) == [(True, False, 2)] * 2


def test_factor_1_equals_stock_horovod(gloo_ranks: RankPool) -> None:
    """Two addends have one sum, whatever their order; what gathers divides each before adding, so it may differ by rounding."""

    def on_rank() -> Any:
        stock, _ = trained(None, STEPS)
        assert not torch.allclose(stock, flat(model())), "nothing was learned, so nothing is compared"
        found = []
        for scope, compressor, exchange in cases(FACTOR_1):
            ours, compression = trained(building(scope, compressor, exchange=exchange), STEPS)
            found.append((float((ours - stock).abs().max() / stock.abs().max()), compression.stats().steps))
        return found

    for found in gloo_ranks.run(on_rank):
        for (scope, compressor, exchange), (difference, steps) in zip(cases(FACTOR_1), found, strict=True):
            assert steps == STEPS
            assert difference <= (0.0 if exchange == "reduce" else 1e-6), (scope, compressor, exchange)


def test_ranks_stay_bit_identical_and_send_little(gloo_ranks: RankPool) -> None:
    def on_rank() -> Any:
        stock, _ = trained(None, STEPS)
        runs = [trained(building(*case[:2], exchange=case[2]), STEPS) for case in cases(FACTOR_100)]
        return stock, [(parameters, compression.stats()) for parameters, compression in runs]

    (stock, first), (_, second) = gloo_ranks.run(on_rank)
    for (scope, compressor, exchange), (mine, stats), (other, _) in zip(cases(FACTOR_100), first, second, strict=True):
        assert torch.equal(mine, other), (scope, compressor, exchange)
        assert not torch.equal(mine, stock), (scope, compressor, exchange)
        assert stats.elements_dense == STEPS * mine.numel()
        if not isinstance(compressor, Half):
            assert 0 < stats.elements_sent < stats.elements_dense / 90


def test_what_is_refused_leaves_ranks_useful(gloo_ranks: RankPool) -> None:
    def on_rank() -> Any:
        said = []
        for scope in SCOPES:
            compression = building(scope, TopK(2))(model())
            module = model(seed=2)
            try:
                train(module, optimizer_for(module, compression), 1)
            except ConfigError as error:
                said.append(str(error))
        parameters, _ = trained(building("bucketed", TopK(3)), 2)
        return said, parameters

    (said, mine), (also, other) = gloo_ranks.run(on_rank)
    assert said == also
    assert ["belongs to no parameter" in message for message in said] == [True] * len(SCOPES)
    assert torch.equal(mine, other)
