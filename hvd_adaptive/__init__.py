"""Gradient compression for stock Horovod: layer-wise and entire-model, under one ``compression=`` object.

The frameworks' bindings are ``hvd_adaptive.torch`` and, later, ``hvd_adaptive.tensorflow``; this module imports neither.
"""

from importlib.metadata import version

from hvd_adaptive.compress import BFloat16, Half, Identity, RandomK, TopK, compressor
from hvd_adaptive.control import Fixed
from hvd_adaptive.errors import AgreementError, ConfigError, HvdAdaptiveError, StateError, UnsupportedError
from hvd_adaptive.feedback import NoFeedback, Residual
from hvd_adaptive.monitor import JsonLines, Memory, Stats, StepRecord

__all__ = [
    "AgreementError",
    "BFloat16",
    "ConfigError",
    "Fixed",
    "Half",
    "HvdAdaptiveError",
    "Identity",
    "JsonLines",
    "Memory",
    "NoFeedback",
    "RandomK",
    "Residual",
    "StateError",
    "Stats",
    "StepRecord",
    "TopK",
    "UnsupportedError",
    "compressor",
]

__version__ = version("hvd_adaptive")
