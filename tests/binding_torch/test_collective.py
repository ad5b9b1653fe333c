"""Horovod's collectives under the core's protocol, on real ranks, against numpy and against ``Loopback``."""

from typing import Any

import horovod.torch as hvd
import numpy as np
import pytest
import torch

from hvd_adaptive.collective import GATHERABLE, REDUCIBLE, Loopback
from hvd_adaptive.ops.torch_ops import TorchOps
from hvd_adaptive.torch.collective import HorovodCollective

OPS = TorchOps()


def given(rank: int, kind: str, dtype: str, size: int) -> tuple[torch.Tensor, tuple[int, ...]]:
    """What a rank puts in: small whole numbers, of another length on every rank where lengths may differ."""
    splits = tuple((3 * rank + 5 * target) % 4 for target in range(size)) if kind == "alltoall" else ()
    n = {"alltoall": sum(splits), "gather": 3 * rank % 4}.get(kind, 6)
    return torch.tensor([(7 * rank + 3 * i) % 11 for i in range(n)], dtype=getattr(torch, dtype)), splits


def brought(collective: Any, kind: str, dtype: str, name: str) -> tuple[str, list[float]]:
    x, splits = given(collective.rank, kind, dtype, collective.size)
    before = x.clone()
    result = collective.wait(collective.start(kind, x, name, splits))
    assert torch.equal(x, before), "what was put in is the caller's"
    assert result.dim() == 1
    return OPS.dtype(result), result.tolist()


def expected(kind: str, dtype: str, size: int) -> list[list[float]]:
    """What each rank gets, by numpy."""
    arrays = [given(rank, kind, dtype, size)[0].numpy() for rank in range(size)]
    if kind == "gather":
        return [np.concatenate(arrays).tolist()] * size
    if kind == "alltoall":
        cuts = [np.split(a, np.cumsum(given(r, kind, dtype, size)[1])[:-1]) for r, a in enumerate(arrays)]
        return [np.concatenate([cuts[source][rank] for source in range(size)]).tolist() for rank in range(size)]
    stacked = np.stack(arrays).astype(np.float64)
    reduced = {"mean": stacked.mean(0), "sum": stacked.sum(0), "max": stacked.max(0)}[kind]
    return [(np.floor(reduced) if dtype.startswith("int") else reduced).tolist()] * size


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", ["mean", "sum", "max", "gather", "alltoall"])
def test_every_collective_is_numpys_and_loopbacks(ranks: Any, kind: str, size: int) -> None:
    dtypes = GATHERABLE if kind in ("gather", "alltoall") else REDUCIBLE

    def on_rank() -> Any:
        return [brought(HorovodCollective(), kind, dtype, f"{kind}.{dtype}") for dtype in dtypes]

    real = ranks(size).run(on_rank)
    for number, dtype in enumerate(dtypes):
        simulated = Loopback(size, OPS).run(lambda c, dtype=dtype: brought(c, kind, dtype, "x"))
        for rank, wanted in enumerate(expected(kind, dtype, size)):
            for found_dtype, values in (real[rank][number], simulated[rank]):
                assert found_dtype == dtype
                tolerance = 2.0**-9 if dtype == "float16" else 2.0**-22 if dtype == "float32" else 2.0**-50
                np.testing.assert_allclose(values, wanted, rtol=tolerance if kind == "mean" else 0, atol=0)


@pytest.mark.parametrize("kind", ["gather", "alltoall"])
def test_nothing_may_be_joined(ranks: Any, kind: str) -> None:
    def on_rank() -> list[int]:
        collective = HorovodCollective()
        splits = (0,) * collective.size if kind == "alltoall" else ()
        return [
            collective.wait(collective.start(kind, torch.zeros(0, dtype=torch.int64), f"nothing.{kind}.{i}", splits)).numel()
            for i in range(2)
        ]

    assert ranks(2).run(on_rank) == [[0, 0]] * 2


def test_collectives_are_told_apart_by_name(ranks: Any) -> None:
    """Each rank its own order."""

    def on_rank() -> list[list[float]]:
        collective = HorovodCollective()
        order = [0, 1, 2] if hvd.rank() else [2, 0, 1]
        own = torch.tensor([1.0 + hvd.rank()])
        handles = {i: collective.start("sum", own * 10**i, f"apart.{i}") for i in order}
        return [collective.wait(handles[i]).tolist() for i in range(3)]

    assert ranks(2).run(on_rank) == [[[3.0], [30.0], [300.0]]] * 2
