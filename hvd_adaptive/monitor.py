"""What happened: a record per unit and step for whoever listens, and running totals."""

import json
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from hvd_adaptive.errors import ConfigError

_PHASES = ("compress", "exchange", "decode")


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
            A gradient that is left untouched, by the method or in a dense stretch, is not looked at.
        branch: why the controller took this factor; empty without one.
        candidate: the factor it tries out, if any.
        gains: smoothed, by factor, as the controller saw them.
        compute_seconds: of the whole step since the last one ended, besides what follows; None in the first step.
        compress_seconds: of the whole step.
        exchange_seconds: waited for collectives in the whole step.
        decode_seconds: of the whole step.
        steps_per_second: throughput; None in the first step.
    """

    step: int
    unit: str
    elements: int
    kept: int
    factor: float
    bytes_sent: int
    bytes_dense: int
    finite: bool
    branch: str = ""
    candidate: float | None = None
    gains: dict[float, float] = field(default_factory=dict)
    compute_seconds: float | None = None
    compress_seconds: float = 0.0
    exchange_seconds: float = 0.0
    decode_seconds: float = 0.0
    steps_per_second: float | None = None


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

    Raises:
        ConfigError: if it cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            path = Path(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", buffering=1)
        except (OSError, TypeError, ValueError) as error:
            raise ConfigError(f"the log {path!r} cannot be written: {error}") from error
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
        branches: steps by what the controller decided, summed over units.
        gains: by unit, the smoothed gains by factor that it saw last.
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
    branches: dict[str, int]
    gains: dict[str, dict[float, float]]
    seconds: dict[str, float]
    note: str


class Meter:
    """Counts towards :class:`Stats`, and passes records on at the end of each step.

    Raises:
        ConfigError: if one of the ``monitors`` is none.
    """

    def __init__(self, *monitors: Monitor) -> None:
        for monitor in monitors:
            if isinstance(monitor, type) or not hasattr(monitor, "record"):
                raise ConfigError(f"monitor must be an instance such as JsonLines('log.jsonl'), got {monitor!r}")
        self._monitors = monitors
        self.reset()

    def reset(self) -> None:
        """Forget everything counted."""
        self._totals = dict.fromkeys(("elements_sent", "elements_dense", "bytes_sent", "bytes_dense"), 0)
        self._factors: dict[str, float] = {}
        self._branches = Counter[str]()
        self._gains: dict[str, dict[float, float]] = {}
        self._seconds = dict.fromkeys(_PHASES, 0.0)
        self._nonfinite: set[int] = set()
        self._records: list[StepRecord] = []
        self.held: list[tuple[StepRecord, Any]] = []
        """Units that wait to be counted until somebody reads from a device whether they are finite."""
        self._ended: float | None = None
        self._before = dict(self._seconds)

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
        if record.branch:
            self._branches[record.branch] += 1
        if record.gains:
            self._gains[record.unit] = record.gains
        if not record.finite:
            self._nonfinite.add(record.step)
        if self._monitors:
            self._records.append(record)

    def end_step(self) -> float | None:
        """Pass on the step's records. Returns the seconds since the last step ended; None in the first one."""
        now = time.perf_counter()
        seconds = None if self._ended is None else now - self._ended
        spent = {phase: self._seconds[phase] - self._before[phase] for phase in _PHASES}
        for record in self._records:
            complete = replace(
                record,
                compute_seconds=None if seconds is None else seconds - sum(spent.values()),
                steps_per_second=None if seconds is None else 1 / seconds,
                **{f"{phase}_seconds": spent[phase] for phase in _PHASES},  # type: ignore[arg-type]
            )
            for monitor in self._monitors:
                monitor.record(complete)
        self._records.clear()
        self._ended, self._before = now, dict(self._seconds)
        return seconds

    @property
    def bytes_sent(self) -> int:
        """Handed to collectives so far."""
        return self._totals["bytes_sent"]

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
            branches=dict(self._branches),
            gains=dict(self._gains),
            seconds=dict(self._seconds),
            note=note,
            **self._totals,
        )
