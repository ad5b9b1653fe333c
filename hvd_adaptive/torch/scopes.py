"""The three scopes: which gradients are compressed together."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from hvd_adaptive import granularity
from hvd_adaptive.compress import Compressor
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.granularity import Parameter, Unit
from hvd_adaptive.torch.compression import TorchCompression
from hvd_adaptive.torch.parameters import NamedParameters


class LayerWise(TorchCompression):
    """Each parameter's gradient is compressed by itself, as soon as it is ready. Small ones go dense."""

    scope: ClassVar[str] = "layer-wise"
    default_dense_below: ClassVar[int] = 1024

    def _units(self, parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
        return granularity.layer_wise(parameters)


class EntireModel(TorchCompression):
    """All gradients are compressed together as one vector, when the last one is ready."""

    scope: ClassVar[str] = "entire-model"

    def _units(self, parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
        return granularity.entire_model(parameters)


class Bucketed(TorchCompression):
    """Gradients of consecutive parameters are compressed together, up to a size.

    Args:
        named_parameters: see :class:`TorchCompression`.
        compressor: see :class:`TorchCompression`.
        bucket_bytes: bytes of dense gradient in one bucket; a larger parameter is a bucket of its own.
        **options: see :class:`TorchCompression`.
    """

    scope: ClassVar[str] = "bucketed"

    def __init__(
        self, named_parameters: NamedParameters, compressor: Compressor, *, bucket_bytes: int = 25 << 20, **options: Any
    ) -> None:
        self._bucket_bytes = bucket_bytes
        super().__init__(named_parameters, compressor, **options)

    def _units(self, parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
        return granularity.bucketed(parameters, self._bucket_bytes)


SCOPES: dict[str, type[TorchCompression]] = {scope.scope: scope for scope in (LayerWise, EntireModel, Bucketed)}
"""Every scope under the name that command lines use."""


def compression(
    scope: str, named_parameters: Iterable[tuple[str, Any]], compressor: Compressor, **options: Any
) -> TorchCompression:
    """The compression object of the scope called ``scope``, for command lines and configuration files.

    Raises:
        ConfigError: if there is no such scope, or as the scope's own constructor.
    """
    if scope not in SCOPES:
        raise ConfigError(f"unknown scope {scope!r}; legal are {', '.join(SCOPES)}")
    return SCOPES[scope](named_parameters, compressor, **options)
