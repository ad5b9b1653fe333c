"""What is known of arrays: True or False at once on a host; on a device an array that nobody has read yet.

Whoever reads one waits until the device has done all it was told to, and meanwhile tells it nothing more. So a step goes on
without knowing, with values that do where the verdict is False, and reads all of its verdicts at once at its end.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from hvd_adaptive.ops import Array, Ops

Verdict: TypeAlias = bool | Any
"""A ``bool``, or ``bool[1]`` on a device. ``&`` joins any two; ``if`` would read it, ``is True`` asks whether it is known."""


def is_read(verdict: Verdict) -> bool:
    """False if only the device knows yet."""
    return isinstance(verdict, bool)


def opposite(verdict: Verdict) -> Verdict:
    """Not so."""
    return not verdict if is_read(verdict) else ~verdict


def read(ops: "Ops", verdicts: Sequence[Verdict]) -> list[bool]:
    """What ``verdicts`` say; waits once for the device if it has any of them."""
    unread = [verdict for verdict in verdicts if not is_read(verdict)]
    said = iter(ops.to_numpy(ops.concat(unread)).tolist() if unread else ())
    return [verdict if is_read(verdict) else next(said) for verdict in verdicts]


def spoilt(ops: "Ops", x: "Array", verdict: Verdict, value: float) -> "Array":
    """``x``, or where the ``verdict`` is False ``value`` throughout; ``x`` itself where that is known to be True."""
    if verdict is True:
        return x
    instead = ops.full_like(x, value)
    return instead if verdict is False else ops.where(verdict, x, instead)
