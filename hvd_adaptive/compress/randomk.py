"""Random-k sparsification: keep k elements chosen uniformly at random, the same positions on every rank.

Contract  E||x - D(C(x))||^2 = (1 - k/n) ||x||^2. Biased (E[D(C(x))] = k/n x), so error feedback is on by default.
On wire   values f[k]; positions follow from (seed, step, unit), so values of all ranks sum and ride an allreduce.
Source    Dutta et al. 2020, section 5.2, arXiv:1911.08250; Stich et al. 2018, arXiv:1809.07599.
Differs   positions come from a counter-based generator, not from the framework's global one.
"""

from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive.compress.base import ExchangeName, FloatPayload, Payload, check_factor, kept_count
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key, sample


@dataclass(frozen=True)
class RandomK(FloatPayload):
    """Keep one in ``factor`` elements of a unit, chosen at random anew each step.

    Args:
        factor: original elements / kept elements, >= 1. 100 keeps 1 %.

    Raises:
        ConfigError: if ``factor`` is not a finite number >= 1.
    """

    factor: float
    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("reduce", "gather")
    biased: ClassVar[bool] = True
    carries_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", check_factor("RandomK", self.factor))

    def encode(self, ops: Ops, x: Array, key: Key) -> Payload:
        n = ops.size(x)
        k = self.kept(n)
        positions = ops.arange(n, x) if k == n else sample(ops, key, k, n, x)
        return Payload((ops.take(x, positions),), n, ops.dtype(x), positions)

    def decode(self, ops: Ops, payload: Payload, key: Key, onto: Array | None = None, weight: float = 1.0) -> Array:
        (values,) = payload.arrays
        if onto is None:
            onto = ops.zeros(payload.n, payload.dtype, like=values)
        return ops.scatter_add(onto, payload.positions, values if weight == 1.0 else ops.scale(values, weight))

    def keep_back(self, ops: Ops, x: Array, payload: Payload, key: Key) -> Array:
        return ops.clear(x, payload.positions)

    def kept(self, n: int) -> int:
        return kept_count(self.factor, n)
