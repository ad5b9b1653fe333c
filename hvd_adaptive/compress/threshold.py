"""Threshold sparsification: keep every element whose magnitude reaches a given value.

Contract  |x - D(C(x))| < value, element by element; the same elements whatever the granularity. Biased: error feedback is on by
          default.
On wire   values f[k] and positions of about 2 + log2(n/k) bits; k differs by rank and step.
Source    Dutta et al. 2020, section 5.2, arXiv:1911.08250.
Differs   nothing. With loss scaling the gradients, and so the value, are scaled too.
"""

import math
from dataclasses import dataclass

from hvd_adaptive import checks
from hvd_adaptive.compress.base import at_least_single
from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw

_LARGEST_SINGLE = (2 - 2.0**-23) * 2.0**127


@dataclass(frozen=True)
class Threshold(Sparse):
    """Keep the elements of a unit that are at least ``value`` in magnitude.

    Args:
        value: >= 0, in the gradient's own units.

    Raises:
        ConfigError: if ``value`` is not a finite number >= 0.
    """

    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", checks.number("Threshold", "value", self.value, 0, hint="a magnitude"))

    def select(self, ops: Ops, x: Array, draw: Draw) -> Array:
        x = at_least_single(ops, x)
        beyond = self.value > _LARGEST_SINGLE and ops.dtype(x) == "float32"
        return ops.nonzero(abs(x) >= (math.inf if beyond else self.value))
