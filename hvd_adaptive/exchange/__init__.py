"""Exchanges, and which of them a compressor may use."""

from hvd_adaptive.compress.base import Compressor
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.exchange.base import Exchange
from hvd_adaptive.exchange.gather import Gather
from hvd_adaptive.exchange.reduce import Reduce

__all__ = ["NAMES", "Exchange", "Gather", "Reduce", "choose"]

NAMES: dict[str, Exchange] = {"reduce": Reduce(), "gather": Gather()}
"""Every exchange under its name."""


def choose(compressor: Compressor, requested: str) -> Exchange:
    """The exchange called ``requested``, or with ``"auto"`` the compressor's default.

    Raises:
        ConfigError: if there is no such exchange, or the compressor may not use it.
    """
    if requested == "auto":
        return NAMES[compressor.exchanges[0]]
    if requested not in NAMES:
        raise ConfigError(f"unknown exchange {requested!r}; legal are auto, {', '.join(NAMES)}")
    if requested not in compressor.exchanges:
        raise ConfigError(
            f"{compressor!r} cannot use exchange={requested!r}: its code would be combined into something meaningless; "
            f"legal are auto, {', '.join(compressor.exchanges)}"
        )
    return NAMES[requested]
