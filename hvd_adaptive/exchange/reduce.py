"""Reduce: codes that sum travel in an allreduce; traffic per rank is O(k), whatever the number of ranks."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hvd_adaptive.collective import Collective
from hvd_adaptive.compress.base import Compressor, ExchangeName, Payload
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key


@dataclass(frozen=True)
class Reduce:
    """Average the arrays of the payload, then decode the average."""

    name: ClassVar[ExchangeName] = "reduce"

    def start(self, ops: Ops, collective: Collective, payload: Payload, name: str) -> list[Any]:
        return [collective.allreduce(array, f"{name}.{number}") for number, array in enumerate(payload.arrays)]

    def wait(self, collective: Collective, pending: list[Any]) -> tuple[Array, ...]:
        return tuple(collective.wait(handle) for handle in pending)

    def decode(
        self,
        ops: Ops,
        received: tuple[Array, ...],
        size: int,
        own: Payload,
        compressor: Compressor,
        key: Key,
        weight: float = 1.0,
        checked: bool = True,
    ) -> Array | None:
        mean = replace(own, arrays=received)
        return None if checked and compressor.is_poisoned(ops, mean) else compressor.decode(ops, mean, key, weight=weight)

    def nbytes(self, ops: Ops, payload: Payload) -> int:
        return sum(ops.nbytes(array) for array in payload.arrays)
