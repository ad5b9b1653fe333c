"""The lengths of a whole data set, of which each rank measures a part."""

import logging
from collections.abc import Callable, Sequence, Sized
from pathlib import Path
from typing import Any, TypeVar

import horovod.torch as hvd
import numpy as np
import torch

from hvd_adaptive import checks
from hvd_adaptive.binding.collective import joined
from hvd_adaptive.binding.gather_now import communicator, mpi_works
from hvd_adaptive.bload import cache as files
from hvd_adaptive.bload.draws import I32
from hvd_adaptive.bload.lengths import MOST, read_one
from hvd_adaptive.bload.packed import measured
from hvd_adaptive.errors import ConfigError, HvdAdaptiveError, SourceError
from hvd_adaptive.progress import shown
from hvd_adaptive.torch.bload.meeting import Meeting
from hvd_adaptive.torch.collective import HorovodCollective

T = TypeVar("T")

_SAMPLED = 8
"""Lengths that are measured again before a cache is believed."""

logger = logging.getLogger("hvd_adaptive")


def gather_lengths(
    dataset: Any,
    length_fn: Callable[[Any], object] = len,
    *,
    cache: str | Path | None = None,
    key: str | None = None,
    progress: bool = True,
    process_set: hvd.ProcessSet = hvd.global_process_set,
) -> I32:
    """The length of every sample of a data set, on every rank.

    Each rank measures a part of it, of consecutive samples, and all exchange what they found: over mpi4py where Horovod runs on
    MPI, else through Horovod. What is wrong on one rank is raised on all, when the slowest has measured its part.

    Rank 0 alone reads and writes the cache and tells the others, so it may lie on a disk of that host. A damaged one is replaced,
    with a warning; a file that holds no lengths, or those of another data set, is refused and left as it is. Data sets differ by
    their number of samples and ``key``; without a key, by the names of their class and of ``length_fn``. Contents count for
    nothing in that, so eight samples spread over the data set are measured again, and all if one of these disagrees, with a
    warning. A change to other samples alone goes unnoticed: where contents change, put a version into ``key``.

    Args:
        dataset: with ``len()`` and ``[]``; the same on every rank.
        length_fn: from a sample to its length, a whole number from 1.
        cache: a file, or None.
        key: names the data set.
        progress: draw a bar on rank 0's terminal, of its own part.
        process_set: a Horovod process set this rank is in; all ranks by default.

    Returns:
        ``i32[n]``, in the order of the data set.

    Raises:
        ConfigError: on every rank, if an argument, the cache or a length is not legal on some; the length is named by its index.
        SourceError: on every rank, if the data set or ``length_fn`` raised on some.
        AgreementError: on every rank, if their data sets are not of one size.
    """
    collective = joined(HorovodCollective(process_set), "gather_lengths")
    meeting = Meeting(collective, "gather_lengths", f"hvd_adaptive.{collective.process_set.process_set_id}.lengths")
    task = _Task(dataset, length_fn, cache, key)
    known, error = _tried(lambda: task.prepare(collective.rank))
    said = meeting.tell({"size": task.size, "found": known is not None, "mpi": mpi_works(collective)}, error)
    found, mpi = said[0]["found"], all(words["mpi"] for words in said)
    meeting.compare([{"number of samples": words["size"]} for words in said], "give every rank the same data set")
    if found:
        return _exchange(collective, known, [task.size] + [0] * (collective.size - 1), mpi)
    bounds = [task.size * rank // collective.size for rank in range(collective.size + 1)]
    share = range(*bounds[collective.rank : collective.rank + 2])
    measured, error = _tried(lambda: task.measure(share, show=progress and collective.rank == 0))
    meeting.tell({}, error)
    lengths = _exchange(collective, measured, np.diff(bounds).tolist(), mpi)
    if collective.rank == 0:
        task.keep(lengths)
    return lengths


class _Task:
    """What one rank was asked to do."""

    def __init__(self, dataset: Any, length_fn: Callable[[Any], object], cache: str | Path | None, key: str | None) -> None:
        self._dataset, self._length_fn, self._key = dataset, length_fn, key
        self._cache = cache
        self._identity: dict[str, Any] = {}
        self.size = 0

    def prepare(self, rank: int) -> I32 | None:
        """Check what was given. Returns what the cache holds ``i32[n]`` on rank 0, else None."""
        if not isinstance(self._dataset, Sized) or not hasattr(self._dataset, "__getitem__"):
            raise ConfigError(
                f"dataset must have len() and [], got {type(self._dataset).__name__}; "
                "data of unknown number goes into a BLoadStream"
            )
        self.size = checks.count("dataset", "len()", len(self._dataset), MOST, least=0)
        if not callable(self._length_fn):
            raise ConfigError(f"length_fn must be a function from a sample to its length, got {self._length_fn!r}")
        if not isinstance(self._cache, str | Path | None):
            raise ConfigError(f"cache must be a path or None, got {self._cache!r}")
        if not isinstance(self._key, str | None):
            raise ConfigError(f"key must be a text that names the data set, or None, got {self._key!r}")
        self._identity = {"samples": self.size} | (
            {"dataset": _name(type(self._dataset)), "length_fn": _name(self._length_fn)}
            if self._key is None
            else {"key": self._key}
        )
        return self._known(Path(self._cache)) if self._cache is not None and rank == 0 else None

    def _known(self, path: Path) -> I32 | None:
        """What a cache holds, if a few lengths measured anew agree with it."""
        lengths = files.load(path, self._identity)
        if lengths is not None:
            for index in sorted(set(np.linspace(0, self.size - 1, _SAMPLED).astype(int).tolist())) if self.size else ():
                if (measured := self._one(index)) != lengths[index]:
                    logger.warning(
                        "cache %s is out of date: dataset[%d] has length %d, not %d; the lengths are measured again",
                        path,
                        index,
                        measured,
                        lengths[index],
                    )
                    return None
        return lengths

    def measure(self, share: range, *, show: bool) -> I32:
        """The lengths ``i32[len(share)]`` of some samples."""
        found = (self._one(index) for index in shown(share, len(share), "measuring lengths", show=show))
        return np.fromiter(found, np.int32, len(share))

    def keep(self, lengths: I32) -> None:
        """Write the cache; where that fails, all but the file is as it should be, so it is only a warning."""
        if self._cache is not None:
            try:
                files.save(Path(self._cache), self._identity, lengths)
            except OSError as error:
                logger.warning("the lengths could not be kept in %s: %s", self._cache, error)

    def _one(self, index: int) -> int:
        try:
            length = measured(self._length_fn, self._dataset[index])
        except HvdAdaptiveError:
            raise
        except Exception as error:
            raise SourceError(f"dataset[{index}] could not be measured: {type(error).__name__}: {error}") from error
        return read_one(length, f"dataset[{index}]")


def _tried(function: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What a function returns, or what it raises: the other ranks must not wait for this one."""
    try:
        return function(), None
    except Exception as error:  # noqa: BLE001 - whatever it is, all ranks are told
        return None, error


def _name(thing: Any) -> str:
    """Of a class or function, else of its class."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def _exchange(collective: HorovodCollective, own: I32 | None, counts: Sequence[int], mpi: bool) -> I32:
    """All ranks' numbers in rank order, ``i32[sum(counts)]``, from ``own i32[counts[rank]]``; None for none."""
    own = np.zeros(0, np.int32) if own is None else own
    total = np.zeros(sum(counts), np.int32)
    if not total.size:
        return total
    if mpi:
        group = communicator(collective)
        try:
            group.Allgatherv(own, (total, counts))
        finally:
            group.Free()
        return total
    name = f"hvd_adaptive.{collective.process_set.process_set_id}.lengths.all"
    heard = collective.wait(collective.start("gather", torch.from_numpy(own), name))
    return np.asarray(heard.numpy(), np.int32)
