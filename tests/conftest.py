"""What all tests share."""

import gc
from pathlib import Path

import pytest
import torch
from backends import BACKENDS, backend
from hypothesis import settings

from hvd_adaptive.ops import Ops

TESTS = Path(__file__).parent
LAUNCHING = {"binding_keras", "binding_tensorflow", "binding_torch", "benchmarks", "examples"}
"""Folders whose tests launch ranks."""

torch.set_num_threads(1)
settings.register_profile("repeatable", max_examples=20, deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", params=BACKENDS)
def ops(request: pytest.FixtureRequest) -> Ops:
    """Each backend in turn."""
    return backend(request.param)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks at the same occasion
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Which tests pytest-xdist runs in one process: all that launch ranks, for those fill the cores; else those of a file."""
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        item.add_marker(pytest.mark.xdist_group("ranks" if folder in LAUNCHING else item.path.name))


def pytest_collection_finish() -> None:
    """What tens of thousands of tests take up stays, so the garbage collector need not look through it again and again."""
    gc.freeze()
