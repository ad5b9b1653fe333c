"""Adaptive threshold: keep every element that is at least half the largest magnitude of the unit.

Contract  |x - D(C(x))| < max |x| / 2, element by element. Biased, so error feedback is on by default.
On wire   values f[k] and positions of about 2 + log2(n/k) bits; k differs by rank and step.
Source    Dutta et al. 2020, section 5.2, arXiv:1911.08250, after AdaComp: Chen et al. 2018, arXiv:1712.02679.
Differs   a unit of zeros sends nothing.
"""

from dataclasses import dataclass

from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class AdaptiveThreshold(Sparse):
    """Keep the elements of a unit that are at least half its largest in magnitude."""

    def select(self, ops: Ops, x: Array, draw: Draw) -> Array:
        magnitude = abs(x)
        half = ops.scale(ops.row_max(magnitude, ops.size(x)), 0.5)
        return ops.nonzero((magnitude >= half) & (magnitude > 0))
