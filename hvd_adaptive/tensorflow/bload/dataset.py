"""The blocks of this rank as a ``tf.data.Dataset``."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from hvd_adaptive.bload.blocks import Blocks
from hvd_adaptive.bload.draws import I64
from hvd_adaptive.bload.epoch import Options
from hvd_adaptive.tensorflow.bload.build import Arguments, build
from hvd_adaptive.tensorflow.bload.course import Course
from hvd_adaptive.tensorflow.bload.pipeline import Reading


class BLoadDataset(tf.data.Dataset):  # type: ignore[misc]  # TensorFlow is untyped
    """Made by :func:`bload_dataset`: batches of blocks of this rank, epoch after epoch."""

    def __init__(self, course: Course, batches: Callable[..., Any]) -> None:
        self._course = course
        self._counted = batches(course.counted, last=True)
        self._unknown = batches(course.uncounted, last=False)
        self._known = self._unknown.apply(tf.data.experimental.assert_cardinality(self.steps))
        super().__init__(self._unknown._variant_tensor)

    def __iter__(self) -> Any:
        """
        Raises:
            AgreementError: on every rank, if ranks are about to run other blocks.
        """
        if not tf.executing_eagerly():
            return super().__iter__()
        self._course.begin_counted()
        return iter(self._counted)

    @property
    def element_spec(self) -> Any:
        """Of a batch; all shapes are known."""
        return self._unknown.element_spec

    @property
    def _variant_tensor(self) -> Any:
        """What TensorFlow takes for the data set; its number of batches is told if all iterations to come give as many."""
        dealt = self._course.dealt
        regular = dealt.epoch.same_number and not dealt.epoch.cuts and not dealt.done
        return (self._known if regular else self._unknown)._variant_tensor

    def cardinality(self) -> Any:
        """Batches of the iteration that is under way, or of the next one: ``i64[]``, :attr:`steps`."""
        return tf.constant(self.steps, tf.int64)

    def __len__(self) -> int:
        """The same."""
        return self.steps

    def _inputs(self) -> list[Any]:
        return [self._unknown]

    @property
    def epoch(self) -> int:
        """Number of the epoch that is under way; of the next once its batches were given out or went to another data set."""
        return self._course.dealt.epoch.number

    @property
    def steps(self) -> int:
        """Batches on every rank of that epoch's iteration."""
        dealt = self._course.dealt
        return len(dealt.shard) - dealt.done

    @property
    def rank(self) -> int:
        """This rank's place among those that share the epoch."""
        return self._course.dealt.shard.rank

    @property
    def num_replicas(self) -> int:
        """How many ranks share the epoch."""
        return self._course.dealt.shard.size

    @property
    def block_length(self) -> int:
        """Elements of a block."""
        return self.blocks.block_length

    @property
    def batch_size(self) -> int:
        """Blocks in a batch."""
        return self._course.dealt.shard.batch_size

    @property
    def blocks(self) -> Blocks:
        """Those of all ranks in that epoch; they count what was ``overlong`` and ``deleted``."""
        return self._course.dealt.shard.blocks

    @property
    def split(self) -> int:
        """Blocks that were added by splitting others, so that every rank has as many."""
        return self._course.dealt.shard.split

    @property
    def empty(self) -> int:
        """Blocks of nothing but padding that were added, so that every rank has as many."""
        return self._course.dealt.shard.empty

    @property
    def filled(self) -> I64:
        """Elements without padding, ``i64[steps, num_replicas]``, of each batch on each rank."""
        dealt = self._course.dealt
        return dealt.shard.filled[dealt.done :]

    def set_epoch(self, epoch: int) -> None:
        """The next iteration gives all of this epoch.

        Raises:
            ConfigError: if ``epoch`` is no whole number from 0.
        """
        self._course.go_to(self._course.dealt.epoch.at(epoch))

    def state_dict(self) -> dict[str, Any]:
        """Plain values, the same on every rank, from which any number of ranks goes on with the batches not yet given out.

        Raises:
            ConfigError: after an iteration by another data set, such as what ``map`` or ``prefetch`` return, until
                :meth:`set_epoch` is called.
        """
        return self._course.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next iteration goes on where :meth:`state_dict` was taken, perhaps on another number of ranks.

        Call it on every rank, and before other data sets are made of this one: its number of batches is not known then.

        Raises:
            StateError: if the state belongs to other lengths or options, or is damaged; all stays as it was.
        """
        self._course.load_state_dict(state_dict)

    @property
    def state(self) -> Any:
        """The state for ``tf.train.Checkpoint(model=model, data=dataset.state)``."""
        return _State(self)


class _State(tf.train.experimental.PythonState):  # type: ignore[misc]  # TensorFlow is untyped
    """Saves and restores a data set's state with a checkpoint."""

    def __init__(self, dataset: BLoadDataset) -> None:
        self._dataset = dataset

    def serialize(self) -> str:
        return json.dumps(self._dataset.state_dict())

    def deserialize(self, string_value: str | bytes) -> None:
        self._dataset.load_state_dict(json.loads(string_value))


