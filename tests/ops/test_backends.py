"""All backends against expressions that use neither: plain numpy, struct's bytes, and a table of all bfloat16 values."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hvd_adaptive.ops import mixing
from hvd_adaptive.ops.blocks import BLOCK
from hvd_adaptive.ops.torch_ops import TorchOps

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
ALL = (*FLOATS, *INTEGERS)


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal dtype, shape and bits, all NaNs being one."""
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(actual[expected == 0]), np.signbit(expected[expected == 0]))


def vectors(dtypes=ALL, min_size=0, max_size=40):
    """Vectors of any bits: NaN, infinities, subnormals and negative zero among them."""
    return st.sampled_from(dtypes).flatmap(lambda d: hnp.arrays(d, st.integers(min_size, max_size)))


def finite_vectors(min_size=1, max_size=40):
    """Float vectors whose sums and small multiples do not overflow."""
    return st.sampled_from(FLOATS).flatmap(
        lambda d: hnp.arrays(
            d,
            st.integers(min_size, max_size),
            elements=st.floats(-1000, 1000, width=np.dtype(d).itemsize * 8, allow_nan=False),
        )
    )


@given(x=vectors())
def test_numpy_arrays_come_back_as_they_went_in(ops, x):
    there = ops.from_numpy(x)
    assert (ops.dtype(there), ops.size(there), ops.nbytes(there)) == (x.dtype.name, x.size, len(x.tobytes()))
    same(ops.to_numpy(there), x)


def test_from_numpy_copies(ops):
    x = np.arange(4.0)
    there = ops.from_numpy(x, like=ops.from_numpy(x))
    x[:] = -1
    same(ops.to_numpy(there), np.array([0.0, 1, 2, 3]))


@pytest.mark.parametrize("dtype", ALL)
def test_zeros_and_arange(ops, dtype):
    like = ops.from_numpy(np.ones(2, dtype))
    same(ops.to_numpy(ops.zeros(3, dtype, like)), np.array([0, 0, 0], dtype))
    same(ops.to_numpy(ops.arange(4, like)), np.array([0, 1, 2, 3], np.int64))
    assert ops.size(ops.zeros(0, dtype, like)) == ops.size(ops.arange(0, like)) == 0


def _layouts(ops):
    """The same kind of array in every memory layout, with its elements in logical order."""
    base = np.arange(24, dtype=np.float32)
    block = ops.from_numpy(base)
    yield "row-major", block.reshape(2, 3, 4), base
    yield "scalar", block.reshape(24)[5:6].reshape(()), base[5:6]
    yield "empty", block[:0].reshape(0, 3), base[:0]
    yield "transposed", block.reshape(6, 4).T, np.array([4.0 * i + j for j in range(4) for i in range(6)], np.float32)
    yield "matrix of columns", block.reshape(6, 4)[:, ::2], np.array([4.0 * i + j for i in range(6) for j in (0, 2)], np.float32)
    yield "strided vector", block[::3], np.array([0, 3, 6, 9, 12, 15, 18, 21], np.float32)
    repeated = np.broadcast_to(base[7:8], 5) if isinstance(block, np.ndarray) else block[7:8].expand(5)
    yield "repeated", repeated, np.full(5, 7.0, np.float32)


def test_flatten_gives_a_contiguous_vector_in_logical_order(ops):
    wrong = []
    for layout, x, expected in _layouts(ops):
        flat = ops.flatten(x)
        same(ops.to_numpy(flat), expected)
        contiguous = flat.flags["C_CONTIGUOUS"] if isinstance(flat, np.ndarray) else flat.is_contiguous()
        wrong += [] if contiguous else [layout]
    assert not wrong


def test_flatten_does_not_copy_a_contiguous_array(ops):
    x = ops.from_numpy(np.zeros((2, 3), np.float32))
    ops.flatten(x)[4] = 1.0
    assert float(x[1, 1]) == 1.0


def test_torch_flatten_leaves_the_graph():
    assert not TorchOps().flatten(torch.ones(2, 2, requires_grad=True)).requires_grad


@given(x=hnp.arrays(np.float64, st.integers(0, 20)), dtype=st.sampled_from(FLOATS))
def test_cast_between_floats(ops, x, dtype):
    with np.errstate(all="ignore"):
        expected = x.astype(dtype)
    same(ops.to_numpy(ops.cast(ops.from_numpy(x), dtype)), expected)
    same(ops.to_numpy(ops.cast(ops.from_numpy(expected), "float64")), expected.astype(np.float64))


