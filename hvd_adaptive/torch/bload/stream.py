"""Sequences of unknown number, one stream per rank, packed as they come."""

import base64
import io
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import horovod.torch as hvd
import torch
from torch.utils.data import IterableDataset, get_worker_info

from hvd_adaptive import checks
from hvd_adaptive.binding.collective import joined
from hvd_adaptive.bload import Batches, OpenBlocks, Report, StreamStats, Window, next_window
from hvd_adaptive.bload.packed import Packed, cut
from hvd_adaptive.errors import ConfigError, SourceError
from hvd_adaptive.torch.bload.meeting import Meeting
from hvd_adaptive.torch.bload.reader import Reader
from hvd_adaptive.torch.collective import HorovodCollective

_built: Counter[int] = Counter()
"""Streams by process set, so that each has a name of its own."""


class BLoadStream(IterableDataset[list[Packed]]):
    """Packs what an iterable gives, and runs as many batches on every rank however long the ranks' streams are.

    Every rank has a stream of its own, of other sequences than the other ranks'. Iterating gives lists of ``batch_size``
    :class:`Packed`, every sequence once; where a rank's stream ends before another's, its blocks are empty from then on.
    All ranks build their streams in the same order, and iterate over each together. Of an endless stream, keep
    ``batches = iter(stream)`` and take as many as an epoch should have.

    * Leave a loop early on all ranks at the same batch or on none: a rank that stays waits for those that left. Ranks that meet
      again in different loops all raise :class:`AgreementError`. A loop that is left drops what waits in open blocks.
    * ``DataLoader(stream, batch_size=None, collate_fn=...)`` must have no workers, because ranks agree in the main process. Give
      the workers to the source: ``BLoadStream(DataLoader(source, batch_size=None, num_workers=4), ...)``.
    * How far an iterable was read cannot be asked of it, nor set, so there is no ``state_dict``: an interrupted run begins its
      streams anew.
    * After an elastic reset, build a new one.

    Args:
        iterable: of samples; begun anew for each epoch, so an iterator serves for one.
        block_length: elements of a block.
        batch_size: blocks in a batch.
        open_blocks: that are kept open at most, with their samples; more pad less.
        length_fn: from a sample to its length.
        slice_fn: ``(sample, offset, length)`` to a part of it, for samples that are too long; :func:`cut` by default.
        overlong: ``"error"``, ``"split"``, ``"truncate"`` or ``"drop"`` for sequences longer than a block.
        max_sequences_per_block: or None for any number.
        window: batches between two agreements, each one small allgather; up to twice as many wait in memory.
        process_set: a Horovod process set this rank is in; all ranks by default.

    Raises:
        ConfigError: if an argument is not legal here; on every rank if it is not on some.
        AgreementError: on every rank, if ranks were given different numbers or rules, or are in different loops.
        SourceError: while iterating, on every rank, if the iterable or a function raised on some.
    """

    def __init__(
        self,
        iterable: Iterable[Any],
        block_length: int,
        batch_size: int = 1,
        *,
        open_blocks: int = 64,
        length_fn: Callable[[Any], object] = len,
        slice_fn: Callable[[Any, int, int], Any] = cut,
        overlong: str = "error",
        max_sequences_per_block: int | None = None,
        window: int = 8,
        process_set: hvd.ProcessSet = hvd.global_process_set,
    ) -> None:
        self._iterable = iterable
        self._length_fn, self._slice_fn = length_fn, slice_fn
        self._numbers: dict[str, Any] = {
            "block_length": block_length,
            "open_blocks": open_blocks,
            "overlong": overlong,
            "max_sequences_per_block": max_sequences_per_block,
        }
        self._batch_size, self._window = batch_size, window
        collective = joined(HorovodCollective(process_set), "BLoadStream")
        self._rank = collective.rank
        self._meeting = self._meet(collective)
        self._loops = 0
        self._reader = self._new_reader()

    def _meet(self, collective: HorovodCollective) -> Meeting:
        """Make sure that all ranks build the same stream, and give it a name."""
        set_id = collective.process_set.process_set_id
        prefix = f"hvd_adaptive.{set_id}.stream"
        handshake = Meeting(collective, "BLoadStream", f"{prefix}.handshake")
        described: dict[str, Any] = {"number": _built[set_id]}
        error = None
        try:
            self._check()
            described |= self._numbers | {"batch_size": self._batch_size, "window": self._window}
        except ConfigError as illegal:
            error = illegal  # told to all, so that ranks with better arguments do not wait for this one
        said = handshake.tell(described, error)
        # Horovod gives the number of a removed process set to the next one, whose ranks may have counted differently.
        _built[set_id] = max(words.pop("number") for words in said) + 1
        handshake.compare(said, "give every rank the same")
        return Meeting(collective, "BLoadStream", f"{prefix}.{_built[set_id]}")

    def _check(self) -> None:
        """Raise a ConfigError unless all arguments are legal; numbers become Python's own."""
        OpenBlocks(**self._numbers)
        self._numbers = {
            name: value if value is None or isinstance(value, str) else int(value) for name, value in self._numbers.items()
        }
        self._batch_size = checks.count("BLoadStream", "batch_size", self._batch_size)
        self._window = checks.count("BLoadStream", "window", self._window, hint="batches between two agreements")
        for name, function in (("length_fn", self._length_fn), ("slice_fn", self._slice_fn)):
            if not callable(function):
                raise ConfigError(f"BLoadStream: {name} must be a function, got {function!r}")
        if not isinstance(self._iterable, Iterable):
            raise ConfigError(f"BLoadStream: iterable must be one, such as a DataLoader over samples, got {self._iterable!r}")

    def _new_reader(self) -> Reader:
        blocks, batches = OpenBlocks(**self._numbers), Batches(self._numbers["block_length"], self._batch_size)
        return Reader(self._iterable, self._length_fn, self._slice_fn, blocks, batches, again=self._loops > 1)

    def stats(self) -> StreamStats:
        """Of this rank's latest loop, so far."""
        return self._reader.stats

    def __iter__(self) -> Iterator[list[Packed]]:
        if get_worker_info() is not None:
            raise ConfigError(
                "BLoadStream: ranks agree in their main process, so it cannot run in a DataLoader's worker; give num_workers=0, "
                "and the workers to a DataLoader over the source, which then is BLoadStream's iterable"
            )
        self._loops += 1
        self._reader = reader = self._new_reader()
        enough = self._window * self._batch_size
        last = False
        while not last:
            reader.fill(enough)
            steps, last = self._agree(reader)
            for done, batch in enumerate(reader.batches.take(steps), 1):
                yield [Packed(filled.block, filled.contents or [reader.like]) for filled in batch]
                reader.fill(min(done * self._batch_size, enough))  # bit by bit, so that workers of the source keep up

    def _agree(self, reader: Reader) -> Window:
        """The next window, or on every rank the error that any of them met."""
        own = {"blocks": len(reader.batches), "ended": reader.ended, "read": reader.like is not None}
        said = self._meeting.tell(own | {"loop": self._loops, "window": reader.stats.windows}, reader.error)
        self._loops = max(words["loop"] for words in said)  # so that ranks may begin a loop together again
        here = [{key: words[key] for key in ("loop", "window")} for words in said]
        self._meeting.compare(here, "leave a loop over it on all ranks at the same batch, or on none")
        read = [words["read"] for words in said]
        if reader.stats.windows == 0 and any(read) and not all(read):
            self._share(reader, read.index(True))
        return next_window([Report(words["blocks"], words["ended"]) for words in said], self._batch_size)

    def _share(self, reader: Reader, giver: int) -> None:
        """Ranks without any sample learn how samples look, for their blocks, which are all empty."""
        told, error = {}, None
        if self._rank == giver:
            try:
                told = {"sample": base64.b64encode(_pickled(reader.like)).decode()}
            except Exception as caught:  # noqa: BLE001 - whatever it is, the other ranks must not wait for this one
                error = caught
        said = self._meeting.tell(told, error)
        if reader.like is None:
            try:
                reader.like = pickle.loads(base64.b64decode(said[giver]["sample"]))  # noqa: S301 - from a rank of this job
            except Exception as caught:  # noqa: BLE001 - as above
                error = SourceError(f"how samples look cannot be unpickled here: {type(caught).__name__}: {caught}")
        self._meeting.tell({}, error)


class _Pickler(pickle.Pickler):
    """Writes the elements of a tensor alone, not all those it is a view of."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor):
            return NotImplemented
        return obj.detach().clone().__reduce_ex__(2)  # type: ignore[no-untyped-call]  # torch's own


def _pickled(thing: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(thing)
    return file.getvalue()
