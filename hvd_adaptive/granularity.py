"""Units: which gradients are compressed together. The only place that knows how parameters map to flat vectors."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from hvd_adaptive.errors import ConfigError


@dataclass(frozen=True)
class Parameter:
    """What the core knows of a parameter: its agreed name, shape and dtype (``"float32"``)."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its dense gradient."""
        return self.size * {"float64": 8, "float32": 4}.get(self.dtype, 2)


@dataclass(frozen=True)
class Slot:
    """A parameter's place in its unit: elements ``start`` to ``stop``."""

    parameter: Parameter
    start: int
    stop: int


@dataclass(frozen=True)
class Unit:
    """A named, ordered group of gradients compressed together as one vector ``f[size]``."""

    name: str
    slots: tuple[Slot, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.slots[-1].stop if self.slots else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """That of its parameter if it is one, else ``(size,)``."""
        return self.slots[0].parameter.shape if len(self.slots) == 1 else (self.size,)

    @property
    def nbytes(self) -> int:
        """Bytes of its dense gradients."""
        return sum(slot.parameter.nbytes for slot in self.slots)

    @property
    def dtype(self) -> str:
        """The dtype it is compressed in: that of its widest parameter, float32 at least."""
        return "float64" if any(slot.parameter.dtype == "float64" for slot in self.slots) else "float32"

    @property
    def number(self) -> int:
        """32 bits that stand for the name where random numbers are derived; the same on every rank."""
        return zlib.crc32(self.name.encode())


def _unit(name: str, parameters: Iterable[Parameter]) -> Unit:
    slots: list[Slot] = []
    start = 0
    for parameter in parameters:
        slots.append(Slot(parameter, start, start + parameter.size))
        start += parameter.size
    return Unit(name, tuple(slots))


def layer_wise(parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
    """One unit per parameter, under the parameter's name."""
    return tuple(_unit(parameter.name, [parameter]) for parameter in parameters)


def entire_model(parameters: Sequence[Parameter]) -> tuple[Unit, ...]:
    """One unit of all parameters; none without parameters."""
    return (_unit("model", parameters),) if parameters else ()


def bucketed(parameters: Sequence[Parameter], bucket_bytes: int) -> tuple[Unit, ...]:
    """Consecutive parameters up to ``bucket_bytes`` of dense gradient each; a larger parameter is a bucket of its own.

    Buckets fill from the last parameter backwards, as gradients become ready, so that the first bucket is complete early.

    Raises:
        ConfigError: if ``bucket_bytes`` is not a positive integer.
    """
    if isinstance(bucket_bytes, bool) or not isinstance(bucket_bytes, int) or bucket_bytes < 1:
        raise ConfigError(f"bucket_bytes must be a positive number of bytes, got {bucket_bytes!r}")
    buckets: list[list[Parameter]] = []
    room = 0
    for parameter in reversed(parameters):
        if not buckets or parameter.nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(parameter)
        room -= parameter.nbytes
    return tuple(_unit(f"bucket{number}", reversed(bucket)) for number, bucket in enumerate(buckets))
