"""Top-k sparsification: keep the k elements of largest magnitude.

Contract  ||x - D(C(x))||^2 <= (1 - k/n) ||x||^2. Biased, so error feedback is on by default.
On wire   values f[k] and positions of about 2 + log2(n/k) bits; the same k on every rank.
Source    Dutta et al. 2020, section 5.2, arXiv:1911.08250; Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599.
Differs   exactly k elements survive ties; a test against the k-th magnitude would keep more.
"""

from dataclasses import dataclass
from typing import ClassVar

from hvd_adaptive import checks
from hvd_adaptive.compress.base import kept_count
from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw


@dataclass(frozen=True)
class TopK(Sparse):
    """Keep one in ``factor`` elements of a unit, the largest in magnitude.

    Args:
        factor: original elements / kept elements, >= 1. 100 keeps 1 %.

    Raises:
        ConfigError: if ``factor`` is not a finite number >= 1.
    """

    factor: float
    counted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", checks.factor("TopK", self.factor))

    def select(self, ops: Ops, x: Array, draw: Draw) -> Array:
        return ops.top_positions(x, kept_count(self.factor, ops.size(x)))
