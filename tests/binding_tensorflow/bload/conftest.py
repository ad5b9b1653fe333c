"""Real ranks that run TensorFlow."""

from collections.abc import Callable, Iterator

import pytest
from rank_pool import RankPool


@pytest.fixture(scope="session")
def ranks() -> Iterator[Callable[[int], RankPool]]:
    """``ranks(n)``: a pool of n Horovod ranks, kept for the whole session, because TensorFlow takes seconds to start."""
    pools: dict[int, RankPool] = {}

    def pool(size: int) -> RankPool:
        return pools.setdefault(size, RankPool(size, framework="tensorflow"))

    yield pool
    for one in pools.values():
        one.close()
