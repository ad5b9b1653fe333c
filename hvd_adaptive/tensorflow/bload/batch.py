"""Blocks to the arrays of a batch."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from hvd_adaptive.bload.blocks import Block
from hvd_adaptive.bload.packed import cut
from hvd_adaptive.bload.samples import Indexed, Samples, apart, mapped
from hvd_adaptive.bload.tables import tables
from hvd_adaptive.errors import ConfigError


class BLoadBatch(NamedTuple):
    """b blocks of T elements, in tensors whose shapes are the same in every batch.

    Attributes:
        data: ``[b, T, ...]``, in the structure of the samples.
        targets: the same of the targets, or None.
        valid: ``bool[b, T]``, False for padding.
        starts: ``i64[b, k]``, the reset table: where each sequence starts; T where a block has fewer than k, which is the most
            that any block can hold.
        cu_seqlens: ``i32[b * (k + 1) + 1]``, where each segment of the b * T elements starts; padding is a segment of its own,
            and segments of no element end it.
        position_ids: ``i64[b, T]``, places in the sequence, also in a split one.
        segment_ids: ``i64[b, T]``, sequences of the block from 1; 0 for padding.
        blocks: which sequences they hold: ids, offsets and lengths ``i32[b, k]``; -1, 0 and 0 where a block has fewer than k.
        total: ``i64[]``, elements of the batches of all ranks at this step that are no padding; see :func:`valid_mean`.
    """

    data: Any
    targets: Any
    valid: Any
    starts: Any
    cu_seqlens: Any
    position_ids: Any
    segment_ids: Any
    blocks: Block
    total: Any


class Form(NamedTuple):
    """What a batch looks like, but for the samples.

    Attributes:
        batch_size: b.
        block_length: T.
        max_sequences: k.
        padding: fills up data.
        target_padding: fills up targets.
        targets: key of the targets in samples that are dicts.
    """

    batch_size: int
    block_length: int
    max_sequences: int
    padding: float
    target_padding: float
    targets: str | None


class Batcher:
    """Makes batches, all of the dtypes and shapes that the first sample has.

    Args:
        dataset: samples by index.
        lengths: as they were packed.
        form: of the batches.

    Attributes:
        spec: of a batch, a :class:`BLoadBatch` of ``tf.TensorSpec``.

    Raises:
        ConfigError: if the first sample is not made of arrays of numbers, or ``form.targets`` is none of its keys.
    """

    def __init__(self, dataset: Indexed[Any], lengths: Any, form: Form) -> None:
        self._samples = Samples(dataset, lengths)
        self._form = form
        first = mapped(np.asarray, cut(self._samples.read(_whole(lengths)).samples[0], 0, 0))
        (data,), targets = apart([first], form.targets, "bload_dataset")
        b, length, k = form.batch_size, form.block_length, form.max_sequences
        self.spec = BLoadBatch(
            mapped(self._spec, data),
            None if targets is None else mapped(self._spec, targets[0]),
            valid=tf.TensorSpec([b, length], tf.bool),
            starts=tf.TensorSpec([b, k], tf.int64),
            cu_seqlens=tf.TensorSpec([b * (k + 1) + 1], tf.int32),
            position_ids=tf.TensorSpec([b, length], tf.int64),
            segment_ids=tf.TensorSpec([b, length], tf.int64),
            blocks=Block(*(tf.TensorSpec([b, k], tf.int32) for _ in Block._fields)),
            total=tf.TensorSpec([], tf.int64),
        )

    def batch(self, entries: NDArray[np.int32], total: int) -> BLoadBatch:
        """A batch of numpy arrays.

        Args:
            entries: ``i32[3, b, k]`` as :func:`table` gives them.
            total: elements at this step on all ranks.

        Raises:
            ConfigError: if a sample is not of its recorded length, or not of the dtypes and shapes of the first.
        """
        blocks = [Block(*columns[:, : np.count_nonzero(columns[2])]) for columns in entries.transpose(1, 0, 2)]
        samples = [
            mapped(np.asarray, sample) for block in blocks if block.ids.size for sample in self._samples.read(block).samples
        ]
        data, targets = apart(samples, self._form.targets, "bload_dataset") if samples else ([], [])
        return BLoadBatch(
            mapped(functools.partial(self._filled, blocks, self._form.padding), self.spec.data, *data),
            self.spec.targets
            and mapped(functools.partial(self._filled, blocks, self._form.target_padding), self.spec.targets, *(targets or ())),
            blocks=Block(*entries),
            total=np.int64(total),
            **tables(blocks, self._form.block_length, self._form.max_sequences)._asdict(),
        )

    def _spec(self, array: NDArray[Any]) -> Any:
        try:
            dtype = tf.as_dtype(array.dtype)
        except TypeError:
            dtype = tf.string  # as good as any that is none of numbers
        if dtype in {tf.string, tf.resource, tf.variant}:
            raise ConfigError(
                f"bload_dataset: samples must be made of arrays of numbers, got {array.dtype} in dataset[0]; leave texts and "
                "objects out, or make numbers of them"
            )
        return tf.TensorSpec([self._form.batch_size, self._form.block_length, *array.shape[1:]], dtype)

    def _filled(self, blocks: Sequence[Block], padding: float, spec: Any, *parts: NDArray[Any]) -> NDArray[Any]:
        """``[b, T, ...]`` from one array for each sequence of the blocks."""
        filled = np.full(spec.shape, padding, spec.dtype.as_numpy_dtype)
        rest = iter(parts)
        for row, block in zip(filled, blocks, strict=True):
            first = 0
            for index, part in zip(block.ids.tolist(), rest, strict=False):
                if _look(part) != _look(row):
                    raise ConfigError(
                        f"dataset[{index}] has {_look(part)}, but dataset[0] {_look(row)}; give all samples one dtype and shape"
                    )
                row[first : first + part.shape[0]] = part
                first += part.shape[0]
        return filled


def table(blocks: Sequence[Block], max_sequences: int) -> NDArray[np.int32]:
    """The ids, offsets and lengths of blocks as ``i32[3, b, k]``; -1, 0 and 0 where a block has fewer than k sequences."""
    entries = np.zeros((3, len(blocks), max_sequences), np.int32)
    entries[0] = -1
    for row, block in enumerate(blocks):
        entries[:, row, : block.ids.size] = block
    return entries


def _whole(lengths: Any) -> Block:
    """A block of the first sequence, all of it."""
    return Block(*(np.array([value], np.int32) for value in (0, 0, lengths[0])))


def _look(array: NDArray[Any]) -> str:
    """What must be the same in all samples."""
    return f"{array.dtype.name} of [{', '.join(['length', *map(str, array.shape[1:])])}]"
