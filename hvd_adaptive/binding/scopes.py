"""The three scopes: which gradients are compressed together. A binding's classes take them first, then its compression object."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from hvd_adaptive import granularity
from hvd_adaptive.compress import Compressor
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.granularity import Parameter, Unit

T = TypeVar("T")


class LayerWiseScope:
    """Each gradient by itself."""

    scope: ClassVar[str] = "layer-wise"
    default_dense_below: ClassVar[int] = 1024

    def _units(self, parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
        return granularity.layer_wise(parameters)


class EntireModelScope:
    """All gradients together."""

    scope: ClassVar[str] = "entire-model"
    default_dense_below: ClassVar[int] = 0

    def _units(self, parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
        return granularity.entire_model(parameters)


class BucketedScope:
    """Gradients of consecutive parameters together, up to ``bucket_bytes`` of dense gradient."""

    scope: ClassVar[str] = "bucketed"
    default_dense_below: ClassVar[int] = 0

    def __init__(self, parameters: Any, compressor: Compressor, *, bucket_bytes: int = 25 << 20, **options: Any) -> None:
        self._bucket_bytes = bucket_bytes
        super().__init__(parameters, compressor, **options)  # type: ignore[call-arg]  # the binding's class stands behind

    def _units(self, parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
        return granularity.bucketed(parameters, self._bucket_bytes)


def chosen(scopes: Mapping[str, T], scope: str) -> T:
    """The class of the scope called ``scope``.

    Raises:
        ConfigError: if there is no such scope.
    """
    if scope not in scopes:
        raise ConfigError(f"unknown scope {scope!r}; legal are {', '.join(scopes)}")
    return scopes[scope]
