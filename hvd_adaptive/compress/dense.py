"""What methods share that send one float for every element."""

import abc
from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive.compress.base import Compressor, ExchangeName, Field, Payload, add_weighted, dtype_bits
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class Dense(Compressor):
    """Sends a vector f[n] of another dtype, or the same."""

    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("reduce", "gather", "two-sided")
    carries_all: ClassVar[bool] = True

    @abc.abstractmethod
    def shorten(self, ops: Ops, x: Array) -> Array:
        """``x`` as it travels."""

    def restore(self, ops: Ops, values: Array, dtype: str) -> Array:
        """What travelled, in ``dtype``."""
        return ops.cast(values, dtype)

    def encode(self, ops: Ops, x: Array, draw: Draw) -> Payload:
        values = self.shorten(ops, x)
        n = ops.size(x)
        return Payload((Field(values, dtype_bits(ops.dtype(values))),), n, ops.dtype(x), n)

    def decode(self, ops: Ops, payload: Payload, draw: Draw, onto: Array | None = None, weight: float = 1.0) -> Array:
        return add_weighted(ops, self.restore(ops, payload.fields[0].array, payload.dtype), onto, weight)
