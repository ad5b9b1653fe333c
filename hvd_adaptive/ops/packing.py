"""Codes of a few bits each, packed without gaps: what travels takes the bits it needs.

Eight codes of ``b`` bits are ``b`` bytes. So that every step works on whole contiguous vectors, codes ``w``, ``w + W``, ...
``w + 7 W`` share the bytes ``w``, ``w + W``, ... ``w + (b - 1) W``, where ``W = ceil(n / 8)``: the first code in the lowest bits
of the first byte.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hvd_adaptive.ops import Array, Ops


def packed_size(n: int, bits: int) -> int:
    """Bytes that ``n`` codes of ``bits`` each take."""
    return bits * -(-n // 8)


def pack(ops: "Ops", codes: "Array", bits: int) -> "Array":
    """``u8[packed_size(n, bits)]`` from ``codes``, whole numbers below 2^bits of any integer dtype."""
    n = ops.size(codes)
    width = -(-n // 8)
    codes = ops.concat([codes, ops.zeros(8 * width - n, ops.dtype(codes), like=codes)])
    planes = [ops.zeros(width, "uint8", like=codes) for _ in range(bits)]
    for code, byte, shift in _overlaps(bits):
        part = ops.slice(codes, code * width, (code + 1) * width)
        planes[byte] |= ops.cast(_shifted(ops, part, -shift) & 0xFF, "uint8")
    return ops.concat(planes) if planes else ops.zeros(0, "uint8", like=codes)


def unpack(ops: "Ops", packed: "Array", bits: int, n: int, dtype: str) -> "Array":
    """``n`` codes as ``dtype``, which must hold ``bits``; the inverse of :func:`pack`."""
    width = -(-n // 8)
    planes = [ops.cast(ops.slice(packed, byte * width, (byte + 1) * width), dtype) for byte in range(bits)]
    codes = [ops.zeros(width, dtype, like=packed) for _ in range(8)]
    for code, byte, shift in _overlaps(bits):
        codes[code] |= _shifted(ops, planes[byte], shift)
    mask = (1 << bits) - 1
    return ops.slice(ops.concat([code & mask for code in codes]), 0, n)


def _shifted(ops: "Ops", x: "Array", up: int) -> "Array":
    return ops.shift_left(x, up) if up > 0 else ops.shift_right(x, -up) if up < 0 else x


def _overlaps(bits: int) -> Iterator[tuple[int, int, int]]:
    """Which of 8 codes lies in which of ``bits`` bytes, and how far the code is shifted down to meet the byte."""
    for code in range(8):
        start = code * bits
        for byte in range(start // 8, -(-(start + bits) // 8)):
            yield code, byte, 8 * byte - start
