"""Random numbers that are a function of (seed, step, unit, position), and of nothing else.

The same bits come out on every rank and backend, whatever the order of calls, and no global generator is touched.
All arithmetic is on integers below 2^32 held in int64, where a product's low 32 bits survive wrap-around,
so it means the same in Python, numpy, torch and TensorFlow; only shifts are no operator there.

Source    the mixing step follows the published "lowbias32" constants (C. Wellons, "Prospecting for Hash Functions", 2018);
          the permutation is an alternating Feistel network with cycle walking (Black and Rogaway, CT-RSA 2002).
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from hvd_adaptive.ops import Array, Ops

_MASK = 0xFFFFFFFF
_SMALL_BITS, _MANY_ROUNDS, _ROUNDS = 16, 8, 4
"""Halves of few bits take more rounds until every ordered choice is as likely."""
_BLOCK = 1 << 15
"""Elements hashed at a time: few enough to stay in a core's cache."""


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


def _mix(x: Any, shift: Callable[[Any, int], Any] = operator.rshift) -> Any:
    """A bijection of 32 bits that looks random; ``x`` is an int or, with its ``shift``, an ``i64`` array of values below 2^32."""
    x = x ^ shift(x, 16)
    x = (x * 0x21F0AAAD) & _MASK
    x = x ^ shift(x, 15)
    x = (x * 0x735A2D97) & _MASK
    return x ^ shift(x, 15)


def derive(key: Key, word: int) -> Key:
    """The key of stream ``word`` below ``key``."""
    high, low = _mix((key.high ^ word ^ 0x9E3779B9) & _MASK), _mix((key.low + word + 0x85EBCA6B) & _MASK)
    return Key(_mix(high ^ (low >> 1)), _mix(low ^ (high << 1) & _MASK))


def root(seed: int) -> Key:
    """The key everything else is derived from; ``seed`` is any integer."""
    return derive(Key(_mix(seed & _MASK), _mix((seed >> 32) & _MASK)), 0)


def uniform(ops: Ops, key: Key, n: int, like: Array) -> Array:
    """``f32[n]``, each a multiple of 2^-24 in [0, 1), on the device of ``like``."""
    block = ops.arange(min(n, _BLOCK), like)
    numbers = []
    for start in range(0, max(n, 1), _BLOCK):
        part = derive(key, start // _BLOCK)
        words = _mix(ops.slice(block, 0, min(n - start, _BLOCK)) ^ part.high, ops.shift_right)
        words = ops.shift_right(_mix(words ^ part.low, ops.shift_right), 8)
        numbers.append(ops.scale(ops.cast(words, "float32"), 2.0**-24))
    return ops.concat(numbers)


def sample(ops: Ops, key: Key, k: int, n: int, like: Array) -> Array:
    """Choose ``k`` of ``n`` positions uniformly, without repeats.

    Takes O(k) time: it walks the first ``k`` images of a pseudo-random permutation of ``range(n)``.

    Returns:
        ``i64[k]``, distinct, in random order, on the device of ``like``.
    """
    bits = max(1, (n - 1).bit_length())
    first = ops.arange(k, like)
    blocks = [ops.slice(first, start, min(start + _BLOCK, k)) for start in range(0, max(k, 1), _BLOCK)]
    positions = ops.concat([_permute(ops, block, key, bits) for block in blocks])
    outside = ops.nonzero(positions >= n)
    while ops.size(outside):  # under half of the domain lies outside, so this ends after a few turns
        moved = _permute(ops, ops.take(positions, outside), key, bits)
        positions = ops.scatter_add(ops.clear(positions, outside), outside, moved)
        outside = ops.take(outside, ops.nonzero(moved >= n))
    return positions


def _permute(ops: Ops, x: Array, key: Key, bits: int) -> Array:
    """A permutation of ``range(2**bits)``, applied to each element."""
    low_bits = (bits + 1) // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << (bits - low_bits)) - 1
    shift = ops.shift_right
    high, low = shift(x, low_bits), x & low_mask
    for number in range(_MANY_ROUNDS if bits < _SMALL_BITS else _ROUNDS):
        round_key = derive(key, number)
        low = low ^ (_mix(high ^ round_key.high, shift) & low_mask)
        high = high ^ (_mix(low ^ round_key.low, shift) & high_mask)
    return ops.shift_left(high, low_bits) | low
