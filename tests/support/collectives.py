"""What ranks put into Horovod's collectives, and what numpy says that each gets."""

from typing import Any

import numpy as np


def given(rank: int, kind: str, dtype: str, size: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """Small whole numbers, of another length on every rank where lengths may differ; and where they go."""
    splits = tuple((3 * rank + 5 * target) % 4 for target in range(size)) if kind == "alltoall" else ()
    n = {"alltoall": sum(splits), "gather": 3 * rank % 4}.get(kind, 6)
    return np.array([(7 * rank + 3 * i) % 11 for i in range(n)], dtype), splits


def expected(kind: str, dtype: str, size: int) -> list[list[float]]:
    """What each rank gets, by numpy."""
    arrays = [given(rank, kind, dtype, size)[0] for rank in range(size)]
    if kind == "gather":
        return [np.concatenate(arrays).tolist()] * size
    if kind == "alltoall":
        cuts = [np.split(a, np.cumsum(given(r, kind, dtype, size)[1])[:-1]) for r, a in enumerate(arrays)]
        return [np.concatenate([cuts[source][rank] for source in range(size)]).tolist() for rank in range(size)]
    stacked = np.stack(arrays).astype(np.float64)
    reduced = {"mean": stacked.mean(0), "sum": stacked.sum(0), "max": stacked.max(0)}[kind]
    return [(np.floor(reduced) if dtype.startswith("int") else reduced).tolist()] * size


def assert_close(values: Any, wanted: Any, kind: str, dtype: str) -> None:
    """Equal, but for the rounding of thirds."""
    rounding = 2.0**-9 if dtype == "float16" else 2.0**-22 if dtype == "float32" else 2.0**-50
    np.testing.assert_allclose(values, wanted, rtol=rounding if kind == "mean" else 0, atol=0)
