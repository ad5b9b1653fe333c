"""Ascending positions in few bits: about 2 + log2(n / k) each, where a position by itself takes log2 n.

The low bits of each are packed as they are. What is left climbs from 0 to n >> low in k steps, and is told by flags: a set one
for each position, a clear one wherever the number goes up by one. How many bytes that takes follows from k and n alone.

Source: Elias 1974, "Efficient storage and retrieval by content and address of static files", J. ACM 21(2).
"""

from typing import TYPE_CHECKING

from hvd_adaptive.ops.packing import packed_size

if TYPE_CHECKING:
    from hvd_adaptive.ops import Array, Ops


def coded_size(k: int, n: int) -> int:
    """Bytes that ``k`` ascending positions below ``n`` take."""
    low = low_bits(k, n)
    return packed_size(k, low) + packed_size(flags_count(k, n, low), 1)


def encode(ops: "Ops", positions: "Array", n: int) -> "Array":
    """``u8[coded_size(k, n)]`` from ``positions`` i64[k], distinct, ascending and below ``n``."""
    k = ops.size(positions)
    low = low_bits(k, n)
    places = ops.shift_right(positions, low) + ops.arange(k, positions)
    flags = ops.zeros(flags_count(k, n, low), "uint8", like=positions)
    flags = ops.scatter_add(flags, places, ops.full_like(ops.cast(positions, "uint8"), 1))
    return ops.concat([ops.pack(positions & ((1 << low) - 1), low), ops.pack(flags, 1)])


def decode(ops: "Ops", coded: "Array", k: int, n: int) -> "Array":
    """The inverse of :func:`encode`, ``i64[k]``."""
    low = low_bits(k, n)
    cut = packed_size(k, low)
    flags = ops.unpack(ops.slice(coded, cut, ops.size(coded)), 1, flags_count(k, n, low), "uint8")
    high = ops.nonzero(flags, k) - ops.arange(k, coded)
    return ops.shift_left(high, low) | ops.unpack(ops.slice(coded, 0, cut), low, k, "int64")


def low_bits(k: int, n: int) -> int:
    """How many make the whole shortest."""
    return max(0, (n // k).bit_length() - 1) if k else 0


def flags_count(k: int, n: int, low: int) -> int:
    """One for each position and each number that the high bits may climb to."""
    return k + (max(0, n - 1) >> low) if k else 0
