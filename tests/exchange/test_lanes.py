"""Codes of many ranks in the lanes of words, summed as an allreduce sums int32, against sums in pure Python."""

import numpy as np
import pytest

from hvd_adaptive import ConfigError
from hvd_adaptive.exchange.lanes import Lanes

TOPS = [1, 2, 14, 254, 2000]
RANKS = [1, 2, 3, 8, 64, 1000]
LENGTHS = [*range(1, 71), 1000]


def bits_of(most):
    """Bits that hold numbers up to ``most``, by counting."""
    bits = 0
    while 2**bits <= most:
        bits += 1
    return bits


def codes_in(ops, codes, top):
    return ops.from_numpy(np.array(codes, np.uint8 if top < 256 else np.int32))


def check_sums(ops, top, vectors):
    """Words of all ranks added as int32 come back as the sums; a word of any of them, or of the sum, is never negative."""
    n, lanes = len(vectors[0]), Lanes(top, len(vectors))
    total = None
    cache = {}
    for vector in vectors:
        if vector not in cache:
            there = codes_in(ops, vector, top)
            cache[vector] = ops.to_numpy(lanes.pack(ops, there)).copy()
            assert ops.to_numpy(there).tolist() == list(vector)
        packed = cache[vector]
        assert packed.dtype == np.int32
        assert packed.min() >= 0
        total = packed.tolist() if total is None else [a + b for a, b in zip(total, packed.tolist(), strict=True)]
    assert 0 <= min(total) <= max(total) < 2**31
    sums = ops.to_numpy(lanes.unpack(ops, ops.from_numpy(np.array(total, np.int32)), n))
    assert sums.dtype == np.int32
    assert sums.tolist() == [sum(column) for column in zip(*vectors, strict=True)]
    return len(total)


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("ranks", RANKS)
def test_sums_come_back_whatever_the_codes(ops, top, ranks):
    """No lane spills into the next: with codes at random, all at the top on all ranks, and one rank alone at the top."""
    generator = np.random.default_rng([top, ranks])
    for n in LENGTHS:
        few = [tuple(generator.integers(0, top, n, endpoint=True).tolist()) for _ in range(min(ranks, 3))]
        words = check_sums(ops, top, [few[rank % len(few)] for rank in range(ranks)])
        if n in (1, 2, 15, 16, 31, 32, 70):
            check_sums(ops, top, [(top,) * n] * ranks)
            check_sums(ops, top, [(top,) * n, *[(0,) * n] * (ranks - 1)])
        in_a_word = 31 // bits_of(top * ranks)
        assert words == (n + in_a_word - 1) // in_a_word


@pytest.mark.parametrize(
    ("top", "ranks", "bits", "in_a_word"),
    [(1, 1, 1, 31), (1, 2, 2, 15), (1, 3, 2, 15), (1, 4, 3, 10), (2, 8, 5, 6), (14, 8, 7, 4), (254, 8, 11, 2), (2000, 64, 17, 1)],
)
def test_lanes_by_hand(top, ranks, bits, in_a_word):
    lanes = Lanes(top, ranks)
    assert (lanes.bits, lanes.in_a_word) == (bits, in_a_word)


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("ranks", RANKS)
def test_a_lane_is_as_narrow_as_the_largest_sum_allows(top, ranks):
    assert Lanes(top, ranks).bits == bits_of(top * ranks)


def test_a_word_by_hand(ops):
    """Of 5 codes up to 14 of 8 ranks 4 lanes of 7 bits: two words, and word 0 holds codes 0, 2 and 4."""
    packed = ops.to_numpy(Lanes(14, 8).pack(ops, codes_in(ops, [1, 2, 3, 4, 14], 14)))
    assert packed.tolist() == [1 | 3 << 7 | 14 << 14, 2 | 4 << 7]


@pytest.mark.parametrize("top", [1, 14, 2**21])
def test_what_no_lane_can_hold_is_refused(top):
    """2^31 - 1 is the most that 31 bits hold."""
    most = (2**31 - 1) // top
    assert Lanes(top, most).in_a_word == 1
    with pytest.raises(
        ConfigError, match=f"codes up to {top} of {most + 1} ranks add up to more than a lane of 31 bits can hold"
    ):
        Lanes(top, most + 1)


def test_the_widest_lane_holds_its_largest_sum(ops):
    assert check_sums(ops, 2**21, [(2**21,) * 3] * 1023) == 3
