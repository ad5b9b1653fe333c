"""Gather: any code travels, in one contiguous buffer per unit; every rank decodes all of them. Traffic per rank is O(P k)."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hvd_adaptive.collective import Collective
from hvd_adaptive.compress.base import Compressor, ExchangeName, Payload
from hvd_adaptive.errors import UnsupportedError
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key

_ALIGNMENT = 8
"""Bytes. Each rank's buffer is padded to it, so that every array in the gathered buffer may be viewed in its dtype."""

_MOST_WORDS = 2**31
"""MPI counts the elements of a gather in 32 bits; in words of 8 bytes they go 8 times as far as in bytes."""


@dataclass(frozen=True)
class Gather:
    """Allgather the payloads as bytes, decode each and add them up in rank order."""

    name: ClassVar[ExchangeName] = "gather"

    def start(self, ops: Ops, collective: Collective, payload: Payload, name: str) -> Any:
        parts = [ops.to_bytes(payload.arrays[number]) for number in _widest_first(ops, payload)]
        padding = self.nbytes(ops, payload) - sum(ops.nbytes(array) for array in payload.arrays)
        buffer = ops.concat([*parts, ops.zeros(padding, "uint8", like=parts[0])])
        words = ops.from_bytes(buffer, "int64")
        if collective.size * ops.size(words) >= _MOST_WORDS:
            raise UnsupportedError(
                f"{name}: {collective.size} ranks with {ops.nbytes(buffer)} bytes each are more than one allgather can carry "
                f"({8 * _MOST_WORDS} bytes); use a larger factor, or Bucketed or LayerWise instead of EntireModel"
            )
        return collective.allgather(words, name)

    def wait(self, collective: Collective, pending: Any) -> tuple[Array, ...]:
        return (collective.wait(pending),)

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
        raw = ops.to_bytes(received[0])
        stride = ops.size(raw) // size
        payloads = [self._unpack(ops, ops.slice(raw, rank * stride, (rank + 1) * stride), own) for rank in range(size)]
        if checked and any(compressor.is_poisoned(ops, payload) for payload in payloads):
            return None
        total = None
        for payload in payloads:
            total = compressor.decode(ops, payload, key, onto=total, weight=weight / size)
        return total

    def nbytes(self, ops: Ops, payload: Payload) -> int:
        exact = sum(ops.nbytes(array) for array in payload.arrays)
        return -(-exact // _ALIGNMENT) * _ALIGNMENT

    def _unpack(self, ops: Ops, raw: Array, template: Payload) -> Payload:
        """One rank's payload, laid out as this rank's own is."""
        arrays, start = list(template.arrays), 0
        for number in _widest_first(ops, template):
            array = template.arrays[number]
            stop = start + ops.nbytes(array)
            arrays[number] = ops.from_bytes(ops.slice(raw, start, stop), ops.dtype(array))
            start = stop
        return replace(template, arrays=tuple(arrays))


def _widest_first(ops: Ops, payload: Payload) -> list[int]:
    """The order in which arrays lie in the buffer: none then starts where its dtype may not."""
    bits = [int(ops.dtype(array).lstrip("abcdefghijklmnopqrstuvwxyz")) for array in payload.arrays]
    return sorted(range(len(bits)), key=lambda number: -bits[number])
