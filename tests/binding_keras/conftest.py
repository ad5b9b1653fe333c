"""Real ranks that run Keras 3 on TensorFlow."""

from collections.abc import Callable, Iterator

import pytest
from rank_pool import ONE_ORDER, RankPool

Ranks = Callable[[int], RankPool]


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """``ranks(n)``: a pool of n Horovod ranks, kept for the session, that add up in one order."""
    pools: dict[int, RankPool] = {}

    def pool(size: int) -> RankPool:
        return pools.setdefault(size, RankPool(size, framework="tensorflow", environment=ONE_ORDER))

    yield pool
    for one in pools.values():
        one.close()
