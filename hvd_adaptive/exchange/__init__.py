"""Exchanges, and which of them a compressor may use."""

from hvd_adaptive.compress.base import Compressor
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.exchange.auto import pick
from hvd_adaptive.exchange.base import Exchange, Outcome, Round, Rounds, Situation
from hvd_adaptive.exchange.cost import Network
from hvd_adaptive.exchange.gather import Gather
from hvd_adaptive.exchange.reduce import Reduce, in_one_round
from hvd_adaptive.exchange.shared_support import SharedSupport
from hvd_adaptive.exchange.two_sided import TwoSided

__all__ = [
    "NAMES",
    "Exchange",
    "Gather",
    "Network",
    "Outcome",
    "Reduce",
    "Round",
    "Rounds",
    "SharedSupport",
    "Situation",
    "TwoSided",
    "choose",
    "in_one_round",
    "pick",
]

NAMES: dict[str, Exchange] = {exchange.name: exchange for exchange in (Reduce(), Gather(), SharedSupport(), TwoSided())}
"""Every exchange under its name."""


def choose(compressor: Compressor, requested: str | Exchange) -> Exchange:
    """``requested``, by itself or by its name, or with ``"auto"`` the compressor's own; see :func:`pick` for what units then get.

    Raises:
        ConfigError: if there is no such exchange, or the compressor may not use it.
    """
    if requested == "auto":
        return NAMES[compressor.exchanges[0]]
    exchange = NAMES.get(requested) if isinstance(requested, str) else requested
    if not isinstance(exchange, Exchange):
        raise ConfigError(
            f"unknown exchange {requested!r}; legal are auto, {', '.join(NAMES)}, or an instance such as TwoSided()"
        )
    if exchange.name not in compressor.exchanges:
        raise ConfigError(
            f"{compressor!r} cannot use exchange={requested!r}: its code would be combined into something meaningless; "
            f"legal are auto, {', '.join(compressor.exchanges)}"
        )
    return exchange
