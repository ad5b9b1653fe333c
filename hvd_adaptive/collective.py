"""What the core asks of the network, and ``Loopback``: N ranks in one process, for tests and simulation.

Every collective is named, because ranks may reach them in different orders. It is started, then waited for.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.ops import Array, Ops

T = TypeVar("T")

REDUCIBLE = ("int32", "int64", "float16", "float32", "float64")
"""What Horovod's allreduce takes."""
GATHERABLE = (*REDUCIBLE, "uint8", "int8", "int16")
"""What Horovod's allgather and alltoall take."""

Kind: TypeAlias = Literal["mean", "sum", "max", "gather", "alltoall"]
"""The collectives: element by element the ``mean``, ``sum`` or ``max`` over ranks of vectors of the same length and dtype;
``gather``, every rank's vector in rank order, whose lengths may differ; ``alltoall``, the pieces that all ranks sent to this one,
in rank order."""


class Collective(Protocol):
    """Collectives among ``size`` ranks, of which this is ``rank``."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def start(self, kind: Kind, x: Array, name: str, splits: tuple[int, ...] = ()) -> Any:
        """Start a collective. Returns a handle.

        Args:
            kind: which.
            x: what this rank puts in.
            name: the same on every rank.
            splits: with ``"alltoall"``, how many elements of ``x`` go to each rank.
        """

    def wait(self, handle: Any) -> Array:
        """The result of a started collective."""


@dataclass
class _Meeting:
    """One named collective under way."""

    arrays: dict[int, Array] = field(default_factory=dict)
    splits: dict[int, tuple[int, ...]] = field(default_factory=dict)


class Loopback:
    """N ranks as N threads of one process, with the rules of Horovod's collectives and none of its machinery.

    Args:
        size: number of ranks.
        ops: the backend of the arrays that travel.
        timeout: seconds after which a rank that waits alone fails instead of hanging.
    """

    def __init__(self, size: int, ops: Ops, timeout: float = 20.0) -> None:
        if size < 1:
            raise ConfigError(f"Loopback: size must be at least 1, got {size}")
        self.size = size
        self._ops = ops
        self._timeout = timeout
        self._changed = threading.Condition()
        self._meetings: dict[tuple[str, str], _Meeting] = {}
        self._failed = False

    def run(self, function: Callable[[Collective], T]) -> list[T]:
        """Call ``function`` on every rank at once and return its results in rank order.

        Raises:
            Exception: the first one a rank raised, of the lowest rank that did; the other ranks are released.
        """
        results: list[Any] = [None] * self.size
        errors: dict[int, BaseException] = {}

        def target(rank: int) -> None:
            try:
                results[rank] = function(_LoopbackRank(self, rank))
            except BaseException as error:  # noqa: BLE001 - raised again by the caller below, whatever it is
                errors[rank] = error
                with self._changed:
                    self._failed = True
                    self._changed.notify_all()

        threads = [threading.Thread(target=target, args=(rank,), daemon=True) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._meetings.clear()
        self._failed = False
        if errors:
            causes = [rank for rank, error in errors.items() if not isinstance(error, _ReleasedError)]
            raise errors[min(causes or errors)]
        return results

    def post(self, kind: Kind, name: str, rank: int, x: Array, splits: tuple[int, ...]) -> tuple[_Meeting, Kind, str, int]:
        """Add one rank's array to the collective ``name``."""
        legal = GATHERABLE if kind in {"gather", "alltoall"} else REDUCIBLE
        if self._ops.dtype(x) not in legal:
            raise UnsupportedError(f"{kind} takes {', '.join(legal)}, got {self._ops.dtype(x)} for {name!r}")
        if kind == "alltoall" and (len(splits) != self.size or sum(splits) != self._ops.size(x)):
            raise ConfigError(f"alltoall {name!r}: splits {splits} do not cut {self._ops.size(x)} elements for {self.size} ranks")
        with self._changed:
            meeting = self._meetings.setdefault((kind, name), _Meeting())
            if rank in meeting.arrays:
                raise ConfigError(f"rank {rank} started {kind} {name!r} twice before it was done")
            meeting.arrays[rank] = self._ops.concat([x, x[:0]])  # a copy, for a rank may go on before the others have read
            meeting.splits[rank] = splits
            if len(meeting.arrays) == self.size:
                del self._meetings[kind, name]  # the name is free again
            self._changed.notify_all()
        return meeting, kind, name, rank

    def collect(self, handle: tuple[_Meeting, Kind, str, int]) -> Array:
        """Wait until every rank has posted, then combine."""
        meeting, kind, name, rank = handle
        with self._changed:
            complete = self._changed.wait_for(lambda: self._failed or len(meeting.arrays) == self.size, timeout=self._timeout)
            if len(meeting.arrays) < self.size:
                missing = sorted(set(range(self.size)) - set(meeting.arrays))
                if complete:
                    raise _ReleasedError(f"{kind} {name!r} on rank {rank}: another rank failed")
                raise TimeoutError(f"{kind} {name!r} on rank {rank}: ranks {missing} never came")
        arrays = [meeting.arrays[r] for r in range(self.size)]
        if kind == "alltoall":
            ends = [sum(meeting.splits[r][: rank + 1]) for r in range(self.size)]
            arrays = [self._ops.slice(arrays[r], ends[r] - meeting.splits[r][rank], ends[r]) for r in range(self.size)]
        joined = kind in {"gather", "alltoall"}
        return self._ops.concat([*arrays, arrays[0][:0]]) if joined else self._reduce(kind, name, arrays)

    def _reduce(self, kind: Kind, name: str, arrays: list[Array]) -> Array:
        shapes = {(self._ops.size(a), self._ops.dtype(a)) for a in arrays}
        if len(shapes) > 1:
            raise ConfigError(f"{kind} {name!r}: ranks disagree on length and dtype: {sorted(shapes)}")
        total = self._ops.concat([arrays[0], arrays[0][:0]])
        for array in arrays[1:]:
            total = self._ops.where(array > total, array, total) if kind == "max" else total + array
        if kind == "mean":
            total = total // self.size if self._ops.dtype(total).startswith("int") else total / self.size
        return total


class _ReleasedError(RuntimeError):
    """A rank was let go because another one failed."""


class _LoopbackRank:
    """One rank's view of a :class:`Loopback`."""

    def __init__(self, world: Loopback, rank: int) -> None:
        self._world = world
        self.rank = rank
        self.size = world.size

    def start(self, kind: Kind, x: Array, name: str, splits: tuple[int, ...] = ()) -> Any:
        return self._world.post(kind, name, self.rank, x, splits)

    def wait(self, handle: Any) -> Array:
        return self._world.collect(handle)
