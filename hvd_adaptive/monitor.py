"""What happened: a record per unit and step for whoever listens, and running totals."""

import json
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from hvd_adaptive.errors import ConfigError


@dataclass(frozen=True)
class StepRecord:
    """One unit in one step, on this rank.

    Attributes:
        step: steps done before this one.
        unit: the unit's name.
        elements: of the unit.
        kept: elements sent.
        factor: elements / kept, of which one is counted at least.
        bytes_sent: handed to collectives by this rank.
        bytes_dense: what stock Horovod would have been handed.
        finite: False if the result holds NaN or infinity, because a gradient of some rank did; a residual is then as before.
            A gradient that the method itself leaves untouched is not looked at.
    """

    step: int
    unit: str
    elements: int
    kept: int
    factor: float
    bytes_sent: int
    bytes_dense: int
    finite: bool


class Monitor(Protocol):
    """Whoever wants to hear of each unit in each step."""

    def record(self, record: StepRecord) -> None: ...


@dataclass
class Memory:
    """Keeps all records."""

    records: list[StepRecord] = field(default_factory=list)

    def record(self, record: StepRecord) -> None:
        self.records.append(record)


class JsonLines:
    """Appends each record to a file as one line of JSON.

    Args:
        path: the file; its folder is made. Give each rank its own, or only rank 0 one.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1)
        weakref.finalize(self, self._file.close)

    def record(self, record: StepRecord) -> None:
        self._file.write(json.dumps(asdict(record)) + "\n")


@dataclass(frozen=True)
class Stats:
    """Running totals of one compression object on this rank.

    Attributes:
        ranks: in the process set.
        steps: steps compressed.
        nonfinite_steps: of which had NaN or infinity in a gradient of any rank; see :attr:`StepRecord.finite`.
        elements_sent: gradient elements sent.
        elements_dense: gradient elements a dense run would have sent.
        bytes_sent: handed to collectives by this rank, tokens included; sparse gradients, which bypass compression, are not.
        bytes_dense: handed to collectives by stock Horovod.
        factors: by unit, elements / kept elements in the last step.
        seconds: spent in ``compress``, waiting in ``exchange``, and in ``decode``.
        note: what a reader should know, such as that one rank compresses nothing; else empty.
    """

    ranks: int
    steps: int
    nonfinite_steps: int
    elements_sent: int
    elements_dense: int
    bytes_sent: int
    bytes_dense: int
    factors: dict[str, float]
    seconds: dict[str, float]
    note: str


class Meter:
    """Counts towards :class:`Stats` and passes records on.

    Raises:
        ConfigError: if ``monitor`` is none.
    """

    def __init__(self, monitor: Monitor | None) -> None:
        if monitor is not None and (isinstance(monitor, type) or not hasattr(monitor, "record")):
            raise ConfigError(f"monitor must be an instance such as JsonLines('log.jsonl'), got {monitor!r}")
        self._monitor = monitor
        self.reset()

    def reset(self) -> None:
        """Forget everything counted."""
        self._totals = dict.fromkeys(("elements_sent", "elements_dense", "bytes_sent", "bytes_dense"), 0)
        self._factors: dict[str, float] = {}
        self._seconds = {"compress": 0.0, "exchange": 0.0, "decode": 0.0}
        self._nonfinite: set[int] = set()

    @contextmanager
    def time(self, phase: str) -> Iterator[None]:
        """Add the time of the block to ``phase``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[phase] += time.perf_counter() - start

    def add(self, record: StepRecord) -> None:
        """Count one unit of one step."""
        self._totals["elements_sent"] += record.kept
        self._totals["elements_dense"] += record.elements
        self._totals["bytes_sent"] += record.bytes_sent
        self._totals["bytes_dense"] += record.bytes_dense
        self._factors[record.unit] = record.factor
        if not record.finite:
            self._nonfinite.add(record.step)
        if self._monitor is not None:
            self._monitor.record(record)

    def add_bytes(self, sent: int) -> None:
        """Count bytes handed to collectives besides the payloads."""
        self._totals["bytes_sent"] += sent

    def stats(self, ranks: int, steps: int, note: str = "") -> Stats:
        """The totals so far."""
        return Stats(
            ranks=ranks,
            steps=steps,
            nonfinite_steps=len(self._nonfinite),
            factors=dict(self._factors),
            seconds=dict(self._seconds),
            note=note,
            **self._totals,
        )
