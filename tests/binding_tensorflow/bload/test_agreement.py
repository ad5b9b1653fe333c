"""What differs between ranks, or is wrong on one, is raised on all."""

from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from tensors import SKEWED, numbered

import hvd_adaptive.tensorflow.bload as hva
from hvd_adaptive import AgreementError, ConfigError, SourceError
from hvd_adaptive.bload import pack


def alike(answers: list[Any], kind: type[Exception]) -> str:
    """The text of the error of that kind that every rank raised."""
    assert [type(answer) for answer in answers] == [kind] * len(answers), answers
    (text,) = {str(answer) for answer in answers}
    return text


def still_there() -> int:
    return sum(1 for _ in hva.bload_dataset([np.zeros(3)] * 4, [3] * 4))


OPTIONS: dict[str, Any] = {
    "lengths": ({"lengths": [5, 4, 2, 3]}, "hash of lengths: rank 0 has "),
    "number": ({"lengths": [5, 4, 3]}, "sequences: rank 0 has 4, rank 1 has 3"),
    "seed": ({"seed": 1}, "seed: rank 0 has 0, rank 1 has 1"),
    "policy": ({"policy": "random"}, "policy: rank 0 has 'best_fit', rank 1 has 'random'"),
    "batch_size": ({"batch_size": 2}, "batch_size: rank 0 has 1, rank 1 has 2"),
    "dtype": ({"dataset": lambda index: np.zeros([5, 4, 3, 2][index], np.int8)}, "samples: rank 0 has "),
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", OPTIONS)
def test_unlike_options_are_refused_when_it_is_built(ranks: Any, kind: str, size: int) -> None:
    odd, said = OPTIONS[kind]

    def on_rank() -> Any:
        usual = {"dataset": lambda index: np.zeros([5, 4, 3, 2][index]), "lengths": [5, 4, 3, 2]}
        if hvd.rank() == 1 and "lengths" in odd:
            usual["dataset"] = lambda index: np.zeros(odd["lengths"][index])
        hva.bload_dataset(**(usual | (odd if hvd.rank() == 1 else {})))

    text = alike(ranks(size).attempt(on_rank, seconds=30), AgreementError)
    assert text.startswith(f"bload_dataset: {said}")
    assert text.endswith("; give every rank the same")
    assert ranks(size).run(still_there) == [-(-4 // size)] * size, "the ranks are still there"


def odd_epoch(data: Any) -> None:
    data.set_epoch(7)


def odd_state(data: Any) -> None:
    state = data.state_dict()
    data.load_state_dict(state | {"cuts": [[data.num_replicas, 1, 1]]})


def odd_blocks(data: Any) -> None:
    """As another version of numpy might pack them; only the hash of the blocks tells."""
    epoch = data._course.dealt.epoch
    epoch.__dict__["packed"] = pack(SKEWED, 41, "next_fit", seed=4)
    epoch.__dict__.pop("left", None)
    data._course.go_to(epoch)


RUNNING = {
    odd_epoch: "epoch: rank 0 has 0, rank 1 has 7",
    odd_state: "done: rank 0 has 0, rank 1 has 1",
    odd_blocks: "hash of blocks: rank 0 has ",
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("change", RUNNING)
def test_unlike_blocks_are_refused_when_a_loop_begins(ranks: Any, change: Any, size: int) -> None:
    def on_rank(derived: bool) -> Any:
        data = hva.bload_dataset(numbered(SKEWED), SKEWED, 41)
        if hvd.rank() == 1:
            change(data)
        list(data.prefetch(1) if derived else data)

    text = alike(ranks(size).attempt(on_rank, False, seconds=30), AgreementError)
    assert text.startswith(
        "the ranks were configured differently; every rank must give its bload_dataset the same lengths, options"
    )
    assert RUNNING[change] in text
    answers = ranks(size).attempt(on_rank, True, seconds=30)  # TensorFlow's own error then, for its threads raise it
    assert [type(answer) for answer in answers] == [tf.errors.InvalidArgumentError] * size
    assert all(f"AgreementError: {text}" in answer.message for answer in answers)
    assert ranks(size).run(still_there) == [-(-4 // size)] * size, "the ranks are still there"


def unreadable(index: int) -> Any:
    raise OSError("the disk is gone")


WRONG: dict[str, Any] = {
    "a length": ({"lengths": [3, 0]}, ConfigError, "lengths[1] is 0"),
    "too long": ({"block_length": 4}, ConfigError, "lengths[1] is 5, longer than block_length=4"),
    "no sequences": ({"lengths": []}, ConfigError, "bload_dataset: lengths are none, so nobody knows how samples look; give one"),
    "fewer lengths": (
        {"lengths": [3]},
        ConfigError,
        "bload_dataset: dataset has 2 sequences, but lengths are 1; give one of each",
    ),
    "no data set": ({"dataset": 3}, ConfigError, "bload_dataset: dataset must have [] or be a function of the index, got int"),
    "batch_size": ({"batch_size": 0}, ConfigError, "bload_dataset: batch_size must be a whole number from 1 to"),
    "policy": ({"policy": "worst_fit"}, ConfigError, "policy must be 'best_fit' or 'random' or 'next_fit', got 'worst_fit'"),
    "shuffle": ({"shuffle": 1}, ConfigError, "shuffle must be True or False, got 1"),
    "padding": ({"padding": "no"}, ConfigError, "bload_dataset: padding must be a finite number >= -inf, got 'no'"),
    "calls": (
        {"num_parallel_calls": 0},
        ConfigError,
        "bload_dataset: num_parallel_calls must be a whole number from 1 to 1073741824 (or tf.data.AUTOTUNE), got 0",
    ),
    "prefetch": ({"prefetch": -2}, ConfigError, "bload_dataset: prefetch must be a whole number from 0 to"),
    "targets": ({"targets": "y"}, ConfigError, "bload_dataset: targets='y' must be a key of each sample, which is no dict"),
    "no field": (
        {"keras_inputs": "cu_seqlens"},
        ConfigError,
        "bload_dataset: keras_inputs must be None, or one or a list of 'data', 'valid', 'starts', 'position_ids', 'segment_ids', "
        "got 'cu_seqlens'",
    ),
    "no targets": (
        {"keras_inputs": "data"},
        ConfigError,
        "bload_dataset: keras_inputs= needs targets; give samples that are (data, targets), or targets=",
    ),
    "texts": (
        {"dataset": [np.array(["a"] * 3), np.array(["a"] * 5)]},
        ConfigError,
        "bload_dataset: samples must be made of arrays of numbers, got <U1 in dataset[0]; leave texts and objects out, or make "
        "numbers of them",
    ),
    "another length": ({"dataset": [np.zeros(4), np.zeros(5)]}, ConfigError, "dataset[0] has 4 elements, but its length was 3"),
    "unreadable": ({"dataset": unreadable}, SourceError, "OSError: the disk is gone"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_on_one_rank_is_raised_on_all(ranks: Any, kind: str) -> None:
    bad, error, said = WRONG[kind]

    def on_rank() -> Any:
        hva.bload_dataset(**({"dataset": [np.zeros(3), np.zeros(5)], "lengths": [3, 5]} | (bad if hvd.rank() == 1 else {})))

    text = alike(ranks(2).attempt(on_rank, seconds=30), error)
    assert text.startswith("bload_dataset: rank 1: ")
    assert said in text


def test_a_process_set_must_be_horovods(ranks: Any) -> None:
    def on_rank() -> None:
        with pytest.raises(ConfigError, match=r"process_set must be one from hvd.add_process_set\(\), got \[0\]"):
            hva.bload_dataset([np.zeros(3)], [3], process_set=[0])
        with pytest.raises(
            ConfigError, match=r"is not known to Horovod; pass it to hvd.init\(\) or hvd.add_process_set\(\) first"
        ):
            hva.bload_dataset([np.zeros(3)], [3], process_set=hvd.ProcessSet([0]))
        data = hva.bload_dataset([np.zeros(3)], [3])
        with pytest.raises(ConfigError, match=r"epoch must be a whole number from 0"):
            data.set_epoch(-1)

    ranks(1).run(on_rank)


def stopping(index: int) -> Any:
    if index == 1:
        raise StopIteration
    return np.zeros(3)


@pytest.mark.parametrize(
    ("dataset", "kind", "said"),
    [
        (
            [np.zeros(3), np.zeros(4)],
            tf.errors.InvalidArgumentError,
            "ConfigError: dataset[1] has 4 elements, but its length was 3",
        ),
        (
            [np.zeros(3), np.zeros(3, np.float32)],
            tf.errors.InvalidArgumentError,
            "ConfigError: dataset[1] has float32 of [length], but dataset[0] float64 of [length]; give all samples one dtype",
        ),
        (
            [np.zeros((3, 2)), np.zeros((3, 1))],
            tf.errors.InvalidArgumentError,
            "ConfigError: dataset[1] has float64 of [length, 1], but dataset[0] float64 of [length, 2]; give all samples one",
        ),
        (stopping, tf.errors.UnknownError, "SourceError: a sample could not be read: StopIteration"),
    ],
    ids=["length", "dtype", "shape", "stop"],
)
def test_samples_that_do_not_fit_end_the_loop_with_an_error(ranks: Any, dataset: Any, kind: Any, said: str) -> None:
    def on_rank() -> None:
        data = hva.bload_dataset(dataset, [3, 3])
        with pytest.raises(kind) as raised:
            list(data)
        assert said in raised.value.message, raised.value.message

    ranks(1).run(on_rank)
