"""From the blocks of an iteration to a ``tf.data.Dataset`` of batches."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from hvd_adaptive.errors import HvdAdaptiveError, SourceError
from hvd_adaptive.tensorflow.bload.batch import Batcher, BLoadBatch, table
from hvd_adaptive.tensorflow.bload.course import Given


class Reading(NamedTuple):
    """How batches are made ahead.

    Attributes:
        num_parallel_calls: batches that are read at the same time.
        prefetch: batches that wait.
    """

    num_parallel_calls: int
    prefetch: int


def pipeline(
    iterations: Callable[[], Iterator[Given]],
    batcher: Batcher,
    note: Callable[[int, int], None],
    shape: Callable[[BLoadBatch], Any],
    reading: Reading,
    *,
    last: bool,
) -> Any:
    """The batches as tensors.

    Args:
        iterations: begins an iteration, each time one over the data set begins.
        batcher: reads the samples.
        note: is told the iteration and step of each batch when it is given out, and not before.
        shape: from a batch to what is given out.
        reading: ahead.
        last: True if no other data set is made of this one.
    """
    form = batcher.spec.blocks.ids.shape

    def entries() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        for given in iterations():
            yield np.array([given.iteration, given.step, given.total]), table(given.blocks, form[1])

    signature = (tf.TensorSpec([3], tf.int64), tf.TensorSpec([3, *form], tf.int32))
    batches = tf.data.Dataset.from_generator(entries, output_signature=signature)
    plain = tf.autograph.experimental.do_not_convert  # there is nothing in them for AutoGraph
    batches = batches.map(plain(_reader(batcher)), num_parallel_calls=reading.num_parallel_calls, deterministic=True)
    batches = batches.prefetch(reading.prefetch) if reading.prefetch else batches

    def noted(place: Any, batch: BLoadBatch) -> Any:
        done = tf.numpy_function(lambda found: _noted(note, found), [place], tf.int64)
        with tf.control_dependencies([done]):
            return tf.nest.map_structure(lambda x: None if x is None else tf.identity(x), shape(batch))

    options = tf.data.Options()
    options.deterministic = True
    options.experimental_optimization.inject_prefetch = False  # it would take batches before they are asked for
    if last and tf.data.AUTOTUNE not in reading:
        # There is nothing to tune, and an iteration's end would wait for the tuner, which sleeps for up to a minute.
        options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF  # ranks have their shares
    return batches.map(plain(noted)).with_options(options)


def _reader(batcher: Batcher) -> Callable[[Any, Any], Any]:
    """From a place ``i64[3]`` and entries ``i32[3, b, k]`` to the place and a batch."""
    fields = {name: spec for name, spec in batcher.spec._asdict().items() if spec is not None}
    flat = tf.nest.flatten(fields)

    def read(place: NDArray[np.int64], entries: NDArray[np.int32]) -> list[NDArray[Any]]:
        try:
            made = batcher.batch(entries, int(place[2]))._asdict()
        except HvdAdaptiveError:
            raise
        except Exception as error:  # also StopIteration, which would end the epoch on this rank alone
            raise SourceError(f"a sample could not be read: {type(error).__name__}: {error}") from error
        found: list[NDArray[Any]] = tf.nest.flatten({name: made[name] for name in fields})
        return found

    def batch(place: Any, entries: Any) -> Any:
        tensors = tf.numpy_function(read, [place, entries], [spec.dtype for spec in flat])
        shaped = [tf.ensure_shape(tensor, spec.shape) for tensor, spec in zip(tensors, flat, strict=True)]
        found = tf.nest.pack_sequence_as(fields, shaped)
        return place, BLoadBatch(**{name: found.get(name) for name in BLoadBatch._fields})

    return batch


def _noted(note: Callable[[int, int], None], place: NDArray[np.int64]) -> NDArray[np.int64]:
    note(int(place[0]), int(place[1]))
    return place
