"""The exchange protocol: how the payloads of all ranks become one mean.

An exchange is a generator: it yields the collective it needs next, is sent what that brought, and returns the outcome. So a unit
starts its first collective while others still wait for gradients, and later ones of all units run side by side.
"""

import abc
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from hvd_adaptive.collective import Kind
from hvd_adaptive.compress.base import Compressor, ExchangeName, Payload
from hvd_adaptive.feedback import KeepBack, UnitMemory
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.ops.verdicts import Verdict, spoilt
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class Round:
    """A collective that is needed next.

    Attributes:
        kind: which.
        array: what this rank puts in.
        splits: with ``"alltoall"``, how many elements go to each rank.
        meanwhile: what can be done while it is under way.
    """

    kind: Kind
    array: Array
    splits: tuple[int, ...] = ()
    meanwhile: Callable[[], None] | None = None


@dataclass(frozen=True)
class Outcome:
    """What an exchange comes to.

    Attributes:
        mean: of D(C(x)) over ranks, f[n], the same bits on every rank; None if any rank is known not to have been healthy.
        kept: elements that this rank sent.
        keep_back: takes what this rank sent out of ``x``.
        positions: of the elements this rank sent; None if it sent all.
        memory: what the exchange remembers until the next step.
        finite: False if any rank was not healthy; NaN throughout is then the mean.
    """

    mean: Array | None
    kept: int
    keep_back: KeepBack
    positions: Array | None = None
    memory: UnitMemory = field(default_factory=dict)
    finite: Verdict = True


Rounds: TypeAlias = Generator[Round, Array, Outcome]


@dataclass(frozen=True)
class Situation:
    """All that an exchange is told besides the vector.

    Attributes:
        ops: the backend.
        rank: of this process.
        size: number of ranks.
        step: steps done.
        draw: the random streams.
        shape: of the gradient if the unit is one parameter, else ``(n,)``.
        memory: what this exchange, or another one, remembers of earlier steps.
        checks: whether a gradient that is not finite must make every rank's outcome unhealthy.
        healthy: False if ``checks`` and this rank's gradient was not finite.
    """

    ops: Ops
    rank: int
    size: int
    step: int
    draw: Draw
    shape: tuple[int, ...]
    memory: UnitMemory
    checks: bool = True
    healthy: Verdict = True


class Exchange(abc.ABC):
    """Sends a compressed vector and comes to the mean of what all ranks sent."""

    name: ClassVar[ExchangeName]

    def check(self, compressor: Compressor, size: int) -> None:  # noqa: B027
        """
        Raises:
            ConfigError: if it cannot serve this compressor among ``size`` ranks.
        """

    def carries_all(self, compressor: Compressor) -> bool:
        """True if every element travels as a float all the way, and so NaN and infinity do, and nothing is remembered."""
        return compressor.carries_all

    def remembers(self, compressor: Compressor, shape: tuple[int, ...], size: int) -> dict[str, int]:
        """Lengths of the vectors that a checkpoint must hold, by name, of a unit of this ``shape``."""
        return {}

    @abc.abstractmethod
    def rounds(self, compressor: Compressor, x: Array, situation: Situation) -> Rounds:
        """Run the exchange of ``x`` f[n], n >= 1, which payloads may alias until the outcome, and which is not changed."""


def unhealthy(kept: int) -> Outcome:
    """The outcome where some rank's gradient was not finite."""
    return Outcome(None, kept, lambda x: x)


def outcome(
    ops: Ops, compressor: Compressor, payload: Payload, draw: Draw, mean: Array | None, finite: Verdict = True
) -> Outcome:
    """The outcome of an exchange of one payload of the whole unit."""
    if mean is None:
        return unhealthy(payload.kept)

    def keep_back(x: Array) -> Array:
        return compressor.keep_back(ops, x, payload, draw)

    return Outcome(spoilt(ops, mean, finite, math.nan), payload.kept, keep_back, compressor.positions(payload), finite=finite)


def average(ops: Ops, compressor: Compressor, payloads: list[Payload], draw: Draw, onto: Array | None = None) -> Array:
    """The mean of what ``payloads`` decode to, or the majority's vote, summed in their order ``onto`` zeros."""
    total = onto
    for payload in payloads:
        total = compressor.decode(ops, payload, draw, onto=total, weight=1.0 if compressor.votes else 1 / len(payloads))
    return ops.sign(total) if compressor.votes else total
