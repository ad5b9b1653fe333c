"""The three scopes: which gradients are compressed together."""

from collections.abc import Iterable
from typing import Any

from hvd_adaptive.binding.scopes import BucketedScope, EntireModelScope, LayerWiseScope, chosen
from hvd_adaptive.compress import Compressor
from hvd_adaptive.tensorflow.compression import TensorFlowCompression


class LayerWise(LayerWiseScope, TensorFlowCompression):
    """Each variable's gradient is compressed by itself. Small ones go dense."""


class EntireModel(EntireModelScope, TensorFlowCompression):
    """All gradients are compressed together as one vector. Horovod hands them over together only with ``groups=1``."""


class Bucketed(BucketedScope, TensorFlowCompression):
    """Gradients of consecutive variables are compressed together, up to a size; with ``groups=1``, as :class:`EntireModel`.

    Args:
        variables: see :class:`TensorFlowCompression`.
        compressor: see :class:`TensorFlowCompression`.
        bucket_bytes: bytes of dense gradient in one bucket; a larger variable is a bucket of its own.
        **options: see :class:`TensorFlowCompression`.
    """


SCOPES: dict[str, type[TensorFlowCompression]] = {scope.scope: scope for scope in (LayerWise, EntireModel, Bucketed)}
"""Every scope under the name that command lines use."""


def compression(scope: str, variables: Iterable[Any], compressor: Compressor, **options: Any) -> TensorFlowCompression:
    """The compression object of the scope called ``scope``, for command lines and configuration files.

    Raises:
        ConfigError: if there is no such scope, or as the scope's own constructor.
    """
    return chosen(SCOPES, scope)(variables, compressor, **options)
