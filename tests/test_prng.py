"""Oracles: the documented algorithm again in plain Python integers, values pinned from it, and statistics with known bounds."""

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from backends import BACKENDS, backend

from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.prng import Draw, derive, root, sample, uniform

NUMPY = NumpyOps()
SIZES = [*range(1, 10), 16, 17, 31, 32, 33, 100, 127, 128, 129, 1000]


def drawn(key, k, n, ops=NUMPY):
    positions = ops.to_numpy(sample(ops, key, k, n, like=ops.from_numpy(np.zeros(1, np.float32))))
    assert positions.dtype == np.int64
    return positions.tolist()


def keys(count, seed=2024):
    """Keys of consecutive steps of one unit, as training uses them."""
    return [derive(derive(root(seed), step), 77) for step in range(count)]


# ---- the documented algorithm, one number at a time ------------------------------------------------------------------------


def lowbias32(x):
    """Wellons' hash with the constants 16, 21f0aaad, 15, 735a2d97, 15."""
    assert 0 <= x < 2**32
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        x = (x ^ x // 2**shift) * factor % 2**32
    return x ^ x // 2**15


def scalar_derive(high, low, word):
    high = lowbias32((high ^ word ^ 0x9E3779B9) % 2**32)
    low = lowbias32((low + word + 0x85EBCA6B) % 2**32)
    return lowbias32(high ^ low // 2), lowbias32(low ^ 2 * high % 2**32)


def scalar_root(seed):
    return scalar_derive(lowbias32(seed % 2**32), lowbias32(seed // 2**32 % 2**32), 0)


def feistel(x, key, bits):
    """Eight double rounds, from 16 bits on four, on the halves of a ``bits``-bit number, the lower half being the wider."""
    wide, narrow = 2 ** math.ceil(bits / 2), 2 ** (bits // 2)
    high, low = divmod(x, wide)
    for number in range(8 if bits < 16 else 4):
        a, b = scalar_derive(*key, number)
        low ^= lowbias32(high ^ a) % wide
        high ^= lowbias32(low ^ b) % narrow
    return high * wide + low


def scalar_sample(key, k, n):
    bits = max(1, math.ceil(math.log2(n)))
    for start in range(k):
        image = feistel(start, key, bits)
        while image >= n:
            image = feistel(image, key, bits)
        yield image


@pytest.mark.parametrize("seed", [0, 1, 42, -1, 2**31, 2**32, 2**40 + 3, -(2**63)])
def test_keys_follow_the_documented_algorithm(seed):
    key = root(seed)
    assert tuple(key) == scalar_root(seed)
    for word in (0, 1, 2, 1000, 2**31, 2**32 - 1):
        assert tuple(derive(key, word)) == scalar_derive(*key, word)


@pytest.mark.parametrize("n", SIZES)
def test_positions_follow_the_documented_algorithm(ops, n):
    for key in keys(4):
        for k in {1, max(1, n // 10), n}:
            assert drawn(key, k, n, ops) == list(scalar_sample(key, k, n))


def test_bits_never_change(ops):
    """Values that lowbias32 and the Feistel network above once gave: a saved run must go on with the same positions."""
    assert root(0) == (0xEB40949E, 0x31B0E759)
    assert root(-1) == (0x97E201F4, 0x3FA894C)
    assert derive(root(42), 7) == (0x4FEEABAC, 0x67E167B)
    assert drawn(derive(root(42), 7), 8, 1000, ops) == [805, 284, 775, 413, 917, 706, 95, 259]
    assert drawn(derive(root(42), 7), 5, 2**20 - 3, ops) == [206907, 297517, 229887, 155874, 73170]
    assert drawn(derive(root(42), 7), 3, 3, ops) == [2, 1, 0]


# ---- what a user of it relies on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
def test_positions_are_distinct_and_in_range(ops, n):
    for key in keys(5):
        for k in sorted({1, max(1, n // 3), n}):
            positions = drawn(key, k, n, ops)
            assert len(positions) == len(set(positions)) == k
            assert all(0 <= position < n for position in positions)
        assert sorted(positions) == list(range(n))


def test_a_smaller_k_gives_the_first_of_a_larger():
    key = root(5)
    assert drawn(key, 7, 50) == drawn(key, 20, 50)[:7]


def test_seed_step_and_unit_each_change_the_positions():
    """As 64-bit keys they must all differ; 10^5 of them collide with probability below 10^-9."""
    derived = {
        (seed, step, unit): derive(derive(root(seed), step), unit)
        for seed in (0, 1, 2, -1, 2**32, 2**33)
        for step in (*range(60), 2**31)
        for unit in (*range(20), 2**31, 2**32 - 1)
    }
    assert len(set(derived.values())) == len(derived)
    positions = {name: tuple(drawn(derived[name], 10, 10**6)) for name in itertools.islice(derived, 0, None, 40)}
    assert len(set(positions.values())) == len(positions)


def test_step_and_unit_are_not_interchangeable():
    pairs = [(a, b) for a in range(30) for b in range(30)]
    assert len({derive(derive(root(0), a), b) for a, b in pairs}) == len(pairs)


def test_keys_are_64_bits_that_look_random():
    """Each bit is set in half of the keys: 6 standard deviations around it, for each of 64 bits."""
    many = keys(4000)
    assert all(0 <= half < 2**32 for key in many for half in key)
    for bit in range(64):
        ones = sum((key.high << 32 | key.low) >> bit & 1 for key in many)
        assert abs(ones - 2000) < 6 * math.sqrt(4000 / 4)


def chi_square_bound(freedom):
    """What a chi-square variable exceeds with probability below 10^-9 (Laurent and Massart 2000, lemma 1)."""
    t = math.log(1e9)
    return freedom + 2 * math.sqrt(freedom * t) + 2 * t


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 2), (8, 3), (9, 4), (37, 5)])
def test_every_position_is_as_likely(n, k):
    """Counts of k-subsets: variance T p (1 - p), covariance -T p (1 - p) / (n - 1), hence a chi-square of n - 1 degrees."""
    trials, p = 500, k / n
    counts = Counter(position for key in keys(trials) for position in drawn(key, k, n))
    squares = sum((counts[position] - trials * p) ** 2 for position in range(n))
    assert squares / (trials * p * (1 - p)) * (n - 1) / n < chi_square_bound(n - 1)


@pytest.mark.parametrize(("n", "k"), [(2, 2), (3, 3), (4, 4), (5, 3), (9, 2)])
def test_every_ordered_choice_is_as_likely(n, k):
    """All n! / (n - k)! outcomes, so pairs and order too: a chi-square over the outcomes."""
    cells = math.perm(n, k)
    trials = max(300, 12 * cells)
    counts = Counter(tuple(drawn(key, k, n)) for key in keys(trials))
    expected = trials / cells
    statistic = sum((counts[cell] - expected) ** 2 / expected for cell in itertools.permutations(range(n), k))
    assert statistic < chi_square_bound(cells - 1)


@pytest.mark.parametrize(("n", "k"), [(100, 10), (9, 3)])
def test_steps_are_independent(n, k):
    """Positions shared by consecutive steps: hypergeometric, mean k^2/n; the mean of many lies within 6 deviations."""
    trials = 500
    choices = [set(drawn(key, k, n)) for key in keys(trials + 1)]
    shared = [len(a & b) for a, b in itertools.pairwise(choices)]
    deviation = math.sqrt(k**2 * (n - k) ** 2 / (n**2 * (n - 1)) / trials)
    assert abs(sum(shared) / trials - k**2 / n) < 6 * deviation


def test_global_generators_are_left_alone(ops):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    first = drawn(derive(root(1), 2), 9, 50, ops)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before
    random.shuffle([1, 2, 3]), np.random.random(), torch.rand(1)
    assert drawn(derive(root(1), 2), 9, 50, ops) == first


# ---- numbers between 0 and 1 -----------------------------------------------------------------------------------------------

BLOCK = 32768


def uniforms(key, n, ops=NUMPY):
    numbers = uniform(ops, key, n, like=ops.from_numpy(np.zeros(1, np.float64)))
    assert ops.dtype(numbers) == "float32"
    return ops.to_numpy(numbers)


def scalar_uniform(key, position):
    """The upper 24 bits of the hash of the position in its block, as a fraction; each block has a key of its own."""
    block, place = divmod(position, BLOCK)
    high, low = scalar_derive(*key, block)
    return (lowbias32(lowbias32(place ^ high) ^ low) >> 8) / 2**24


@pytest.mark.parametrize("seed", [0, 1, -7, 2**40])
def test_uniform_numbers_are_those_of_the_documented_hash(ops, seed):
    key = derive(root(seed), 5)
    found = uniforms(key, 2 * BLOCK + 10, ops)
    for position in (0, 1, 2, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 9):
        assert float(found[position]) == scalar_uniform(key, position)


@pytest.mark.parametrize("n", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_uniform_numbers_are_as_many_as_asked_for_and_begin_alike(ops, n):
    found = uniforms(root(3), n, ops)
    assert found.shape == (n,)
    assert found.tobytes() == uniforms(root(3), 3 * BLOCK)[:n].tobytes()
    assert np.all((found >= 0) & (found < 1))
    wide = found.astype(np.float64) * 2**24
    assert np.all(wide == np.floor(wide))


def test_uniform_numbers_are_the_same_bits_on_every_backend():
    for key in keys(4):
        assert len({uniforms(key, BLOCK + 100, backend(name)).tobytes() for name in BACKENDS}) == 1


def test_uniform_numbers_differ_by_key_and_by_block():
    streams = [uniforms(key, 3 * BLOCK) for key in keys(4)]
    blocks = [stream[start : start + BLOCK] for stream in streams for start in range(0, 3 * BLOCK, BLOCK)]
    for one, other in itertools.combinations(blocks, 2):
        assert np.count_nonzero(one == other) < 10  # of 2^15 pairs each with a chance of 2^-24
        assert abs(np.corrcoef(one, other)[0, 1]) < 6 / math.sqrt(BLOCK)


@pytest.mark.parametrize("key", keys(3), ids=["first", "second", "third"])
def test_uniform_numbers_have_the_moments_of_uniform_ones(key):
    """Mean 1/2 and variance 1/12, within 6 standard errors; neighbours are not correlated; all cells of 256 are as full."""
    n = 200_000
    x = uniforms(key, n).astype(np.float64)
    assert abs(x.mean() - 0.5) < 6 / math.sqrt(12 * n)
    assert abs(np.mean((x - 0.5) ** 2) - 1 / 12) < 6 * math.sqrt((1 / 80 - 1 / 144) / n)
    assert abs(np.mean((x[1:] - 0.5) * (x[:-1] - 0.5))) < 6 / (12 * math.sqrt(n))
    for cells in (np.floor(x * 256), np.floor(x * 2**24) % 256):  # the highest and the lowest of 24 bits
        counts = np.bincount(cells.astype(int), minlength=256)
        assert ((counts - n / 256) ** 2 / (n / 256)).sum() < chi_square_bound(255)


@pytest.mark.parametrize("bit", range(24))
def test_each_bit_of_a_uniform_number_is_set_in_half_of_them(bit):
    n = 100_000
    words = (uniforms(root(9), n).astype(np.float64) * 2**24).astype(np.int64)
    assert abs(int((words >> bit & 1).sum()) - n / 2) < 6 * math.sqrt(n / 4)


def test_parts_of_a_draw_are_streams_of_their_own():
    """What is shared stays shared, what is a rank's own stays its own, and no two streams coincide."""
    shared = root(5)
    draws = [Draw(shared, derive(shared, rank + 1)) for rank in range(3)]
    parts = {(rank, number): draw.part(number) for rank, draw in enumerate(draws) for number in range(50)}
    for number in range(50):
        assert len({parts[rank, number].shared for rank in range(3)}) == 1
    everything = {draw.shared for draw in draws} | {draw.own for draw in draws}
    everything |= {part.shared for part in parts.values()} | {part.own for part in parts.values()}
    assert len(everything) == 1 + 3 + 50 + 150
