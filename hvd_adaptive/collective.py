"""What the core asks of the network, and ``Loopback``: N ranks in one process, for tests and simulation.

Every collective is named, because ranks may reach them in different orders. It is started, then waited for.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.ops import Array, Ops

T = TypeVar("T")

REDUCIBLE = ("int32", "int64", "float16", "float32", "float64")
"""What Horovod's allreduce takes."""
GATHERABLE = (*REDUCIBLE, "uint8", "int8", "int16")
"""What Horovod's allgather takes."""


class Collective(Protocol):
    """Collectives among ``size`` ranks, of which this is ``rank``."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def allreduce(self, x: Array, name: str) -> Any:
        """Start the mean of ``x`` over all ranks; the same length and dtype on each. Returns a handle."""

    def allgather(self, x: Array, name: str) -> Any:
        """Start the concatenation of every rank's ``x`` in rank order; lengths may differ. Returns a handle."""

    def wait(self, handle: Any) -> Array:
        """The result of a started collective."""


@dataclass
class _Meeting:
    """One named collective under way."""

    arrays: dict[int, Array] = field(default_factory=dict)


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

    def post(self, kind: str, name: str, rank: int, x: Array) -> tuple[_Meeting, str, str, int]:
        """Add one rank's array to the collective ``name``."""
        legal = REDUCIBLE if kind == "allreduce" else GATHERABLE
        if self._ops.dtype(x) not in legal:
            raise UnsupportedError(f"{kind} takes {', '.join(legal)}, got {self._ops.dtype(x)} for {name!r}")
        with self._changed:
            meeting = self._meetings.setdefault((kind, name), _Meeting())
            if rank in meeting.arrays:
                raise ConfigError(f"rank {rank} started {kind} {name!r} twice before it was done")
            meeting.arrays[rank] = self._ops.concat([x, x[:0]])  # a copy, for a rank may go on before the others have read
            if len(meeting.arrays) == self.size:
                del self._meetings[kind, name]  # the name is free again
            self._changed.notify_all()
        return meeting, kind, name, rank

    def collect(self, handle: tuple[_Meeting, str, str, int]) -> Array:
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
        return self._mean(name, arrays) if kind == "allreduce" else self._ops.concat([*arrays, arrays[0][:0]])

    def _mean(self, name: str, arrays: list[Array]) -> Array:
        shapes = {(self._ops.size(a), self._ops.dtype(a)) for a in arrays}
        if len(shapes) > 1:
            raise ConfigError(f"allreduce {name!r}: ranks disagree on length and dtype: {sorted(shapes)}")
        total = arrays[0]
        for array in arrays[1:]:
            total = total + array
        return total // self.size if self._ops.dtype(total).startswith("int") else total / self.size


class _ReleasedError(RuntimeError):
    """A rank was let go because another one failed."""


class _LoopbackRank:
    """One rank's view of a :class:`Loopback`."""

    def __init__(self, world: Loopback, rank: int) -> None:
        self._world = world
        self.rank = rank
        self.size = world.size

    def allreduce(self, x: Array, name: str) -> Any:
        return self._world.post("allreduce", name, self.rank, x)

    def allgather(self, x: Array, name: str) -> Any:
        return self._world.post("allgather", name, self.rank, x)

    def wait(self, handle: Any) -> Array:
        return self._world.collect(handle)
