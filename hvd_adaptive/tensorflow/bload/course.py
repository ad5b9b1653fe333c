"""Where training stands: which batches the next iteration gives, and which this one has given."""

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.dealt import Dealt, deal
from hvd_adaptive.bload.epoch import Epoch
from hvd_adaptive.control.agreement import agree
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.tensorflow.collective import HorovodCollective

logger = logging.getLogger("hvd_adaptive")


@dataclass(frozen=True)
class Given:
    """A batch of an iteration.

    Attributes:
        iteration: its number.
        step: the batch's place in the epoch, from 0.
        total: elements at this step on all ranks that are no padding.
        blocks: of this rank.
    """

    iteration: int
    step: int
    total: int
    blocks: list[Block] = field(repr=False)


class Course:
    """Passes from epoch to epoch: an iteration follows on those before it.

    An iteration gives the next epoch once all batches of the one before were given out, else the same epoch once more. One inside
    another data set uses its epoch up as it begins: that set may read ahead, on each rank by another number of batches, so what
    was given out says nothing, and ranks that went by it would part. tf.data's threads may ask it at the same time as the main
    thread.

    Args:
        epoch: the first.
        ranks: that share it.
        batch_size: blocks in a batch.
        name: names the collectives; the same on every rank.
    """

    def __init__(self, epoch: Epoch, ranks: HorovodCollective, batch_size: int, name: str) -> None:
        self._ranks, self._batch_size, self._name = ranks, batch_size, name
        self._lock = threading.RLock()
        self._agreeing = threading.Lock()  # collectives of one name come one after the other
        self._iteration = 0
        self._counted = True
        self._waiting: tuple[int, Dealt] | None = None
        self.go_to(epoch)

    def go_to(self, epoch: Epoch) -> None:
        """The next iteration gives what is left of ``epoch``."""
        with self._lock:
            self._dealt = deal(epoch, self._ranks.rank, self._ranks.size, self._batch_size)
            self._given = self._dealt.done
            self._iteration += 1  # what is still under way counts no more
            self._counted, self._waiting = True, None

    @property
    def dealt(self) -> Dealt:
        """The epoch that is under way; once all its batches were given out, the next one."""
        with self._lock:
            if self._given == len(self._dealt.shard):
                epoch, counted = self._dealt.epoch, self._counted
                self.go_to(epoch.at(epoch.number + 1))
                self._counted = counted
            return self._dealt

    def begin(self, *, counted: bool) -> tuple[int, Dealt]:
        """Begin an iteration, on all ranks together.

        Args:
            counted: False if batches may be given out before they are used.

        Returns:
            Its number, and what it gives.

        Raises:
            AgreementError: on every rank, if ranks are about to run other blocks.
        """
        with self._lock:
            dealt = self.dealt
            if self._given > dealt.done + 1 and self._ranks.rank == 0:  # one is no more than a look at how batches are
                logger.warning(
                    "a loop over epoch %d was left after %d of its %d batches, so the epoch begins again; where Model.fit did "
                    "that, call it for one epoch at a time, for it runs no epoch longer than its first",
                    dealt.epoch.number,
                    self._given - dealt.done,
                    len(dealt.shard) - dealt.done,
                )
            self._iteration += 1
            self._given, self._counted = dealt.done if counted else len(dealt.shard), counted
            begun = self._iteration, dealt
        must = "give its bload_dataset the same lengths, options, epoch and state"
        with self._agreeing:
            agree(NumpyOps(), self._ranks, dealt.described(dealt.done), self._name, must)
        return begun

    def begin_counted(self) -> None:
        """Begin the iteration that :meth:`counted` gives next."""
        self._waiting = self.begin(counted=True)

    def counted(self) -> Iterator[Given]:
        """The batches of an iteration that the main thread began."""
        begun, self._waiting = self._waiting, None
        return self._batches(*(begun or self.begin(counted=True)))

    def uncounted(self) -> Iterator[Given]:
        """The batches of an iteration inside another data set, which may read ahead."""
        yield from self._batches(*self.begin(counted=False))

    def note(self, iteration: int, step: int) -> None:
        """A batch was given out."""
        with self._lock:
            if self._counted and iteration == self._iteration:
                self._given = step + 1

    def state_dict(self) -> dict[str, Any]:
        """What is left.

        Raises:
            ConfigError: if batches may have been given out that were not used.
        """
        with self._lock:
            dealt = self.dealt
            if not self._counted:
                raise ConfigError(
                    "batches went into another data set, such as what map() or prefetch() return, which may read ahead, so "
                    "nobody knows which of them were used; iterate over the bload_dataset itself (it prefetches, and what map() "
                    "would do can be done to samples), or save only at the end of an epoch, after set_epoch()"
                )
            return dealt.after(self._given).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """
        Raises:
            StateError: if the state belongs to other lengths or options, or is damaged; all stays as it was.
        """
        with self._lock:
            self.go_to(self._dealt.epoch.loaded(state))

    def _batches(self, iteration: int, dealt: Dealt) -> Iterator[Given]:
        for step in range(dealt.done, len(dealt.shard)):
            yield Given(iteration, step, int(dealt.shard.filled[step].sum()), dealt.batch(step))
