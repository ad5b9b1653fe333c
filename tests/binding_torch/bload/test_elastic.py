"""In Horovod's elastic state: saved, restored, synchronised, and dealt out anew when ranks come or go.

Ranks cannot join a test, so a process set that changes stands for a world that does.
"""

from typing import Any

import horovod.torch as hvd
import pytest
from horovod.common.exceptions import HorovodInternalError
from packers import whole
from rank_pool import RankPool
from sequences import SKEWED, entries, spread

import hvd_adaptive.torch as hva
from hvd_adaptive import StateError


def test_restore_takes_back_what_was_not_committed(ranks: Any) -> None:
    def on_rank() -> Any:
        sampler = hva.BLoadSampler(SKEWED, 41)
        sampler.set_epoch(2)
        expected = entries(sampler)
        state = hvd.elastic.TorchState(sampler=sampler, step=0)
        for step in range(3):
            sampler.record_batch(step, 1)
            state.step = step + 1
            if step == 1:
                state.commit()
        state.restore()
        assert (state.sampler is sampler, state.step, sampler.epoch) == (True, 2, 2)
        return entries(sampler) == expected[2:]

    assert ranks(2).run(on_rank) == [True, True]


def test_sync_brings_every_rank_where_rank_0_is(ranks: Any) -> None:
    def on_rank() -> Any:
        sampler = hva.BLoadSampler(SKEWED, 41)
        if hvd.rank() == 0:
            sampler.set_epoch(4)
            sampler.record_batch(0, 1)
        state = hvd.elastic.TorchState(sampler=sampler)
        state.sync()
        return sampler.epoch, len(sampler), entries(sampler)

    answers = ranks(3).run(on_rank)
    assert {epoch for epoch, *_ in answers} == {4}
    assert len({length for _, length, _ in answers}) == 1
    seen = spread(*(batches for *_, batches in answers))
    assert 0 < len(seen) < len(SKEWED)


def test_under_horovods_own_loop(ranks: Any) -> None:
    """A rank fails once in the middle of an epoch; training goes on from the last commit, to each sequence once."""

    def on_rank() -> Any:
        sampler = hva.BLoadSampler(SKEWED, 41)
        state = hvd.elastic.TorchState(sampler=sampler, steps=0)  # synchronised, so each rank's own batches are kept beside it
        failed, seen = [], []

        def train() -> None:
            while sampler.epoch < 2:
                for step, batch in enumerate(sampler):
                    seen.append((sampler.epoch, entries([batch])))
                    state.steps += 1
                    sampler.record_batch(step, 1)
                    if step == 1 and sampler.epoch == 1 and not failed:
                        failed.append(step)
                        raise HorovodInternalError("as when a rank is gone")
                    if step % 2 == 0:
                        state.commit()
                sampler.set_epoch(sampler.epoch + 1)
                state.commit()

        try:
            train()
        except HorovodInternalError:
            state.restore()
            state.on_reset()
            state.sync()
            del seen[state.steps :]
            train()
        return failed, seen

    answers = ranks(2).run(on_rank)
    assert [failed for failed, _ in answers] == [[1], [1]]
    for epoch in range(2):
        parts = [batches for _, seen in answers for number, batches in seen if number == epoch]
        assert spread(*parts) == whole(SKEWED)


@pytest.fixture(scope="module")
def own_ranks() -> Any:
    """Ranks of their own, because they are left with process sets that some are not in."""
    pool = RankPool(3)
    yield pool
    pool.close()


@pytest.mark.parametrize("done", range(4))
def test_ranks_that_stay_share_what_is_left(own_ranks: Any, done: int) -> None:
    """Three ranks, of which the middle one goes after ``done`` batches, with too few blocks left for Horovod's own sampler."""

    def on_rank() -> Any:
        survivors = hvd.add_process_set([0, 2])
        sampler = hva.BLoadSampler([10] * 10, 10)
        before = []
        for step, batch in zip(range(done), sampler, strict=False):
            before += entries([batch])
            sampler.record_batch(step, 1)
        after = []
        if survivors.included():
            sampler.process_set = survivors
            sampler.reset()
            after = entries(sampler)
            assert len(after) == len(sampler) == -(-(10 - 3 * done) // 2)
        hvd.barrier()
        hvd.remove_process_set(survivors)
        return before, after

    answers = own_ranks.run(on_rank)
    assert spread(*(part for both in answers for part in both)) == whole([10] * 10)


def test_ranks_that_join_get_their_share(own_ranks: Any) -> None:
    """Two ranks have nine of ten blocks done, then there are three: Horovod's own sampler asserts here."""

    def on_rank() -> Any:
        pair = hvd.add_process_set([0, 1])
        sampler = hva.BLoadSampler([10] * 9, 10, process_set=pair if pair.included() else hvd.global_process_set)
        before = []
        if pair.included():
            for step, batch in zip(range(4), sampler, strict=False):
                before += entries([batch])
                sampler.record_batch(step, 1)
            sampler.process_set = hvd.global_process_set
        state = hvd.elastic.TorchState(sampler=sampler)
        state.sync()
        after = entries(sampler)
        hvd.remove_process_set(pair)
        return before, after, sampler.empty

    answers = own_ranks.run(on_rank)
    assert spread(*(part for *both, _ in answers for part in both)) == whole([10] * 9)
    assert [len(after) for _, after, _ in answers] == [1, 1, 1]
    assert {empty for *_, empty in answers} == {2}


def test_a_state_of_other_lengths_leaves_the_sampler_as_it_was(ranks: Any) -> None:
    def on_rank() -> bool:
        sampler = hva.BLoadSampler(SKEWED, 41)
        sampler.record_batch(0, 1)
        before = sampler.state_dict()
        with pytest.raises(StateError, match="other lengths or options"):
            sampler.load_state_dict(hva.BLoadSampler(SKEWED[1:], 41).state_dict())
        return sampler.state_dict() == before

    assert ranks(1).run(on_rank) == [True]
