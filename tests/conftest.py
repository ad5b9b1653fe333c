"""What all tests share."""

import pytest
import torch
from hypothesis import settings

from hvd_adaptive.ops import Ops
from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.ops.torch_ops import TorchOps

torch.set_num_threads(1)
settings.register_profile("repeatable", max_examples=20, deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", params=[NumpyOps(), TorchOps()], ids=["numpy", "torch"])
def ops(request: pytest.FixtureRequest) -> Ops:
    """Each backend in turn."""
    return request.param
