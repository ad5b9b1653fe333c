"""The object that stock Horovod takes as ``compression=``."""

from typing import Any

import horovod.torch as hvd
import torch

from hvd_adaptive.binding.compression import Compression
from hvd_adaptive.compress import Compressor
from hvd_adaptive.granularity import Parameter
from hvd_adaptive.ops.torch_ops import TorchOps
from hvd_adaptive.plan import Options
from hvd_adaptive.torch.collective import HorovodCollective
from hvd_adaptive.torch.hooks import Hooks
from hvd_adaptive.torch.parameters import Finder, NamedParameters, checked, described


class TorchCompression(Hooks, Compression):
    """Base of :class:`LayerWise`, :class:`EntireModel` and :class:`Bucketed`: pass an instance as ``compression=``.

    Args:
        named_parameters: ``model.named_parameters()``, as for ``DistributedOptimizer``. Frozen parameters are left alone.
        compressor: the method, such as ``TopK(factor=100)``.
        **options: see :class:`hvd_adaptive.binding.compression.Compression`, also for what is raised.
    """

    def __init__(self, named_parameters: NamedParameters, compressor: Compressor, **options: Any) -> None:
        super().__init__(named_parameters, compressor, **options)

    def rejoin(self) -> None:
        """Begin anew, as if just built, with the ranks that Horovod has after an elastic reset, which may be more or fewer.

        Collective: ``state.register_reset_callbacks([compression.rejoin])`` calls it on all that stayed, and those that are new
        meet it by building their object. What a controller learned lives on by ``load_state_dict(state, strict=False)``.

        Raises:
            AgreementError: on every rank, if a new one was given other arguments.
            ConfigError: if the method cannot work with so many ranks.
        """
        self._watch.rest()
        self._collective = self._join(self._collective.process_set)
        self._assemble()

    def _join(self, process_set: hvd.ProcessSet) -> HorovodCollective:
        return HorovodCollective(process_set)

    def _backend(self) -> TorchOps:
        return TorchOps()

    def _checkpoints(self) -> "_Tensors":
        return _Tensors(self._parameters)

    def _read(self, parameters: NamedParameters, options: Options) -> list[tuple[Parameter, bool]]:
        given = checked(parameters)
        self._parameters = {name: parameter for name, parameter in given.items() if parameter.requires_grad}
        if self._parameters:
            self._finder = Finder(self._parameters, options.excluded(list(self._parameters)))
        return [(described(name, parameter), parameter.requires_grad) for name, parameter in given.items()]


class _Tensors:
    """Checkpoints hold tensors on the device they were on."""

    def __init__(self, parameters: dict[str, torch.Tensor]) -> None:
        self._parameters = parameters

    def save(self, array: torch.Tensor) -> torch.Tensor:
        return array.clone()

    def zeros(self, n: int, dtype: str) -> torch.Tensor:
        return torch.zeros(n, dtype=getattr(torch, dtype))

    def load(self, saved: torch.Tensor, parameter: str) -> torch.Tensor:
        return saved.to(self._parameters[parameter].device, copy=True)

    def form(self, saved: Any) -> tuple[str, tuple[int, ...]] | None:
        if not isinstance(saved, torch.Tensor) or not bool(torch.isfinite(saved).all()):
            return None
        return str(saved.dtype).removeprefix("torch."), tuple(saved.shape)
