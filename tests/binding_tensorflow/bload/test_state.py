"""Stop, resume, resize."""

import json
import tempfile
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import pytest
import tensorflow as tf
from packers import whole
from tensors import SKEWED, entries, numbered, spread

import hvd_adaptive.tensorflow.bload as hva
from hvd_adaptive import ConfigError, StateError


def built(batch_size: int = 2, lengths: Any = SKEWED, **options: Any) -> Any:
    return hva.bload_dataset(numbered(lengths), lengths, 41, batch_size, **options)


@pytest.mark.parametrize("size", [2, 3])
def test_resume_at_any_batch_gives_exactly_the_remaining_ones(ranks: Any, size: int) -> None:
    def on_rank() -> int:
        lengths = SKEWED * 2
        uninterrupted = built(1, lengths)
        uninterrupted.set_epoch(3)
        filled = uninterrupted.filled
        expected, following = entries(uninterrupted), entries(uninterrupted)
        interrupted, again = built(1, lengths, prefetch=4), built(1, lengths)
        for done in range(len(expected)):
            interrupted.set_epoch(3)
            for _, _ in zip(range(done), interrupted, strict=False):
                pass
            state = json.loads(json.dumps(interrupted.state_dict()))
            again.load_state_dict(state)
            assert again.state_dict() == state
            assert (again.epoch, again.steps) == (3, len(expected) - done)
            assert again.filled.tolist() == filled[done:].tolist()
            known = tf.data.UNKNOWN_CARDINALITY if done else len(expected)
            assert int(tf.data.experimental.cardinality(again)) == known
            assert int(again.cardinality()) == len(expected) - done
            assert entries(again) == expected[done:]
            assert (again.epoch, int(again.cardinality())) == (4, len(expected))
        assert entries(again) == following
        return len(expected)

    answers = ranks(size).run(on_rank)
    assert min(answers) >= 4


def test_a_loop_left_early_after_a_resume_begins_there_again(ranks: Any) -> None:
    def on_rank() -> None:
        data = built(1)
        expected = entries(data)
        data.set_epoch(0)
        next(iter(data))
        data.load_state_dict(data.state_dict())
        next(iter(data))
        assert entries(data) == expected[1:]

    ranks(2).run(on_rank)


@pytest.mark.parametrize("prefetch", [0, 4])
def test_an_iteration_that_another_has_followed_counts_no_more(ranks: Any, prefetch: int) -> None:
    def on_rank() -> None:
        data = built(1, SKEWED * 2, prefetch=prefetch)
        expected = entries(data)
        data.set_epoch(0)
        stale = iter(data)
        next(stale)
        following = iter(data)
        next(following)
        state = data.state_dict()
        for _ in range(2):
            next(stale)
        assert data.state_dict() == state
        data.load_state_dict(state)
        next(stale)
        assert entries(data) == expected[1:]

    ranks(2).run(on_rank)


def test_what_is_left_goes_to_any_number_of_ranks_again_and_again(ranks: Any) -> None:
    """3 ranks, then 2, 1, and 2 with batches of another size to the end; one batch each before the last."""

    def on_rank(state: Any, batch_size: int, last: bool) -> Any:
        data = built(batch_size, SKEWED * 3)
        if state is None:
            data.set_epoch(2)
        else:
            data.load_state_dict(state)
        batches = []
        for batch in data:
            batches += entries([batch])
            if not last:
                break
        return batches, data.state_dict(), data.epoch

    state, parts = None, []
    for size, batch_size, last in [(3, 1, False), (2, 1, False), (1, 1, False), (2, 2, True)]:
        answers = ranks(size).run(on_rank, state, batch_size, last)
        assert len({str(own) for _, own, _ in answers}) == 1
        assert len({len(batches) for batches, *_ in answers}) == 1
        parts += [batches for batches, *_ in answers]
        state = answers[0][1]
        assert answers[0][2] == (3 if last else 2)
    assert spread(*parts) == whole(SKEWED * 3)
    assert len(parts[-1]) > 1


def test_a_checkpoint_holds_the_state(ranks: Any) -> None:
    def on_rank() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            data, variable = built(1), tf.Variable(1.0)
            expected = entries(data)
            data.set_epoch(0)
            for _, _ in zip(range(2), data, strict=False):
                pass
            path = tf.train.Checkpoint(variable=variable, data=data.state).save(str(Path(folder) / "checkpoint"))
            again, other = built(1), tf.Variable(0.0)
            tf.train.Checkpoint(variable=other, data=again.state).restore(path).assert_consumed()
            assert float(other) == 1.0
            assert entries(again) == expected[2:]
            stranger = built(1, seed=1)
            with pytest.raises(StateError, match=r"seed: 0 there, 1 here"):
                tf.train.Checkpoint(variable=other, data=stranger.state).restore(path)
            assert stranger.epoch == 0

    ranks(2).run(on_rank)


def test_data_sets_made_of_it_read_ahead_so_there_is_no_state(ranks: Any) -> None:
    def on_rank() -> str:
        data = built(1)
        ahead = data.prefetch(8)
        next(iter(ahead))
        with pytest.raises(ConfigError) as refused:
            data.state_dict()
        assert len(list(ahead)) == data.steps
        with pytest.raises(ConfigError, match="may read ahead"):
            data.state_dict()
        data.set_epoch(7)
        assert data.state_dict()["epoch"] == 7
        assert spread_of_all(data) == whole(SKEWED)
        assert data.state_dict()["epoch"] == 8
        return str(refused.value)

    def spread_of_all(data: Any) -> Any:
        return spread(*hvd.allgather_object(entries(data)))

    said = set(ranks(2).run(on_rank))
    assert said == {
        "batches went into another data set, such as what map() or prefetch() return, which may read ahead, so nobody knows "
        "which of them were used; iterate over the bload_dataset itself (it prefetches, and what map() would do can be done to "
        "samples), or save only at the end of an epoch, after set_epoch()"
    }


def test_inside_another_data_set_every_iteration_is_an_epoch_however_far_ranks_go(ranks: Any) -> None:
    def on_rank() -> list[Any]:
        data = built(1, SKEWED * 3)
        expected = [entries(data) for _ in range(3)]
        data.set_epoch(0)
        ahead = data.prefetch(1)
        first = iter(ahead)
        assert entries([next(first)]) == expected[0][:1]
        if hvd.rank() == 1:
            assert entries(first) == expected[0][1:]
        assert entries(ahead) == expected[1]
        assert entries(ahead.take(1)) == expected[2][:1]
        assert data.epoch == 3
        return expected[1]

    assert spread(*ranks(2).run(on_rank)) == whole(SKEWED * 3)


def test_states_of_others_are_refused(ranks: Any) -> None:
    def on_rank() -> None:
        data = built(1)
        next(iter(data))
        state = data.state_dict()
        for bad, said in [
            ({}, "no state of a sampler of format 1"),
            (built(1, [5, 4]).state_dict(), "hash of lengths: "),
            (state | {"cuts": [[2, 1, 99]]}, "the state is damaged: Shard.rest: done must be"),
            (state | {"hash": "0"}, "was packed into other blocks"),
        ]:
            with pytest.raises(StateError, match=said):
                data.load_state_dict(bad)
            assert data.state_dict() == state

    ranks(2).run(on_rank)
