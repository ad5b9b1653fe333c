"""Gain: which share of a gradient survives compression, from the energy of what is kept and of the whole.

Contract  from 0 to 1, for every method that keeps some elements as they are; 1 if nothing is dropped.
Source    Tyagi & Swany 2023, "GraVAC: Adaptive Compression for Communication-Efficient Distributed DL Training",
          arXiv:2305.12201, algorithm 1, lines 7 and 9 (``"energy"``).
Differs   ``"norm"`` is its root, ||kept|| / ||whole||. ``"raw"`` is ``"energy"`` of the gradient before feedback: what a residual
          holds from earlier steps neither adds to it nor fills its denominator.
"""

import math
from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

GainName: TypeAlias = Literal["energy", "norm", "raw"]
GAINS: tuple[GainName, ...] = get_args(GainName)


def _energy(kept: float, whole: float) -> float:
    if not (math.isfinite(kept) and math.isfinite(whole)):
        return math.nan
    return min(1.0, kept / whole) if whole else 1.0


def _norm(kept: float, whole: float) -> float:
    return math.sqrt(_energy(kept, whole))


_DEFINITIONS: dict[GainName, Callable[[float, float], float]] = {"energy": _energy, "norm": _norm, "raw": _energy}


def gain(name: GainName, kept: float, whole: float) -> float:
    """The gain where ``kept`` is the energy (sum of squares) of what is kept, ``whole`` that of all; NaN if one is not finite."""
    return _DEFINITIONS[name](kept, whole)
