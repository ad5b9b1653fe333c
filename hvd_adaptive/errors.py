"""Every error this package raises, each also a built-in class so that callers may catch either."""

from typing import TYPE_CHECKING


class HvdAdaptiveError(Exception):
    """Base of all errors of this package."""

    if not TYPE_CHECKING:
        # TensorFlow raises again, in the same class, only what is built like this, where it came up while a function was traced.
        __init__ = Exception.__init__


class ConfigError(HvdAdaptiveError, ValueError):
    """What was asked for is not legal; the message says what is."""


class UnsupportedError(HvdAdaptiveError, NotImplementedError):
    """Legal elsewhere, but not possible here; the message says why and what to use instead."""


class AgreementError(HvdAdaptiveError, ValueError):
    """The ranks were configured differently; every rank raises it with the same message."""


class StateError(HvdAdaptiveError, ValueError):
    """A saved state does not belong to the object it is loaded into."""


class SourceError(HvdAdaptiveError, RuntimeError):
    """What the user gave to be read or called failed on some rank; every rank raises it with the same message."""
