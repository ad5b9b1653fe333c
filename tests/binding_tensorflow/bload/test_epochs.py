"""From epoch to epoch, by loops and by Keras."""

import logging
from typing import Any

import keras
import pytest
import tensorflow as tf
from packers import whole
from tensors import SKEWED, entries, numbered, spread

import hvd_adaptive.tensorflow.bload as hva
from hvd_adaptive.bload import POLICIES, pack


def test_each_whole_iteration_is_the_next_epoch(ranks: Any) -> None:
    def on_rank() -> Any:
        found = []
        for shuffle in (True, False):
            data = hva.bload_dataset(numbered(SKEWED), SKEWED, 41, seed=5, shuffle=shuffle)
            for epoch in range(3):
                assert data.epoch == epoch
                found.append(entries(data))
            assert data.epoch == 3
            data.set_epoch(1)
            found.append(entries(data))
            assert data.epoch == 2
        return found

    first, second = ranks(2).run(on_rank)
    for zero, one, two, one_again, *still in (first, second):
        assert zero != one != two != zero
        assert one_again == one
        assert still == [zero] * 4
    for mine, other in zip(first, second, strict=True):
        assert spread(mine, other) == whole(SKEWED)


def test_a_loop_that_was_left_early_begins_again(ranks: Any) -> None:
    def on_rank() -> Any:
        data = hva.bload_dataset(numbered(SKEWED), SKEWED, 41, prefetch=8)
        steps = data.steps
        peeked = entries([next(iter(data))])
        assert (data.epoch, data.steps) == (0, steps)
        taken = entries(batch for _, batch in zip(range(steps - 1), data, strict=False))
        assert data.epoch == 0
        given = entries(batch for _, batch in zip(range(steps), data, strict=False))  # the end is never asked for
        assert data.epoch == 1
        assert peeked == taken[:1] == given[:1]
        assert taken == given[:-1]
        return given

    assert spread(*ranks(2).run(on_rank)) == whole(SKEWED)


def test_iterators_that_are_never_read_change_nothing(ranks: Any) -> None:
    def on_rank() -> Any:
        data = hva.bload_dataset(numbered(SKEWED), SKEWED, 41)
        for _ in range(3):
            iter(data)
        return entries(data)

    assert spread(*ranks(2).run(on_rank)) == whole(SKEWED)


def test_the_end_of_an_epoch_waits_for_no_tuner(ranks: Any) -> None:
    """What TensorFlow says it will do: how long it would wait depends on how long the epoch took."""

    def on_rank(**reading: int) -> Any:
        data = hva.bload_dataset(numbered(SKEWED), SKEWED, 41, **reading)
        return data._counted.options().autotune.enabled, data.options().autotune.enabled

    assert ranks(1).run(on_rank) == [(False, None)]  # None is TensorFlow's default; others may have something to tune
    assert ranks(1).run(lambda: on_rank(prefetch=tf.data.AUTOTUNE)) == [(None, None)]


def test_the_number_of_batches_is_told_where_all_epochs_have_as_many(ranks: Any) -> None:
    lengths = [length for length in range(3, 60) for _ in range(3)]

    def on_rank() -> None:
        def told(data: Any) -> Any:
            return int(data.cardinality()), int(tf.data.experimental.cardinality(data.map(lambda *batch: batch[-1])))

        for policy in POLICIES:
            fixed = hva.bload_dataset(numbered(lengths), lengths, 64, policy=policy, shuffle=False)
            assert told(fixed) == (fixed.steps,) * 2
            data = hva.bload_dataset(numbered(lengths), lengths, 64, policy=policy)
            steps = []
            for epoch in range(30):
                data.set_epoch(epoch)
                steps.append(data.steps)
            if policy == "best_fit":
                assert set(steps) == {len(data)}
                assert told(data) == (data.steps,) * 2
            else:
                assert len(set(steps)) > 1
                assert told(data) == (data.steps, tf.data.UNKNOWN_CARDINALITY)

    ranks(2).run(on_rank)


