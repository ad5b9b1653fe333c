"""A rank whose gradients do not come back says why that may be, and says nothing else."""

import logging
import time
from logging.handlers import BufferingHandler
from typing import Any

import horovod.torch as hvd
from rank_pool import RankPool
from training import building, model, optimizer_for, train

from hvd_adaptive import TopK
from hvd_adaptive.binding import watch

LOGGER = "hvd_adaptive"
PATIENCE = 3.0
"""So that tests need not wait; a step takes milliseconds, also on a busy machine, and ranks are looked at once a second."""
LATE = 7.0


def said(seconds: float, idle: float = 0.0) -> tuple[list[str], float]:
    """What this rank logged where rank 1 was late by so many seconds in the second of three steps, and how long those took.

    Also what it logged in ``idle`` seconds after them.
    """
    handler = BufferingHandler(capacity=1000)
    logging.getLogger(LOGGER).addHandler(handler)
    patience = watch.PATIENCE
    try:
        module = model()
        optimizer = optimizer_for(module, building("entire-model", TopK(10))(module))
        train(module, optimizer, 1)
        watch.PATIENCE = PATIENCE
        time.sleep(seconds if hvd.rank() == 1 else 0.0)
        start = time.monotonic()
        train(module, optimizer, 2, first=1)
        waited = time.monotonic() - start
        time.sleep(idle)
        return [record.getMessage() for record in handler.buffer], waited
    finally:
        watch.PATIENCE = patience
        logging.getLogger(LOGGER).removeHandler(handler)


def test_those_who_wait_say_so_once(ranks: Any) -> None:
    (first, waited), (late, _) = ranks(2).run(said, LATE)
    assert waited > LATE - 1
    assert late == []
    assert [line.split(";")[0] for line in first] == ["rank 0: no gradient has come back for 3 s"]
    assert "docs/multihost.md" in first[0]


def test_between_steps_nothing_is_said(ranks: Any) -> None:
    def on_rank() -> Any:
        return said(0.0, idle=2 * PATIENCE)[0]

    assert ranks(2).run(on_rank) == [[], []]


def test_over_gloo_too(gloo_ranks: RankPool) -> None:
    (first, _), (late, _) = gloo_ranks.run(said, LATE)
    assert (len(first), late) == (1, [])
