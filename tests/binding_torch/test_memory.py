"""What compression needs of a rank's memory."""

import gc
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_pool import RankPool
from torch import nn
from training import building, distributed, model, optimizer_for, train

from hvd_adaptive import GraVAC, TopK

MODEL = 4 * 4_000_000
"""Bytes of the large model's parameters."""
MARGIN = MODEL // 4
"""For payloads at factor 100, and what else a step allocates and frees."""


def resident(kind: str) -> int:
    """Bytes of this process: ``RSS`` now, ``HWM`` at most since :func:`peak_from_now`."""
    found = re.search(rf"Vm{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def peak_from_now() -> None:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def peak_of_training(compress: bool) -> int:
    """Bytes on top of what there was before, at the height of five steps."""
    torch.manual_seed(20)  # weights whose gradients, many of them equal, are not what a sample tells
    module = nn.Sequential(*(nn.Linear(1000, 1000, bias=False) for _ in range(4)))
    peak_from_now()
    before = resident("RSS")
    compression = building("entire-model", TopK(100))(module) if compress else None
    optimizer = distributed(torch.optim.SGD(module.parameters(), lr=0.01), module, compression)
    for _ in range(5):
        optimizer.zero_grad()
        module(torch.ones(2, 1000)).sum().backward()
        optimizer.step()
    return resident("HWM") - before


@pytest.fixture
def returning_ranks() -> Iterator[RankPool]:
    """Two ranks that give large pieces of memory back as soon as they are free, so that the peak is of what is used."""
    pool = RankPool(2, environment={"MALLOC_MMAP_THRESHOLD_": "65536"})
    yield pool
    pool.close()


def test_an_entire_model_takes_two_more_copies(returning_ranks: RankPool) -> None:
    """The residual, and the mean, which becomes the gradients."""

    def on_rank() -> tuple[int, int]:
        for compress in (False, True):
            peak_of_training(compress)  # what frameworks and the compiler allocate once
        return peak_of_training(False), peak_of_training(True)

    for stock, ours in returning_ranks.run(on_rank):
        assert stock >= MODEL  # the gradients: the measure tells something
        assert ours - stock <= 2 * MODEL + MARGIN


@pytest.mark.parametrize("scope", ["layer-wise", "entire-model"])
def test_it_does_not_grow(ranks: Any, scope: str) -> None:
    def on_rank() -> tuple[int, int]:
        module = model()
        compression = building(scope, TopK(4), controller=GraVAC(min_factor=4, max_factor=64, window=10))(module)
        optimizer = optimizer_for(module, compression)
        train(module, optimizer, 500)
        gc.collect()
        before, objects = resident("RSS"), sys.getallocatedblocks()
        train(module, optimizer, 1500, first=500)
        gc.collect()
        return resident("RSS") - before, sys.getallocatedblocks() - objects

    for grown, objects in ranks(2).run(on_rank, seconds=100):
        assert grown <= 2**20  # 700 bytes a step
        assert objects <= 1500 // 2  # a list that is added to in every step takes one each
