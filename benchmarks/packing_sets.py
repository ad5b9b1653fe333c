"""Lengths of sequences, real and made, for the benchmark of packing."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import king_james

Lengths = NDArray[np.int64]


def action_genome(_: int) -> Lengths:
    """Made to what is known of the paper's videos: 7,464 of 166,785 frames, 3 to 94; the 4,077 below 22 hold 51,982."""
    generator = np.random.default_rng(0)
    short = generator.integers(3, 22, 4077)
    long = 22 + np.minimum(generator.exponential(12.0, 3387).astype(np.int64), 72)
    short[0], long[0] = 3, 94
    return generator.permutation(np.concatenate([_summing_to(51_982, short, 21), _summing_to(166_785 - 51_982, long, 94)]))


def _summing_to(total: int, lengths: Lengths, most: int) -> Lengths:
    """Lengths raised or lowered by 1, one after the other, until their sum is right; the first stays, as do the extremes."""
    low, missing = lengths.min(), total - int(lengths.sum())
    while missing:
        free = np.flatnonzero((lengths > low) & (lengths < most))
        free = free[free > 0][: abs(missing)]
        lengths[free] += np.sign(missing)
        missing = total - int(lengths.sum())
    return lengths


def lognormal(n: int) -> Lengths:
    """Mean 585, at most 4,096."""
    drawn = np.random.default_rng(1).lognormal(np.log(585) - 0.9**2 / 2, 0.9, n)
    return np.clip(np.rint(drawn), 1, 4096).astype(np.int64)


def uniform(n: int) -> Lengths:
    """1 to 2,048."""
    return np.random.default_rng(2).integers(1, 2049, n)


def wikipedia(n: int) -> Lengths:
    """Made to resemble Wikipedia cut to 512 tokens: nearly a quarter is full, the others fall off from 5; half is padding."""
    generator = np.random.default_rng(3)
    scale, span = 248.0, 507
    part = -scale * np.log1p(-generator.random(n) * -np.expm1(-span / scale))  # exponential, below span
    return np.where(generator.random(n) < 0.235, 512, 5 + part.astype(np.int64))


def kjv(_: int) -> Lengths:
    """Words and marks of the verses of the King James Bible."""
    return np.array([len(verse) for verse in king_james.verses()])


SETS: dict[str, tuple[Callable[[int], Lengths], int | None]] = {
    "action_genome": (action_genome, None),
    "lognormal": (lognormal, 4096),
    "uniform": (uniform, 2048),
    "wikipedia": (wikipedia, 512),
    "kjv": (kjv, None),
}
"""Lengths by name, given how many are wanted where that is free, and the block length."""
