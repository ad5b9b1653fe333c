"""Packed training against the same sequences one by one in one process."""

from typing import Any

import horovod.torch as hvd
import pytest
import torch
from packed_models import MODELS, built, mean_over_all, packed_losses
from sequences import SKEWED, sequences
from torch.utils.data import DataLoader
from training import flat, flat_gradient

import hvd_adaptive.torch as hva
from hvd_adaptive import TopK

TOLERANCE = 1e-12
"""Of gradients up to 1 in float64: the orders of additions differ, nothing else; the promise is 1e-5."""


def loader(lengths: Any, batch_size: int = 2, **options: Any) -> Any:
    """Batches of this rank, and their sampler."""
    sampler = hva.BLoadSampler(lengths, batch_size=batch_size, **options)
    dataset = hva.BLoadDataset(sequences(lengths, dtype=torch.float64), lengths)
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=hva.bload_collate(sampler.block_length)), sampler


@pytest.mark.parametrize("policy", ["best_fit", "random"])
@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_over_packed_blocks_is_that_over_the_sequences(ranks: Any, name: str, policy: str) -> None:
    lengths = SKEWED[:14]

    def on_rank() -> Any:
        packed, alone = built(name), built(name)
        batches, _ = loader(lengths, policy=policy)
        loss, most = torch.zeros(()), 0
        for batch in batches:
            part = hva.valid_mean(packed_losses(packed, batch), batch.valid, total=sum(lengths))
            part.backward()
            loss, most = loss + part.detach(), max(most, *(block.ids.size for block in batch.blocks))
        assert most > 2, "nothing was packed, so nothing is compared"
        expected = mean_over_all(alone, sequences(lengths, dtype=torch.float64))
        expected.backward()
        assert float(flat_gradient(alone).abs().max()) > 1e-2
        return float(loss - expected.detach()), float((flat_gradient(packed) - flat_gradient(alone)).abs().max())

    ((loss, gradient),) = ranks(1).run(on_rank)
    assert abs(loss) <= TOLERANCE
    assert gradient <= TOLERANCE


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("known", [False, True], ids=["added up", "known"])
@pytest.mark.parametrize("name", MODELS)
def test_ranks_step_by_the_mean_over_all_their_elements(ranks: Any, name: str, known: bool, size: int) -> None:
    """Each step against one process that has the sequences of all ranks' batches."""

    def on_rank() -> Any:
        model = built(name)
        inner = torch.optim.SGD(model.parameters(), lr=0.5)
        optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
        batches, sampler = loader(SKEWED, max_sequences_per_block=4)
        found = []
        for step, batch in enumerate(batches):
            optimizer.zero_grad()
            total = int(sampler.filled[step].sum()) if known else None
            loss = hva.valid_mean(packed_losses(model, batch), batch.valid, total=total)
            loss.backward()
            optimizer.step()
            found.append(([i for block in batch.blocks for i in block.ids.tolist()], float(loss.detach()), flat(model)))
        return found

    answers = ranks(size).run(on_rank)
    one = built(name)
    optimizer = torch.optim.SGD(one.parameters(), lr=0.5)
    samples = sequences(SKEWED, dtype=torch.float64)
    assert len(answers[0]) > 1
    for steps in zip(*answers, strict=True):
        optimizer.zero_grad()
        loss = mean_over_all(one, [samples[i] for ids, *_ in steps for i in ids])
        loss.backward()
        optimizer.step()
        assert abs(sum(own for _, own, _ in steps) / size - float(loss.detach())) <= TOLERANCE
        for _, _, parameters in steps:
            assert float((parameters - flat(one)).abs().max()) <= TOLERANCE


@pytest.mark.parametrize("compress", [False, True], ids=["stock", "compressed"])
def test_ranks_of_very_different_lengths_train_to_the_end(ranks: Any, compress: bool) -> None:
    """Sequences by rank, as a plain sampler deals them out: long ones to rank 0, of which it has few, short ones to rank 1."""
    lengths = [length for pair in zip([40, 39, 38, 40, 37, 40] * 2, [1, 2, 1, 3, 1, 1] * 2, strict=True) for length in pair]

    def on_rank() -> Any:
        model = built("run_packed")
        options = {"compression": hva.EntireModel(model.named_parameters(), TopK(factor=4))} if compress else {}
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters(), **options)
        batches, sampler = loader(lengths, overlong="split", block_length=16)
        steps, seen = 0, 0
        for epoch in range(2):
            for step, batch in enumerate(batches):
                optimizer.zero_grad()
                hva.valid_mean(packed_losses(model, batch), batch.valid).backward()
                optimizer.step()
                sampler.record_batch(step, 2)
                steps, seen = steps + 1, seen + int(batch.valid.sum())
            sampler.set_epoch(epoch + 1)
        return steps, seen, flat(model)

    (steps, seen, mine), (also, others, theirs) = ranks(2).run(on_rank)
    assert steps == also > 8
    assert seen + others == 2 * sum(lengths)
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_an_epoch_with_empty_blocks(ranks: Any, name: str) -> None:
    """Two sequences for three ranks: one has nothing but padding, and still a gradient, of zero, for every parameter."""
    lengths = [5, 3]

    def on_rank() -> Any:
        model = built(name)
        batches, sampler = loader(lengths, 2, policy="next_fit")
        (batch,) = batches
        hva.valid_mean(packed_losses(model, batch), batch.valid).backward()
        own = [p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters()]
        size = float(flat_gradient(model).abs().max())
        mean = hvd.allreduce(flat_gradient(model), name="empty")
        return int(batch.valid.sum()), all(own), size, mean, sampler.empty

    answers = ranks(3).run(on_rank)
    assert sorted(valid for valid, *_ in answers) == [0, 3, 5]
    assert all(there for _, there, *_ in answers)
    assert all((size == 0) == (valid == 0) for valid, _, size, *_ in answers)
    assert {empty for *_, empty in answers} == {4}
    one = built(name)
    mean_over_all(one, sequences(lengths, dtype=torch.float64)).backward()
    assert float((answers[0][3] - flat_gradient(one)).abs().max()) <= TOLERANCE
