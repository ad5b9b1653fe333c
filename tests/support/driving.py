"""Exchanges over Loopback, driven as the engine drives them, and what every rank saw."""

from dataclasses import dataclass

import numpy as np

from hvd_adaptive.collective import Loopback
from hvd_adaptive.exchange import Outcome, Situation
from hvd_adaptive.prng import Draw, derive, root

KEY = derive(root(4), 2)
RANKS = [1, 2, 3, 8]


@dataclass
class Result:
    """What one rank saw.

    Attributes:
        mean: the outcome's, or None.
        kept_back: what the outcome makes of ``x``.
        x: the vector when the outcome was there, before anything was kept back.
        memory: what the exchange remembers, in numpy.
        handed: kind, dtype and bytes of each collective.
    """

    outcome: Outcome
    mean: np.ndarray | None
    kept_back: np.ndarray
    x: np.ndarray
    memory: dict
    handed: list


def draw_of(rank):
    return Draw(KEY, derive(KEY, rank + 1))


def whole(ranks, n, dtype, spread=3):
    """Multiples of 4, so that the sum of up to 64 of them is exact even in float16."""
    return [4 * np.random.default_rng([n, rank]).integers(-spread, spread + 1, n).astype(dtype) for rank in range(ranks)]


def exchanged(ops, method, exchange, arrays, bad=(), step=0, shape=None, memories=None):
    """What every rank saw. ``bad`` ranks hold a gradient that was not finite; ``memories`` are what ranks remember, in numpy."""

    def of_rank(collective):
        rank, handed = collective.rank, []
        x = ops.from_numpy(arrays[rank])
        memory = {name: ops.from_numpy(array) for name, array in (memories[rank] if memories else {}).items()}
        situation = Situation(
            ops, rank, collective.size, step, draw_of(rank), shape or (x.shape[0],), memory, healthy=rank not in bad
        )
        rounds = exchange.rounds(method, x, situation)
        needed, outcome = next(rounds), None
        while outcome is None:
            handed.append((needed.kind, ops.dtype(needed.array), ops.to_numpy(needed.array).nbytes))
            brought = collective.wait(collective.start(needed.kind, needed.array, f"unit.{len(handed)}", needed.splits))
            try:
                needed = rounds.send(brought)
            except StopIteration as end:
                outcome = end.value
        after = ops.to_numpy(x).copy()
        for name, array in (memories[rank] if memories else {}).items():
            assert ops.to_numpy(memory[name]).tobytes() == array.tobytes()  # it is the engine that keeps the new one
        mean = None if outcome.mean is None else ops.to_numpy(outcome.mean).copy()
        kept_back = ops.to_numpy(outcome.keep_back(x)).copy()
        left = {name: ops.to_numpy(array).copy() for name, array in outcome.memory.items()}
        return Result(outcome, mean, kept_back, after, left, handed)

    return Loopback(len(arrays), ops).run(of_rank)
