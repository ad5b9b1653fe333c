"""What each rank is given, on real ranks, against the data set."""

import itertools
from typing import Any

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from packers import whole
from rank_pool import RankPool
from sequences import SKEWED, entries, spread

import hvd_adaptive.torch as hva
from hvd_adaptive import AgreementError, ConfigError, StateError
from hvd_adaptive.bload import POLICIES, pack

SETS: dict[str, Any] = {
    "skewed": SKEWED,
    "equal": [7] * 25,
    "ones": [1] * 30,
    "one": [40],
    "none": [],
    "array": np.arange(1, 41),
    "tensor": torch.arange(1, 20),
}


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", SETS)
def test_equal_batches_whose_union_is_the_data_set(ranks: Any, kind: str, size: int) -> None:
    cases = list(itertools.product(POLICIES, [1, 2], [0, 3]))

    def on_rank() -> Any:
        found = []
        for policy, batch_size, epoch in cases:
            sampler = hva.BLoadSampler(SETS[kind], 41, batch_size, policy)
            sampler.set_epoch(epoch)
            batches = entries(sampler)
            assert len(sampler) == len(batches)
            assert {len(batch) for batch in batches} <= {batch_size}
            assert (sampler.rank, sampler.num_replicas, sampler.epoch) == (hvd.rank(), hvd.size(), epoch)
            found.append((batches, sampler.split, sampler.empty, sampler.filled))
        return found

    answers = ranks(size).run(on_rank)
    lengths = [int(length) for length in SETS[kind]]
    for (policy, batch_size, epoch), *of_ranks in zip(cases, *answers, strict=True):
        assert len({len(batches) for batches, *_ in of_ranks}) == 1
        assert spread(*(batches for batches, *_ in of_ranks)) == whole(lengths)
        expected = [pack(lengths, 41, policy, epoch=epoch).shard(rank, size, batch_size) for rank in range(size)]
        for shard, (batches, split, empty, filled) in zip(expected, of_ranks, strict=True):
            assert batches == entries([shard.blocks[int(number)] for number in batch] for batch in shard)
            assert (split, empty) == (shard.split, shard.empty)
            assert empty == sum(not block for others, *_ in of_ranks for batch in others for block in batch)
            counts = [[sum(end - first for block in b for _, first, end in block) for b in others] for others, *_ in of_ranks]
            assert filled.T.tolist() == counts


def test_epochs_differ_and_repeat(ranks: Any) -> None:
    def on_rank() -> Any:
        found = []
        for shuffle in (True, False):
            sampler = hva.BLoadSampler(SKEWED, 41, seed=5, shuffle=shuffle)
            for epoch in (0, 1, 0):
                sampler.set_epoch(epoch)
                found.append(entries(sampler))
        return found

    for first, second, again, *still in ranks(2).run(on_rank):
        assert first == again != second
        assert still == [first] * 3


def test_iterating_again_without_a_record_is_the_same_epoch(ranks: Any) -> None:
    def on_rank() -> Any:
        sampler = hva.BLoadSampler(SKEWED, 41)
        return entries(sampler), entries(sampler), len(sampler)

    for first, second, length in ranks(2).run(on_rank):
        assert first == second
        assert length == len(first)


@pytest.mark.parametrize("size", [2, 3])
def test_resume_at_any_batch_gives_exactly_the_remaining_ones(ranks: Any, size: int) -> None:
    def on_rank() -> Any:
        found = []
        whole_epoch = hva.BLoadSampler(SKEWED, 41, 2)
        whole_epoch.set_epoch(3)
        expected = entries(whole_epoch)
        filled = whole_epoch.filled
        for done in range(len(expected) + 1):
            sampler = hva.BLoadSampler(SKEWED, 41, 2)
            sampler.set_epoch(3)
            for step, _ in zip(range(done), sampler, strict=False):
                sampler.record_batch(step, 2)
            again = hva.BLoadSampler(SKEWED, 41, 2)
            again.load_state_dict(sampler.state_dict())
            lengths = [len(again)]
            batches = []
            for step, batch in enumerate(again):  # record as it goes: neither batches nor length may shift
                batches += entries([batch])
                again.record_batch(step, 2)
                lengths.append(len(again))
            found.append(batches == expected[done:])
            assert set(lengths) == {len(expected) - done}
            assert again.filled.tolist() == filled[done:].tolist()
            sampler.reset()
            assert entries(sampler) == batches
        return found

    for found in ranks(size).run(on_rank):
        assert len(found) >= 3
        assert all(found)