@pytest.mark.parametrize("dtype", ALL)
def test_cast_returns_the_array_itself_where_nothing_changes(ops, dtype):
    x = ops.from_numpy(np.ones(3, dtype))
    assert ops.cast(x, dtype) is x


def test_cast_of_positions(ops):
    x = ops.from_numpy(np.array([0, 5, 2**31 - 1], np.int64))
    same(ops.to_numpy(ops.cast(x, "int32")), np.array([0, 5, 2147483647], np.int32))


@given(x=hnp.arrays(np.int64, 9, elements=st.integers(-5, 5)), y=hnp.arrays(np.int64, 9, elements=st.integers(-5, 5)))
def test_where_and_any(ops, x, y):
    mask = ops.from_numpy(x) >= 2
    expected = np.array([a if a >= 2 else b for a, b in zip(x.tolist(), y.tolist(), strict=True)])
    same(ops.to_numpy(ops.where(mask, ops.from_numpy(x), ops.from_numpy(y))), expected)
    assert ops.any(mask) is any(a >= 2 for a in x.tolist())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [1, 2, 7, 16, 65, 1000])
def test_all_finite_finds_one_bad_element_anywhere(ops, dtype, bad, n):
    for position in {0, n // 2, n - 1}:
        x = np.linspace(-1, 1, n).astype(dtype)
        x[position] = bad
        assert ops.all_finite(ops.from_numpy(x)) is False
        assert ops.starts_with_nan(ops.from_numpy(x)) is bool(position == 0 and np.isnan(bad))


@pytest.mark.parametrize("dtype", FLOATS)
def test_extreme_but_finite_elements_are_finite(ops, dtype):
    limits = np.finfo(dtype)
    x = np.array([limits.max, limits.min, limits.smallest_subnormal, -0.0] * 20, dtype)
    assert ops.all_finite(ops.from_numpy(x)) is True
    assert ops.starts_with_nan(ops.from_numpy(x)) is False


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_empty_vector_is_finite(ops, dtype):
    nothing = ops.from_numpy(np.zeros(0, dtype))
    assert ops.all_finite(nothing) is True
    assert ops.starts_with_nan(nothing) is False


def test_starts_with_nan_looks_at_the_first_element_only(ops):
    assert ops.starts_with_nan(ops.from_numpy(np.array([1.0, np.nan]))) is False
    assert ops.starts_with_nan(ops.from_numpy(np.array([np.inf, 1.0]))) is False
    assert ops.starts_with_nan(ops.from_numpy(np.array([np.nan, 1.0]))) is True


@pytest.mark.parametrize(("dtype", "value"), [(d, v) for d in FLOATS for v in (0.0, -2.5, np.nan)] + [("int32", 7)])
def test_full_like(ops, dtype, value):
    x = ops.from_numpy(np.ones(3, dtype))
    same(ops.to_numpy(ops.full_like(x, value)), np.array([value] * 3, dtype))
    same(ops.to_numpy(x), np.ones(3, dtype))


def test_slice_is_a_view(ops):
    x = ops.from_numpy(np.zeros(6, np.float32))
    view = ops.slice(x, 2, 4)
    view[1] = 9.0
    same(ops.to_numpy(x), np.array([0, 0, 0, 9, 0, 0], np.float32))
    assert ops.size(view) == 2


@st.composite
def a_vector_and_a_part(draw):
    """A vector, where a part begins, and values for it."""
    x = draw(finite_vectors())
    start = draw(st.integers(0, x.size))
    stop = draw(st.integers(start, x.size))
    values = draw(hnp.arrays(x.dtype, stop - start, elements=st.floats(-100, 100, width=x.dtype.itemsize * 8, allow_nan=False)))
    return x, start, values


@given(case=a_vector_and_a_part())
def test_set_slice(ops, case):
    x, start, values = case
    given_values = ops.from_numpy(values)
    result = ops.set_slice(ops.from_numpy(x), start, given_values)
    same(ops.to_numpy(result), np.concatenate([x[:start], values, x[start + values.size :]]))
    same(ops.to_numpy(given_values), values)


@given(case=a_vector_and_a_part(), weight=st.sampled_from([1.0, -1.0, 0.5, 2.0, -0.25]))
def test_add_slice(ops, case, weight):
    """The weights are powers of two, so that there is one rounding only, the sum's."""
    x, start, values = case
    given_values = ops.from_numpy(values)
    result = ops.add_slice(ops.from_numpy(x), start, given_values, weight)
    weighted = np.array([weight * float(v) for v in values], np.float64)
    if not np.array_equal(weighted.astype(x.dtype).astype(np.float64), weighted):
        return  # a subnormal lost its last bit, so there was a second rounding
    expected = x.astype(np.float64)
    expected[start : start + values.size] += weighted
    same(ops.to_numpy(result), expected.astype(x.dtype))
    same(ops.to_numpy(given_values), values)


def test_add_slice_takes_values_of_another_float(ops):
    x = ops.from_numpy(np.array([1.0, 2.0, 3.0], np.float32))
    for dtype, expected in (("float16", [1, 2.5, 3]), ("float64", [1, 3, 3]), ("float32", [1, 3.5, 3])):
        x = ops.add_slice(x, 1, ops.from_numpy(np.array([0.5], dtype)))
        same(ops.to_numpy(x), np.array(expected, np.float32))


@given(x=finite_vectors(min_size=0))
def test_the_largest_come_first_and_of_equal_ones_the_first(ops, x):
    x = np.concatenate([x, -x[:3], x[5:9]])
    there = ops.from_numpy(x)
    places = sorted(range(x.size), key=lambda place: (-abs(float(x[place])), place))
    same(ops.to_numpy(ops.largest_first(there)), np.array(places, np.int64))
    same(ops.to_numpy(there), x)


@given(case=a_vector_and_a_part())
def test_add_finite_adds(ops, case):
    x, start, values = case
    given_values = ops.from_numpy(values)
    result, finite = ops.add_finite(ops.from_numpy(x), start, given_values)
    expected = x.astype(np.float64)
    expected[start : start + values.size] += values
    assert finite
    same(ops.to_numpy(result), expected.astype(x.dtype))
    same(ops.to_numpy(given_values), values)


@pytest.mark.parametrize("values_dtype", ["same", "float16"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, "largest"])
@pytest.mark.parametrize("place", [0, 1023, 1024, 2500, 3499])
def test_add_finite_adds_nothing_where_a_sum_is_not_finite(ops, dtype, values_dtype, bad, place):
    """Whatever came before the bad one, which may be finite by itself."""
    x = np.arange(4000).astype(dtype)
    values = np.arange(3500).astype(dtype if values_dtype == "same" else values_dtype)
    values[place] = np.finfo(values.dtype).max if bad == "largest" else bad
    if bad == "largest":
        x[200 + place] = np.finfo(dtype).max
        if values.dtype != x.dtype:
            values[place] = np.inf  # the largest float16 is lost in the rounding of the largest float32
    result, finite = ops.add_finite(ops.from_numpy(x), 200, ops.from_numpy(values))
    assert not finite
    same(ops.to_numpy(result), x)  # these whole numbers are added and taken out again without rounding


def test_add_finite_takes_values_of_another_float(ops):
    x = ops.from_numpy(np.array([1.0, 2.0, 3.0], np.float32))
    x, finite = ops.add_finite(x, 1, ops.from_numpy(np.array([0.5], np.float16)))
    assert finite
    same(ops.to_numpy(x), np.array([1, 2.5, 3], np.float32))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("weight", [1 / 3, -7.3, 1.0])
def test_weights_cost_no_more_than_a_rounding_for_each_step(ops, dtype, weight):
    """Against exact fractions: one rounding each of the weight, the product and the sum."""
    x, y = np.random.default_rng(5).standard_normal((2, 100)).astype(dtype)
    scaled = ops.to_numpy(ops.scale(ops.from_numpy(x), weight))
    added = ops.to_numpy(ops.add_slice(ops.from_numpy(x), 0, ops.from_numpy(y), weight))
    assert scaled.dtype == added.dtype == np.dtype(dtype)
    unit, least = Fraction(float(np.finfo(dtype).eps)) / 2, Fraction(float(np.finfo(dtype).smallest_subnormal))
    exact = [Fraction(float(v)) for v in x], [Fraction(weight) * Fraction(float(v)) for v in y]
    for got, value in zip(scaled.tolist(), exact[0], strict=True):
        product = Fraction(weight) * value
        assert abs(Fraction(got) - product) <= Fraction(201, 100) * unit * abs(product) + least
    for got, value, product in zip(added.tolist(), *exact, strict=True):
        bound = Fraction(201, 100) * unit * abs(product) + Fraction(101, 100) * unit * abs(value + product) + 2 * least
        assert abs(Fraction(got) - value - product) <= bound


@given(x=finite_vectors())
def test_scale_by_powers_of_two(ops, x):
    there = ops.from_numpy(x)
    same(ops.to_numpy(ops.scale(there, -2.0)), np.array([-2 * float(v) for v in x], x.dtype))
    same(ops.to_numpy(there), x)


@st.composite
def a_vector_and_positions(draw):
    """A vector, distinct positions in it in any order, and as many values."""
    x = draw(finite_vectors())
    positions = draw(st.lists(st.integers(0, x.size - 1), unique=True).map(lambda p: np.array(p, np.int64)))
    return x, positions, np.arange(1, positions.size + 1).astype(x.dtype)


@given(case=a_vector_and_positions(), dtype=st.sampled_from(["int32", "int64"]))
def test_take_clear_and_scatter_add(ops, case, dtype):
    x, positions, values = case
    where = ops.from_numpy(positions.astype(dtype))
    there, add = ops.from_numpy(x), ops.from_numpy(values)

    same(ops.to_numpy(ops.take(there, where)), np.array([x[p] for p in positions], x.dtype))
    same(ops.to_numpy(there), x)

    cleared = x.copy()
    for p in positions:
        cleared[p] = 0
    same(ops.to_numpy(ops.clear(ops.from_numpy(x), where)), cleared)

    summed = x.copy()
    for p, value in zip(positions, values, strict=True):
        summed[p] = x.dtype.type(float(x[p]) + float(value))
    same(ops.to_numpy(ops.scatter_add(ops.from_numpy(x), where, add)), summed)
    same(ops.to_numpy(where), positions.astype(dtype))
    same(ops.to_numpy(add), values)


@given(x=finite_vectors(), data=st.data())
def test_top_positions_hold_the_largest_magnitudes(ops, x, data):
    k = data.draw(st.integers(1, x.size))
    positions = ops.to_numpy(ops.top_positions(ops.from_numpy(x), k))
    assert positions.dtype == np.int64
    assert len(set(positions.tolist())) == positions.size == k
    magnitudes = sorted((abs(float(v)) for v in x), reverse=True)
    assert sorted((abs(float(x[p])) for p in positions), reverse=True) == magnitudes[:k]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [0.0, -3.0])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 2), (8, 7), (8, 8), (100, 37), (5, 9)])
