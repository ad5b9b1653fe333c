"""Lengths as users hold them, to ``i32[n]``."""

import numbers
import operator

import numpy as np
from numpy.typing import NDArray

from hvd_adaptive.bload.draws import I32
from hvd_adaptive.errors import ConfigError

MOST = 2**31 - 1
"""Of elements in a sequence or block, and of sequences: what four bytes hold."""


def read(lengths: object) -> I32:
    """Whole numbers in a list, an array or a tensor on a CPU, as ``i32[n]``.

    Raises:
        ConfigError: if one of them is no whole number from 1 to :data:`MOST`; the first is named with its index.
    """
    try:
        array: NDArray[np.generic] = np.asarray(lengths)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of several lengths; a tensor on a GPU, or with a gradient
        raise ConfigError(f"lengths must be one row of whole numbers that numpy can read: {error}") from error
    if array.ndim != 1:
        raise ConfigError(
            f"lengths must be one row of whole numbers, such as a list, got {type(lengths).__name__} of shape {array.shape}"
        )
    if array.dtype.kind not in "iufO" and array.size:
        raise ConfigError(f"lengths must be whole numbers, got {array.dtype.name}, lengths[0] being {array[0].item()!r}")
    legal = _legal(array)
    if not legal.all():
        index = int(np.argmin(legal))
        given = array[index].item() if isinstance(array[index], np.generic) else array[index]
        raise ConfigError(
            f"lengths[{index}] is {given!r}; every length must be a whole number from 1 to {MOST}; leave sequences without "
            "elements out"
        )
    if array.size > MOST:
        raise ConfigError(f"lengths must be at most {MOST} in number, got {array.size}; pack the data set in parts")
    return array.astype(np.int32)


def read_one(value: object, holder: str) -> int:
    """One length, a whole number or an array or tensor that holds just one, as an int.

    Args:
        value: the length.
        holder: names the sequence in errors.

    Raises:
        ConfigError: if it is no whole number from 1 to :data:`MOST`.
    """
    try:
        length = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # what has no index raises
    except TypeError:
        length = 0
    if not 1 <= length <= MOST:
        raise ConfigError(
            f"{holder} has length {value!r}; every length must be a whole number from 1 to {MOST}; leave sequences without "
            "elements out"
        )
    return int(length)


def _legal(array: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which of them are whole numbers in range, ``bool[n]``."""
    if array.dtype.kind == "O":
        return np.fromiter((_is_whole(value) and 1 <= value <= MOST for value in array), np.bool_, array.size)
    numbers_: NDArray[np.float64] | NDArray[np.int64] = array if array.dtype.kind in "iu" else array.astype(np.float64)  # type: ignore[assignment]
    legal: NDArray[np.bool_] = (numbers_ >= 1) & (numbers_ <= MOST)  # NaN is neither
    return legal if array.dtype.kind in "iu" else legal & (np.floor(numbers_) == numbers_)


def _is_whole(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
