"""Checks what :func:`bload_dataset` was given, on all ranks together."""

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from hvd_adaptive import checks
from hvd_adaptive.binding.collective import joined
from hvd_adaptive.bload.bounds import most_sequences
from hvd_adaptive.bload.epoch import Epoch, Options
from hvd_adaptive.bload.layout import Limit
from hvd_adaptive.bload.meeting import Meeting
from hvd_adaptive.errors import ConfigError
from hvd_adaptive.tensorflow.bload.batch import Batcher, BLoadBatch, Form
from hvd_adaptive.tensorflow.bload.course import Course
from hvd_adaptive.tensorflow.bload.pipeline import Reading, pipeline
from hvd_adaptive.tensorflow.collective import HorovodCollective

_OWNER = "bload_dataset"
_FOR_KERAS = ("data", "valid", "starts", "position_ids", "segment_ids")
_built: Counter[int] = Counter()
"""Data sets by process set, so that each has collectives of its own name."""


class Arguments(NamedTuple):
    """Those of :func:`bload_dataset`."""

    dataset: Any
    lengths: Any
    options: Options
    batch_size: Any
    padding: Any
    target_padding: Any
    targets: Any
    keras_inputs: Any
    reading: Reading


class _Checked(NamedTuple):
    """What was made of legal arguments."""

    epoch: Epoch
    batch_size: int
    batcher: Batcher
    keras_inputs: str | tuple[str, ...] | None

    @property
    def described(self) -> dict[str, Any]:
        """What must be the same on every rank, as plain values."""
        return {
            **self.epoch.described,
            "batch_size": self.batch_size,
            "keras_inputs": self.keras_inputs if isinstance(self.keras_inputs, str | None) else list(self.keras_inputs),
            "samples": str((self.batcher.spec.data, self.batcher.spec.targets)),
        }


class _Called:
    """A function of the index, read by index."""

    def __init__(self, function: Callable[[int], Any]) -> None:
        self._function = function

    def __getitem__(self, index: int) -> Any:
        return self._function(index)


def build(arguments: Arguments, process_set: Any) -> tuple[Course, Callable[..., Any]]:
    """Where training stands, and :func:`pipeline` of it, which wants what begins iterations, and ``last=``.

    Raises:
        ConfigError: on every rank, if an argument is not legal on some; if this rank is not in the process set.
        SourceError: on every rank, if the first sample could not be read on some.
        AgreementError: on every rank, unless all were given the same.
    """
    ranks = joined(HorovodCollective(process_set), _OWNER)
    number = int(process_set.process_set_id)
    name = f"hvd_adaptive.{number}.dataset"
    meeting = Meeting(_OWNER, ranks.ranks, lambda own: ranks.wait(ranks.start("gather", own, f"{name}.handshake")))
    described: dict[str, Any] = {"number": _built[number]}
    checked, error = None, None
    try:
        checked = _check(arguments)
        described |= checked.described
    except Exception as caught:  # noqa: BLE001 - whatever it is, the other ranks must not wait for this one
        error = caught
    said = meeting.tell(described, error)
    # Horovod gives the number of a removed process set to the next one, whose ranks may have counted differently.
    _built[number] = max(words.pop("number") for words in said) + 1
    meeting.compare(said, "give every rank the same")
    assert checked is not None  # noqa: S101 - else there was an error, which all ranks have raised
    course = Course(checked.epoch, ranks, checked.batch_size, f"{name}.{_built[number]}")
    shape = functools.partial(_for_keras, checked.keras_inputs, ranks.size) if checked.keras_inputs else _unchanged
    batches = functools.partial(pipeline, batcher=checked.batcher, note=course.note, shape=shape, reading=arguments.reading)
    return course, batches


def _check(given: Arguments) -> _Checked:
    """Raise a ConfigError unless all arguments are legal."""
    batch_size = checks.count(_OWNER, "batch_size", given.batch_size)
    for name, value in (("padding", given.padding), ("target_padding", given.target_padding)):
        checks.number(_OWNER, name, value, -math.inf)
    if given.reading.num_parallel_calls != tf.data.AUTOTUNE:
        checks.count(_OWNER, "num_parallel_calls", given.reading.num_parallel_calls, hint="or tf.data.AUTOTUNE")
    if given.reading.prefetch != tf.data.AUTOTUNE:
        checks.count(_OWNER, "prefetch", given.reading.prefetch, hint="batches, or tf.data.AUTOTUNE", least=0)
    inputs = _inputs(given.keras_inputs)
    epoch = Epoch(given.lengths, given.options)
    if not epoch.lengths.size:
        raise ConfigError(f"{_OWNER}: lengths are none, so nobody knows how samples look; give one sequence or more")
    dataset = given.dataset
    if not hasattr(dataset, "__getitem__"):
        if not callable(dataset):
            raise ConfigError(f"{_OWNER}: dataset must have [] or be a function of the index, got {type(dataset).__name__}")
        dataset = _Called(dataset)
    elif isinstance(dataset, Sequence) and len(dataset) != epoch.lengths.size:
        raise ConfigError(
            f"{_OWNER}: dataset has {len(dataset)} sequences, but lengths are {epoch.lengths.size}; give one of each"
        )
    length = epoch.packed.block_length
    most = most_sequences(epoch.packed.lengths, Limit(length, epoch.options.max_sequences_per_block))
    form = Form(batch_size, length, most, given.padding, given.target_padding, given.targets)
    batcher = Batcher(dataset, epoch.lengths, form)
    if inputs and batcher.spec.targets is None:
        raise ConfigError(f"{_OWNER}: keras_inputs= needs targets; give samples that are (data, targets), or targets=")
    return _Checked(epoch, batch_size, batcher, inputs)


def _inputs(given: Any) -> str | tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else ()
    if not names or any(name not in _FOR_KERAS for name in names):
        raise ConfigError(
            f"{_OWNER}: keras_inputs must be None, or one or a list of {', '.join(map(repr, _FOR_KERAS))}, got {given!r}"
        )
    return given if isinstance(given, str) else names


def _unchanged(batch: BLoadBatch) -> BLoadBatch:
    return batch


def _for_keras(inputs: str | tuple[str, ...], size: int, batch: BLoadBatch) -> tuple[Any, Any, Any]:
    """``(x, y, sample_weight)``."""
    x = getattr(batch, inputs) if isinstance(inputs, str) else {name: getattr(batch, name) for name in inputs}
    mean = tf.cast(batch.total, tf.float32) / size
    weight = tf.cast(batch.valid, tf.float32) * (tf.cast(tf.size(batch.valid), tf.float32) / mean)
    return x, batch.targets, weight
