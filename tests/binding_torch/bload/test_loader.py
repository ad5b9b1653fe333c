"""In a DataLoader as users run it: with workers of any kind, for several epochs, stopped and resumed."""

from typing import Any

import horovod.torch as hvd
import pytest
import torch
from packers import whole
from sequences import SKEWED, entries, sequences, spread
from torch.utils.data import DataLoader

import hvd_adaptive.torch as hva
from hvd_adaptive import AgreementError, ConfigError

WORKERS = {
    "none": {},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "spawn": {"num_workers": 1, "multiprocessing_context": "spawn"},
    "persistent": {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": True},
    "persistent spawn": {"num_workers": 1, "multiprocessing_context": "spawn", "persistent_workers": True, "prefetch_factor": 4},
}


def loader(sampler: Any, lengths: Any, workers: str, **options: Any) -> Any:
    dataset = hva.BLoadDataset(sequences(lengths), lengths)
    collate = hva.bload_collate(sampler.block_length, **options)
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate, **WORKERS[workers])


def check(batch: Any, lengths: Any) -> None:
    """What is in the batch is what its blocks say."""
    samples = sequences(lengths)
    for row, block in enumerate(batch.blocks):
        data = torch.cat([samples[i][0] for i in block.ids] or [torch.zeros(0, 3)])
        targets = torch.cat([samples[i][1] for i in block.ids] or [torch.zeros(0, dtype=torch.int64)])
        assert torch.equal(batch.data[row][batch.valid[row]], data)
        assert torch.equal(batch.targets[row][batch.valid[row]], targets)


@pytest.mark.parametrize("workers", WORKERS)
def test_epochs_reach_the_workers(ranks: Any, workers: str) -> None:
    def on_rank() -> Any:
        sampler = hva.BLoadSampler(SKEWED, 41, 2)
        batches = loader(sampler, SKEWED, workers)
        epochs = []
        for epoch in range(3):
            found = []
            for step, batch in enumerate(batches):
                check(batch, SKEWED)
                found += entries([batch.blocks])
                sampler.record_batch(step, 2)
            assert len(found) == len(batches)
            epochs.append(found)
            sampler.set_epoch(epoch + 1)
            if workers == "spawn":  # it takes seconds, and starts anew in each epoch
                break
        return epochs

    first, second = ranks(2).run(on_rank, seconds=110)
    for mine, others in zip(first, second, strict=True):
        assert spread(mine, others) == whole(SKEWED)
    assert len(set(map(str, first))) == len(first) == (1 if workers == "spawn" else 3)


@pytest.mark.parametrize("workers", ["none", "fork", "persistent"])
def test_stopped_and_resumed_with_workers_that_read_ahead(ranks: Any, workers: str) -> None:
    """Workers were given batches that were never trained on; those must come again."""

    def on_rank() -> Any:
        expected = entries(hva.BLoadSampler(SKEWED, 41))
        found = []
        for done in (1, 2, len(expected) - 1):
            sampler = hva.BLoadSampler(SKEWED, 41)
            batches = loader(sampler, SKEWED, workers)
            for step, _ in enumerate(batches):
                sampler.record_batch(step, 1)
                if step + 1 == done:
                    break
            again = hva.BLoadSampler(SKEWED, 41)
            again.load_state_dict(sampler.state_dict())
            rest = entries(batch.blocks for batch in loader(again, SKEWED, workers))
            same = entries(batch.blocks for batch in batches)  # the first loader goes on, too
            found.append(rest == same == expected[done:])
        return found

    assert ranks(2).run(on_rank, seconds=110) == [[True] * 3] * 2


@pytest.mark.parametrize("workers", ["none", "fork"])
def test_a_mismatch_is_found_before_any_batch(ranks: Any, workers: str) -> None:
    def on_rank() -> Any:
        sampler = hva.BLoadSampler(SKEWED, 41, seed=hvd.rank())
        next(iter(loader(sampler, SKEWED, workers)))

    answers = ranks(2).attempt(on_rank, seconds=30)
    assert {type(answer) for answer in answers} == {AgreementError}


@pytest.mark.parametrize("workers", ["none", "fork"])
def test_batches_of_empty_blocks_have_the_shape_of_all(ranks: Any, workers: str) -> None:
    def on_rank() -> Any:
        sampler = hva.BLoadSampler([4, 6], 8, 2)
        (batch,) = loader(sampler, [4, 6], workers, max_sequences=3)
        check(batch, [4, 6])
        shapes = {name: tuple(value.shape) for name, value in vars(batch).items() if name != "blocks"}
        return int(batch.valid.sum()), str(batch.data.dtype), shapes

    answers = ranks(3).run(on_rank)
    assert sorted(valid for valid, *_ in answers) == [0, 4, 6]
    assert len({str(rest) for _, *rest in answers}) == 1


def test_a_wrong_length_is_named_through_workers(ranks: Any) -> None:
    def on_rank() -> str:
        sampler = hva.BLoadSampler([4, 5], 9)
        dataset = hva.BLoadDataset(sequences([4, 6]))
        batches = DataLoader(dataset, batch_sampler=sampler, collate_fn=hva.bload_collate(9), **WORKERS["fork"])
        with pytest.raises(ConfigError, match=r"dataset\[1\] has 6 elements") as caught:
            list(batches)
        return str(caught.value)

    assert "was 5; measure lengths" in ranks(1).run(on_rank)[0]