def bload_dataset(
    dataset: Any,
    lengths: Any,
    block_length: int | None = None,
    batch_size: int = 1,
    policy: str = "best_fit",
    seed: int = 0,
    shuffle: bool = True,
    overlong: str = "error",
    max_sequences_per_block: int | None = None,
    *,
    padding: float = 0,
    target_padding: float = 0,
    targets: str | None = None,
    keras_inputs: str | Sequence[str] | None = None,
    num_parallel_calls: int = 1,
    prefetch: int = 2,
    process_set: Any = hvd.global_process_set,
) -> BLoadDataset:
    """A ``tf.data.Dataset`` of this rank's batches of blocks: as many on every rank, each sequence in exactly one of them.

    All ranks build it together, and begin each iteration together, with one small collective in which they compare their blocks.
    What they run, no rank deletes or repeats anything.

    * **Epochs.** An iteration, such as each epoch of ``Model.fit``, gives the next epoch once all batches of the one before were
      given out; after a loop that was left early, the same epoch from where that loop began. Inside another data set, such as
      what ``map`` or ``prefetch`` return, each iteration is an epoch, however far it goes. :meth:`~BLoadDataset.set_epoch` goes
      to any.
    * **Number of batches.** ``cardinality()`` and ``steps`` tell it of the epoch under way. All epochs have as many under
      ``policy="best_fit"`` or ``shuffle=False``, but for one that a loaded state left a part of. Where they have not, call
      ``Model.fit`` for one epoch at a time, ``fit(data, initial_epoch=data.epoch, epochs=data.epoch + 1)``: Keras runs no epoch
      longer than the first of a call, and a loop that is left early begins again, with a warning in the log.
    * **State.** :meth:`~BLoadDataset.state_dict` counts a batch as done when it is given out, so iterate over this data set
      itself; it reads ahead by itself. What ``map()`` would do to a batch can be done to samples; ``dataset`` may be a function.
    * **Errors** of samples end the iteration as ``tf.errors.InvalidArgumentError`` or ``UnknownError``, with the text of this
      package's error in theirs; so do unlike blocks where the iteration is begun by a data set made of this one. After an elastic
      reset, build a new one and load the state.

    Args:
        dataset: sequences by index: ``dataset[index]``, or a function of the index. Each an array, or a tuple, list or dict of
            them, all with time first and as long. A tuple is data and, last, its targets; of more than two parts, data is a
            tuple.
        lengths: of all sequences; the same on every rank, see :func:`hvd_adaptive.bload.pack`.
        block_length: elements of a block; None for the longest sequence.
        batch_size: blocks in a batch.
        policy: see :func:`hvd_adaptive.bload.pack`.
        seed: of the random choices; the same on every rank.
        shuffle: pack every epoch anew; else all are as epoch 0.
        overlong: what becomes of sequences longer than a block, see :func:`hvd_adaptive.bload.pack`.
        max_sequences_per_block: or None for any number.
        padding: fills up data.
        target_padding: fills up targets. 0, not torch's -100, which TensorFlow's cross entropy refuses: mask the losses.
        targets: key of the targets in samples that are dicts.
        keras_inputs: None to give :class:`BLoadBatch`. Else what ``Model.fit`` takes, ``(x, y, sample_weight)``: x is the field
            of the batch of that name, such as ``"data"``, or a dict of several; y the targets; and the weights
            ``f32[b, T]`` are such that Keras' mean loss, averaged over ranks, is the mean over all elements of all ranks that are
            no padding.
        num_parallel_calls: batches that are read at the same time.
        prefetch: batches that wait to be given out; 0 for none.
        process_set: the ranks that share the epoch; all by default.

    Raises:
        ConfigError: on every rank, if an argument is not legal on some; if Horovod is not initialised, or this rank is not in the
            process set.
        SourceError: on every rank, if the first sample could not be read on some.
        AgreementError: on every rank, if ranks were given different lengths, options or samples of other kinds.
    """
    options = Options(block_length, policy, seed, shuffle, overlong, max_sequences_per_block)
    arguments = Arguments(
        dataset,
        lengths,
        options,
        batch_size,
        padding,
        target_padding,
        targets,
        keras_inputs,
        Reading(num_parallel_calls, prefetch),
    )
    return BLoadDataset(*build(arguments, process_set))
