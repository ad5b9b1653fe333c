"""Multi-level compression: one selection at the smallest factor, from which those at all larger factors are taken.

Contract  a selection at factor f keeps the first n/f of the ranked elements, so a smaller factor keeps what a larger one does.
          The energies of all of them come from one running sum.
Source    Tyagi & Swany 2023, arXiv:2305.12201, section IV-C and algorithm 1, L6 to L10.
Differs   sizes are those of direct compression, n/f to the nearest; compressing what was compressed rounds twice.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from hvd_adaptive.compress.base import at_least_single, kept_count
from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw

_LARGEST_SINGLE = (2.0 - 2.0**-23) * 2.0**127
_LARGEST_DOUBLE = sys.float_info.max
"""To which backends cut a norm."""


@dataclass(frozen=True)
class Ranked(Sparse):
    """Stands in for the method that made the ``ranking``, and keeps the first of it.

    Args:
        ranking: ``i64[k]``, positions of what the method kept at ``least``, the largest in magnitude first.
        least: the factor that they were selected with.
        factor: the one to compress with, at least ``least``.
    """

    ranking: Array
    least: float
    factor: float

    def select(self, ops: Ops, x: Array, draw: Draw) -> Array:
        if self.factor == self.least:  # some methods keep more or less than n/f
            return ops.ascending(self.ranking)
        return ops.ascending(ops.slice(self.ranking, 0, kept_count(self.factor, ops.size(x))))


def energies(ops: Ops, x: Array, positions: Array, factors: Sequence[float]) -> tuple[float, ...]:
    """The sum of squares of what each of the ascending ``factors`` keeps of ``x`` by ranked ``positions``."""
    n, k = ops.size(x), ops.size(positions)
    counts = [k, *(min(k, kept_count(factor, n)) for factor in factors[1:])]
    values = ops.take(x, positions)
    parts = [ops.slice(values, start, stop) for start, stop in pairwise([0, *reversed(counts)])]
    return tuple(reversed(list(accumulate(squares(ops, parts)))))


def squares(ops: Ops, arrays: Sequence[Array]) -> list[float]:
    """The sum of squares of each, in float32 at least; not finite if an array or its norm is not. A device is waited for once."""
    filled = [at_least_single(ops, x) for x in arrays if ops.size(x)]
    norms = [ops.cast(ops.row_norm(x, ops.size(x)), "float64") for x in filled]
    found = iter(ops.to_numpy(ops.concat(norms)).tolist() if norms else ())
    return [_square(next(found), ops.dtype(x)) if ops.size(x) else 0.0 for x in arrays]


def _square(norm: float, dtype: str) -> float:
    return math.inf if norm >= (_LARGEST_DOUBLE if dtype == "float64" else _LARGEST_SINGLE) else norm * norm
