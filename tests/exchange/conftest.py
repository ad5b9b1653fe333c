"""What tests of exchanges share."""

import pytest
from backends import backend

from hvd_adaptive.ops import Ops


@pytest.fixture(scope="session", params=["numpy", "torch"])
def ops(request: pytest.FixtureRequest) -> Ops:
    """Without TensorFlow's backend, which over a host's memory is numpy's to the bit: ``tests/test_engine_backends.py``."""
    return backend(request.param)
