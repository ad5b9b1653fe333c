"""Real ranks that run Keras 3 on TensorFlow."""

from collections.abc import Callable

import pytest
from launcher import ONE_ORDER
from rank_pool import RankPool, pools

Ranks = Callable[[int], RankPool]


@pytest.fixture(scope="session")
def ranks() -> Ranks:
    """``ranks(n)``: a pool of n Horovod ranks, kept for the session, that add up in one order."""
    return pools(ONE_ORDER, framework="tensorflow")
