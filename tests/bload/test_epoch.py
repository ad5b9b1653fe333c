"""Epochs against the sequences they were made of, over any chain of resizes; states in another object."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packers import LENGTHS, held, whole

from hvd_adaptive import ConfigError, StateError
from hvd_adaptive.bload import POLICIES, Cut, Epoch, Options

CUTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(0, 4)), max_size=4)


def drawn(shards, first, last):
    """What all ranks hold in their batches from ``first`` to ``last``."""
    return held(shards[0].blocks, [number for shard in shards for batch in shard[first:last] for number in batch])


@given(lengths=LENGTHS, resizes=CUTS, policy=st.sampled_from(list(POLICIES)))
def test_every_sequence_once_over_any_chain_of_resizes(lengths, resizes, policy):
    epoch, seen = Epoch(lengths, Options(50, policy)), {}
    for size, batch_size, most in [*resizes, (3, 2, 10**6)]:
        shards = [epoch.left.shard(rank, size, batch_size) for rank in range(size)]
        done = min(most, len(shards[0]))
        now = drawn(shards, 0, done)
        assert seen.keys().isdisjoint(now)
        seen |= now
        epoch = epoch.after(Cut(size, batch_size, done))
    assert seen == whole(lengths)
    assert len(epoch.left) == 0


@given(lengths=LENGTHS, resizes=CUTS, number=st.integers(0, 5), seed=st.integers(-3, 3))
def test_a_state_gives_the_same_blocks_to_another_object(lengths, resizes, number, seed):
    options = Options(50, seed=seed)
    epoch = Epoch(lengths, options).at(number)
    for size, batch_size, done in resizes:
        epoch = epoch.after(Cut(size, batch_size, min(done, len(epoch.left.shard(0, size, batch_size)))))
    state = json.loads(json.dumps(epoch.state_dict()))
    again = Epoch(np.array(lengths, np.int64), options).loaded(state)
    assert (again.number, again.left.hash) == (number, epoch.left.hash)
    assert again.state_dict() == state


def test_the_blocks_differ_by_epoch_unless_not_shuffled():
    def hashes(shuffle):
        epoch = Epoch(range(1, 30), Options(40, shuffle=shuffle))
        return [epoch.at(number).left.hash for number in (0, 1, 2, 0)]

    shuffled, still = hashes(True), hashes(False)
    assert len(set(shuffled)) == 3
    assert shuffled[0] == shuffled[3]
    assert set(still) == {shuffled[0]}


def test_the_next_epoch_is_whole():
    epoch = Epoch([5] * 12, Options(5)).after(Cut(2, 2, 1))
    assert len(epoch.left) == 8
    assert len(epoch.at(1).left) == 12
    assert epoch.at(1).cuts == ()


def test_what_did_nothing_is_no_cut():
    assert Epoch([5] * 12, Options(5)).after(Cut(2, 2, 0)).cuts == ()


@pytest.mark.parametrize(
    ("size", "batch_size", "cuts", "done"),
    [(2, 2, (Cut(3, 1, 1),), 2), (3, 2, (Cut(3, 1, 1), Cut(2, 2, 2)), 0), (2, 1, (Cut(3, 1, 1), Cut(2, 2, 2)), 0)],
)
def test_as_many_ranks_go_on_where_they_were(size, batch_size, cuts, done):
    epoch = Epoch([5] * 40, Options(5)).after(Cut(3, 1, 1)).after(Cut(2, 2, 2))
    resumed, found = epoch.resumed(size, batch_size)
    assert (resumed.cuts, found) == (cuts, done)
    assert Epoch([5], Options(5)).resumed(2, 2)[1] == 0


@pytest.mark.parametrize(
    ("lengths", "options", "said"),
    [
        ([5, 4, 4], Options(6), "hash of lengths: '"),
        ([5, 4], Options(6), "sequences: 3 there, 2 here"),
        ([5, 4, 3], Options(7), "block_length: 6 there, 7 here"),
        ([5, 4, 3], Options(6, "random"), "policy: 'best_fit' there, 'random' here"),
        ([5, 4, 3], Options(6, seed=1), "seed: 0 there, 1 here"),
        ([5, 4, 3], Options(6, shuffle=False), "shuffle: True there, False here"),
        ([5, 4, 3], Options(6, overlong="split"), "overlong: 'error' there, 'split' here"),
        ([5, 4, 3], Options(6, max_sequences_per_block=2), "max_sequences_per_block: None there, 2 here"),
    ],
)
def test_a_state_of_other_lengths_or_options_is_refused(lengths, options, said):
    state = Epoch([5, 4, 3], Options(6)).state_dict()
    with pytest.raises(StateError, match="other lengths or options") as caught:
        Epoch(lengths, options).loaded(state)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 0}, "no state of a sampler of format 1"),
        ({"more": 0}, "no state of a sampler"),
        ({"described": None}, "'described' must be a dict"),
        ({"epoch": -1}, "damaged: set_epoch: epoch must be a whole number from 0"),
        ({"cuts": [[2, 1]]}, "damaged"),
        ({"cuts": 3}, "damaged"),
        ({"cuts": [[2, 1, 99]]}, "damaged: Shard.rest: done must be a whole number from 0 to"),
        ({"cuts": [[0, 1, 0]]}, "damaged: Blocks.shard: size must be"),
        ({"hash": "0" * 32}, "epoch 0 was packed into other blocks"),
    ],
)
def test_damaged_states_are_refused(changes, said):
    epoch = Epoch([5, 4, 3], Options(6))
    with pytest.raises(StateError, match=said):
        epoch.loaded(epoch.state_dict() | changes)
    with pytest.raises(StateError, match="no state of a sampler"):
        epoch.loaded([])


def test_states_are_plain_whatever_users_count_with():
    options = Options(np.int64(6), seed=np.int32(1), max_sequences_per_block=np.int16(2))
    state = Epoch(np.array([5, 4, 3]), options).at(np.int64(2)).state_dict()
    assert Epoch([5, 4, 3], Options(6, seed=1, max_sequences_per_block=2)).loaded(json.loads(json.dumps(state))).number == 2


def test_bad_input():
    with pytest.raises(ConfigError, match="shuffle must be True or False, got 1"):
        Epoch([1], Options(shuffle=1))
    with pytest.raises(ConfigError, match=r"lengths\[1\] is 0"):
        Epoch([1, 0], Options())
    with pytest.raises(ConfigError, match="epoch must be a whole number"):
        Epoch([1], Options()).at(1.5)


@given(lengths=LENGTHS, most=st.none() | st.integers(1, 4), policy=st.sampled_from(list(POLICIES)), shuffle=st.booleans())
def test_all_epochs_have_as_many_blocks_where_it_says_so(lengths, most, policy, shuffle):
    epoch = Epoch(lengths, Options(50, policy, shuffle=shuffle, max_sequences_per_block=most))
    assert epoch.same_number == (policy == "best_fit" or not shuffle)
    numbers = {(len(epoch.at(number).packed), len(epoch.at(number).packed.shard(0, 3, 2))) for number in range(5)}
    assert len(numbers) == 1 or not epoch.same_number