class Seen(keras.callbacks.Callback):
    """Notes batches of each epoch of Keras, and what the data set says then."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self.data = data
        self.steps: list[int] = []
        self.epochs: list[int] = []
        self.cuts: list[Any] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.steps.append(0)
        self.epochs.append(self.data.epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps[-1] += 1
        self.cuts.append([cut[2] for cut in self.data.state_dict()["cuts"]])


class Noting(keras.Model):
    """Notes the targets of each batch."""

    def __init__(self):  # no annotations, for which cloudpickle finds no names
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.given = []

    def call(self, x):
        return self.dense(x)

    def train_step(self, batch):
        tf.py_function(lambda targets: self.given.append(targets.numpy().ravel().tolist()), [batch[1]], [])
        return super().train_step(batch)


LENGTHS = [length for length in range(3, 40) for _ in range(2)]
"""Packed at random, other epochs have other numbers of batches."""


def fitted(policy: str, at_once: bool, left: bool = False) -> Any:
    """What Keras was given in four epochs, as the targets of all batches, and what was seen of them."""
    data = hva.bload_dataset(numbered(LENGTHS), LENGTHS, 64, policy=policy, keras_inputs="data")
    model = Noting()
    model.compile("sgd", keras.losses.MeanSquaredError())
    seen = Seen(data)
    if left:  # the first batch is done elsewhere
        next(iter(data))
        data.load_state_dict(data.state_dict())
    for epoch in [0] if at_once else range(4):
        until = 4 if at_once else epoch + 1
        model.fit(data, initial_epoch=epoch, epochs=until, verbose=0, shuffle=False, callbacks=[seen])
    return [list(targets) for targets in model.given], seen.steps, seen.epochs, seen.cuts, data.epoch


@pytest.mark.parametrize(
    ("policy", "at_once", "left"),
    [("best_fit", True, False), ("best_fit", False, True), ("random", False, False), ("next_fit", False, True)],
)
def test_each_epoch_of_keras_is_the_next(ranks: Any, policy: str, at_once: bool, left: bool) -> None:
    first, second = ranks(2).run(fitted, policy, at_once, left)
    numbers = [len(pack(LENGTHS, 64, policy, epoch=epoch).shard(0, 2, 1)) for epoch in range(4)]
    assert policy == "best_fit" or len(set(numbers)) > 1
    for given, steps, epochs, cuts, after in (first, second):
        assert (epochs, after) == ([0, 1, 2, 3], 4)
        assert steps == [numbers[0] - left, *numbers[1:]]
        assert len(given) == sum(steps)
        assert cuts[: steps[0]] == [[step] if step < numbers[0] else [] for step in range(1 + left, numbers[0] + 1)]
    everything = sorted(1000 * i + t for i, length in enumerate(LENGTHS) for t in range(length))
    at = numbers[0] - left
    for number in numbers[1:]:
        targets = [t for given, *_ in (first, second) for batch in given[at : at + number] for t in batch]
        assert sorted(targets) == sorted(everything + [0] * (2 * number * 64 - len(everything)))
        at += number


def test_an_epoch_that_keras_cuts_short_begins_again_and_is_logged(ranks: Any) -> None:
    def on_rank() -> Any:
        data = hva.bload_dataset(numbered(LENGTHS), LENGTHS, 64)
        steps, said = data.steps, []
        handler = logging.Handler()
        handler.emit = lambda record: said.append(record.getMessage())
        logging.getLogger("hvd_adaptive").addHandler(handler)
        first = [entries([batch]) for _, batch in zip(range(2), data, strict=False)]
        again = [entries([batch]) for batch in data]
        logging.getLogger("hvd_adaptive").removeHandler(handler)
        assert (first, len(again)) == (again[:2], steps)
        return steps, said

    (steps, said), (_, silent) = ranks(2).run(on_rank)
    assert silent == []
    assert said == [
        f"a loop over epoch 0 was left after 2 of its {steps} batches, so the epoch begins again; where Model.fit did that, call "
        "it for one epoch at a time, for it runs no epoch longer than its first"
    ]


def test_keras_takes_steps_from_a_repeated_data_set(ranks: Any) -> None:
    def on_rank() -> Any:
        data = hva.bload_dataset(numbered(SKEWED), SKEWED, 41, keras_inputs="data")
        steps = data.steps
        found = []
        for _, targets, weight in data.repeat(3).prefetch(4):
            found.append([int(t) for t in targets.numpy()[weight.numpy() > 0]])
        assert len(found) == 3 * steps
        return [sorted(t for batch in found[e * steps : (e + 1) * steps] for t in batch) for e in range(3)]

    first, second = ranks(2).run(on_rank)
    everything = sorted(1000 * i + t for i, length in enumerate(SKEWED) for t in range(length))
    for mine, other in zip(first, second, strict=True):
        assert sorted(mine + other) == everything
