"""What methods share that keep some elements as they are and drop the others."""

import abc
from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive.compress.base import Contraction, ExchangeName, Field, Payload, dtype_bits
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class Sparse(Contraction):
    """Sends values f[k] and their positions, in about 2 + log2(n / k) bits each. A method says which."""

    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("gather", "shared-support", "two-sided")
    scatters: ClassVar[bool] = True
    counted: ClassVar[bool] = True
    """True if ranks may keep different numbers of elements."""

    @abc.abstractmethod
    def select(self, ops: Ops, x: Array, draw: Draw) -> Array:
        """``i64[k]``: distinct positions of the elements to keep, ascending."""

    def ranked(self, ops: Ops, x: Array, draw: Draw) -> Array:
        positions = self.select(ops, x, draw)
        return ops.take(positions, ops.largest_first(ops.take(x, positions)))

    def encode(self, ops: Ops, x: Array, draw: Draw) -> Payload:
        positions = self.select(ops, x, draw)
        n, dtype = ops.size(x), ops.dtype(x)
        values = Field(ops.take(x, positions), dtype_bits(dtype), self.counted)
        return Payload((values, places(positions, n, counted=self.counted)), n, dtype, ops.size(positions))

    def decode(self, ops: Ops, payload: Payload, draw: Draw, onto: Array | None = None, weight: float = 1.0) -> Array:
        values, positions = (field.array for field in payload.fields)
        if onto is None:
            onto = ops.zeros(payload.n, payload.dtype, like=values)
        return ops.scatter_add(onto, positions, values if weight == 1.0 else ops.scale(values, weight))

    def keep_back(self, ops: Ops, x: Array, payload: Payload, draw: Draw) -> Array:
        return ops.clear(x, payload.fields[1].array)

    def positions(self, payload: Payload) -> Array:
        return payload.fields[1].array


def places(positions: Array, n: int, *, counted: bool) -> Field:
    """Ascending ``positions`` below ``n`` as a field of a payload."""
    return Field(positions, (n - 1).bit_length(), counted, below=n)
