"""The exchange protocol: how the payloads of all ranks become one mean."""

from typing import Any, ClassVar, Protocol

from hvd_adaptive.collective import Collective
from hvd_adaptive.compress.base import Compressor, ExchangeName, Payload
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Key


class Exchange(Protocol):
    """Start sending a payload, and later decode the mean of what all ranks sent."""

    name: ClassVar[ExchangeName]

    def start(self, ops: Ops, collective: Collective, payload: Payload, name: str) -> Any:
        """Start the collectives called ``name``. Returns what :meth:`wait` needs."""

    def wait(self, collective: Collective, pending: Any) -> tuple[Array, ...]:
        """What the collectives brought."""

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
        """``weight`` times the mean over ``size`` ranks of D(payload), f[n]; None if ``checked`` and one is poisoned.

        The result is a function of what travelled only, summed in rank order, so every rank holds the same bits.
        """

    def nbytes(self, ops: Ops, payload: Payload) -> int:
        """Bytes handed to the collectives by this rank."""
