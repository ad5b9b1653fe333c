"""Gather: any code travels, in one contiguous buffer per unit; every rank decodes all of them. Traffic per rank is O(P k)."""

from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive.compress.base import Compressor, ExchangeName
from hvd_adaptive.exchange import wire
from hvd_adaptive.exchange.base import Exchange, Round, Rounds, Situation, average, outcome
from hvd_adaptive.ops import Array
from hvd_adaptive.ops.verdicts import is_read


@dataclass(frozen=True)
class Gather(Exchange):
    """Allgather the payloads as bytes, decode each and add them up in rank order."""

    name: ClassVar[ExchangeName] = "gather"

    def rounds(self, compressor: Compressor, x: Array, situation: Situation) -> Rounds:
        ops, draw = situation.ops, situation.draw
        payload = compressor.encode(ops, x, draw)
        zeros: list[Array] = []

        def make_zeros() -> None:
            zeros.append(ops.zeros(payload.n, payload.dtype, like=x))

        meanwhile = make_zeros if compressor.scatters else None
        healthy = wire.told(ops, payload, situation.healthy)
        words = yield Round("gather", wire.pack(ops, payload, healthy=healthy), meanwhile=meanwhile)
        payloads, finite = wire.unpack(ops, words, situation.size, payload, flagged=not is_read(healthy))
        mean = None if payloads is None else average(ops, compressor, payloads, draw, *zeros)
        return outcome(ops, compressor, payload, draw, mean, finite)
