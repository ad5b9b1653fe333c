"""Random numbers that are a function of (seed, step, unit, position), and of nothing else.

The same bits come out on every rank and backend, whatever the order of calls, and no global generator is touched.
All arithmetic is on integers below 2^32 held in int64, where a product's low 32 bits survive wrap-around,
so it means the same in Python, numpy, torch and TensorFlow; only shifts are no operator there.

Source    the mixing step follows the published "lowbias32" constants (C. Wellons, "Prospecting for Hash Functions", 2018);
          the permutation is an alternating Feistel network with cycle walking (Black and Rogaway, CT-RSA 2002).
"""

from typing import NamedTuple

from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.ops.blocks import BLOCK
from hvd_adaptive.ops.mixing import MASK, mix

_SMALL_BITS, _MANY_ROUNDS, _ROUNDS = 16, 8, 4
"""Halves of few bits take more rounds until every ordered choice is as likely."""


class Key(NamedTuple):
    """64 bits that name one stream of random numbers."""

    high: int
    low: int


class Draw(NamedTuple):
    """The random streams of one unit in one step.

    Attributes:
        shared: the same on every rank.
        own: differs by rank.
    """

    shared: Key
    own: Key

    def part(self, number: int) -> "Draw":
        """The streams of one part of the unit."""
        word = -1 - number  # rank r's own stream is already number r + 1 of the shared one
        return Draw(derive(self.shared, word), derive(self.own, word))


def derive(key: Key, word: int) -> Key:
    """The key of stream ``word`` below ``key``."""
    high, low = mix((key.high ^ word ^ 0x9E3779B9) & MASK), mix((key.low + word + 0x85EBCA6B) & MASK)
    return Key(mix(high ^ (low >> 1)), mix(low ^ (high << 1) & MASK))


def root(seed: int) -> Key:
    """The key everything else is derived from; ``seed`` is any integer."""
    return derive(Key(mix(seed & MASK), mix((seed >> 32) & MASK)), 0)


def uniform(ops: Ops, key: Key, n: int, like: Array, first: int = 0) -> Array:
    """``f32[n]``, each a multiple of 2^-24 in [0, 1), on the device of ``like``: of the places from ``first`` on.

    Args:
        first: a multiple of :data:`hvd_adaptive.ops.blocks.BLOCK`.
    """
    return ops.uniform(n, [derive(key, (first + start) // BLOCK) for start in range(0, max(n, 1), BLOCK)], like)


def sample(ops: Ops, key: Key, k: int, n: int, like: Array) -> Array:
    """Choose ``k`` of ``n`` positions uniformly, without repeats.

    Takes O(k) time: it walks the first ``k`` images of a pseudo-random permutation of ``range(n)``.

    Returns:
        ``i64[k]``, distinct, in random order, on the device of ``like``.
    """
    bits = max(1, (n - 1).bit_length())
    keys = [derive(key, number) for number in range(_MANY_ROUNDS if bits < _SMALL_BITS else _ROUNDS)]
    return ops.sample(k, n, keys, bits, like)
