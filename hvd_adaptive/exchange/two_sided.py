"""Two-sided: what is sent to the ranks is compressed like what they send. Traffic per rank is O(k).

A unit is cut into as many equal chunks as there are ranks, filled up with zeros, and each rank is the master of one. Ranks
compress every chunk (Q_W) and send it to its master, which decodes, averages, compresses the mean (Q_M) and sends it to all.

Source: Dutta et al. 2020, algorithm 1, arXiv:1911.08250; error feedback on both sides: Tang et al. 2019, arXiv:1905.05957.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive import checks
from hvd_adaptive.compress.base import Compressor, ExchangeName, Payload, at_least_single
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.exchange import wire
from hvd_adaptive.exchange.base import Exchange, Outcome, Round, Rounds, Situation, average, unhealthy
from hvd_adaptive.feedback import UnitMemory, without_overflow
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.ops.verdicts import is_read, spoilt
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class TwoSided(Exchange):
    """Compress on the way to the masters, and again on the way back.

    Args:
        master: Q_M, any method; None for the one that the ranks use.
        feedback: whether masters keep what Q_M drops and add it next time; None where Q_M calls for it. Where Q_M's omega is 1 or
            more, what they keep grows without end.

    Raises:
        ConfigError: if ``master`` is no compressor or ``feedback`` neither None nor a bool.
    """

    master: Compressor | None = None
    feedback: bool | None = None
    name: ClassVar[ExchangeName] = "two-sided"

    def __post_init__(self) -> None:
        if self.master is not None and not isinstance(self.master, Compressor):
            raise ConfigError(f"TwoSided: master must be a method such as QSGD(levels=7) or None, got {self.master!r}")
        if self.feedback is not None:
            checks.flag("TwoSided", "feedback", self.feedback, "None, True or False")

    def check(self, compressor: Compressor, size: int) -> None:
        if (self.master or compressor).votes and self._keeps(compressor):
            raise ConfigError(
                f"TwoSided: {self.master or compressor!r} sends votes without a magnitude, so a master cannot tell what it "
                "dropped; leave feedback out, or use a method such as SignSGD(scaled=True)"
            )

    def carries_all(self, compressor: Compressor) -> bool:
        return compressor.carries_all and (self.master or compressor).carries_all and not self._keeps(compressor)

    def remembers(self, compressor: Compressor, shape: tuple[int, ...], size: int) -> dict[str, int]:
        return {"master residual": -(-math.prod(shape) // size)} if self._keeps(compressor) else {}

    def rounds(self, compressor: Compressor, x: Array, situation: Situation) -> Rounds:
        ops, rank, size, n = situation.ops, situation.rank, situation.size, situation.ops.size(x)
        if self._keeps(compressor):
            x = at_least_single(ops, x)
        draws = [situation.draw.part(number) for number in range(size)]
        common = situation.draw.part(size)  # masters choose alike within their chunks, so that all can tell where
        chunks = _chunks(ops, x, size)
        payloads = [compressor.encode(ops, chunk, draw) for chunk, draw in zip(chunks, draws, strict=True)]
        healthy = wire.told(ops, payloads[rank], situation.healthy)
        words = [wire.pack(ops, payload, healthy=healthy) for payload in payloads]
        brought = yield Round("alltoall", ops.concat(words), tuple(ops.size(part) for part in words))
        received, healthy = wire.unpack(ops, brought, size, payloads[rank], flagged=not is_read(healthy))
        mean = ops.full_like(chunks[rank], 0.0) if received is None else average(ops, compressor, received, draws[rank])

        sent, memory = self._compress_mean(compressor, mean, situation, common)
        healthy = wire.told(ops, sent, healthy)
        brought = yield Round("gather", wire.pack(ops, sent, healthy=healthy))
        kept = min(n, sum(payload.kept for payload in payloads))
        means, finite = wire.unpack(ops, brought, size, sent, flagged=not is_read(healthy))
        if means is None:
            return unhealthy(kept)
        master = self.master or compressor
        decoded = [master.decode(ops, one, common) for one in means]

        def keep_back(x: Array) -> Array:
            rest = zip(_chunks(ops, x, size), payloads, draws, strict=True)
            return ops.slice(ops.concat([compressor.keep_back(ops, *one) for one in rest]), 0, n)

        positions = _positions(ops, compressor, payloads, n)
        mean = spoilt(ops, ops.slice(ops.concat(decoded), 0, n), finite, math.nan)
        return Outcome(mean, kept, keep_back, positions, memory, finite)

    def _keeps(self, compressor: Compressor) -> bool:
        """Whether masters keep what Q_M drops."""
        master = self.master or compressor
        return bool(master.feedback.remembers) if self.feedback is None else self.feedback

    def _compress_mean(self, compressor: Compressor, mean: Array, situation: Situation, draw: Draw) -> tuple[Payload, UnitMemory]:
        """Q_M of this master's mean, and what it remembers."""
        ops, master = situation.ops, self.master or compressor
        if not self._keeps(compressor):
            return master.encode(ops, mean, draw), {}
        residual = situation.memory.get("master residual")
        if residual is not None:
            mean = mean + residual
        payload = master.encode(ops, mean, draw)
        left = master.keep_back(ops, ops.concat([mean, ops.slice(mean, 0, 0)]), payload, draw)
        return payload, {"master residual": without_overflow(ops, left)}


def _chunks(ops: Ops, x: Array, size: int) -> list[Array]:
    """``x``, filled up with zeros, in ``size`` equal parts."""
    length = -(-ops.size(x) // size)
    whole = ops.flatten(ops.matrix(x, size, length))
    return [ops.slice(whole, number * length, (number + 1) * length) for number in range(size)]


def _positions(ops: Ops, compressor: Compressor, payloads: list[Payload], n: int) -> Array | None:
    """Of the elements that were sent, in the unit."""
    parts, start = [], 0
    for payload in payloads:
        positions = compressor.positions(payload)
        if positions is None:
            return None
        parts.append(ops.cast(positions, "int64") + start)
        start += payload.n
    joined = ops.concat(parts)
    return joined if start == n else ops.take(joined, ops.nonzero(joined < n))
