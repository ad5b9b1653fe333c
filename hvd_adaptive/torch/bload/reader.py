"""One rank's stream, from samples to blocks that wait; what goes wrong is kept until ranks agree the next time."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from hvd_adaptive.bload import Batches, Filled, OpenBlocks, StreamStats
from hvd_adaptive.bload.packed import measured
from hvd_adaptive.errors import ConfigError, HvdAdaptiveError, SourceError

_END = object()


class Reader:
    """Reads an iterable once.

    Args:
        iterable: of samples.
        length_fn: from a sample to its length.
        slice_fn: from a sample, an offset and a length to a part of it.
        blocks: packs them.
        batches: takes the blocks.
        again: True if the iterable was read before.

    Attributes:
        ended: True once the iterable has, and all blocks are closed.
        error: what was raised while reading; nothing is read after that.
        like: a sample of no elements; None before the first sample.
    """

    def __init__(
        self,
        iterable: Iterable[Any],
        length_fn: Callable[[Any], object],
        slice_fn: Callable[[Any, int, int], Any],
        blocks: OpenBlocks,
        batches: Batches,
        *,
        again: bool,
    ) -> None:
        self._iterable = iterable
        self._length_fn, self._slice_fn = length_fn, slice_fn
        self._blocks, self._again = blocks, again
        self.batches = batches
        self._iterator: Iterator[Any] | None = None
        self.ended = False
        self.error: Exception | None = None
        self.like: Any = None

    @property
    def stats(self) -> StreamStats:
        """Of what was read and given out."""
        blocks = self._blocks
        return replace(self.batches.stats, sequences=blocks.sequences, overlong=blocks.overlong, deleted=blocks.deleted)

    def fill(self, enough: int) -> None:
        """Read until ``enough`` blocks wait, or the stream ends or fails."""
        try:
            while len(self.batches) < enough and not self.ended and self.error is None:
                self._read()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks must not wait for this one
            self.error = error

    def _read(self) -> None:
        """One sample."""
        try:
            if self._iterator is None:
                self._iterator = iter(self._iterable)
                if self._again and self._iterator is self._iterable:
                    raise ConfigError(
                        "the iterable is an iterator, which can be read once; for several loops give what begins anew, such as a "
                        "DataLoader or a class with __iter__"
                    )
            sample = next(self._iterator, _END)
        except HvdAdaptiveError:
            raise
        except Exception as error:
            raise SourceError(f"after {self._blocks.sequences} samples the iterable raised {_told(error)}") from error
        if sample is _END:
            self.ended = True
            self._take(self._blocks.flush())
            return
        try:
            length = measured(self._length_fn, sample)
        except HvdAdaptiveError:
            raise
        except Exception as error:
            raise SourceError(f"length_fn raised at sample {self._blocks.sequences}: {_told(error)}") from error
        if self.like is None:
            self.like = self._part(sample, 0, 0)  # now, lest a stream of what cannot be cut fail at its very end
        self._take(self._blocks.put(length, (sample, length)))

    def _take(self, closed: list[Filled]) -> None:
        self.batches.add(Filled(filled.block, self._samples(filled)) for filled in closed)

    def _samples(self, filled: Filled) -> list[Any]:
        """The samples of a block, cut where it holds a part."""
        block, samples = filled.block, []
        parts = zip(block.offsets.tolist(), block.lengths.tolist(), filled.contents, strict=True)
        for offset, length, (sample, whole) in parts:
            samples.append(sample if length == whole else self._part(sample, offset, length))
        return samples

    def _part(self, sample: Any, offset: int, length: int) -> Any:
        try:
            return self._slice_fn(sample, offset, length)
        except Exception as error:
            raise SourceError(
                f"slice_fn could not take {length} elements from {offset} of a {type(sample).__name__}: {_told(error)}; give a "
                "slice_fn that fits the samples"
            ) from error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
