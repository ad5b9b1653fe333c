"""Real ranks for the tests of this folder."""

from collections.abc import Callable, Iterator

import pytest
from rank_pool import ONE_ORDER, RankPool

Ranks = Callable[[int], RankPool]


def _pools(environment: dict[str, str]) -> Iterator[Ranks]:
    pools: dict[int, RankPool] = {}

    def pool(size: int) -> RankPool:
        return pools.setdefault(size, RankPool(size, environment=environment))

    yield pool
    for one in pools.values():
        one.close()


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """``ranks(n)``: a pool of n Horovod ranks as users run them, kept for the whole session."""
    yield from _pools({})


@pytest.fixture(scope="module")
def ordered_ranks() -> Iterator[Ranks]:
    """As ``ranks``, but Horovod adds up ranks in one order, so that runs can be compared bit for bit."""
    yield from _pools(ONE_ORDER)


@pytest.fixture(scope="module")
def gloo_ranks() -> Iterator[RankPool]:
    """Two ranks over Gloo, without MPI."""
    pool = RankPool(2, gloo=True)
    yield pool
    pool.close()
