"""Real ranks for the tests of this folder."""

from collections.abc import Callable, Iterator

import pytest
from launcher import ONE_ORDER
from rank_pool import RankPool, pools

Ranks = Callable[[int], RankPool]


@pytest.fixture(scope="session")
def ranks() -> Ranks:
    """``ranks(n)``: a pool of n Horovod ranks as users run them, kept for the whole session."""
    return pools()


@pytest.fixture(scope="session")
def ordered_ranks() -> Ranks:
    """As ``ranks``, but Horovod adds up ranks in one order, so that runs can be compared bit for bit."""
    return pools(ONE_ORDER)


@pytest.fixture(scope="module")
def gloo_ranks() -> Iterator[RankPool]:
    """Two ranks over Gloo, without MPI."""
    pool = RankPool(2, gloo=True)
    yield pool
    pool.close()
