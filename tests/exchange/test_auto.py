"""What ``"auto"`` takes: the method's own, until another one is so much faster that it is worth what it loses."""

import itertools

import pytest

from hvd_adaptive import Network, RandomK, SignSGD, TernGrad, Threshold, TopK
from hvd_adaptive.compress import USUAL, Compressor
from hvd_adaptive.exchange import pick
from hvd_adaptive.exchange.auto import WORTH
from hvd_adaptive.exchange.cost import costs

RESNET = 25_557_032
SLOW, FAST = Network(50e-6, 12.5e6), Network(1e-6, 100e9)
NETWORKS = [Network(latency, bandwidth) for latency in (0, 1e-6, 1e-4, 1e-1) for bandwidth in (1e4, 1e7, 1e9, 1e12)]


def modelled(method: Compressor, n: int, ranks: int, network: Network) -> str:
    """By the model's own figures."""
    seconds = {name: cost.seconds(network) for name, cost in costs(method, n, ranks).items()}
    own = method.exchanges[0]
    others = set(method.exchanges) & set(seconds) & set(WORTH)
    return next((other for other in others if seconds[own] > WORTH[other] * seconds[other]), own)


@pytest.mark.parametrize("ranks", [2, 3, 15, 16, 64, 4096])
@pytest.mark.parametrize("method", [TopK(100), TernGrad(), SignSGD()], ids=repr)
def test_it_is_what_the_model_says(method: Compressor, ranks: int) -> None:
    for n, network in itertools.product((1, 1000, 10**5, RESNET), NETWORKS):
        assert pick(method, n, ranks, network) == modelled(method, n, ranks, network)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 13, 14, 16, 64, 4096])
@pytest.mark.parametrize("method", USUAL, ids=repr)
def test_without_a_network_it_is_only_told_where_none_would_change_it(method: Compressor, ranks: int) -> None:
    for n in (1, 1000, RESNET):
        told, found = pick(method, n, ranks, None), {pick(method, n, ranks, network) for network in NETWORKS}
        assert told is None or found == {told}
        assert told is not None or method.exchanges[0] in found


def test_few_ranks_have_the_methods_own() -> None:
    for method in USUAL:
        for ranks in (1, 2, 3, 4):
            assert pick(method, RESNET, ranks, None) == method.exchanges[0]


def test_many_ranks_on_a_slow_network_do_not_gather() -> None:
    assert pick(TopK(100), RESNET, 12, SLOW) == "gather"  # 5 times as fast by shared support, which is not enough
    assert pick(TopK(100), RESNET, 64, SLOW) == "shared-support"
    assert pick(TopK(100), RESNET, 64, FAST) == "gather"  # most of the time goes into selecting
    assert pick(TopK(100), RESNET, 64, None) is None
    assert pick(TopK(100), 1000, 64, SLOW) == "gather"  # three messages for one
    assert pick(TernGrad(), RESNET, 64, SLOW) == "reduce"


def test_what_nobody_can_tell_stays_as_it_is() -> None:
    assert pick(Threshold(0.1), RESNET, 4096, None) == "gather"  # how many reach it
    assert pick(RandomK(100), RESNET, 4096, None) == "reduce"
