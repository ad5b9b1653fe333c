"""Compressors: one method per file, one frozen value each."""

import dataclasses
from typing import Any

from hvd_adaptive.compress.base import Compressor, Payload
from hvd_adaptive.compress.bfloat16 import BFloat16
from hvd_adaptive.compress.half import Half
from hvd_adaptive.compress.identity import Identity
from hvd_adaptive.compress.randomk import RandomK
from hvd_adaptive.compress.topk import TopK
from hvd_adaptive.errors import ConfigError

__all__ = ["NAMES", "BFloat16", "Compressor", "Half", "Identity", "Payload", "RandomK", "TopK", "compressor"]

NAMES: dict[str, type[Compressor]] = {
    "identity": Identity,
    "half": Half,
    "bfloat16": BFloat16,
    "topk": TopK,
    "randomk": RandomK,
}
"""Every method under the name that command lines use; help, errors, tests and docs read this."""


def compressor(name: str, **options: Any) -> Compressor:
    """The compressor called ``name``, for command lines and configuration files.

    Args:
        name: a key of :data:`NAMES`.
        **options: the method's own, such as ``factor=100``.

    Raises:
        ConfigError: if the name is unknown or the method has no such option.
    """
    if name not in NAMES:
        raise ConfigError(f"unknown compressor {name!r}; legal are {', '.join(NAMES)}")
    method = NAMES[name]
    legal = {field.name: field.default is not dataclasses.MISSING for field in dataclasses.fields(method)}  # type: ignore[arg-type]
    unknown = [option for option in options if option not in legal]
    missing = [option for option, has_default in legal.items() if not has_default and option not in options]
    if unknown:
        raise ConfigError(f"{name} has no option {', '.join(unknown)}; legal are: {', '.join(legal) or 'none'}")
    if missing:
        raise ConfigError(f"{name} needs {', '.join(f'{option}=' for option in missing)}")
    return method(**options)
