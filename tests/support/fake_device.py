"""A device that is none: tensors in the host's memory that torch takes for another device's, and a count of who waits for it.

Importing this registers the device ``fake`` with torch. Its tensors lie in the host's memory, and the host's kernels compute on
them, but ``x.device`` is not the CPU, so that code for accelerators runs. Whatever makes the host wait for a real device is
noted by name, for whoever is listening on the same thread; mixing with the host's tensors fails as it does there.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import library
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from hvd_adaptive.ops.torch_ops import TorchOps

_aten = torch.ops.aten
_WAIT = {
    _aten.nonzero.default,  # also argwhere and, within itself, indexing with a mask
    _aten.masked_select.default,
    _aten._unique2.default,
    _aten.unique_dim.default,
    _aten.unique_consecutive.default,
    _aten.bincount.default,
    _aten.repeat_interleave.Tensor,
    _aten._linalg_check_errors.default,
}
"""What cannot return before the device has come to it, because a length is needed; what returns a number cannot, either."""
_INDEX = {_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default, _aten._index_put_impl_.default}
"""Which look for the true ones of a mask."""
_COPY = _aten.copy_.default
_listening = threading.local()


class FakeTensor(torch.Tensor):
    """A tensor of the device.

    Args:
        lies_in: the host's tensor that it pretends not to be.
    """

    @staticmethod
    def __new__(cls, lies_in: torch.Tensor) -> "FakeTensor":
        return torch.Tensor._make_wrapper_subclass(
            cls,
            lies_in.shape,
            strides=lies_in.stride(),
            storage_offset=lies_in.storage_offset(),
            dtype=lies_in.dtype,
            device=DEVICE,
        )

    def __init__(self, lies_in: torch.Tensor) -> None:
        self.lies_in = lies_in

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError("can't convert a tensor of the device to numpy; the host has to copy it first")
        return self.cpu().numpy()

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        _listen(func, args, kwargs)
        to_host = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        kwargs.pop("pin_memory", None)
        args, kwargs = pytree.tree_map(_inner, (args, kwargs))
        result = func(*args, **kwargs)
        if isinstance(result, (bool, int, float, complex)):  # item(), int(), float(), bool(), if, equal, allclose
            _note(func.name())
        if to_host:
            return result.clone()
        return pytree.tree_map(lambda one: FakeTensor(one) if isinstance(one, torch.Tensor) else one, result)


def _inner(one: Any) -> Any:
    return one.lies_in if isinstance(one, FakeTensor) else one


def _note(name: str) -> None:
    for heard in getattr(_listening, "heard", ()):
        heard.append(name)


def _listen(func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Note what waits; refuse what a device refuses."""
    if func is _COPY:
        target, source = args[0], args[1]
        blocks = not (kwargs.get("non_blocking") or args[2:3] == (True,))
        if isinstance(target, FakeTensor) != isinstance(source, FakeTensor) and (blocks or not _is_pinned(target, source)):
            _note("copy_")
        return
    given = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    if any(not isinstance(one, FakeTensor) and one.dim() for one in given):
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, but found some on {DEVICE}, some on cpu")
    to_host = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
    masked = func in _INDEX and any(one is not None and one.dtype in (torch.bool, torch.uint8) for one in args[1])
    if func in _WAIT or masked or to_host:
        _note(func.name())


def _is_pinned(*both: torch.Tensor) -> bool:
    return any(getattr(one, "is_page_locked", False) for one in both)


def _made(name: str) -> Any:
    """What makes a new tensor on the device."""
    base, _, overload = name.partition(".")
    make = getattr(getattr(_aten, base), overload or "default")

    def of_device(*args: Any, device: Any = None, pin_memory: Any = None, **kwargs: Any) -> FakeTensor:
        return FakeTensor(make(*args, **kwargs))

    return of_device


def _copied(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """How torch fills a tensor of the device from numbers of the host, as in ``torch.tensor(..., device=)``."""
    _note("_copy_from")
    _inner(target).copy_(_inner(source))
    return target


class _Unseen:
    """What torch asks of a device: here, not to be taken for this machine's accelerator, whose random state, say, is saved."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """There is no random state."""


_setup_privateuseone_for_python_backend("fake", backend_module=_Unseen())
DEVICE = torch.device("fake", 0)
_library = library.Library("aten", "IMPL")  # which takes its functions back when it goes
for _name in ("empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step"):
    _library.impl(_name, _made(_name), "PrivateUse1")
_library.impl("_copy_from", _copied, "PrivateUse1")


def _pinned(x: torch.Tensor) -> torch.Tensor:
    """What ``x.pin_memory()`` gives, where there is an accelerator: a copy that a device can fetch by itself."""
    copy = x.clone()
    copy.is_page_locked = True  # type: ignore[attr-defined]  # a mark of ours on the tensor
    return copy


torch.Tensor.pin_memory = _pinned  # type: ignore[method-assign,assignment]  # without an accelerator, torch's own fails


@contextmanager
def waits() -> Iterator[list[str]]:
    """Names of what made the host wait for the device in the block, on this thread."""
    before = getattr(_listening, "heard", [])
    heard: list[str] = []
    _listening.heard = [*before, heard]
    try:
        yield heard
    finally:
        _listening.heard = before


def on_device(x: Any) -> FakeTensor:
    """A copy on the device of a numpy array or a host's tensor."""
    return FakeTensor(torch.tensor(x) if isinstance(x, np.ndarray) else x.detach().clone())


class DeviceOps(TorchOps):
    """Torch's backend as it is where there is an accelerator: what tests hand over goes to the device."""

    def from_numpy(self, x: Any, like: Any = None) -> torch.Tensor:
        return on_device(x) if like is None else super().from_numpy(x, like)
