"""Sequences of any length, and what samplers made of them."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from hvd_adaptive.bload import Block

SKEWED = [40, 39, 37, 1, 1, 2, 1, 3, 1, 2, 30, 1, 1, 5, 8, 1, 2, 22, 40, 1, 17, 3, 9]
"""A few long ones among many short ones: ranks that take turns by sequence have very different amounts."""


def sequences(lengths: Iterable[int], features: int = 3, classes: int = 4, dtype: torch.dtype = torch.float32) -> list[Any]:
    """A list of (data f[t, features], targets i64[t]), the same in every process."""
    found = []
    for index, length in enumerate(lengths):
        generator = torch.Generator().manual_seed(index)
        data = torch.randn(length, features, generator=generator, dtype=torch.float64).to(dtype)
        found.append((data, torch.randint(0, classes, (length,), generator=generator)))
    return found


def entries(batches: Iterable[Sequence[Block]]) -> list[list[list[tuple[int, int, int]]]]:
    """Batches as lists of blocks, which are lists of (id, start, end)."""
    return [
        [[(i, first, first + length) for i, first, length in zip(*(a.tolist() for a in block), strict=True)] for block in batch]
        for batch in batches
    ]


def spread(*parts: Any) -> dict[int, list[tuple[int, int]]]:
    """What batches as :func:`entries` gives them, of some ranks, hold: ``{id: [(start, end), ...]}``."""
    found: dict[int, list[tuple[int, int]]] = {}
    for batches in parts:
        for index, first, end in (entry for batch in batches for block in batch for entry in block):
            found.setdefault(index, []).append((first, end))
    return {index: sorted(cuts) for index, cuts in found.items()}
