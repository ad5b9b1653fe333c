"""The array functions the maths is written in; one implementation per framework, numpy's is the oracle.

No backend is chosen here: a binding passes its own. Arrays are flat (``f32[n]``) unless said otherwise.
A function documented as *donating* an argument may overwrite it; use only what it returns.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from hvd_adaptive.ops.verdicts import Verdict

Array: TypeAlias = Any
"""An array of the backend at hand: ``numpy.ndarray``, ``torch.Tensor`` or, off the host, ``tf.Tensor``."""


class Ops(Protocol):
    """Array functions. Dtypes are spelled as numpy spells them: ``"float32"``."""

    def dtype(self, x: Array) -> str: ...

    def size(self, x: Array) -> int:
        """Number of elements."""

    def nbytes(self, x: Array) -> int:
        """Size in bytes."""

    def from_numpy(self, x: npt.NDArray[Any], like: Array | None = None) -> Array:
        """A copy of ``x`` on the device of ``like``, for which nothing waits."""

    def to_numpy(self, x: Array) -> npt.NDArray[Any]: ...

    def zeros(self, n: int, dtype: str, like: Array) -> Array:
        """``dtype[n]`` of zeros on the device of ``like``."""

    def arange(self, n: int, like: Array) -> Array:
        """``i64[n]``: 0, 1, ... on the device of ``like``."""

    def flatten(self, x: Array) -> Array:
        """``x`` as a contiguous vector in logical (row-major) order, without a copy where possible."""

    def cast(self, x: Array, dtype: str) -> Array:
        """``x`` in ``dtype``, ``x`` itself where it already is."""

    def where(self, mask: Array, x: Array, y: Array) -> Array: ...

    def any(self, mask: Array) -> Verdict: ...

    def all_finite(self, x: Array) -> Verdict:
        """False if any element is NaN or infinite."""

    def starts_with_nan(self, x: Array) -> Verdict:
        """True if ``x`` has a first element and it is NaN."""

    def full_like(self, x: Array, value: float) -> Array: ...

    def slice(self, x: Array, start: int, stop: int) -> Array:
        """A view of ``x[start:stop]``."""

    def set_slice(self, x: Array, start: int, values: Array) -> Array:
        """``x`` with ``values`` written from ``start`` on; donates ``x``."""

    def add_slice(self, x: Array, start: int, values: Array, weight: float = 1.0) -> Array:
        """``x`` with ``weight * values`` added from ``start`` on; donates ``x``."""

    def add_finite(self, x: Array, start: int, values: Array) -> tuple[Array, Verdict]:
        """``x`` with ``values`` added from ``start`` on, and True if all sums are finite; donates ``x``.

        Else ``x`` as it was, good to rounding, and False.
        """

    def scale(self, x: Array, weight: float) -> Array:
        """``weight * x``."""

    def shift_left(self, x: Array, bits: int) -> Array:
        """``x << bits`` of whole numbers; not every framework has the operator."""

    def shift_right(self, x: Array, bits: int) -> Array:
        """``x >> bits``, rounded down."""

    def take(self, x: Array, positions: Array) -> Array:
        """``x[positions]``."""

    def clear(self, x: Array, positions: Array) -> Array:
        """``x`` with zeros at ``positions``; donates ``x``."""

    def scatter_add(self, x: Array, positions: Array, values: Array) -> Array:
        """``x`` with ``values`` added at ``positions``, which must be distinct; donates ``x``."""

    def top_positions(self, x: Array, k: int) -> Array:
        """``i64[k]``: positions of the ``k`` elements of largest magnitude, ascending; exactly ``k`` under ties."""

    def largest_first(self, x: Array) -> Array:
        """``i64[n]``: positions in falling order of magnitude; the earlier one first under ties."""

    def count(self, mask: Array) -> int | Array:
        """How many are true; on a device ``i64[1]``, for it would have to be waited for."""

    def smallest(self, x: Array) -> Array:
        """``f[1]``: the smallest element."""

    def nonzero(self, mask: Array, count: int | None = None) -> Array:
        """``i64[k]``: positions at which ``mask`` is not zero, ascending; ``count`` is ``k`` where it is known beforehand."""

    def ascending(self, positions: Array) -> Array:
        """``positions`` i64[k] in ascending order."""

    def sign(self, x: Array) -> Array:
        """-1, 0 or 1 in the dtype of ``x``."""

    def floor(self, x: Array) -> Array: ...

    def at_most(self, x: Array, limit: float) -> Array:
        """The smaller of each element and ``limit``."""

    def row_max(self, x: Array, width: int) -> Array:
        """``f[ceil(n / width)]``: the largest magnitude of each ``width`` elements in turn."""

    def row_sum(self, x: Array, width: int) -> Array:
        """``f64[ceil(n / width)]``: the sum of each ``width`` elements in turn, in double precision."""

    def row_norm(self, x: Array, width: int) -> Array:
        """``f[ceil(n / width)]``: the Euclidean norm of each ``width`` elements in turn; the largest float where that is less."""

    def repeat(self, x: Array, times: int, n: int) -> Array:
        """``f[n]``: each element ``times`` times; ``x`` itself where it has a single one, which broadcasts."""

    def matrix(self, x: Array, rows: int, columns: int) -> Array:
        """``f[rows, columns]`` in row-major order, filled up with zeros; a view where nothing is missing."""

    def matmul(self, x: Array, y: Array) -> Array: ...

    def transpose(self, x: Array) -> Array: ...

    def orthonormal(self, x: Array) -> Array:
        """Orthonormal columns that span those of ``x`` f[rows, columns], rows >= columns; finite whatever their rank."""

    def uniform(self, n: int, keys: Sequence[tuple[int, int]], like: Array) -> Array:
        """See :func:`hvd_adaptive.ops.mixing.uniform`."""

    def sample(self, k: int, n: int, keys: Sequence[tuple[int, int]], bits: int, like: Array) -> Array:
        """See :func:`hvd_adaptive.ops.mixing.sample`."""

    def levels_of(self, x: Array, scale: Array, width: int, first: int, levels: int, numbers: Array) -> Array:
        """See :func:`hvd_adaptive.ops.mixing.levels_of`."""

    def at_once(self, x: Array) -> int:
        """Elements that a chain of elementwise operations should go over at a time."""

    def pack(self, codes: Array, bits: int) -> Array:
        """``u8[bits * ceil(n / 8)]`` from whole numbers below 2^bits; see :mod:`hvd_adaptive.ops.packing`."""

    def unpack(self, packed: Array, bits: int, n: int, dtype: str) -> Array:
        """The inverse of :meth:`pack`."""

    def encode_positions(self, positions: Array, n: int) -> Array:
        """See :func:`hvd_adaptive.ops.ascending.encode`."""

    def decode_positions(self, coded: Array, k: int, n: int) -> Array:
        """See :func:`hvd_adaptive.ops.ascending.decode`."""

    def to_bfloat16_bits(self, x: Array) -> Array:
        """``i16[n]``: the bits of ``x`` rounded to the nearest bfloat16, ties to even."""

    def from_bfloat16_bits(self, bits: Array, dtype: str) -> Array:
        """The inverse of :meth:`to_bfloat16_bits`."""

    def to_bytes(self, x: Array) -> Array:
        """``u8[nbytes]``: the memory of ``x``, without a copy where possible."""

    def from_bytes(self, raw: Array, dtype: str) -> Array:
        """The inverse of :meth:`to_bytes`."""

    def concat(self, arrays: list[Array]) -> Array:
        """One vector; the single array itself where there is only one."""