def test_what_is_left_goes_to_any_number_of_ranks_again_and_again(ranks: Any) -> None:
    """3 ranks, then 2, 1, 3 with batches of another size, and 2 to the end; one batch each before the last."""

    def on_rank(state: Any, batch_size: int, last: bool) -> Any:
        sampler = hva.BLoadSampler(SKEWED * 3, 41, batch_size)
        if state is None:
            sampler.set_epoch(2)
        else:
            sampler.load_state_dict(state)
        batches = []
        for step, batch in enumerate(sampler):
            batches += entries([batch])
            sampler.record_batch(step, batch_size)
            if not last:
                break
        return batches, sampler.state_dict()

    state, parts, numbers = None, [], []
    for size, batch_size, last in [(3, 1, False), (2, 1, False), (1, 1, False), (3, 2, False), (2, 1, True)]:
        answers = ranks(size).run(on_rank, state, batch_size, last)
        assert len({str(own) for _, own in answers}) == 1
        assert len({len(batches) for batches, _ in answers}) == 1
        state = answers[0][1]
        parts += [batches for batches, _ in answers]
        numbers.append(len(answers[0][0]))
    assert spread(*parts) == whole(SKEWED * 3)
    assert numbers[:4] == [1] * 4
    assert numbers[4] > 1
    assert [cut[0] for cut in state["cuts"]] == [3, 2, 1, 3, 2]


def test_the_next_epoch_after_a_resize_is_whole(ranks: Any) -> None:
    def on_rank(state: Any) -> Any:
        sampler = hva.BLoadSampler(SKEWED, 41)
        if state is None:
            next(iter(sampler))
            sampler.record_batch(0, 1)
            return sampler.state_dict()
        sampler.load_state_dict(state)
        sampler.set_epoch(sampler.epoch + 1)
        return entries(sampler)

    state = ranks(3).run(on_rank, None)[0]
    assert spread(*ranks(2).run(on_rank, state)) == whole(SKEWED)


def test_what_was_overlong_is_counted_and_kept(ranks: Any) -> None:
    def on_rank() -> Any:
        found = []
        for overlong in ("split", "truncate", "drop"):
            sampler = hva.BLoadSampler([5, 23, 9], 10, overlong=overlong)
            found.append((entries(sampler), sampler.blocks.overlong, sampler.blocks.deleted, sampler.block_length))
        return found

    first, second = ranks(2).run(on_rank)
    together = [spread(mine[0], other[0]) for mine, other in zip(first, second, strict=True)]
    assert together == [
        {0: [(0, 5)], 1: [(0, 10), (10, 20), (20, 23)], 2: [(0, 9)]},
        {0: [(0, 5)], 1: [(0, 10)], 2: [(0, 9)]},
        {0: [(0, 5)], 2: [(0, 9)]},
    ]
    assert [counts[1:] for counts in first] == [(1, 0, 10), (1, 13, 10), (1, 23, 10)]


@pytest.fixture(scope="module")
def own_ranks() -> Any:
    """Ranks of their own, because they are left with a process set that some are not in."""
    pool = RankPool(3)
    yield pool
    pool.close()


def test_only_the_ranks_of_a_process_set_share_the_epoch(own_ranks: Any) -> None:
    def on_rank() -> Any:
        members = hvd.add_process_set([0, 2])
        try:
            sampler = hva.BLoadSampler(SKEWED, 41, process_set=members)
        except ConfigError as error:
            return str(error)
        return entries(sampler), sampler.rank, sampler.num_replicas

    (first, *place), said, (last, *other) = own_ranks.run(on_rank)
    assert spread(first, last) == whole(SKEWED)
    assert (place, other) == ([0, 2], [1, 2])
    assert said == ("BLoadSampler: rank 1 is not in its process set, which holds ranks [0, 2]; call it on those only")


MISMATCHES: dict[str, Any] = {
    "lengths": ({"lengths": [5, 4, 3, 2]}, {"lengths": [5, 4, 2, 3]}, "hash of lengths: rank 0 has "),
    "number": ({"lengths": [5, 4, 3, 2]}, {"lengths": [5, 4, 3]}, "sequences: rank 0 has 4, rank 1 has 3"),
    "seed": ({}, {"seed": 1}, "seed: rank 0 has 0, rank 1 has 1"),
    "epoch": ({}, {"epoch": 7}, "epoch: rank 0 has 0, rank 1 has 7"),
    "batch_size": ({}, {"batch_size": 2}, "batch_size: rank 0 has 1, rank 1 has 2"),
    "done": ({}, {"done": 1}, "done: rank 0 has 0, rank 1 has 1"),
    "policy": ({}, {"policy": "random"}, "policy: rank 0 has best_fit, rank 1 has random"),
}


