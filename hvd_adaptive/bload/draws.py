"""Random orders that are a function of (seed, epoch), and of nothing else.

Only raw words of a bit generator are used: numpy keeps those the same on every platform and in every version, which it does not
promise of its own ``permutation``. Sorts are of distinct numbers, so no platform's sort can order ties its own way.
"""

import itertools
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]

_WORD = 0xFFFFFFFF
_AT_ONCE = 1 << 10
"""Fractions drawn at a time: few enough that their Python floats take little memory."""


def ordered(keys: I32, ranks: I32 | None = None) -> I32:
    """Sort by key, ties by rank.

    Args:
        keys: ``i32[n]``, none negative.
        ranks: ``i32[n]``, a permutation of ``range(n)``; None for ``range(n)`` itself.

    Returns:
        The ranks ``i32[n]`` in that order; without ranks, the order of a stable argsort.
    """
    bits = max(keys.size - 1, 0).bit_length()
    words = keys.astype(np.int64)
    words <<= bits
    words |= np.arange(keys.size, dtype=np.int32) if ranks is None else ranks
    words.sort()
    words &= (1 << bits) - 1
    return words.astype(np.int32)


class Draws:
    """The random numbers of one epoch.

    Args:
        seed: any integer; its low 64 bits count.
        epoch: 0 or more; its low 64 bits count.
    """

    def __init__(self, seed: int, epoch: int) -> None:
        words = [number >> shift & _WORD for number in (seed, epoch) for shift in (0, 32)]
        self._bits = np.random.PCG64(np.random.SeedSequence(words))

    def permutation(self, n: int) -> I32:
        """``range(n)`` in random order, ``i32[n]``."""
        bits = np.uint64(max(n - 1, 0).bit_length())
        words: NDArray[np.uint64] = self._bits.random_raw(n)
        words >>= bits
        words <<= bits
        words |= np.arange(n, dtype=np.uint32)
        words.sort()
        words &= (np.uint64(1) << bits) - np.uint64(1)
        return words.astype(np.int32)

    def fractions(self) -> Iterator[float]:
        """Endless multiples of 2^-53 in [0, 1)."""
        return itertools.chain.from_iterable(self._fractions() for _ in itertools.repeat(None))

    def _fractions(self) -> list[float]:
        words: NDArray[np.uint64] = self._bits.random_raw(_AT_ONCE) >> np.uint64(11)
        fractions: list[float] = (words * 2.0**-53).tolist()
        return fractions
