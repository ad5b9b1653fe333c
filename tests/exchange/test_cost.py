"""The model hands to collectives what the exchanges do, and grows with ranks as they must."""

import numpy as np
import pytest

from hvd_adaptive import QSGD, ConfigError, Network, SignSGD, TernGrad, Threshold, TopK
from hvd_adaptive.collective import Loopback
from hvd_adaptive.compress import Compressor
from hvd_adaptive.exchange import NAMES, Situation
from hvd_adaptive.exchange.cost import costs
from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.prng import Draw, derive, root


def handed(method: Compressor, exchange: str, elements: int, ranks: int, dtype: str = "float32") -> list[int]:
    """Bytes that ranks really hand to collectives, together, in each of as many steps as there are ranks."""

    def of_rank(collective):
        ops, sent, key = NumpyOps(), [], root(1)
        for step in range(ranks):
            x = np.random.default_rng([collective.rank, step]).standard_normal(elements).astype(dtype)
            situation = Situation(ops, collective.rank, ranks, step, Draw(key, derive(key, collective.rank + 1)), x.shape, {})
            rounds, brought, total, number = NAMES[exchange].rounds(method, x, situation), None, 0, 0
            try:
                while True:
                    one = rounds.send(brought)
                    total += one.array.nbytes
                    brought = collective.wait(collective.start(one.kind, one.array, f"{step}.{number}", one.splits))
                    number += 1
            except StopIteration:
                sent.append(total)
        return sent

    return np.sum(Loopback(ranks, NumpyOps()).run(of_rank), axis=0).tolist()


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize(("elements", "factor"), [(1000, 10.0), (4097, 100.0), (70_000, 7.0)])
@pytest.mark.parametrize("exchange", ["gather", "shared-support", "two-sided"])
def test_bytes_are_those_of_the_exchanges(exchange: str, elements: int, factor: float, ranks: int) -> None:
    modelled = costs(TopK(factor), elements, ranks)[exchange].handed
    assert handed(TopK(factor), exchange, elements, ranks) == pytest.approx([ranks * modelled] * ranks, rel=1e-12)  # of sums


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("method", [TernGrad(), QSGD(7), QSGD(7, bucket=64), SignSGD()], ids=repr)
@pytest.mark.parametrize("exchange", ["gather", "reduce"])
def test_bytes_of_levels(method: Compressor, exchange: str, ranks: int) -> None:
    modelled = costs(method, 4097, ranks)[exchange].handed
    assert handed(method, exchange, 4097, ranks) == [ranks * modelled] * ranks


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_bytes_of_other_dtypes(dtype: str) -> None:
    width = np.dtype(dtype).itemsize
    for method, exchange in ((TopK(10), "gather"), (TopK(10), "shared-support"), (TernGrad(), "gather"), (TernGrad(), "reduce")):
        modelled = costs(method, 1000, 2, width)[exchange].handed
        assert handed(method, exchange, 1000, 2, dtype) == pytest.approx([2 * modelled] * 2, rel=1e-12)  # of sums


def test_what_cannot_be_told_beforehand_is_left_out() -> None:
    assert set(costs(Threshold(0.1), 1000, 4)) == {"dense"}  # as many as reach it
    assert set(costs(QSGD(2**15 - 1), 1000, 2)) == {"dense", "gather", "reduce"}
    assert set(costs(QSGD(2**15 - 1), 1000, 2**16)) == {"dense", "gather"}  # no lane holds the sum


def test_a_network_is_checked() -> None:
    assert Network(0, 1) == Network(0.0, 1.0)
    for latency, bandwidth in ((-1, 1), (0, 0), (0, -1), (float("nan"), 1), (0, float("nan")), ("fast", 1), (0, None)):
        with pytest.raises(ConfigError, match=r"^Network: (latency|bandwidth) must be"):
            Network(latency, bandwidth)  # type: ignore[arg-type]  # users may give any type


def test_what_grows_with_ranks_and_what_does_not() -> None:
    few, many = costs(TopK(100), 10**7, 8), costs(TopK(100), 10**7, 4096)
    assert many["gather"].carried / few["gather"].carried == pytest.approx(4095 / 7)
    for exchange in ("dense", "shared-support", "two-sided"):
        assert many[exchange].carried / few[exchange].carried < 1.4
    assert few["dense"].seconds(Network(0.0, 1.0)) == 2 * 7 / 8 * 4 * 10**7  # a ring's
