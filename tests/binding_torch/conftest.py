"""Real ranks for the tests of this folder."""

from collections.abc import Callable, Iterator

import pytest
from rank_pool import ONE_ORDER, RankPool, pools

Ranks = Callable[[int], RankPool]


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """``ranks(n)``: a pool of n Horovod ranks as users run them, kept for the whole session."""
    yield from pools()


@pytest.fixture(scope="module")
def ordered_ranks() -> Iterator[Ranks]:
    """As ``ranks``, but Horovod adds up ranks in one order, so that runs can be compared bit for bit."""
    yield from pools(ONE_ORDER)


@pytest.fixture(scope="module")
def gloo_ranks() -> Iterator[RankPool]:
    """Two ranks over Gloo, without MPI."""
    pool = RankPool(2, gloo=True)
    yield pool
    pool.close()
