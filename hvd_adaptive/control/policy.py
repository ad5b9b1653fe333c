"""Scaling policies: the factors that GraVAC tries, one after the other, as multiples of the smallest.

Source    Tyagi & Swany 2023, arXiv:2305.12201, section IV-B.
"""

import math
import sys
from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

PolicyName: TypeAlias = Literal["exponential", "geometric"]
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)

_EXPONENTS: dict[PolicyName, Callable[[int], int]] = {
    "exponential": lambda number: 2 ** min(number - 1, 10),
    "geometric": lambda number: number,
}


def multiple(policy: PolicyName, number: int) -> float:
    """The multiple of scale ``number``, of which 1 is the first: 2, 4, 16, 256, ... or 2, 4, 8, 16, ...; infinite at last."""
    exponent = _EXPONENTS[policy](number)
    return 2.0**exponent if exponent < sys.float_info.max_exp else math.inf


def factors(policy: PolicyName, least: float, most: float) -> tuple[float, ...]:
    """``least`` and its multiples, the last one cut to ``most``: 10, 20, 40, 160, 1000 for 10 and 1000, exponential."""
    found = [least]
    while found[-1] < most:
        found.append(min(most, least * multiple(policy, len(found))))
    return tuple(found)
