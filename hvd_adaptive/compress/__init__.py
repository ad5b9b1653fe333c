"""Compressors: one method per file, one frozen value each."""

import dataclasses
from typing import Any

from hvd_adaptive.compress.adaptive_threshold import AdaptiveThreshold
from hvd_adaptive.compress.base import Compressor, Payload
from hvd_adaptive.compress.bfloat16 import BFloat16
from hvd_adaptive.compress.dgc import DGC
from hvd_adaptive.compress.efsign import EFSign
from hvd_adaptive.compress.half import Half
from hvd_adaptive.compress.identity import Identity
from hvd_adaptive.compress.natural import NaturalCompression
from hvd_adaptive.compress.onebit import OneBit
from hvd_adaptive.compress.powersgd import PowerSGD
from hvd_adaptive.compress.qsgd import QSGD
from hvd_adaptive.compress.randomk import RandomK
from hvd_adaptive.compress.redsync import RedSync
from hvd_adaptive.compress.signsgd import SignSGD
from hvd_adaptive.compress.terngrad import TernGrad
from hvd_adaptive.compress.threshold import Threshold
from hvd_adaptive.compress.topk import TopK
from hvd_adaptive.errors import ConfigError

__all__ = [
    "DGC",
    "NAMES",
    "QSGD",
    "USUAL",
    "AdaptiveThreshold",
    "BFloat16",
    "Compressor",
    "EFSign",
    "Half",
    "Identity",
    "NaturalCompression",
    "OneBit",
    "Payload",
    "PowerSGD",
    "RandomK",
    "RedSync",
    "SignSGD",
    "TernGrad",
    "Threshold",
    "TopK",
    "compressor",
]

NAMES: dict[str, type[Compressor]] = {
    "identity": Identity,
    "half": Half,
    "bfloat16": BFloat16,
    "topk": TopK,
    "randomk": RandomK,
    "threshold": Threshold,
    "adaptive-threshold": AdaptiveThreshold,
    "terngrad": TernGrad,
    "qsgd": QSGD,
    "signsgd": SignSGD,
    "natural": NaturalCompression,
    "dgc": DGC,
    "redsync": RedSync,
    "powersgd": PowerSGD,
    "onebit": OneBit,
    "efsign": EFSign,
}
"""Every method under the name that command lines use; help, errors, tests and docs read this."""


USUAL: tuple[Compressor, ...] = (
    Identity(),
    Half(),
    BFloat16(),
    TopK(100),
    RandomK(10),
    RandomK(4, unbiased=True),
    Threshold(0.01),
    AdaptiveThreshold(),
    TernGrad(),
    TernGrad(clip=2.5),
    QSGD(7, bucket=512),
    QSGD(127),
    SignSGD(),
    SignSGD(scaled=True),
    NaturalCompression(),
    DGC(100),
    RedSync(100),
    PowerSGD(4),
    OneBit(),
    EFSign(),
)
"""Every method at a usual setting, for tables and benchmarks."""


def compressor(name: str, **options: Any) -> Compressor:
    """The compressor called ``name``, for command lines and configuration files.

    Args:
        name: a key of :data:`NAMES`.
        **options: the method's own, such as ``factor=100``.

    Raises:
        ConfigError: if the name is unknown or the method has no such option.
    """
    if not isinstance(name, str) or name not in NAMES:
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
