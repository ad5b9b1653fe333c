"""Checks of the numbers users hand to methods, feedbacks and controllers."""

import math
import numbers
from collections.abc import Sequence

from hvd_adaptive.errors import ConfigError


def number(owner: str, name: str, value: object, least: float, most: float = math.inf, hint: str = "") -> float:
    """``value`` as a float.

    Raises:
        ConfigError: if it is not a finite number from ``least`` to ``most``.
    """
    found = _real(value)
    if not (least <= found <= most and found < math.inf):
        legal = f"a finite number >= {least:g}" if most == math.inf else f"a number from {least:g} to {most:g}"
        raise ConfigError(f"{owner}: {name} must be {legal}{hint and f' ({hint})'}, got {value!r}")
    return found


def share(owner: str, name: str, value: object) -> float:
    """``value`` as a float.

    Raises:
        ConfigError: if it is not a number above 0, up to 1.
    """
    found = _real(value)
    if not 0 < found <= 1:
        raise ConfigError(f"{owner}: {name} must be a number above 0, up to 1, got {value!r}")
    return found


def above_zero(owner: str, name: str, value: object) -> float:
    """``value`` as a float.

    Raises:
        ConfigError: if it is not a finite number above 0.
    """
    found = _real(value)
    if not 0 < found < math.inf:
        raise ConfigError(f"{owner}: {name} must be a finite number above 0, got {value!r}")
    return found


def one_of(owner: str, name: str, value: object, legal: Sequence[str]) -> None:
    """
    Raises:
        ConfigError: if ``value`` is none of the ``legal`` ones.
    """
    if value not in legal:
        raise ConfigError(f"{owner}: {name} must be {' or '.join(map(repr, legal))}, got {value!r}")


def count(owner: str, name: str, value: object, most: int = 2**30, hint: str = "", least: int = 1) -> int:
    """``value`` as an int.

    Raises:
        ConfigError: if it is not a whole number from ``least`` to ``most``.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= int(value) <= most:
        raise ConfigError(f"{owner}: {name} must be a whole number from {least} to {most}{hint and f' ({hint})'}, got {value!r}")
    return int(value)


def flag(owner: str, name: str, value: object, legal: str = "True or False") -> bool:
    """``value``.

    Raises:
        ConfigError: if it is neither True nor False.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{owner}: {name} must be {legal}, got {value!r}")
    return value


def factor(owner: str, value: object) -> float:
    """A compression factor as a float.

    Raises:
        ConfigError: if it is not a finite number >= 1.
    """
    return number(owner, "factor", value, 1, hint="10 keeps a tenth of the elements")


def _real(value: object) -> float:
    """``value`` as a float; NaN if it is no number."""
    try:
        return math.nan if isinstance(value, bool) or not isinstance(value, numbers.Real) else float(value)
    except OverflowError:  # an integer beyond any float
        return math.inf
