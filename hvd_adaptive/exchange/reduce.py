"""Reduce: codes that sum travel in an allreduce; traffic per rank is O(k), whatever the number of ranks."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from hvd_adaptive.compress.base import Compressor, ExchangeName
from hvd_adaptive.exchange.base import Exchange, Round, Rounds, Situation, outcome
from hvd_adaptive.ops import Array


@dataclass(frozen=True)
class Reduce(Exchange):
    """Average the floats of the payload, then decode the average."""

    name: ClassVar[ExchangeName] = "reduce"

    def rounds(self, compressor: Compressor, x: Array, situation: Situation) -> Rounds:
        ops, draw = situation.ops, situation.draw
        payload = compressor.encode(ops, x, draw)
        (values,) = payload.fields
        averaged = yield Round("mean", values.array if situation.healthy else ops.full_like(values.array, math.nan))
        mean = None
        if not (situation.checks and ops.starts_with_nan(averaged)):
            mean = compressor.decode(ops, replace(payload, fields=(values._replace(array=averaged),)), draw)
        return outcome(ops, compressor, payload, draw, mean)
