"""``exchange="auto"`` on real ranks, where the network matters: measured, agreed and told; and where it does not, nothing is."""

import contextlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from counted import Counted
from training import building, flat, model, optimizer_for, train

from hvd_adaptive import AgreementError, Network, TopK
from hvd_adaptive.exchange import auto

BANDWIDTH_COUNTS, LATENCY_COUNTS = Network(0, 1.0), Network(1.0, 1e15)


@contextlib.contextmanager
def worth(times: float) -> Iterator[None]:
    """Another exchange need be so many times as fast only; by itself, three ranks are too few for any."""
    before = dict(auto.WORTH)
    auto.WORTH.update(dict.fromkeys(before, times))
    try:
        yield
    finally:
        auto.WORTH.update(before)


class Said(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.levelname}: {record.getMessage()}")


@dataclass
class Built:
    """What came of ``exchange="auto"`` on a rank."""

    exchanges: dict[str, str]
    weights: torch.Tensor
    said: list[str]
    calls: list[str]


def built(scope: str = "entire-model", times: float = 1.2, **options: Any) -> Built:
    """Build an object, train with it a little."""
    handler = Said()
    logger = logging.getLogger("hvd_adaptive")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    module = model()
    try:
        with worth(times), Counted() as counted:
            compression = building(scope, TopK(10), **options)(module)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    train(module, optimizer_for(module, compression), 5)
    plans = compression._steps.plans
    exchanges = {plan.unit.name: plan.exchange.name for plan in plans if not plan.dense}
    return Built(exchanges, flat(module), handler.texts, [name for name, _, _ in counted.calls])


@pytest.mark.parametrize(("network", "exchange"), [(BANDWIDTH_COUNTS, "shared-support"), (LATENCY_COUNTS, "gather")])
def test_the_network_that_is_given_decides(ordered_ranks: Any, network: Network, exchange: str) -> None:
    """And training is as with that exchange asked for by name."""

    def on_rank() -> tuple[Built, Built]:
        return built(network=network), built(exchange=exchange)

    answers = ordered_ranks(3).run(on_rank)
    for chosen, asked in answers:
        assert chosen.exchanges == {"model": exchange}
        assert torch.equal(chosen.weights, asked.weights)
        assert torch.equal(chosen.weights, answers[0][0].weights)
        assert not any("network" in name for name in chosen.calls)  # none was measured
    first, *others = [chosen.said for chosen, _ in answers]
    level = "INFO" if exchange == "gather" else "WARNING"
    assert [text.split(":")[0] for text in first] == [level]
    assert f"exchange='auto', 3 ranks, {network}: 1 units by {exchange}" in first[0]
    assert ("exchange='gather' or another network=" in first[0]) == (exchange != "gather")
    assert others == [[], []]


def test_each_unit_has_the_exchange_that_suits_its_size(ranks: Any) -> None:
    """Three messages for one pay for large units only: of the layers, the first two weights."""
    network = Network(30, 1.0)

    def on_rank() -> Built:
        return built("layer-wise", network=network)

    for answer in ranks(3).run(on_rank):
        shared = {name for name, exchange in answer.exchanges.items() if exchange == "shared-support"}
        assert shared == {"0.weight", "2.weight"}
        assert len(answer.exchanges) == 6


def test_a_network_that_is_not_given_is_measured(ranks: Any) -> None:
    """Once, by all; and all act on the same figures."""

    def on_rank() -> Built:
        return built()

    answers = ranks(3).run(on_rank)
    for answer in answers:
        assert answer.exchanges == answers[0].exchanges
        assert torch.equal(answer.weights, answers[0].weights)
        assert sum("network" in name for name in answer.calls) == 13
    (text,) = answers[0].said
    assert "Network(latency=" in text


def test_it_measures_what_there_is(ranks: Any) -> None:
    def on_rank() -> Network:
        from horovod.common.process_sets import global_process_set  # noqa: PLC0415 - for ranks, as the next three

        from hvd_adaptive.binding.network import measured  # noqa: PLC0415 - imports Horovod
        from hvd_adaptive.ops.torch_ops import TorchOps  # noqa: PLC0415 - goes with it
        from hvd_adaptive.torch.collective import HorovodCollective  # noqa: PLC0415 - imports Horovod

        return measured(TorchOps(), HorovodCollective(global_process_set), "here")

    found = ranks(3).run(on_rank)
    assert found[0] == found[1] == found[2]
    assert 1e-6 < found[0].latency < 1  # Horovod's cycle is a millisecond
    assert 1e6 < found[0].bandwidth < 1e12
    assert math.log2(found[0].latency).is_integer()


def test_few_ranks_measure_and_say_nothing(ranks: Any) -> None:
    def on_rank() -> Built:
        return built(times=8.0)

    for answer in ranks(3).run(on_rank):
        assert answer.exchanges == {"model": "gather"}
        assert answer.said == []
        assert not any("network" in name for name in answer.calls)


def test_ranks_must_be_given_the_same_network(ranks: Any) -> None:
    """Else one would measure alone, or take part in other collectives."""

    def on_rank() -> str:
        import horovod.torch as hvd  # noqa: PLC0415 - only ranks need it

        try:
            built(network=BANDWIDTH_COUNTS if hvd.rank() == 1 else None)
        except AgreementError as error:
            return str(error)
        return ""

    for text in ranks(3).run(on_rank):
        assert "exchange: rank 0 has auto, network as measured, rank 1 has auto, network Network(latency=0.0" in text
