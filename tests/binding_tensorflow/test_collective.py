"""Horovod's collectives under the core's protocol, on real ranks, against numpy."""

from typing import Any

import numpy as np
import pytest
from collectives import assert_close, expected, given

from hvd_adaptive.collective import GATHERABLE, REDUCIBLE
from hvd_adaptive.tensorflow.collective import HorovodCollective


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", ["mean", "sum", "max", "gather", "alltoall"])
def test_every_collective_is_numpys(ranks: Any, kind: str, size: int) -> None:
    dtypes = GATHERABLE if kind in ("gather", "alltoall") else REDUCIBLE

    def on_rank() -> Any:
        collective, found = HorovodCollective(), []
        for dtype in dtypes:
            x, splits = given(collective.rank, kind, dtype, collective.size)
            before = x.copy()
            result = collective.wait(collective.start(kind, x, f"{kind}/{dtype}:0 of 'all'", splits))
            assert (x == before).all(), "what was put in is the caller's"
            found.append((result.dtype.name, result.tolist()))
        return found

    real = ranks(size).run(on_rank)
    for number, dtype in enumerate(dtypes):
        for rank, wanted in enumerate(expected(kind, dtype, size)):
            found_dtype, values = real[rank][number]
            assert found_dtype == dtype
            assert_close(values, wanted, kind, dtype)


@pytest.mark.parametrize("size", [2, 3])
def test_collectives_are_told_apart_by_name_whatever_their_order(ranks: Any, size: int) -> None:
    """Eager calls of Horovod forget their names, so that ranks would get each other's data."""

    def on_rank() -> Any:
        collective = HorovodCollective()
        names = [f"unit {number}" for number in range(40)]
        order = np.random.default_rng(collective.rank).permutation(len(names))
        for step in range(3):
            handles = {}
            for number in order:
                x = np.full(5, 1000 * step + 10 * number + collective.rank, np.float32)
                handles[number] = collective.start("gather", x, names[number])
            for number, handle in handles.items():
                wanted = np.repeat(1000 * step + 10 * number + np.arange(collective.size), 5)
                assert (collective.wait(handle) == wanted).all()
        return True

    assert all(ranks(size).run(on_rank))


def test_names_that_differ_only_in_odd_characters_are_two(ranks: Any) -> None:
    def on_rank() -> Any:
        collective = HorovodCollective()
        names = ["a:0", "a_0", "a/0", "a 0"][:: 1 if collective.rank else -1]
        handles = {name: collective.start("sum", np.array([float(len(name) + ord(name[1]))], np.float32), name) for name in names}
        return {name: float(collective.wait(handle)[0]) for name, handle in handles.items()}

    for found in ranks(2).run(on_rank):
        assert found == {name: 2.0 * (3 + ord(name[1])) for name in found}
