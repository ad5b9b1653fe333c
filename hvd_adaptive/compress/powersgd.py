"""PowerSGD: the gradient as a matrix of low rank, by one step of power iteration.

Contract  D(C(x)) = p p^T M for the matrix M of x and orthonormal p: ||x - D(C(x))|| <= ||x||. Biased, so error feedback is on by
          default.
On wire   p f[rows r] and q = M^T p f[columns r]; the elements themselves where that is no less.
Source    Vogels, Karimireddy, Jaggi 2019, "PowerSGD", arXiv:1905.13727.
Differs   p comes from a QR factorisation, which is finite whatever the rank of M; so is q before it is used, and the first q is
          uniform. Summed, M is a parameter's own matrix (first dimension by the others) and q starts from the last step's. A
          vector, a unit of several parameters, and a chunk of a two-sided exchange, which begins anew each step, are nearly
          square matrices.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from hvd_adaptive import checks
from hvd_adaptive.compress.base import Contraction, ExchangeName, Field, Payload, add_weighted, at_least_single, dtype_bits
from hvd_adaptive.ops import Array, Ops
from hvd_adaptive.prng import Draw, uniform


class Form(NamedTuple):
    """The matrix of a unit, and the rank it is sent with; rank 0 if its factors would not be smaller."""

    rows: int
    columns: int
    rank: int


@dataclass(frozen=True)
class PowerSGD(Contraction):
    """Send the factors of a matrix of low rank.

    Args:
        rank: columns of the factors, >= 1. 1 to 4 is usual.

    Raises:
        ConfigError: if ``rank`` is not a whole number >= 1.
    """

    rank: int
    exchanges: ClassVar[tuple[ExchangeName, ...]] = ("reduce", "two-sided")

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", checks.count("PowerSGD", "rank", self.rank, hint="1 to 4 is usual"))

    def form(self, shape: tuple[int, ...]) -> Form:
        """The matrix of a parameter of this ``shape``: its first dimension by the others, or a nearly square one of a vector."""
        n = math.prod(shape)
        rows = shape[0] if len(shape) > 1 else max(1, math.isqrt(n))
        columns = -(-n // rows)
        return Form(rows, columns, self.rank if self.rank * (rows + columns) < n else 0)

    def first(self, ops: Ops, form: Form, draw: Draw, like: Array) -> Array:
        """``f32[columns, rank]``: where the iteration starts, the same on every rank."""
        numbers = uniform(ops, draw.shared, form.columns * form.rank, like) - 0.5
        return ops.matrix(numbers, form.columns, form.rank)

    def project(self, ops: Ops, matrix: Array, q: Array) -> Array:
        """``p = M q`` f[rows, rank]; q is made orthonormal first, so that one that vanished starts anew."""
        return ops.matmul(matrix, ops.orthonormal(ops.cast(q, ops.dtype(matrix))))

    def encode(self, ops: Ops, x: Array, draw: Draw) -> Payload:
        n, dtype = ops.size(x), ops.dtype(x)
        form = self.form((n,))
        if not form.rank:
            return Payload((Field(x, dtype_bits(dtype)),), n, dtype, n)
        matrix = ops.matrix(at_least_single(ops, x), form.rows, form.columns)
        p = ops.orthonormal(self.project(ops, matrix, self.first(ops, form, draw, x)))
        q = ops.matmul(ops.transpose(matrix), p)
        factors = tuple(Field(ops.flatten(factor), dtype_bits(ops.dtype(factor))) for factor in (p, q))
        return Payload(factors, n, dtype, form.rank * (form.rows + form.columns))

    def decode(self, ops: Ops, payload: Payload, draw: Draw, onto: Array | None = None, weight: float = 1.0) -> Array:
        if len(payload.fields) == 1:
            return add_weighted(ops, payload.fields[0].array, onto, weight)
        form = self.form((payload.n,))
        p = ops.matrix(payload.fields[0].array, form.rows, form.rank)
        q = ops.matrix(payload.fields[1].array, form.columns, form.rank)
        return add_weighted(ops, product(ops, p, q, payload.n, payload.dtype), onto, weight)

    def keep_back(self, ops: Ops, x: Array, payload: Payload, draw: Draw) -> Array:
        return ops.full_like(x, 0.0) if len(payload.fields) == 1 else super().keep_back(ops, x, payload, draw)


def product(ops: Ops, p: Array, q: Array, n: int, dtype: str) -> Array:
    """The vector ``dtype[n]`` of the matrix p q^T."""
    return ops.cast(ops.slice(ops.flatten(ops.matmul(p, ops.transpose(q))), 0, n), dtype)
