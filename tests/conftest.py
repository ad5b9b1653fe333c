"""What all tests share."""

import gc

import pytest
import torch
from backends import BACKENDS, backend
from hypothesis import settings

from hvd_adaptive.ops import Ops

torch.set_num_threads(1)
settings.register_profile("repeatable", max_examples=20, deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", params=BACKENDS)
def ops(request: pytest.FixtureRequest) -> Ops:
    """Each backend in turn."""
    return backend(request.param)


def pytest_collection_finish() -> None:
    """What tens of thousands of tests take up stays, so the garbage collector need not look through it again and again."""
    gc.freeze()