def test_top_positions_are_exactly_k_under_ties(ops, dtype, value, n, k):
    positions = ops.to_numpy(ops.top_positions(ops.from_numpy(np.full(n, value, dtype)), k)).tolist()
    assert len(positions) == len(set(positions)) == min(n, k)
    assert all(0 <= p < n for p in positions)


def test_operations_that_donate_nothing_leave_their_input_alone(ops):
    original = np.array([3.0, -1.0, 2.0, 0.5], np.float32)
    x = ops.from_numpy(original)
    ops.top_positions(x, 2)
    ops.scale(x, 3.0)
    ops.cast(x, "float16")
    ops.to_bfloat16_bits(x)
    ops.full_like(x, 9.0)
    ops.all_finite(x)
    ops.concat([x, x])
    same(ops.to_numpy(x), original)


# ---- selections and rows ---------------------------------------------------------------------------------------------------


@given(x=hnp.arrays(np.int64, st.integers(0, 30), elements=st.integers(-2, 2)))
def test_nonzero_gives_positions_in_order(ops, x):
    found = ops.to_numpy(ops.nonzero(ops.from_numpy(x) > 0))
    assert found.dtype == np.int64
    assert found.shape == (sum(v > 0 for v in x.tolist()),)
    assert found.tolist() == [place for place, value in enumerate(x.tolist()) if value > 0]


