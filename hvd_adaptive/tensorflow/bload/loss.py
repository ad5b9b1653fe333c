"""The mean over all elements of all ranks that are no padding."""

from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from hvd_adaptive import checks
from hvd_adaptive.binding.collective import joined
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.tensorflow.collective import HorovodCollective


def valid_mean(losses: Any, valid: Any, process_set: Any = hvd.global_process_set, total: Any = None) -> Any:
    """This rank's part of the mean loss, such that Horovod's Average of the gradients is the gradient of the global mean.

    Ranks hold unlike numbers of elements, so the average of their own means weights elements unequally. Here each rank's sum is
    divided by the mean number per rank. Averaged over the ranks, the result is the mean over all elements. Where nothing is
    valid, it is 0 and so are the gradients, whatever the losses of padding are. Losses of 16 bits are added up in 32.

    Args:
        losses: of any shape, one for each element, such as those of ``SparseCategoricalCrossentropy(reduction="none")``.
        valid: ``bool`` of the same shape.
        process_set: the ranks whose gradients are averaged; all by default. Each must call this, unless ``total`` is given.
        total: elements that are valid on all of them, if known: ``batch.total``. None to add them up by one small collective.

    Raises:
        ConfigError: if the shapes differ, ``valid`` is not boolean, ``total`` is no whole number from 0, or this rank is not in
            the process set.
    """
    losses, valid = tf.convert_to_tensor(losses), tf.convert_to_tensor(valid)
    if not losses.shape.is_compatible_with(valid.shape) or valid.dtype != tf.bool:
        raise ConfigError(
            f"valid_mean: valid must be a bool of the losses' shape {losses.shape}, got {valid.dtype.name} of {valid.shape}; "
            "reduce the losses to one for each element, or expand valid"
        )
    ranks = joined(HorovodCollective(process_set), "valid_mean")
    # Chosen, not multiplied: the loss of padding may be infinite, and 0 times that is NaN.
    chosen = tf.where(valid, losses, tf.zeros((), losses.dtype))
    own = tf.reduce_sum(tf.cast(chosen, tf.float32) if losses.dtype.size < 4 else chosen)
    if total is None:
        count = tf.math.count_nonzero(valid)
        total = hvd.allreduce(
            count, op=hvd.Sum, name=f"hvd_adaptive.bload.valid.{process_set.process_set_id}", process_set=process_set
        )
    elif not tf.is_tensor(total):
        total = checks.count("valid_mean", "total", total, 2**62, "of all ranks", least=0)
    elif not total.dtype.is_integer or total.shape.rank != 0:
        raise ConfigError(
            f"valid_mean: total must be one whole number, such as batch.total, got {total.dtype.name} of {total.shape}"
        )
    return own * ranks.size / tf.cast(tf.maximum(total, 1), own.dtype)
