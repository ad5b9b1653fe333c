"""A block of elements at a time: what several operations pass over stays in a core's cache, and no temporary is large."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hvd_adaptive.ops import Array, Ops

BLOCK = 1 << 15
"""Elements at a time on a host."""


def in_blocks(ops: "Ops", x: "Array", function: Callable[[int, int], "Array"]) -> "Array":
    """One vector of what ``function`` makes of the elements of ``x`` from ``start`` to before ``stop``, in turn."""
    n, step = ops.size(x), ops.at_once(x)
    return ops.concat([function(start, min(start + step, n)) for start in range(0, max(n, 1), step)])
