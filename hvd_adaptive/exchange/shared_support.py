"""Shared support: one rank picks the positions and all send their values there. Traffic per rank is O(k).

Ranks take turns by step. What a rank would have picked itself waits in its residual.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive.compress.base import Compressor, ExchangeName, Payload
from hvd_adaptive.compress.sparse import Sparse, places
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.exchange import wire
from hvd_adaptive.exchange.base import Exchange, Outcome, Round, Rounds, Situation, unhealthy
from hvd_adaptive.ops import Array
from hvd_adaptive.ops.verdicts import opposite, spoilt


@dataclass(frozen=True)
class SharedSupport(Exchange):
    """Gather the positions of rank ``step mod ranks``, then average every rank's values there."""

    name: ClassVar[ExchangeName] = "shared-support"

    def check(self, compressor: Compressor, size: int) -> None:
        if not isinstance(compressor, Sparse):
            raise ConfigError(f"{compressor!r} selects no positions to share; use a method such as TopK(factor=100)")

    def rounds(self, compressor: Compressor, x: Array, situation: Situation) -> Rounds:
        assert isinstance(compressor, Sparse)  # noqa: S101 - checked before the first step
        ops, n = situation.ops, situation.ops.size(x)
        leads = situation.step % situation.size == situation.rank
        positions = compressor.select(ops, x, situation.draw) if leads else ops.arange(0, x)
        told = Payload((places(positions, n, counted=True),), n, ops.dtype(x), ops.size(positions))
        words = wire.pack(ops, told)
        payloads, _ = wire.unpack(ops, (yield Round("gather", words if leads else ops.slice(words, 0, 0))), 1, told)
        assert payloads is not None  # noqa: S101 - health is told below
        positions = payloads[0].fields[0].array
        health = spoilt(ops, ops.full_like(ops.slice(x, 0, 1), 0.0), situation.healthy, math.nan)
        averaged = yield Round("mean", ops.concat([ops.take(x, positions), health]))
        k = ops.size(positions)
        finite = opposite(ops.starts_with_nan(ops.slice(averaged, k, k + 1)))
        if finite is False:
            return unhealthy(k)
        mean = ops.scatter_add(ops.zeros(n, ops.dtype(x), like=x), positions, ops.slice(averaged, 0, k))
        mean = spoilt(ops, mean, finite, math.nan)
        return Outcome(mean, k, lambda x: ops.clear(x, positions), positions, finite=finite)
