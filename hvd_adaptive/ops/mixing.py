"""Random numbers of positions, spelled out in array functions: see :mod:`hvd_adaptive.prng`, which also tells their source."""

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hvd_adaptive.ops.blocks import BLOCK

if TYPE_CHECKING:
    from hvd_adaptive.ops import Array, Ops

MASK = 0xFFFFFFFF


def mix(x: Any, shift: Callable[[Any, int], Any] = operator.rshift) -> Any:
    """A bijection of 32 bits that looks random; ``x`` is an int or, with its ``shift``, an ``i64`` array of values below 2^32."""
    x = x ^ shift(x, 16)
    x = (x * 0x21F0AAAD) & MASK
    x = x ^ shift(x, 15)
    x = (x * 0x735A2D97) & MASK
    return x ^ shift(x, 15)


def uniform(ops: "Ops", n: int, keys: Sequence[tuple[int, int]], like: "Array") -> "Array":
    """``f32[n]``, each a multiple of 2^-24 in [0, 1), on the device of ``like``: :data:`BLOCK` in turn under each of ``keys``."""
    shift = ops.shift_right
    high, low = (ops.repeat(ops.from_numpy(np.array(half, np.int64), like), BLOCK, n) for half in zip(*keys, strict=True))
    words = mix(mix((ops.arange(n, like) & (BLOCK - 1)) ^ high, shift) ^ low, shift)
    return ops.scale(ops.cast(shift(words, 8), "float32"), 2.0**-24)


def permute(ops: "Ops", x: "Array", keys: Sequence[tuple[int, int]], bits: int) -> "Array":
    """A permutation of ``range(2**bits)``, in a round for each key, applied to each element of ``x`` i64[n]."""
    low_bits = (bits + 1) // 2
    low_mask, high_mask = (1 << low_bits) - 1, (1 << (bits - low_bits)) - 1
    shift = ops.shift_right
    high, low = shift(x, low_bits), x & low_mask
    for first, second in keys:
        low = low ^ (mix(high ^ first, shift) & low_mask)
        high = high ^ (mix(low ^ second, shift) & high_mask)
    return ops.shift_left(high, low_bits) | low


def sample(ops: "Ops", k: int, n: int, keys: Sequence[tuple[int, int]], bits: int, like: "Array") -> "Array":
    """``i64[k]``: the first ``k`` images of a permutation of ``range(n)``, n <= 2^bits, on the device of ``like``.

    It is that of ``range(2**bits)``, walked on from what lies outside until that lies inside.
    """
    positions = permute(ops, ops.arange(k, like), keys, bits)
    outside = ops.nonzero(positions >= n)
    while ops.size(outside):  # under half of the domain lies outside, so this ends after a few turns
        moved = permute(ops, ops.take(positions, outside), keys, bits)
        positions = ops.scatter_add(ops.clear(positions, outside), outside, moved)
        outside = ops.take(outside, ops.nonzero(moved >= n))
    return positions


def spread(ops: "Ops", scale: "Array", width: int, first: int, n: int) -> "Array":
    """``f[n]``: each of ``scale`` for ``width`` elements in turn, less the ``first`` of them; ``f[1]`` if there is one only."""
    rows = ops.size(scale)
    return scale if rows == 1 else ops.slice(ops.repeat(scale, width, rows * width), first, first + n)


def levels_of(ops: "Ops", x: "Array", scale: "Array", width: int, first: int, levels: int, numbers: "Array") -> "Array":
    """``f[n]``, from -levels to levels: ``levels * x / scale``, rounded up where its fraction is above the random number.

    Args:
        x: f[n].
        scale: none is 0; each is that of ``width`` elements in turn.
        width: as above.
        first: the place of the first element of ``x`` among those that the first scale is for.
        levels: between 0 and a scale.
        numbers: ``f32[n]``.
    """
    height = abs(x) / spread(ops, scale, width, first, ops.size(x)) * levels
    below = ops.floor(height)
    up = ops.cast(numbers, ops.dtype(height)) < height - below
    return ops.at_most(below + ops.cast(up, ops.dtype(height)), levels) * ops.sign(x)
