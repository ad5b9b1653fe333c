"""The documented generator again, one Python integer at a time, for tests that need to know the draws."""

from __future__ import annotations

import math
from collections.abc import Iterator

Words = tuple[int, int]
_BLOCK = 2**15


def lowbias32(x: int) -> int:
    """Wellons' hash."""
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        x = (x ^ x // 2**shift) * factor % 2**32
    return x ^ x // 2**15


def derive(key: Words, word: int) -> Words:
    """The key of stream ``word`` below ``key``."""
    high = lowbias32((key[0] ^ word ^ 0x9E3779B9) % 2**32)
    low = lowbias32((key[1] + word + 0x85EBCA6B) % 2**32)
    return lowbias32(high ^ low // 2), lowbias32(low ^ 2 * high % 2**32)


def uniform(key: Words, n: int) -> list[float]:
    """``n`` multiples of 2^-24 in [0, 1)."""
    numbers = []
    for i in range(n):
        high, low = derive(key, i // _BLOCK)
        numbers.append(lowbias32(lowbias32(i % _BLOCK ^ high) ^ low) // 2**8 / 2**24)
    return numbers


def sample(key: Words, k: int, n: int) -> Iterator[int]:
    """``k`` distinct positions of ``n``."""
    bits = max(1, math.ceil(math.log2(n)))
    for start in range(k):
        image = _feistel(start, key, bits)
        while image >= n:
            image = _feistel(image, key, bits)
        yield image


def _feistel(x: int, key: Words, bits: int) -> int:
    wide, narrow = 2 ** math.ceil(bits / 2), 2 ** (bits // 2)
    high, low = divmod(x, wide)
    for number in range(8 if bits < 16 else 4):
        a, b = derive(key, number)
        low ^= lowbias32(high ^ a) % wide
        high ^= lowbias32(low ^ b) % narrow
    return high * wide + low
