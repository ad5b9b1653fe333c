"""What tf.data's batches of blocks hold, found one element at a time."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

SKEWED = [40, 39, 37, 1, 1, 2, 1, 3, 1, 2, 30, 1, 1, 5, 8, 1, 2, 22, 40, 1, 17, 3, 9]
"""A few long ones among many short ones: ranks that take turns by sequence have very different amounts."""


def numbered(lengths: Any) -> Callable[[int], Any]:
    """A function of the index: data f32[t, 2] and targets i64[t], no two elements of which are the same."""

    def sample(index: int) -> Any:
        targets = 1000 * index + np.arange(int(lengths[index]))
        return np.stack([targets, -targets], 1).astype(np.float32), targets

    return sample


def entries(batches: Iterable[Any]) -> list[list[list[tuple[int, int, int]]]]:
    """Batches as lists of blocks, which are lists of (id, start, end), whose tables and samples were checked."""
    return [checked(batch) for batch in batches]


def checked(batch: Any) -> list[list[tuple[int, int, int]]]:
    """The (id, start, end) of each block of a batch of :func:`numbered` samples, all of whose fields agree with them."""
    ids, offsets, lengths = (column.numpy().tolist() for column in batch.blocks)
    rows = [
        [(i, first, first + length) for i, first, length in zip(*columns, strict=True) if length]
        for columns in zip(ids, offsets, lengths, strict=True)
    ]
    T, k = batch.valid.shape[1], batch.starts.shape[1]
    targets, valid, positions, segments, starts, marks = [], [], [], [], [], []
    for number, row in enumerate(rows):
        elements = [(i, place, segment) for segment, (i, a, b) in enumerate(row, 1) for place in range(a, b)]
        padding = T - len(elements)
        targets.append([1000 * i + place for i, place, _ in elements] + [0] * padding)
        valid.append([True] * len(elements) + [False] * padding)
        positions.append([place for _, place, _ in elements] + [0] * padding)
        segments.append([segment for *_, segment in elements] + [0] * padding)
        begins = [sum(b - a for _, a, b in row[:n]) for n in range(len(row))]
        starts.append(begins + [T] * (k - len(row)))
        marks += [number * T + at for at in begins + ([len(elements)] if padding else [])]
    assert batch.targets.numpy().tolist() == targets
    assert batch.data.numpy().tolist() == [[[float(x), float(-x)] for x in row] for row in targets]
    assert batch.valid.numpy().tolist() == valid
    assert batch.position_ids.numpy().tolist() == positions
    assert batch.segment_ids.numpy().tolist() == segments
    assert batch.starts.numpy().tolist() == starts
    assert batch.cu_seqlens.numpy().tolist() == marks + [T * len(rows)] * (len(rows) * (k + 1) + 1 - len(marks))
    return rows


def spread(*parts: Any) -> dict[int, list[tuple[int, int]]]:
    """What batches as :func:`entries` gives them, of some ranks, hold: ``{id: [(start, end), ...]}``."""
    found: dict[int, list[tuple[int, int]]] = {}
    for batches in parts:
        for index, first, end in (entry for batch in batches for block in batch for entry in block):
            found.setdefault(index, []).append((first, end))
    return {index: sorted(cuts) for index, cuts in found.items()}