def still_there() -> int:
    return int(hvd.size())


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", MISMATCHES)
def test_ranks_whose_blocks_differ_all_say_so(ranks: Any, kind: str, size: int) -> None:
    usual, odd, said = MISMATCHES[kind]

    def on_rank() -> Any:
        options = {"lengths": SKEWED, "block_length": 41, **usual, **(odd if hvd.rank() == 1 else {})}
        epoch, done = options.pop("epoch", 0), options.pop("done", 0)
        sampler = hva.BLoadSampler(**options)
        sampler.set_epoch(epoch)
        for step in range(done):
            sampler.record_batch(step, sampler.batch_size)
        sampler.reset()
        list(sampler)

    answers = ranks(size).attempt(on_rank, seconds=20)
    assert {type(answer) for answer in answers} == {AgreementError}
    assert len(set(map(str, answers))) == 1
    assert "every rank must give its BLoadSampler the same lengths, options, epoch and state" in str(answers[0])
    assert said in str(answers[0])
    assert ranks(size).run(still_there) == [size] * size, "the ranks are still there"


def test_equal_lengths_and_options_that_were_packed_differently_are_found(ranks: Any) -> None:
    """As another version of numpy might do; only the hash of the blocks tells."""

    def on_rank() -> Any:
        sampler = hva.BLoadSampler(SKEWED, 41)
        if hvd.rank() == 0:
            sampler._epoch.__dict__["packed"] = pack(SKEWED, 41, "next_fit", seed=4)
            sampler._epoch.__dict__.pop("left", None)
            sampler.reset()
        list(sampler)

    answers = ranks(2).attempt(on_rank, seconds=20)
    assert all("hash of blocks: rank 0 has" in str(answer) for answer in answers)


def test_horovod_must_be_initialised() -> None:
    """As it is not in the process that runs the tests."""
    with pytest.raises(ConfigError, match=r"call hvd.init\(\) first"):
        hva.BLoadSampler([1, 2])


def test_bad_input(ranks: Any) -> None:
    def on_rank() -> list[str]:
        said = []

        def refused(call: Any, kind: type[Exception] = ConfigError) -> None:
            try:
                call()
            except kind as error:
                said.append(str(error))
            else:
                said.append("nothing was raised")

        refused(lambda: hva.BLoadSampler([3, 0]))
        refused(lambda: hva.BLoadSampler([3, float("nan")]))
        refused(lambda: hva.BLoadSampler([3, 9], 5))
        refused(lambda: hva.BLoadSampler([3], 0))
        refused(lambda: hva.BLoadSampler([3], batch_size=0))
        refused(lambda: hva.BLoadSampler([3], policy="worst_fit"))
        refused(lambda: hva.BLoadSampler([3], process_set=[0, 1]))
        sampler = hva.BLoadSampler([3], 5, batch_size=2)
        refused(lambda: sampler.record_batch(0, 16))
        refused(lambda: sampler.load_state_dict(hva.BLoadSampler([4], 5).state_dict()), StateError)
        list(sampler)
        sampler.record_batch(0, 2)
        refused(lambda: sampler.record_batch(1, 2))
        refused(lambda: iter(sampler))
        sampler.reset()
        assert (list(sampler), len(sampler)) == ([], 0), "a resumed epoch may have nothing left"
        return said

    (said, other) = ranks(2).run(on_rank)
    assert said == other
    for message, expected in zip(
        said,
        [
            "lengths[1] is 0",
            "lengths[1] is nan",
            "lengths[1] is 9, longer than block_length=5",
            "block_length must be a whole number from 1",
            "BLoadSampler: batch_size must be a whole number from 1",
            "policy must be 'best_fit' or 'random' or 'next_fit', got 'worst_fit'",
            "process_set must be one from hvd.add_process_set(), got [0, 1]",
            "every batch holds 2 blocks, got 16; count blocks, not sequences: sampler.batch_size",
            "the state belongs to a sampler of other lengths or options",
            "all 1 batches of epoch 0 are done, got one more (batch_idx=1); call it once a batch, and set_epoch(1)",
            "all 1 batches of epoch 0 are done; call set_epoch(1) at its end",
        ],
        strict=True,
    ):
        assert expected in message
