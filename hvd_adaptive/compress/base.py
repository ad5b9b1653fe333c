"""The compressor protocol: maths only, flat vector -> payload -> flat vector. Knows no network and no framework."""

import math
import numbers
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol, TypeAlias

from hvd_adaptive.errors import ConfigError
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key

ExchangeName: TypeAlias = Literal["reduce", "gather"]


@dataclass(frozen=True)
class Payload:
    """What travels for one unit.

    Attributes:
        arrays: vectors of the backend; the same number, dtypes and lengths on every rank.
        n: elements of the unit it stands for.
        dtype: dtype of the unit's gradient, which decoding restores.
        positions: of the values, where every rank knows them without being told; does not travel.
    """

    arrays: tuple[Array, ...]
    n: int
    dtype: str
    positions: Array | None = None


class Compressor(Protocol):
    """One method as one frozen value. ``key`` is the same on every rank and differs by step and unit."""

    exchanges: ClassVar[tuple[ExchangeName, ...]]
    """The legal exchanges, the default first."""

    biased: ClassVar[bool]
    """True if E[D(C(x))] is not x: error feedback is then on by default."""

    carries_all: ClassVar[bool]
    """True if every element travels, and so NaN and infinity do without help."""

    def encode(self, ops: Ops, x: Array, key: Key) -> Payload:
        """C(x) for ``x`` f[n]; does not change ``x``, may alias it."""

    def decode(self, ops: Ops, payload: Payload, key: Key, onto: Array | None = None, weight: float = 1.0) -> Array:
        """``onto + weight * D(payload)``, f[n]; a new vector (or the payload's own) where ``onto`` is None; donates ``onto``."""

    def keep_back(self, ops: Ops, x: Array, payload: Payload, key: Key) -> Array:
        """``x - D(payload)`` for the payload of ``x``; donates ``x``."""

    def kept(self, n: int) -> int:
        """How many of ``n`` elements travel."""

    def poison(self, ops: Ops, payload: Payload) -> Payload:
        """A payload of the same layout that tells every rank, alone or in a mean, that this rank's gradient was not finite."""

    def is_poisoned(self, ops: Ops, payload: Payload) -> bool:
        """True if the payload, or one of those it is the mean of, is a :meth:`poison`."""


class FloatPayload:
    """Poison for codes with a float array: NaN, which survives a mean."""

    def poison(self, ops: Ops, payload: Payload) -> Payload:
        """See :meth:`Compressor.poison`."""
        arrays = tuple(ops.full_like(a, math.nan) if ops.dtype(a).startswith("float") else a for a in payload.arrays)
        return replace(payload, arrays=arrays)

    def is_poisoned(self, ops: Ops, payload: Payload) -> bool:
        """See :meth:`Compressor.is_poisoned`."""
        return any(ops.starts_with_nan(a) for a in payload.arrays if ops.dtype(a).startswith("float"))


def check_factor(owner: str, factor: object) -> float:
    """``factor`` as a float.

    Raises:
        ConfigError: if it is not a finite number >= 1.
    """
    try:
        value = math.nan if isinstance(factor, bool) or not isinstance(factor, numbers.Real) else float(factor)
    except OverflowError:  # an integer beyond any float
        value = math.inf
    if not 1 <= value < math.inf:
        raise ConfigError(f"{owner}: factor must be a finite number >= 1 (10 keeps a tenth of the elements), got {factor!r}")
    return value


def kept_count(factor: float, n: int) -> int:
    """Elements kept of ``n``: n / factor to the nearest, one at least."""
    return min(n, max(1, math.floor(n / factor + 0.5)))
