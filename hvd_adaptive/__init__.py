"""Gradient compression for stock Horovod: layer-wise and entire-model, under one ``compression=`` object.

The frameworks' bindings are ``hvd_adaptive.torch`` and ``hvd_adaptive.tensorflow``; this module imports neither.
"""

from importlib.metadata import version

from hvd_adaptive.compress import (
    DGC,
    QSGD,
    AdaptiveThreshold,
    BFloat16,
    EFSign,
    Half,
    Identity,
    NaturalCompression,
    OneBit,
    PowerSGD,
    RandomK,
    RedSync,
    SignSGD,
    TernGrad,
    Threshold,
    TopK,
    compressor,
)
from hvd_adaptive.control import (
    Accordion,
    Budget,
    Controller,
    Decision,
    Fixed,
    GraVAC,
    NeverSlower,
    Observation,
    Schedule,
    Wanted,
    WarmUp,
)
from hvd_adaptive.errors import AgreementError, ConfigError, HvdAdaptiveError, SourceError, StateError, UnsupportedError
from hvd_adaptive.exchange import Gather, Network, Reduce, SharedSupport, TwoSided
from hvd_adaptive.feedback import MomentumCorrection, NoFeedback, Residual
from hvd_adaptive.monitor import JsonLines, Memory, Stats, StepRecord

__all__ = [
    "DGC",
    "QSGD",
    "Accordion",
    "AdaptiveThreshold",
    "AgreementError",
    "BFloat16",
    "Budget",
    "ConfigError",
    "Controller",
    "Decision",
    "EFSign",
    "Fixed",
    "Gather",
    "GraVAC",
    "Half",
    "HvdAdaptiveError",
    "Identity",
    "JsonLines",
    "Memory",
    "MomentumCorrection",
    "NaturalCompression",
    "Network",
    "NeverSlower",
    "NoFeedback",
    "Observation",
    "OneBit",
    "PowerSGD",
    "RandomK",
    "RedSync",
    "Reduce",
    "Residual",
    "Schedule",
    "SharedSupport",
    "SignSGD",
    "SourceError",
    "StateError",
    "Stats",
    "StepRecord",
    "TernGrad",
    "Threshold",
    "TopK",
    "TwoSided",
    "UnsupportedError",
    "Wanted",
    "WarmUp",
    "compressor",
]

__version__ = version("hvd_adaptive")
