"""What a step of one unit should cost under each exchange of ``TopK``: messages one after the other, bytes, and work on a host.

Collectives are taken for what MPI libraries do with long vectors: a ring. An allreduce of m bytes takes 2 (P - 1) messages there
and carries 2 (P - 1) / P m bytes over each rank's link, an allgather P - 1 messages and (P - 1) times what each rank gives.
Source: Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in MPICH", section 4.
"""

from dataclasses import dataclass

from hvd_adaptive.compress.base import kept_count
from hvd_adaptive.ops.ascending import coded_size

FLOAT, WORD = 4, 8
"""Bytes of an element, and of what buffers are made of."""


@dataclass(frozen=True)
class Network:
    """A link of each rank: seconds for a message of no length, and bytes per second."""

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Host:
    """Seconds for an element: selecting among all, zeros for the mean, and taking in or out one that was sent."""

    select: float
    zeros: float
    touch: float


@dataclass(frozen=True)
class Cost:
    """Of one step, for one rank.

    Attributes:
        handed: bytes given to collectives, the mean over steps.
        messages: that follow one another.
        carried: bytes over the rank's link.
        work: seconds on the host.
    """

    handed: float
    messages: float
    carried: float
    work: float

    def seconds(self, network: Network) -> float:
        """Nothing is taken to overlap."""
        return self.messages * network.latency + self.carried / network.bandwidth + self.work


def costs(elements: int, factor: float, ranks: int, host: Host) -> dict[str, Cost]:
    """By exchange, and ``"dense"`` for stock Horovod's way."""
    others, kept = ranks - 1, kept_count(factor, elements)
    ring = 2 * others / ranks  # of an allreduce's bytes, over each link
    sent, told, values = _payload(elements, kept), _positions(elements, kept), FLOAT * (kept + 1)
    length = -(-elements // ranks)
    chunk, kept_of_chunk = _payload(length, kept_count(factor, length)), kept_count(factor, length)
    whole = (host.select + host.zeros) * elements
    return {
        "dense": Cost(FLOAT * elements, 2 * others, ring * FLOAT * elements, 0.0),
        "gather": Cost(sent, others, others * sent, whole + host.touch * kept * (ranks + 1)),
        "shared-support": Cost(told / ranks + values, 3 * others, told + ring * values, whole + host.touch * kept * 2),
        "two-sided": Cost((ranks + 1) * chunk, 2 * others, 2 * others * chunk, whole + host.touch * kept_of_chunk * 3 * ranks),
    }


def _words(nbytes: int) -> int:
    return WORD * -(-nbytes // WORD)


def _payload(elements: int, kept: int) -> int:
    """Values and positions."""
    return _words(FLOAT * kept + coded_size(kept, elements))


def _positions(elements: int, kept: int) -> int:
    """With how many there are."""
    return WORD + _words(coded_size(kept, elements))
