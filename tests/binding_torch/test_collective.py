"""Horovod's collectives under the core's protocol, on real ranks, against numpy and against ``Loopback``."""

from typing import Any

import horovod.torch as hvd
import pytest
import torch
from collectives import assert_close, expected, given

from hvd_adaptive.collective import GATHERABLE, REDUCIBLE, Loopback
from hvd_adaptive.ops.torch_ops import TorchOps
from hvd_adaptive.torch.collective import HorovodCollective

OPS = TorchOps()


def brought(collective: Any, kind: str, dtype: str, name: str) -> tuple[str, list[float]]:
    array, splits = given(collective.rank, kind, dtype, collective.size)
    x = torch.from_numpy(array)
    before = x.clone()
    result = collective.wait(collective.start(kind, x, name, splits))
    assert torch.equal(x, before), "what was put in is the caller's"
    assert result.dim() == 1
    return OPS.dtype(result), result.tolist()


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
                assert_close(values, wanted, kind, dtype)


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
