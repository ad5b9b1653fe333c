"""Samples by the block."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch

import hvd_adaptive.torch as hva
from hvd_adaptive import ConfigError
from hvd_adaptive.bload import Block, pack


def block(*rows: tuple[int, int, int]) -> Block:
    """From (id, offset, length)."""
    return Block(*np.array(rows, np.int32).reshape(-1, 3).T)


def counting(length: int, first: int = 0) -> torch.Tensor:
    return torch.arange(first, first + length)


def test_samples_come_in_the_order_of_the_block() -> None:
    dataset = hva.BLoadDataset([counting(3), counting(2, 10), counting(4, 20)])
    packed = dataset[block((2, 0, 4), (0, 0, 3))]
    assert [sample.tolist() for sample in packed.samples] == [[20, 21, 22, 23], [0, 1, 2]]
    assert len(dataset) == 3


def test_split_samples_are_cut() -> None:
    dataset = hva.BLoadDataset([{"x": counting(8), "y": (counting(8).numpy() * 2,)}], [8])
    packed = dataset[block((0, 5, 3))]
    assert packed.samples[0]["x"].tolist() == [5, 6, 7]
    assert packed.samples[0]["y"][0].tolist() == [10, 12, 14]
    assert dataset[block((0, 0, 5))].samples[0]["x"].tolist() == [0, 1, 2, 3, 4]


def test_every_part_of_a_split_data_set_is_read_once() -> None:
    lengths = [23, 4, 9, 10]
    blocks = pack(lengths, 10, overlong="split")
    dataset = hva.BLoadDataset([counting(length, 100 * index) for index, length in enumerate(lengths)], lengths)
    read = [element for one in blocks for sample in dataset[one].samples for element in sample.tolist()]
    assert sorted(read) == [100 * index + place for index, length in enumerate(lengths) for place in range(length)]


def test_an_empty_block_tells_how_samples_look() -> None:
    dataset = hva.BLoadDataset([(torch.zeros(4, 3, dtype=torch.float64), np.zeros(4, np.int16))])
    ((data, targets),) = dataset[block()].samples
    assert (data.shape, data.dtype) == ((0, 3), torch.float64)
    assert (targets.shape, targets.dtype) == ((0,), np.int16)


def test_it_can_be_pickled() -> None:
    dataset = pickle.loads(pickle.dumps(hva.BLoadDataset([counting(3)], [3])))  # noqa: S301 - made here
    assert dataset[block((0, 0, 3))].samples[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("samples", "lengths", "rows", "said"),
    [
        (
            [counting(3), counting(5)],
            None,
            [(0, 0, 3), (1, 0, 4)],
            r"dataset\[1\] has 5 elements, but its length was 4; .*; if the sampler splits",
        ),
        ([counting(3), counting(5)], None, [(1, 0, 6)], r"dataset\[1\] has 5 elements, but its length was 6"),
        ([counting(3), counting(5)], None, [(0, 0, 3), (1, 2, 1)], r"dataset\[1\] has 5 elements, but its length was 3"),
        ([counting(5)], None, [(0, 0, 4)], r"dataset\[0\] has 5 elements, but its length was 4"),
        ([counting(5)], [4], [(0, 0, 4)], r"dataset\[0\] has 5 elements, but its length was 4"),
        ([counting(5)], [6], [(0, 0, 5)], r"dataset\[0\] has 5 elements, but its length was 6"),
        ([(counting(5), counting(4))], None, [(0, 0, 5)], r"parts of dataset\[0\] must be equally long, got \[5, 4\]"),
        (
            [(counting(5), torch.tensor(1))],
            None,
            [(0, 0, 5)],
            r"dataset\[0\] must be a tensor or array with time first.*Tensor in it",
        ),
        ([(counting(5), 3)], None, [(0, 0, 5)], r"got int in it; give each one value"),
    ],
)
def test_samples_of_other_lengths_are_refused(samples: Any, lengths: Any, rows: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        hva.BLoadDataset(samples, lengths)[block(*rows)]


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match=r"is read by the block, got 0; use it with DataLoader\(..., batch_sampler="):
        hva.BLoadDataset([counting(3)])[0]
    with pytest.raises(ConfigError, match=r"lengths\[0\] is 0"):
        hva.BLoadDataset([counting(3)], [0])
