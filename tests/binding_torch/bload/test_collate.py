"""Batches of tensors."""

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import hvd_adaptive.torch as hva
from hvd_adaptive import ConfigError
from hvd_adaptive.bload import Block, Blocks, pack, tables
from hvd_adaptive.torch import Packed

LENGTHS = [3, 2, 4, 5]
T = 6


def packed(samples: Any, blocks: Blocks) -> list[Any]:
    dataset = hva.BLoadDataset(samples)
    return [dataset[blocks[number]] for number in range(len(blocks))]


def blocks() -> Blocks:
    """Some with two sequences, and at last an empty one."""
    return pack(LENGTHS, T).shard(0, 5, 1).blocks


def numbered(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Element t of sequence i is 10 i + t + 1."""
    return [torch.arange(1, length + 1, dtype=dtype) + 10 * index for index, length in enumerate(LENGTHS)]


def expected(padding: float) -> list[list[float]]:
    rows = []
    for block in blocks():
        row = [10.0 * i + t + 1 for i, length in zip(block.ids, block.lengths, strict=True) for t in range(length)]
        rows.append(row + [padding] * (T - len(row)))
    return rows


def test_there_is_a_block_of_each_kind() -> None:
    assert sorted(block.ids.size for block in blocks()) == [0, 1, 1, 1, 1]
    assert max(block.ids.size for block in pack(LENGTHS, T)) == 2


def test_sequences_come_one_after_the_other_and_padding_last() -> None:
    for made in (blocks(), pack(LENGTHS, T)):
        samples = [(x[:, None].expand(-1, 2), x.long()) for x in numbered()]
        batch = hva.bload_collate(T)(packed(samples, made))
        for row, block in enumerate(made):
            joined = torch.cat([numbered()[i] for i in block.ids] or [torch.zeros(0)])
            assert batch.data[row, : len(joined), 0].tolist() == batch.data[row, : len(joined), 1].tolist() == joined.tolist()
            assert batch.data[row, len(joined) :].abs().sum() == 0
            assert batch.targets[row].tolist() == [*joined.long().tolist(), *[-100] * (T - len(joined))]
        assert batch.data.shape == (len(made), T, 2)
        assert [block.ids.tolist() for block in batch.blocks] == [block.ids.tolist() for block in made]


def test_tables_are_those_of_the_blocks() -> None:
    made = pack(LENGTHS, T)
    for width in (None, 4):
        batch = hva.bload_collate(T, width)(packed(numbered(), made))
        for name, array in tables(list(made), T, width)._asdict().items():
            tensor = getattr(batch, name)
            assert tensor.dtype == torch.from_numpy(array).dtype
            assert tensor.tolist() == array.tolist()


def test_shapes_are_constant_on_request() -> None:
    collate = hva.bload_collate(T, 3)
    items = packed([(x, x) for x in numbered()], pack(LENGTHS, T))
    shapes = {
        str({name: value.shape for name, value in vars(collate([one, other])).items() if name != "blocks"})
        for one in items
        for other in items
    }
    assert len(items) > 1
    assert len(shapes) == 1


class Sample(NamedTuple):
    x: torch.Tensor
    y: np.ndarray[Any, Any]


def test_samples_of_any_structure() -> None:
    first = blocks()
    collate, x = hva.bload_collate(T), numbered()

    alone = collate(packed(x, first))
    assert (alone.data.tolist(), alone.targets) == (expected(0), None)
    (single,) = collate(packed([(a,) for a in x], first)).data
    assert single.tolist() == expected(0)
    named = collate(packed([Sample(a, a.numpy()) for a in x], first))
    assert named.data.tolist() == named.targets.tolist() == expected(0)
    listed = collate(packed([[a, a + 1, a.long()] for a in x], first))
    assert [part.tolist() for part in listed.data] == [expected(0), [[v and v + 1 for v in row] for row in expected(0)]]
    assert listed.targets.tolist() == expected(-100)
    keyed = hva.bload_collate(T, targets="y")(packed([{"x": a, "z": (a,), "y": a} for a in x], first))
    assert set(keyed.data) == {"x", "z"}
    assert keyed.data["z"][0].tolist() == keyed.targets.tolist() == expected(0)
    dicts = collate(packed([{"x": a} for a in x], first))
    assert (list(dicts.data), dicts.targets) == (["x"], None)


@pytest.mark.parametrize(
    ("dtype", "padding"),
    [(torch.float32, 0), (torch.float64, 0), (torch.int64, -100), (torch.int8, -100), (torch.uint8, 0), (torch.bool, 0)],
)
def test_padding_of_targets(dtype: torch.dtype, padding: float) -> None:
    samples = [(a, torch.ones_like(a, dtype=dtype)) for a in numbered()]
    batch = hva.bload_collate(T)(packed(samples, blocks()))
    assert batch.targets.dtype == dtype
    assert set(batch.targets[~batch.valid].tolist()) == {padding}
    assert set(batch.targets[batch.valid].tolist()) == {1}


def test_padding_as_asked() -> None:
    batch = hva.bload_collate(T, padding=7, target_padding=9)(packed([(a, a.long()) for a in numbered()], blocks()))
    assert batch.data.tolist() == expected(7)
    assert batch.targets.tolist() == expected(9)


@pytest.mark.parametrize("odd", [0, 1])
def test_whole_numbers_and_others_meet_in_the_wider_type(odd: int) -> None:
    samples = [a.long() if index % 2 == odd else a + 0.5 for index, a in enumerate(numbered())]
    batch = hva.bload_collate(T)(packed(samples, blocks()))
    assert batch.data.dtype == torch.float32
    assert {value % 1 for value in batch.data[batch.valid].tolist()} == {0, 0.5}


def test_arrays_that_are_read_only() -> None:
    """torch warns of them, and warnings are errors here."""
    arrays = [a.numpy() for a in numbered()]
    for array in arrays:
        array.setflags(write=False)
    assert hva.bload_collate(T)(packed(arrays, blocks())).data.tolist() == expected(0)


@pytest.mark.parametrize("change", [lambda a: a[::-1].copy()[::-1], lambda a: a.astype(">f4"), lambda a: np.repeat(a, 2)[::2]])
def test_arrays_in_any_order(change: Any) -> None:
    """Reversed, of other byte order, with gaps."""
    found = hva.bload_collate(T)(packed([change(a.numpy()) for a in numbered()], blocks()))
    assert found.data.tolist() == expected(0)
    assert found.data.dtype == torch.float32


def test_a_batch_of_empty_blocks_looks_like_any_other() -> None:
    made = pack([3], T).shard(0, 3, 1).blocks
    samples = [(torch.ones(3, 2, dtype=torch.float64), torch.ones(3, dtype=torch.int64))]
    items = packed(samples, made)
    batch = hva.bload_collate(T, 2)(items[1:])
    assert (batch.data.shape, batch.data.dtype, float(batch.data.sum())) == ((2, T, 2), torch.float64, 0.0)
    assert batch.targets.tolist() == [[-100] * T] * 2
    assert not batch.valid.any()
    assert batch.cu_seqlens.tolist() == [0, T, *[2 * T] * 5]


def test_batches_move_and_are_pinned_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU nothing can be pinned, so only who is asked to is seen."""
    batch = hva.bload_collate(T)(packed([{"x": a, "y": a} for a in numbered()], blocks()))
    moved = batch.to("meta")
    assert {value.device.type for value in (moved.data["x"], moved.data["y"], moved.valid, moved.cu_seqlens)} == {"meta"}
    assert (moved.blocks, moved.targets) == (batch.blocks, None)
    asked: list[int] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        asked.append(id(tensor))
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    pinned = torch.utils.data._utils.pin_memory.pin_memory(batch)  # what a DataLoader's thread calls
    tensors = [batch.data["x"], batch.data["y"], *(v for v in vars(batch).values() if isinstance(v, torch.Tensor))]
    assert sorted(asked) == sorted(map(id, tensors))
    assert type(pinned) is hva.BLoadBatch
    assert pinned.data["x"].tolist() == batch.data["x"].tolist()


def test_it_can_be_pickled() -> None:
    collate = hva.bload_collate(T, 3, targets="y")
    assert pickle.loads(pickle.dumps(collate)) == collate  # noqa: S301 - made here


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"block_length": 0}, "block_length must be a whole number from 1"),
        ({"block_length": None}, r"block_length must be a whole number from 1 to 2147483647 \(the sampler's\), got None"),
        ({"block_length": 5, "max_sequences": 0}, "max_sequences must be a whole number from 1"),
    ],
)
def test_bad_options(arguments: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        hva.bload_collate(**arguments)


def test_bad_samples() -> None:
    made = pack(LENGTHS, T)
    with pytest.raises(ConfigError, match=r"targets='y' must be a key of each sample, which is no dict"):
        hva.bload_collate(T, targets="y")(packed(numbered(), made))
    with pytest.raises(ConfigError, match=r"which is a dict with 'x'"):
        hva.bload_collate(T, targets="y")(packed([{"x": a} for a in numbered()], made))
    with pytest.raises(ConfigError, match="block_length is 4, but"):
        hva.bload_collate(4)(packed(numbered(), made))


def packed_as(samples: list[Any], *lengths: int) -> Packed:
    """Samples that no :class:`BLoadDataset` has looked at, as a stream gives them."""
    numbers = np.array(lengths, np.int32)
    return Packed(Block(np.arange(numbers.size, dtype=np.int32), np.zeros_like(numbers), numbers), samples)


@pytest.mark.parametrize(
    ("samples", "lengths", "said"),
    [
        ([torch.zeros(3), torch.zeros(2)], (2, 3), r"have \[3, 2\] elements, but their lengths were \[2, 3\]; lengths, or what"),
        ([(torch.zeros(3), torch.zeros(2))], (3,), r"have \[2\] elements, but their lengths were \[3\]"),
        ([torch.zeros(1)], (), r"have \[1\] elements, but their lengths were \[0\]"),
        ([[1, 2, 3]], (3,), "must be a tensor or array with time first, .*, got int in it; give each one value"),
        ([(torch.zeros(3), torch.tensor(1))], (3,), "got Tensor in it"),
        (["abc"], (3,), "got str in it"),
    ],
)
def test_samples_that_are_not_what_the_block_says(samples: list[Any], lengths: tuple[int, ...], said: str) -> None:
    """Else the mask would lie over other elements."""
    with pytest.raises(ConfigError, match=said):
        hva.bload_collate(T)([packed_as(samples, *lengths)])


def test_samples_of_other_widths_are_not_repeated_to_fit() -> None:
    wide, narrow = packed_as([torch.zeros(3, 3)], 3), packed_as([torch.ones(3, 1)], 3)
    with pytest.raises(ConfigError, match=r"must agree in all dimensions but the first, got \[length, ...\] of \(3,\), \(1,\)"):
        hva.bload_collate(T)([wide, narrow])
