"""Which blocks each rank trains on, batch after batch."""

from collections.abc import Iterator, Mapping
from typing import Any

import horovod.torch as hvd

from hvd_adaptive import checks
from hvd_adaptive.binding.collective import joined
from hvd_adaptive.bload.blocks import Block, Blocks
from hvd_adaptive.bload.dealt import Dealt, deal
from hvd_adaptive.bload.draws import I64
from hvd_adaptive.bload.epoch import Epoch, Options
from hvd_adaptive.control.agreement import agree
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.ops.torch_ops import TorchOps
from hvd_adaptive.torch.collective import HorovodCollective


class BLoadSampler(hvd.elastic.ElasticSampler):  # type: ignore[misc]  # Horovod is untyped; its TorchState looks for this class
    """Batches of blocks for this rank: as many full ones on every rank, each sequence in exactly one of them.

    For ``DataLoader(BLoadDataset(dataset), batch_sampler=sampler, collate_fn=bload_collate(sampler.block_length))``. In
    ``hvd.elastic.TorchState(sampler=sampler)`` it is saved, restored and synchronised; after a resize the blocks that are left
    are dealt out to the ranks there are then.

    Each iteration starts with one small collective among the ranks, in which they compare their blocks. It gives the batches that
    :meth:`record_batch` was not told of.

    Args:
        lengths: of all sequences; the same on every rank, see :func:`hvd_adaptive.bload.pack`.
        block_length: elements of a block; None for the longest sequence.
        batch_size: blocks in a batch.
        policy: see :func:`hvd_adaptive.bload.pack`.
        seed: of the random choices; the same on every rank.
        shuffle: pack every epoch anew; else all are as epoch 0.
        overlong: what becomes of sequences longer than a block, see :func:`hvd_adaptive.bload.pack`.
        max_sequences_per_block: or None for any number.
        process_set: the ranks that share the epoch; all by default.

    Raises:
        ConfigError: if an argument is not legal, Horovod is not initialised, or this rank is not in the process set.
    """

    def __init__(
        self,
        lengths: Any,
        block_length: int | None = None,
        batch_size: int = 1,
        policy: str = "best_fit",
        seed: int = 0,
        shuffle: bool = True,
        overlong: str = "error",
        max_sequences_per_block: int | None = None,
        process_set: hvd.ProcessSet = hvd.global_process_set,
    ) -> None:
        # Not Horovod's own constructor: it makes a list of a data set's indices.
        self.batch_size = checks.count("BLoadSampler", "batch_size", batch_size)
        self.process_set = process_set
        options = Options(block_length, policy, seed, shuffle, overlong, max_sequences_per_block)
        self._epoch = Epoch(lengths, options)
        self._done = self._start = 0
        self._size: int | None = None  # of ranks, that _done counts for
        self._finished = False
        self.reset()

    def __iter__(self) -> Iterator[list[Block]]:
        if self._finished:
            raise ConfigError(
                f"all {len(self._shard)} batches of epoch {self.epoch} are done; call set_epoch({self.epoch + 1}) at its end"
            )
        self._start = self._done
        return self._batches(self._dealt, self._start)

    def __len__(self) -> int:
        """Batches of the iteration that is under way; before it, of the next one; after it, of that one still.

        So after a loop that was left early, it tells what is left only once the next loop or :meth:`reset` has begun.
        """
        return len(self._shard) - self._start

    @property
    def epoch(self) -> int:
        """Number of the epoch."""
        return self._epoch.number

    @property
    def rank(self) -> int:
        """This rank's place among those that share the epoch."""
        return self._shard.rank

    @property
    def num_replicas(self) -> int:
        """How many ranks share the epoch."""
        return self._shard.size

    @property
    def block_length(self) -> int:
        """Elements of a block."""
        return self.blocks.block_length

    @property
    def blocks(self) -> Blocks:
        """Those of all ranks, done or not, since the last resize; they count what was ``overlong`` and ``deleted``."""
        return self._shard.blocks

    @property
    def split(self) -> int:
        """Blocks that were added by splitting others, so that every rank has as many."""
        return self._shard.split

    @property
    def empty(self) -> int:
        """Blocks of nothing but padding that were added, so that every rank has as many."""
        return self._shard.empty

    @property
    def filled(self) -> I64:
        """Elements without padding, ``i64[len(self), num_replicas]``, of each batch on each rank.

        Every rank knows all of them: ``int(sampler.filled[step].sum())`` is the total that :func:`valid_mean` takes.
        """
        return self._shard.filled[self._start :]

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch. Call it at the end of the one before, not at the begin, so that one that was resumed goes on.

        Raises:
            ConfigError: if ``epoch`` is no whole number from 0.
        """
        self._epoch, self._size = self._epoch.at(epoch), None
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that every rank is done with a batch; call it on every rank after each step.

        Args:
            batch_idx: Horovod's samplers take it; batches are counted, so it is not needed here.
            batch_size: blocks in the batch, which are the sampler's ``batch_size``.

        Raises:
            ConfigError: if it was another number, or all batches were done.
        """
        if batch_size != self.batch_size:
            raise ConfigError(
                f"record_batch: every batch holds {self.batch_size} blocks, got {batch_size!r}; count blocks, not sequences: "
                "sampler.batch_size"
            )
        if self._done == len(self._shard):
            raise ConfigError(
                f"record_batch: all {self._done} batches of epoch {self.epoch} are done, got one more (batch_idx={batch_idx}); "
                f"call it once a batch, and set_epoch({self.epoch + 1}) at the end of the epoch"
            )
        self._done += 1
        self._finished = self._done == len(self._shard)

    def state_dict(self) -> dict[str, Any]:
        """Plain values, the same on every rank, from which any number of ranks goes on with the batches not yet recorded."""
        return self._left().state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken, on every rank, perhaps on another number of them or with another batch size.

        Raises:
            StateError: if the state belongs to other lengths or options, or is damaged; the sampler stays as it was.
        """
        self._epoch, self._size = self._epoch.loaded(state_dict), None
        self.reset()

    def reset(self) -> None:
        """Deal out the blocks that are left to the ranks there are now.

        Raises:
            ConfigError: if this rank is not in the process set.
        """
        collective = joined(HorovodCollective(self.process_set), "BLoadSampler")
        epoch = self._epoch if self._size is None else self._left()
        self._dealt = deal(epoch, collective.rank, collective.size, self.batch_size)
        self._epoch, self._shard, self._done = self._dealt
        self._size, self._start, self._finished = collective.size, self._done, False

    def _left(self) -> Epoch:
        return self._dealt.after(self._done)

    def _batches(self, dealt: Dealt, start: int) -> Iterator[list[Block]]:
        """A generator, so that iterators which a DataLoader makes and drops compare nothing."""
        must = "give its BLoadSampler the same lengths, options, epoch and state"
        name = f"hvd_adaptive.bload.{self.process_set.process_set_id}"
        agree(TorchOps(), HorovodCollective(self.process_set), dealt.described(start), name, must)
        for step in range(start, len(dealt.shard)):
            yield dealt.batch(step)
