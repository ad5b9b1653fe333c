"""Promises of every policy: each sequence once, nothing too long, the same for the same seed and epoch."""

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packers import LENGTHS, held, whole

from hvd_adaptive import ConfigError
from hvd_adaptive.bload import POLICIES, pack

GOLDEN = {
    "best_fit": "02cce4ccf04fb22831e565b1486754f4",
    "random": "1ba00ea623a592f0d7a8f0cc919f8202",
    "next_fit": "9f589d6c3f625c1ec87df9a39b6becb6",
}
ALL = pytest.mark.parametrize("policy", list(POLICIES))


@ALL
@settings(max_examples=60)
@given(lengths=LENGTHS, slack=st.integers(0, 80), most=st.sampled_from([None, 1, 2, 7]), epoch=st.integers(0, 3))
def test_every_sequence_once_and_nothing_over_the_block(policy, lengths, slack, most, epoch):
    block_length = max(lengths, default=1) + slack
    blocks = pack(lengths, block_length, policy, epoch=epoch, max_sequences_per_block=most)
    assert held(blocks) == whole(lengths)
    found = [blocks[number].lengths.tolist() for number in range(len(blocks))]
    assert all(found), "an empty block"
    assert all(sum(inside) <= block_length for inside in found)
    assert most is None or all(len(inside) <= most for inside in found)


@ALL
def test_the_block_is_as_long_as_the_longest_sequence_unless_told(policy):
    assert pack([3, 17, 5], policy=policy).block_length == 17
    assert pack([3, 17, 5], 20, policy).block_length == 20


@ALL
def test_no_sequences_make_no_blocks(policy):
    blocks = pack([], policy=policy)
    assert (len(blocks), blocks.padding, blocks.padding_zero_pad, blocks.lower_bound_ceil, blocks.lower_bound_l2) == (0,) * 5
    assert len(pack([], 10, policy)) == 0


@ALL
def test_what_holds_the_lengths_does_not_matter(policy):
    lengths = [5, 3, 9, 2, 2, 7]
    forms = [lengths, tuple(lengths), np.array(lengths), np.array(lengths, np.uint8), torch.tensor(lengths)]
    assert len({pack(form, policy=policy).hash for form in forms}) == 1


@ALL
def test_seed_and_epoch_decide_alone(policy):
    lengths = np.random.default_rng(0).integers(1, 30, 200)
    hashes = {pair: pack(lengths, 60, policy, *pair).hash for pair in itertools.product([-1, 0, 1, 2, 2**40], [0, 1, 2])}
    assert len(set(hashes.values())) == 15  # among them (1, 0) and (0, 1)
    for pair, found in hashes.items():
        assert pack(lengths, 60, policy, *pair).hash == found


@ALL
def test_the_same_on_every_platform(policy):
    lengths = [1 + number * 7919 % 97 for number in range(500)]
    assert pack(lengths, 128, policy, seed=5, epoch=2).hash == GOLDEN[policy]


@ALL
def test_no_global_random_state_is_read_or_touched(policy):
    states = []
    for seed in (1, 2):
        np.random.seed(seed)
        random.seed(seed)
        torch.manual_seed(seed)
        before = np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist()
        states.append(pack(range(1, 50), policy=policy).hash)
        assert (np.random.get_state()[1].tolist(), random.getstate(), torch.get_rng_state().tolist()) == before
    assert states[0] == states[1]


def test_best_fit_pads_less_than_random_and_random_less_than_next_fit():
    lengths = np.random.default_rng(0).integers(3, 95, 5000)
    padding = [pack(lengths, policy=policy).padding for policy in ("best_fit", "random", "next_fit")]
    assert padding[0] * 5 < padding[1]
    assert padding[1] * 1.5 < padding[2] < pack(lengths).padding_zero_pad / 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"block_length": 0},
            r"block_length must be a whole number from 1 to 2147483647 \(None for the longest sequence\), got 0",
        ),
        ({"block_length": -5}, "block_length must be"),
        ({"block_length": 9.0}, "block_length must be"),
        ({"block_length": True}, "block_length must be"),
        ({"block_length": 2**31}, "block_length must be"),
        ({"block_length": 8}, r"lengths\[1\] is 9, longer than block_length=8"),
        ({"policy": "worst_fit"}, "policy must be 'best_fit' or 'random' or 'next_fit', got 'worst_fit'"),
        ({"policy": None}, "policy must be"),
        ({"overlong": "cut"}, "overlong must be"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": "1"}, "seed must be a whole number"),
        ({"epoch": -1}, "epoch must be a whole number from 0"),
        ({"epoch": None}, "epoch must be"),
        ({"max_sequences_per_block": 0}, r"max_sequences_per_block must be a whole number from 1 .*None for any number"),
        ({"lengths": [3, 0]}, r"lengths\[1\] is 0"),
    ],
)
def test_bad_input(options, said):
    with pytest.raises(ConfigError, match=said):
        pack(**({"lengths": [5, 9]} | options))
