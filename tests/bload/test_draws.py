"""Orders against Python's own sort; random numbers against what chance allows and against values written down once."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_adaptive.bload.draws import Draws, ordered


@given(keys=st.lists(st.integers(0, 9), max_size=50), seed=st.integers(0, 99))
def test_order_is_by_key_then_rank(keys, seed):
    ranks = np.random.default_rng(seed).permutation(len(keys)).astype(np.int32)
    by_hand = sorted(ranks.tolist(), key=lambda rank: (keys[ranks.tolist().index(rank)], rank))
    assert ordered(np.array(keys, np.int32), ranks).tolist() == by_hand
    assert ordered(np.array(keys, np.int32)).tolist() == sorted(range(len(keys)), key=keys.__getitem__)


def test_keys_and_ranks_may_be_as_large_as_four_bytes_hold():
    assert ordered(np.array([2**31 - 1, 0, 2**31 - 1, 5], np.int32)).tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 127, 128, 129, 1000])
def test_a_permutation_has_every_number_once(n):
    found = Draws(3, 4).permutation(n)
    assert found.dtype == np.int32
    assert sorted(found.tolist()) == list(range(n))


def test_every_permutation_is_as_likely():
    draws, counts = Draws(1, 0), dict.fromkeys(itertools.permutations(range(3)), 0)
    for _ in range(6000):
        counts[tuple(draws.permutation(3).tolist())] += 1
    assert all(850 < count < 1150 for count in counts.values()), counts  # 5 standard deviations are 144


def test_fractions_fill_the_unit_interval_evenly():
    found = np.array(list(itertools.islice(Draws(0, 0).fractions(), 40_000)))
    assert found.min() >= 0
    assert found.max() < 1
    assert len(set(found.tolist())) == 40_000
    counts = np.bincount((found * 8).astype(int), minlength=8)
    assert np.abs(counts - 5000).max() < 5 * np.sqrt(5000)


def test_seed_and_epoch_decide_and_are_told_apart():
    words = {(seed, epoch): tuple(Draws(seed, epoch).permutation(64)) for seed in (-1, 0, 1, 2**32) for epoch in (0, 1, 2**32)}
    assert len(set(words.values())) == 12
    for (seed, epoch), word in words.items():
        assert tuple(Draws(seed, epoch).permutation(64)) == word


def test_the_numbers_are_the_same_on_every_platform_and_numpy():
    draws = Draws(7, 3)
    assert draws.permutation(10).tolist() == [3, 8, 7, 4, 9, 5, 0, 6, 2, 1]
    assert next(draws.fractions()) == 0.3502139960045182