@given(x=finite_vectors())
def test_sign_floor_and_at_most(ops, x):
    there = ops.from_numpy(x)
    assert ops.to_numpy(ops.floor(there)).tolist() == [math.floor(float(v)) for v in x]
    assert ops.dtype(ops.floor(there)) == x.dtype.name
    assert ops.to_numpy(ops.sign(there)).tolist() == [(v > 0) - (v < 0) for v in x.tolist()]
    assert ops.dtype(ops.sign(there)) == x.dtype.name
    for limit in (-1.5, 0.0, 20.0):
        capped = ops.to_numpy(ops.at_most(there, limit))
        assert capped.dtype == x.dtype
        assert capped.tolist() == [min(float(v), limit) for v in x]
    same(ops.to_numpy(there), x)


WIDTHS = [1, 2, 3, 7, 8, 100]


def rows(x, width):
    """``x`` in pieces of ``width``, the last one maybe shorter."""
    return [x[start : start + width] for start in range(0, x.size, width)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 23, 100, 101])
def test_row_max_sum_and_norm(ops, dtype, width, n):
    """Of what is left over in the last row too."""
    x = np.random.default_rng([n, width]).uniform(-1, 1, n).astype(dtype)
    magnitudes, wide = np.abs(x), x.astype(np.float64)
    largest = ops.to_numpy(ops.row_max(ops.from_numpy(magnitudes), width))
    same(largest, np.array([row.max() for row in rows(magnitudes, width)], dtype))
    eps = float(np.finfo(dtype).eps)
    sums = ops.to_numpy(ops.row_sum(ops.from_numpy(x), width))
    assert (sums.dtype, sums.size) == (np.float64, -(-n // width))
    expected = np.array([math.fsum(row.tolist()) for row in rows(wide, width)])
    rounding = min(width, n) * 2.0**-52
    assert np.all(np.abs(sums - expected) <= rounding * np.array([np.abs(row).sum() for row in rows(wide, width)]))
    norms = ops.to_numpy(ops.row_norm(ops.from_numpy(x), width))
    assert (norms.dtype, norms.size) == (np.dtype(dtype), -(-n // width))
    expected = np.array([math.sqrt(math.fsum(v * v for v in row.tolist())) for row in rows(wide, width)])
    np.testing.assert_allclose(norms.astype(np.float64), expected, rtol=max(eps, 64 * 2.0**-52), atol=0)


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 1e30), ("float32", 1e-30), ("float32", 1e-44), ("float16", 4e4), ("float16", 1e-6)]
    + [("float64", size) for size in (1e30, 1e200, 1e-200, 1e-300)]
)  # fmt: skip
def test_a_norm_neither_overflows_nor_vanishes_on_its_way(ops, dtype, size):
    """3 and 4 make 5, whose square may not be a float. A subnormal's last bit may be lost."""
    x = (np.array([3.0, -4.0, 0.0, 0.0, 0.0, 12.0, 5.0]) / 13 * size).astype(dtype)
    found = ops.to_numpy(ops.row_norm(ops.from_numpy(x), 3)).tolist()
    exact = [math.hypot(*row.astype(np.float64).tolist()) for row in rows(x, 3)]
    least = float(np.finfo(dtype).smallest_subnormal)
    for value, expected in zip(found, exact, strict=True):
        assert abs(value - expected) <= float(np.finfo(dtype).eps) * expected + least
    assert found[0] > 0


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_norm_beyond_the_largest_float_is_the_largest(ops, dtype):
    most = np.finfo(dtype).max
    found = ops.to_numpy(ops.row_norm(ops.from_numpy(np.array([most, -most, most, 0, 0, 0], dtype)), 3))
    same(found, np.array([most, 0], dtype))


@pytest.mark.parametrize(("size", "times", "n"), [(3, 4, 12), (3, 4, 9), (3, 4, 10), (2, 1, 2), (5, 2, 9)])
def test_repeat(ops, size, times, n):
    x = np.arange(1.0, size + 1).astype(np.float32)
    expected = [x[place // times] for place in range(n)]
    same(ops.to_numpy(ops.repeat(ops.from_numpy(x), times, n)), np.array(expected, np.float32))


def test_a_single_element_is_not_repeated(ops):
    x = ops.from_numpy(np.array([7.0]))
    assert ops.repeat(x, 100, 37) is x


@pytest.mark.parametrize(("n", "rows", "columns"), [(6, 2, 3), (5, 2, 3), (1, 3, 3), (4, 2, 3), (4, 4, 1), (4, 1, 4)])
def test_a_matrix_is_filled_up_with_zeros(ops, n, rows, columns):
    x = np.arange(1.0, n + 1)
    there = ops.from_numpy(x)
    expected = [[x[i * columns + j] if i * columns + j < n else 0.0 for j in range(columns)] for i in range(rows)]
    matrix = ops.matrix(there, rows, columns)
    same(ops.to_numpy(matrix), np.array(expected))
    if n == rows * columns:  # a view
        matrix[0, 0] = 99.0
        assert float(there[0]) == 99.0
    else:
        same(ops.to_numpy(there), x)


def test_matmul_and_transpose(ops):
    a, b = ops.matrix(ops.from_numpy(np.arange(6.0)), 2, 3), ops.matrix(ops.from_numpy(np.arange(12.0) - 3), 3, 4)
    product = [[sum((3 * i + k) * (4 * k + j - 3) for k in range(3)) for j in range(4)] for i in range(2)]
    same(ops.to_numpy(ops.matmul(a, b)), np.array(product, np.float64))
    same(ops.to_numpy(ops.flatten(ops.transpose(a))), np.array([0.0, 3, 1, 4, 2, 5]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 1), (5, 5), (40, 3), (257, 8)])
def test_orthonormal_columns_span_the_given_ones(ops, dtype, rows, columns):
    """Q^T Q = I, and what Q Q^T leaves of the columns is rounding."""
    x = np.random.default_rng([rows, columns]).standard_normal((rows, columns)).astype(dtype)
    found = ops.orthonormal(ops.from_numpy(x))
    q = ops.to_numpy(found).astype(np.float64)
    eps = float(np.finfo(dtype).eps)
    assert (q.shape, ops.dtype(found)) == (x.shape, dtype)
    assert np.abs(q.T @ q - np.eye(columns)).max() <= 20 * columns * eps
    assert np.abs(q @ (q.T @ x) - x).max() <= 20 * columns * eps * np.linalg.norm(x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", ["zero", "twins", "one column zero", "huge", "tiny"])
def test_orthonormal_is_finite_whatever_the_rank(ops, dtype, case):
    x = np.random.default_rng(4).standard_normal((12, 3)).astype(dtype)
    x = {
        "zero": np.zeros_like(x),
        "twins": x[:, [0, 0, 1]],
        "one column zero": x * np.array([1, 0, 1], dtype),
        "huge": x * np.dtype(dtype).type(1e18),
        "tiny": x * np.dtype(dtype).type(1e-30),
    }[case]
    q = ops.to_numpy(ops.orthonormal(ops.from_numpy(x))).astype(np.float64)
    eps = float(np.finfo(dtype).eps)
    assert np.isfinite(q).all()
    assert np.abs(q.T @ q - np.eye(3)).max() <= 100 * eps
    assert np.abs(q @ (q.T @ x) - x).max() <= 100 * eps * np.abs(x).max()


# ---- bfloat16 --------------------------------------------------------------------------------------------------------------

_PATTERNS = np.arange(0x7F80, dtype=np.int64)
"""The bits of every finite bfloat16 >= 0, in rising order of value."""
_VALUES = np.where(_PATTERNS < 0x80, np.ldexp(_PATTERNS, -133), np.ldexp(0x80 + _PATTERNS % 0x80, _PATTERNS // 0x80 - 134))
"""What they mean, from sign, exponent and fraction."""


def nearest_bfloat16(x: np.ndarray) -> np.ndarray:
    """The bits of the nearest bfloat16, the even one of two, by looking at all of them; x is float32 and no NaN."""
    magnitude = np.abs(x.astype(np.float64))
    ladder = np.append(_VALUES, 2.0**128)  # where the next value would be, stands infinity
    above = np.clip(np.searchsorted(ladder, magnitude, side="left"), 1, ladder.size - 1)
    below = above - 1
    middle = (ladder[below] + ladder[above]) / 2  # exact
    even = np.where(below % 2 == 0, below, above)
    bits = np.where(magnitude < middle, below, np.where(magnitude > middle, above, even))
    return (bits | np.where(np.signbit(x), 0x8000, 0)).astype(np.uint16)


def hard_to_round() -> np.ndarray:
    """float32 numbers just below, at and above every rounding boundary of bfloat16, of both signs; no NaN."""
    high = np.arange(0x10000, dtype=np.uint32)
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = ((high[:, None] << np.uint32(16)) | low[None, :]).reshape(-1).view(np.float32)
    return x[~np.isnan(x)]


def test_bfloat16_rounds_to_the_nearest_and_to_even(ops):
    x = hard_to_round()
    bits = ops.to_bfloat16_bits(ops.from_numpy(x))
    assert ops.dtype(bits) == "int16"
    np.testing.assert_array_equal(ops.to_numpy(bits).view(np.uint16), nearest_bfloat16(x))


def test_bfloat16_by_hand(ops):
    table = (
        (1.0, 0x3F80),
        (-2.0, 0xC000),
        (1.0 + 2.0**-8, 0x3F80),  # halfway, the even one is below
        (1.0 + 3 * 2.0**-8, 0x3F82),  # halfway, the even one is above
        (float(np.finfo(np.float32).max), 0x7F80),  # nearer to what would follow the largest
        (2.0**-133, 0x0001),  # the smallest subnormal
        (2.0**-134, 0x0000),  # half of it
        (float("-inf"), 0xFF80),
        (0.0, 0x0000),
        (-0.0, 0x8000),
    )
    numbers, expected = zip(*table, strict=True)
    bits = ops.to_bfloat16_bits(ops.from_numpy(np.array(numbers, np.float32)))
    assert ops.to_numpy(bits).view(np.uint16).tolist() == list(expected)


@given(x=hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32, allow_nan=False)))
def test_bfloat16_is_torchs(ops, x):
    expected = torch.tensor(x).to(torch.bfloat16).view(torch.int16).numpy()
    same(ops.to_numpy(ops.to_bfloat16_bits(ops.from_numpy(x))), expected)


def test_bfloat16_keeps_every_nan_a_nan(ops):
    patterns = [0x7F800001, 0x7F80FFFF, 0x7FFFFFFF, 0x7FFF8000, 0x7FC00000, 0xFF800001, 0xFFFFFFFF, 0xFFFF8000, 0xFFC00000]
    x = ops.from_numpy(np.array(patterns, np.uint32).view(np.float32))
    for dtype in ("float32", "float64"):
        back = ops.from_bfloat16_bits(ops.to_bfloat16_bits(ops.cast(x, dtype)), dtype)
        assert np.isnan(ops.to_numpy(back)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_bfloat16_decodes_to_its_value_and_back(ops, dtype):
    bits = np.concatenate([_PATTERNS, _PATTERNS | 0x8000]).astype(np.uint16)
    values = ops.from_bfloat16_bits(ops.from_numpy(bits.view(np.int16)), dtype)
    same(ops.to_numpy(values), np.concatenate([_VALUES, -_VALUES]).astype(dtype))
    np.testing.assert_array_equal(ops.to_numpy(ops.to_bfloat16_bits(values)).view(np.uint16), bits)


def test_bfloat16_of_wider_and_narrower_floats(ops):
    x = np.array([1.5, -0.1, 1e300, -1e300, 1e-300, np.inf, 65504.0])
    bits = ops.to_numpy(ops.to_bfloat16_bits(ops.from_numpy(x))).view(np.uint16).tolist()
    assert bits == [0x3FC0, 0xBDCD, 0x7F80, 0xFF80, 0x0000, 0x7F80, 0x4780]
    small = ops.from_numpy(np.array([1.5, 65504.0, 2.0**-24], np.float16))
    back = ops.from_bfloat16_bits(ops.to_bfloat16_bits(small), "float32")
    same(ops.to_numpy(back), np.array([1.5, 65536.0, 2.0**-24], np.float32))


# ---- bytes -----------------------------------------------------------------------------------------------------------------


@given(x=vectors(min_size=1))
def test_bytes_are_the_memory_and_come_back(ops, x):
    raw = ops.to_bytes(ops.from_numpy(x))
    assert ops.dtype(raw) == "uint8"
    assert ops.to_numpy(raw).tobytes() == x.tobytes()
    back = ops.to_numpy(ops.from_bytes(raw, x.dtype.name))
    assert (back.dtype, back.tobytes()) == (x.dtype, x.tobytes())


@pytest.mark.parametrize("dtype", ALL)
def test_bytes_of_nothing(ops, dtype):
    raw = ops.to_bytes(ops.zeros(0, dtype, like=ops.from_numpy(np.ones(1))))
    back = ops.from_bytes(raw, dtype)
    assert (ops.dtype(raw), ops.size(raw), ops.dtype(back), ops.size(back)) == ("uint8", 0, dtype, 0)


def test_bytes_of_a_part_of_a_buffer(ops):
    buffer = ops.from_numpy(np.frombuffer(np.arange(3.0).tobytes() + np.array([7, -9], np.int32).tobytes(), np.uint8).copy())
    same(ops.to_numpy(ops.from_bytes(ops.slice(buffer, 8, 24), "float64")), np.array([1.0, 2.0]))
    same(ops.to_numpy(ops.from_bytes(ops.slice(buffer, 24, 32), "int32")), np.array([7, -9], np.int32))


@given(parts=st.sampled_from(ALL).flatmap(lambda d: st.lists(hnp.arrays(d, st.integers(0, 5)), min_size=1, max_size=4)))
def test_concat(ops, parts):
    arrays = [ops.from_numpy(part) for part in parts]
    joined = ops.concat(arrays)
    assert ops.to_numpy(joined).tobytes() == b"".join(part.tobytes() for part in parts)
    assert ops.dtype(joined) == parts[0].dtype.name
    assert (joined is arrays[0]) == (len(parts) == 1)


LONG = 300_001
SHAPED = {
    "normal": lambda rng: rng.standard_normal(LONG),
    "heavy tails": lambda rng: rng.standard_normal(LONG) ** 5,
    "ties": lambda rng: rng.integers(-3, 4, LONG).astype(float),
    "mostly zero": lambda rng: rng.standard_normal(LONG) * (rng.random(LONG) < 0.001),
    "all zero": lambda rng: 0 * rng.standard_normal(LONG),
    "large where no sample looks": lambda rng: np.where(np.arange(LONG) % 18 == 5, 1e6, 1.0) * rng.standard_normal(LONG),
    "large where samples look": lambda rng: np.where(np.arange(LONG) % 18 == 0, 1e6, 1.0) * rng.standard_normal(LONG),
    "sorted": lambda rng: np.sort(rng.standard_normal(LONG)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("k", [1, 7, 300, 30_000, 299_999])
@pytest.mark.parametrize("shape", SHAPED.values(), ids=SHAPED)
def test_top_positions_of_long_vectors_are_exact(ops, shape, k, dtype):
    x = shape(np.random.default_rng(k)).astype(dtype)
    before = x.copy()
    given = ops.from_numpy(x)
    positions = ops.to_numpy(ops.top_positions(given, k))
    assert len(np.unique(positions)) == len(positions) == k
    np.testing.assert_array_equal(np.sort(np.abs(x[positions])), np.sort(np.abs(x))[LONG - k :])
    np.testing.assert_array_equal(ops.to_numpy(given), before)


@pytest.mark.parametrize("key", [(0, 0), (0xFFFFFFFF, 1), (0x12345678, 0x9ABCDEF0)])
@pytest.mark.parametrize("n", [0, 1, 1000, BLOCK + 1000])
def test_random_numbers_of_positions(ops, n, key):
    """Against the mixing step in Python's integers; each block has a key of its own."""
    keys = [key, (3, 0xFFFFFFFF)][: -(-n // BLOCK) or 1]
    places = [(place % BLOCK, *keys[place // BLOCK]) for place in range(n)]
    words = [mixing.mix(mixing.mix(place ^ high) ^ low) for place, high, low in places]
    found = ops.uniform(n, keys, like=ops.from_numpy(np.zeros(1)))
    same(ops.to_numpy(found), np.array([(word >> 8) * 2.0**-24 for word in words], np.float32))


@pytest.mark.parametrize("n", [1, 2, 3, 17, 32, 2049, 4096, 2**30 + 1, 2**31, 2**32 + 1, 2**33])
def test_positions_are_sampled(ops, n):
    """Against the rounds in Python's integers, walked on from what lies outside; small domains whole, and in several pages."""
    keys = [(7, 0xFFFFFFFF), (0x12345678, 3), (0, 0x9ABCDEF0)]
    bits = max(1, (n - 1).bit_length())
    low_bits = (bits + 1) // 2

    def image(place):
        high, low = place >> low_bits, place % 2**low_bits
        for first, second in keys:
            low ^= mixing.mix(high ^ first) % 2**low_bits
            high ^= mixing.mix(low ^ second) % 2 ** (bits - low_bits)
        place = high << low_bits | low
        return place if place < n else image(place)

    k = min(n, 5000)
    expected = [image(place) for place in range(k)]
    same(ops.to_numpy(ops.sample(k, n, keys, bits, like=ops.from_numpy(np.zeros(1)))), np.array(expected, np.int64))
    assert len(set(expected)) == k


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("width", "first"), [(100, 0), (7, 0), (7, 5), (100, 30), (1, 0)])
@pytest.mark.parametrize("levels", [1, 7, 127])
def test_levels(ops, dtype, width, first, levels):
    """Element by element; each operation is rounded to the dtype."""
    rng, kind = np.random.default_rng(levels), np.dtype(dtype).type
    n = 60
    rows = -(-(first + n) // width)
    scale = rng.uniform(1, 2, rows).astype(dtype)
    x = rng.uniform(-1, 1, n).astype(dtype)
    x[:4], x[4] = [0, -0.0, 1, -1], scale[(first + 4) // width]
    numbers = rng.random(n).astype(np.float32)
    expected = []
    for place in range(n):
        height = kind(kind(abs(x[place]) / scale[(first + place) // width]) * kind(levels))
        below = np.floor(height)
        expected.append(np.sign(x[place]) * min(below + (1 if kind(numbers[place]) < kind(height - below) else 0), levels))
    there = [ops.from_numpy(array) for array in (x, scale, numbers)]
    found = ops.to_numpy(ops.levels_of(there[0], there[1], width, first, levels, there[2]))
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, expected)


@given(x=finite_vectors(), width=st.integers(1, 50))
def test_the_largest_magnitude_of_rows(ops, x, width):
    expected = [np.abs(x[start : start + width]).max() for start in range(0, x.size, width)]
    same(ops.to_numpy(ops.row_max(ops.from_numpy(x), width)), np.array(expected, x.dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_the_largest_magnitude_is_not_finite_where_an_element_is_not(ops, dtype, bad):
    x = np.array([1, -2, bad, 3, -4], dtype)
    largest = ops.to_numpy(ops.row_max(ops.from_numpy(x), 3)).astype(float)
    np.testing.assert_array_equal(largest, [bad, 4])
