"""Real ranks that run TensorFlow."""

from collections.abc import Callable, Iterator

import pytest
from launcher import ONE_ORDER
from rank_pool import RankPool, pools

Ranks = Callable[[int], RankPool]


@pytest.fixture(scope="session")
def ranks() -> Ranks:
    """``ranks(n)``: a pool of n Horovod ranks, kept for the whole session, because TensorFlow takes seconds to start."""
    return pools(framework="tensorflow")


@pytest.fixture(scope="session")
def ordered_ranks() -> Ranks:
    """As ``ranks``, but Horovod adds up ranks in one order, so that runs can be compared bit for bit."""
    return pools(ONE_ORDER, framework="tensorflow")


@pytest.fixture(scope="module")
def keras_2_ranks() -> Iterator[RankPool]:
    """Two ranks for which ``tf.keras`` is Keras 2."""
    pool = RankPool(2, framework="tensorflow", environment={"TF_USE_LEGACY_KERAS": "1"})
    yield pool
    pool.close()
