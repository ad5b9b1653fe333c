"""Real ranks that run Keras 3 on TensorFlow."""

from collections.abc import Callable, Iterator

import pytest
from rank_pool import ONE_ORDER, RankPool, pools

Ranks = Callable[[int], RankPool]


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """``ranks(n)``: a pool of n Horovod ranks, kept for the session, that add up in one order."""
    yield from pools(ONE_ORDER, framework="tensorflow")
