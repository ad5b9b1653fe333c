"""What a compressor is: maths only, flat vector -> payload -> flat vector. Knows no network and no framework."""

import abc
import functools
import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, NoReturn, TypeAlias

from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.feedback import Feedback, NoFeedback, Residual
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw

ExchangeName: TypeAlias = Literal["reduce", "gather", "shared-support", "two-sided"]


class Field(NamedTuple):
    """One vector of a payload.

    Attributes:
        array: floats, or codes: whole numbers from 0 to below 2^bits.
        bits: what each element takes on the wire; the width of the dtype of what travels as it is, as floats do.
        counted: True if its length is the number of elements kept, which may differ by rank.
        below: where not 0, these are distinct ascending positions below it, which take fewer bits together than each by itself.
    """

    array: Array
    bits: int
    counted: bool = False
    below: int = 0


@dataclass(frozen=True)
class Payload:
    """What travels for one unit.

    Attributes:
        fields: the same number, dtypes and, unless counted, lengths on every rank.
        n: elements of the unit it stands for.
        dtype: dtype of the unit's gradient, which decoding restores.
        kept: how many of the ``n`` elements it carries.
        support: positions of those, where every rank knows them without being told; does not travel.
    """

    fields: tuple[Field, ...]
    n: int
    dtype: str
    kept: int
    support: Array | None = None


class Compressor(abc.ABC):
    """One method as one frozen value."""

    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("gather", "two-sided")
    """The legal exchanges, the default first."""

    carries_all: ClassVar[bool] = False
    """True if every element travels as a float, and so NaN and infinity do without help."""

    scatters: ClassVar[bool] = False
    """True if decoding adds a few elements to zeros."""

    @property
    def biased(self) -> bool:
        """True if E[D(C(x))] is not x."""
        return False

    @property
    def feedback(self) -> Feedback:
        """What is kept back unless the user asks for something else."""
        return NoFeedback()

    @property
    def votes(self) -> bool:
        """True if ranks do not average what they sent: the sign of the sum counts."""
        return False

    @abc.abstractmethod
    def omega(self, n: int) -> float:
        """A bound with E||D(C(x))||^2 <= (1 + omega) ||x||^2 for every ``x`` f[n]; infinite if there is none."""

    @abc.abstractmethod
    def encode(self, ops: Ops, x: Array, draw: Draw) -> Payload:
        """C(x) for ``x`` f[n], n >= 1; does not change ``x``, may alias it."""

    @abc.abstractmethod
    def decode(self, ops: Ops, payload: Payload, draw: Draw, onto: Array | None = None, weight: float = 1.0) -> Array:
        """``onto + weight * D(payload)``, f[n]; a new vector (or the payload's own) where ``onto`` is None; donates ``onto``.

        ``draw`` is any rank's: only what is shared may be used.
        """

    def keep_back(self, ops: Ops, x: Array, payload: Payload, draw: Draw) -> Array:
        """``x - D(payload)`` for the payload of ``x``; donates ``x``."""
        return self.decode(ops, payload, draw, onto=x, weight=-1.0)

    def positions(self, payload: Payload) -> Array | None:
        """Of the elements that the payload carries; None if it carries all."""
        return None

    def compress(self, tensor: object) -> NoReturn:
        """What Horovod calls on a method that was passed in place of a compression object.

        Raises:
            ConfigError: always, with what to write.
        """
        raise ConfigError(
            f"compression is {self!r}, a method without the parameters to use it on; pass an object of hvd_adaptive.torch or "
            f"hvd_adaptive.tensorflow, such as compression=EntireModel(parameters, {self!r})"
        )

    def ranked(self, ops: Ops, x: Array, draw: Draw) -> Array:
        """``i64[k]``: positions of what is kept, so ordered that with a larger factor the first of them would be.

        Raises:
            UnsupportedError: if the method has no factor.
        """
        raise UnsupportedError(f"{self!r} has no factor")


class Contraction(Compressor):
    """A method whose error never exceeds the gradient: biased, and error feedback makes up for what it drops."""

    @property
    def biased(self) -> bool:
        return True

    @property
    def feedback(self) -> Feedback:
        return Residual()

    def omega(self, n: int) -> float:
        """0"""
        return 0.0


def add_weighted(ops: Ops, values: Array, onto: Array | None, weight: float) -> Array:
    """``onto + weight * values``; the end of most decoders."""
    if onto is None:
        return values if weight == 1.0 else ops.scale(values, weight)
    return ops.add_slice(onto, 0, values, weight)


def at_least_single(ops: Ops, x: Array) -> Array:
    """``x`` in float32, or as it is in float64: what scales are computed in."""
    return x if ops.dtype(x) == "float64" else ops.cast(x, "float32")


@functools.cache
def dtype_bits(dtype: str) -> int:
    """Bits of an element of a float or integer dtype."""
    return int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz"))


def kept_count(factor: float, n: int) -> int:
    """Elements kept of ``n``: n / factor to the nearest, one at least."""
    return min(n, max(1, math.floor(n / factor + 0.5)))
