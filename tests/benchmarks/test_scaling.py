"""The model of costs hands to collectives what the exchanges do, and draws the conclusions that follow from it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cost import Host, Network, costs

from hvd_adaptive import TopK
from hvd_adaptive.collective import Loopback
from hvd_adaptive.exchange import NAMES, Situation
from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.prng import Draw, derive, root

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "scaling.py"
NOTHING = Host(0.0, 0.0, 0.0)


def handed(exchange: str, elements: int, factor: float, ranks: int) -> list[int]:
    """Bytes that ranks really hand to collectives, together, in each of as many steps as there are ranks."""

    def of_rank(collective):
        ops, sent, key = NumpyOps(), [], root(1)
        for step in range(ranks):
            x = np.random.default_rng([collective.rank, step]).standard_normal(elements).astype(np.float32)
            situation = Situation(ops, collective.rank, ranks, step, Draw(key, derive(key, collective.rank + 1)), x.shape, {})
            rounds, brought, total, number = NAMES[exchange].rounds(TopK(factor), x, situation), None, 0, 0
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
    modelled = costs(elements, factor, ranks, NOTHING)[exchange].handed
    assert handed(exchange, elements, factor, ranks) == pytest.approx([ranks * modelled] * ranks, rel=1e-12)


def test_what_grows_with_ranks_and_what_does_not() -> None:
    few, many = costs(10**7, 100, 8, NOTHING), costs(10**7, 100, 4096, NOTHING)
    assert many["gather"].carried / few["gather"].carried == pytest.approx(4095 / 7)
    for exchange in ("dense", "shared-support", "two-sided"):
        assert many[exchange].carried / few[exchange].carried < 1.4
    assert few["dense"].seconds(Network(0.0, 1.0)) == 2 * 7 / 8 * 4 * 10**7  # a ring's


def test_it_tells_where_another_exchange_takes_over(tmp_path: Path) -> None:
    picture = tmp_path / "scaling.png"
    command = [sys.executable, str(BENCHMARK), "--elements", "1000000", "--json", "--plot", str(picture)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert [row["ranks"] for row in found["rows"]] == [2**power for power in range(1, 13)]
    for row in found["rows"]:
        assert row["seconds"][row["best"]] == min(row["seconds"].values()) > 0
    for name, line in zip(("shared-support", "two-sided", "dense"), found["turns"], strict=True):
        less = [row["ranks"] for row in found["rows"] if row["seconds"][name] < row["seconds"]["gather"]]
        assert line == f"{name} takes less than gather from {less[0]} ranks on"
    assert picture.stat().st_size > 5000
