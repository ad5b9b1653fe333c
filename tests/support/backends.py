"""The backends by name; a framework is imported only where a test asks for it."""

import functools
import importlib
from typing import Any

import pytest

from hvd_adaptive.ops import Ops

_CLASSES = {"numpy": "NumpyOps", "torch": "TorchOps", "tensorflow": "TensorFlowOps"}
BACKENDS = tuple(_CLASSES)
also_on_a_device = pytest.mark.parametrize("ops", [*BACKENDS, "device"], indirect=True)
"""Of a test of every backend: torch's in its tests' own device, too, where arrays are and no value is known at once."""


@functools.cache
def backend(name: str) -> Ops:
    """The one instance of a backend that tests share; ``"device"`` is torch's on a device."""
    if name == "device":
        return importlib.import_module("fake_device").DeviceOps()
    module = importlib.import_module(f"hvd_adaptive.ops.{name}_ops")
    return getattr(module, _CLASSES[name])()


@functools.cache
def off_host() -> Ops:
    """TensorFlow's backend as it is where there is an accelerator, and all arrays are tensors: here they are the host's."""
    tf, module = importlib.import_module("tensorflow"), importlib.import_module("hvd_adaptive.ops.tensorflow_ops")

    class OffHostOps(module.TensorFlowOps):
        def from_numpy(self, x: Any, like: Any = None) -> Any:
            return tf.constant(x)

        def flatten(self, x: Any) -> Any:
            return tf.reshape(x, [-1])

    return OffHostOps()
