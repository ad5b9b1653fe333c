"""Top-k sparsification: keep the k elements of largest magnitude.

Contract  ||x - D(C(x))||^2 <= (1 - k/n) ||x||^2. Biased, so error feedback is on by default.
On wire   values f[k] and positions i32[k] (i64 from 2^31 elements on); the same k on every rank.
Source    Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory", arXiv:1809.07599.
Differs   exactly k elements survive ties; a test against the k-th magnitude would keep more.
"""

from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive.compress.base import ExchangeName, FloatPayload, Payload, check_factor, kept_count
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key


@dataclass(frozen=True)
class TopK(FloatPayload):
    """Keep one in ``factor`` elements of a unit, the largest in magnitude.

    Args:
        factor: original elements / kept elements, >= 1. 100 keeps 1 %.

    Raises:
        ConfigError: if ``factor`` is not a finite number >= 1.
    """

    factor: float
    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("gather",)
    biased: ClassVar[bool] = True
    carries_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", check_factor("TopK", self.factor))

    def encode(self, ops: Ops, x: Array, key: Key) -> Payload:
        n = ops.size(x)
        positions = ops.top_positions(x, self.kept(n))
        values = ops.take(x, positions)
        return Payload((values, ops.cast(positions, "int32" if n < 2**31 else "int64")), n, ops.dtype(x))

    def decode(self, ops: Ops, payload: Payload, key: Key, onto: Array | None = None, weight: float = 1.0) -> Array:
        values, positions = payload.arrays
        if onto is None:
            onto = ops.zeros(payload.n, payload.dtype, like=values)
        return ops.scatter_add(onto, positions, values if weight == 1.0 else ops.scale(values, weight))

    def keep_back(self, ops: Ops, x: Array, payload: Payload, key: Key) -> Array:
        return ops.clear(x, payload.arrays[1])

    def kept(self, n: int) -> int:
        return kept_count(self.factor, n)
