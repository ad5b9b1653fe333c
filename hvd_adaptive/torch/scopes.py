"""The three scopes: which gradients are compressed together."""

from collections.abc import Iterable
from typing import Any

from hvd_adaptive.binding.scopes import BucketedScope, EntireModelScope, LayerWiseScope, chosen
from hvd_adaptive.compress import Compressor
from hvd_adaptive.torch.compression import TorchCompression


class LayerWise(LayerWiseScope, TorchCompression):
    """Each parameter's gradient is compressed by itself, as soon as it is ready. Small ones go dense."""


class EntireModel(EntireModelScope, TorchCompression):
    """All gradients are compressed together as one vector, when the last one is ready."""


class Bucketed(BucketedScope, TorchCompression):
    """Gradients of consecutive parameters are compressed together, up to a size.

    Args:
        named_parameters: see :class:`TorchCompression`.
        compressor: see :class:`TorchCompression`.
        bucket_bytes: bytes of dense gradient in one bucket; a larger parameter is a bucket of its own.
        **options: see :class:`TorchCompression`.
    """


SCOPES: dict[str, type[TorchCompression]] = {scope.scope: scope for scope in (LayerWise, EntireModel, Bucketed)}
"""Every scope under the name that command lines use."""


def compression(
    scope: str, named_parameters: Iterable[tuple[str, Any]], compressor: Compressor, **options: Any
) -> TorchCompression:
    """The compression object of the scope called ``scope``, for command lines and configuration files.

    Raises:
        ConfigError: if there is no such scope, or as the scope's own constructor.
    """
    return chosen(SCOPES, scope)(named_parameters, compressor, **options)
