"""Gradients that break careless arithmetic, and the way there and back that most tests of methods take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hvd_adaptive.compress.base import Compressor, Payload
from hvd_adaptive.ops import Ops
from hvd_adaptive.prng import Draw, derive, root

NDArray = npt.NDArray[Any]

DTYPES = ("float16", "float32", "float64")
_MOST = 60
LARGEST = {"float16": 7000.0, "float32": float(np.float32(1e30)), "float64": 1e30}
"""Elements beyond which the norm of 60 of them is infinite in float16."""

BAD_FACTORS = [0, 0.5, -1, 0.999, float("nan"), float("inf"), "10", None, True, 1j, [10]]
BAD_COUNTS = [0, -1, 1.5, 2.0, float("nan"), float("inf"), "4", True, 2**30 + 1]


def draw(step: int = 0, rank: int = 0) -> Draw:
    """The streams of one unit."""
    unit = derive(derive(root(11), step), 5)
    return Draw(unit, derive(unit, rank + 1))


def vectors(dtypes: tuple[str, ...] = DTYPES, least: int = 1, most: int = _MOST) -> st.SearchStrategy[NDArray]:
    """f[n] with zeros of both signs, ties, subnormals, elements that nearly overflow, and usual ones."""

    def of(dtype: str) -> st.SearchStrategy[NDArray]:
        width = int(dtype[5:])
        smallest = float(np.finfo(dtype).smallest_subnormal)
        special = [0.0, -0.0, 1.0, -1.0, smallest, -smallest, LARGEST[dtype], -LARGEST[dtype]]
        if width > 16:
            special += [float(np.dtype(dtype).type(1e-40))]
        usual = st.floats(-100, 100, width=width) if width == 16 else st.floats(-7000, 7000, width=width)
        return hnp.arrays(dtype, st.integers(least, most), elements=st.sampled_from(special) | usual)

    return st.sampled_from(dtypes).flatmap(of)


def usual_vectors(
    dtypes: tuple[str, ...] = ("float32", "float64"), least: int = 1, most: int = _MOST
) -> st.SearchStrategy[NDArray]:
    """f[n] of thousandths, whose arithmetic neither vanishes nor overflows, with zeros and ties."""
    return st.sampled_from(dtypes).flatmap(
        lambda dtype: hnp.arrays(dtype, st.integers(least, most), elements=st.integers(-5000, 5000).map(lambda i: i / 1000))
    )


class Sent(NamedTuple):
    """What became of a vector."""

    payload: Payload
    fields: list[NDArray]
    bits: list[int]
    y: NDArray


def sent(ops: Ops, method: Compressor, x: NDArray, streams: Draw | None = None) -> Sent:
    """``x`` encoded and decoded; checks that it was left alone, and that codes fit their bits."""
    streams = draw() if streams is None else streams
    gradient = ops.from_numpy(x)
    payload = method.encode(ops, gradient, streams)
    fields = [ops.to_numpy(field.array).copy() for field in payload.fields]
    y = ops.to_numpy(method.decode(ops, payload, streams)).copy()
    np.testing.assert_array_equal(ops.to_numpy(gradient), x)
    assert (payload.n, payload.dtype, y.dtype, y.shape) == (x.size, x.dtype.name, x.dtype, x.shape)
    for field, array in zip(payload.fields, fields, strict=True):
        if array.dtype.kind == "f":
            assert field.bits == 8 * array.dtype.itemsize
        elif array.dtype != "int16":  # bfloat16's bits, sign and all
            assert np.all((array >= 0) & (array < 2**field.bits))
    return Sent(payload, fields, [field.bits for field in payload.fields], y)


def positions_sent(result: Sent) -> list[int]:
    """Of a method that keeps elements: ascending positions; checks that they arrive as they were and stand where they stood."""
    values, positions = result.fields
    assert np.all(np.diff(positions) > 0)
    assert positions.size == values.size == result.payload.kept
    assert result.payload.fields[1].below == result.payload.n
    expected = np.zeros(result.payload.n, values.dtype)
    expected[positions] = values
    np.testing.assert_array_equal(result.y, expected)
    return positions.tolist()


def positions_bytes(k: int, n: int) -> int:
    """Of k ascending positions among n: 8 in as many bytes as each has low bits, and flags for what those leave."""
    low = max((bits for bits in range(64) if k * 2**bits <= n), default=0)
    return low * ((k + 7) // 8) + (k + (n - 1) // 2**low + 7) // 8


def assert_none_smaller_than_one_left(x: NDArray, positions: list[int]) -> None:
    """The smallest magnitude that was kept is no less than the largest that was not."""
    left = np.delete(np.abs(x), positions)
    if positions and left.size:
        assert np.abs(x[positions]).min() >= left.max()


def expected_levels(x: NDArray, norms: NDArray, levels: int, uniforms: list[float]) -> tuple[NDArray, NDArray]:
    """ceil(levels |x| / norm - u), which is that height rounded up with the chance of its fraction; and where that is certain.

    In doubles; float32's three roundings of a height move it by less than the margin, and within that either code is right.
    """
    safe = np.where(norms > 0, norms, 1.0).astype(np.float64)
    height = np.abs(x.astype(np.float64)) / safe * levels
    exact = height - np.array(uniforms)
    certain = np.abs(exact - np.round(exact)) > 8 * 2.0**-24 * np.maximum(height, 1)
    return np.ceil(exact), certain
