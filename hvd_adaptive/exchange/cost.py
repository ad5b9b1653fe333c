"""What a step of one unit should cost under each exchange: messages one after the other, bytes, and work on a host.

Collectives are taken for what MPI libraries do with long vectors: a ring. An allreduce of m bytes takes 2 (P - 1) messages there
and carries 2 (P - 1) / P m bytes over each rank's link, an allgather P - 1 messages and (P - 1) times what each rank gives.
Source: Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in MPICH", section 4.
"""

from dataclasses import dataclass

from hvd_adaptive import checks
from hvd_adaptive.compress.base import Compressor, kept_count
from hvd_adaptive.compress.levels import Levels
from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.exchange.lanes import Lanes
from hvd_adaptive.ops.ascending import coded_size
from hvd_adaptive.ops.packing import packed_size

WORD, LANES = 8, 4
"""Bytes of what buffers are made of, and of what lanes lie in."""


@dataclass(frozen=True)
class Network:
    """The link of each rank.

    Args:
        latency: seconds that a message of no length takes.
        bandwidth: bytes per second.

    Raises:
        ConfigError: if ``latency`` is not a number >= 0, or ``bandwidth`` not above 0.
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", checks.number("Network", "latency", self.latency, 0, hint="seconds"))
        object.__setattr__(self, "bandwidth", checks.above_zero("Network", "bandwidth", self.bandwidth))


@dataclass(frozen=True)
class Host:
    """Seconds for an element, of one core: ``benchmarks/scaling.py`` measures the first three.

    Attributes:
        select: to find those to keep among all.
        zeros: to clear the mean.
        touch: to take in or out one that was sent, of a few among many.
        decode: one that was sent, of all.
    """

    select: float = 1.5e-9
    zeros: float = 0.5e-9
    touch: float = 5e-9
    decode: float = 3e-9


HOST = Host()
"""A core of today's."""


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


def costs(compressor: Compressor, n: int, ranks: int, width: int = 4, host: Host = HOST) -> dict[str, Cost]:
    """By exchange, for a unit of ``n`` elements of ``width`` bytes; ``"dense"`` for stock Horovod's way.

    Only exchanges that such ranks may use, and whose bytes do not depend on the gradient.
    """
    dense = {"dense": Cost(width * n, 2 * (ranks - 1), _ring(ranks) * width * n, 0.0)}
    factor = getattr(compressor, "factor", None)
    if isinstance(compressor, Sparse) and factor is not None:
        return dense | _sparse(n, kept_count(factor, n), factor, ranks, width, host)
    if isinstance(compressor, Levels):
        return dense | _levels(compressor, n, ranks, max(4, width), host)
    return dense


def _sparse(n: int, kept: int, factor: float, ranks: int, width: int, host: Host) -> dict[str, Cost]:
    others, ring = ranks - 1, _ring(ranks)
    sent, told, values = _payload(n, kept, width), WORD + _words(coded_size(kept, n)), width * (kept + 1)
    length = -(-n // ranks)
    kept_of_chunk = kept_count(factor, length)
    chunk = _payload(length, kept_of_chunk, width)
    whole = (host.select + host.zeros) * n
    return {
        "gather": Cost(sent, others, others * sent, whole + host.touch * kept * (ranks + 1)),
        "shared-support": Cost(told / ranks + values, 3 * others, told + ring * values, whole + host.touch * kept * 2),
        "two-sided": Cost((ranks + 1) * chunk, 2 * others, 2 * others * chunk, whole + host.touch * kept_of_chunk * 3 * ranks),
    }


def _levels(compressor: Levels, n: int, ranks: int, width: int, host: Host) -> dict[str, Cost]:
    others, scales = ranks - 1, width * -(-n // compressor.width(n))
    sent = _words(scales + packed_size(n, compressor.top.bit_length()))
    found = {"gather": Cost(sent, others, others * sent, host.decode * n * ranks)}
    try:
        lanes = Lanes(compressor.top, ranks)
    except ConfigError:  # too many levels for so many ranks
        return found
    summed = scales + LANES * -(-n // lanes.in_a_word)
    return found | {"reduce": Cost(summed, 4 * others, _ring(ranks) * summed, host.decode * n)}


def _ring(ranks: int) -> float:
    """Of an allreduce's bytes, how many cross each link."""
    return 2 * (ranks - 1) / ranks


def _words(nbytes: int) -> int:
    return WORD * -(-nbytes // WORD)


def _payload(n: int, kept: int, width: int) -> int:
    """Values and positions."""
    return _words(width * kept + coded_size(kept, n))
