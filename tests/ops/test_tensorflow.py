"""What is TensorFlow's own: its tensors' memory; and its kernels, which run off the host, against numpy's backend.

The kernels run here on the host, where they take subnormals for zero, so no number is that small.
"""

import math

import numpy as np
import pytest
import tensorflow as tf
from backends import backend, off_host
from driving import exchanged
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from methods import INSTANCES
from vectors import draw

from hvd_adaptive.exchange import NAMES as EXCHANGES
from hvd_adaptive.prng import root, sample, uniform

NUMPY = backend("numpy")
FLOATS = ("float16", "float32", "float64")
METHODS = [method for some in INSTANCES.values() for method in some]
every_method = pytest.mark.parametrize("method", METHODS, ids=repr)


# ---- the memory of a tensor ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16", "int32", "int64", "uint8"])
def test_a_tensor_on_the_host_becomes_an_array_over_its_memory(dtype):
    ops = backend("tensorflow")
    tensor = tf.cast(tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), dtype)
    flat, again = ops.flatten(tensor), ops.flatten(tensor)
    assert isinstance(flat, np.ndarray)
    assert np.shares_memory(flat, again)
    assert (ops.dtype(flat), ops.size(flat), ops.nbytes(flat)) == (dtype, 6, 6 * tensor.dtype.size)
    assert (ops.dtype(tensor), ops.size(tensor), ops.nbytes(tensor)) == (dtype, 6, 6 * tensor.dtype.size)
    assert ops.cast(flat, "float32").tolist() == [1, 2, 3, 4, 5, 6]


def test_what_belongs_to_a_tensor_cannot_be_overwritten():
    ops = backend("tensorflow")
    with pytest.raises(ValueError, match="read-only"):
        ops.add_slice(ops.flatten(tf.zeros(3)), 0, np.ones(3, np.float32))


def test_an_array_outlives_its_tensor():
    ops = backend("tensorflow")
    flat = ops.flatten(tf.range(1000))
    others = [tf.zeros(1000, tf.int32) for _ in range(100)]
    assert flat.tolist() == list(range(1000))
    assert len(others) == 100


@pytest.mark.parametrize(("tensor", "expected"), [(tf.constant(7.0), [7.0]), (tf.zeros((0, 3)), [])])
def test_a_scalar_and_an_empty_tensor_are_vectors(tensor, expected):
    flat = backend("tensorflow").flatten(tensor)
    assert (flat.ndim, flat.tolist()) == (1, expected)


def test_subnormals_survive_on_the_host():
    """TensorFlow's own addition there loses them."""
    ops = backend("tensorflow")
    x = np.array([1e-40, -(2.0**-149)], np.float32)
    assert not (tf.constant(x) + tf.constant(x)).numpy().any()
    np.testing.assert_array_equal(ops.add_slice(ops.from_numpy(x), 0, ops.flatten(tf.constant(x))), 2 * x)


# ---- kernels ---------------------------------------------------------------------------------------------------------------


def off_host_vectors(dtypes=FLOATS, least=1):
    """Vectors with ties and zeros of both signs, of numbers whose squares are no subnormals."""
    elements = st.sampled_from([0.0, -0.0, 1.0, -1.0, 100.0]) | st.integers(-5000, 5000).map(lambda i: i / 64)
    return st.sampled_from(dtypes).flatmap(lambda d: hnp.arrays(d, st.integers(least, 50), elements=elements))


def same(found, expected):
    """Arrays of the same dtype, shape and bits, but for the sign of zero; or the same value."""
    ops = off_host()
    if isinstance(expected, np.ndarray):
        assert isinstance(found, tf.Tensor)
        assert (ops.dtype(found), tuple(found.shape)) == (expected.dtype.name, expected.shape)
        np.testing.assert_array_equal(ops.to_numpy(found), expected)
    else:
        assert (type(found), found) == (type(expected), expected)


def integers(ops, x):
    return ops.cast(x, "int64")


ELEMENTWISE = {
    "where": lambda ops, x: ops.where(x > 0, x, ops.full_like(x, 3.0)),
    "any": lambda ops, x: ops.any(x > 50),
    "all_finite": lambda ops, x: ops.all_finite(x),
    "starts_with_nan": lambda ops, x: ops.starts_with_nan(x),
    "zeros": lambda ops, x: ops.zeros(5, "int32", like=x),
    "arange": lambda ops, x: ops.arange(7, like=x),
    "slice": lambda ops, x: ops.slice(x, 1, 4),
    "set_slice": lambda ops, x: ops.set_slice(x, 0, ops.full_like(ops.slice(x, 0, 2), 9.0)),
    "set_slice, the last": lambda ops, x: ops.set_slice(x, ops.size(x) - 1, ops.full_like(ops.slice(x, 0, 1), 9.0)),
    "add_slice": lambda ops, x: ops.add_slice(x, 1, ops.slice(x, 0, ops.size(x) - 1)),
    "add_slice, weighted": lambda ops, x: ops.add_slice(x, 0, ops.slice(x, 0, 2), -0.5),
    "add_slice, of another float": lambda ops, x: ops.add_slice(x, 0, ops.cast(x, "float16")),
    "scale": lambda ops, x: ops.scale(x, 0.1),
    "shift_left": lambda ops, x: ops.shift_left(integers(ops, x), 35),
    "shift_right": lambda ops, x: ops.shift_right(integers(ops, x), 3),
    "take": lambda ops, x: ops.take(x, ops.nonzero(x > 0)),
    "clear": lambda ops, x: ops.clear(x, ops.nonzero(x > 0)),
    "clear, by int32": lambda ops, x: ops.clear(x, ops.cast(ops.nonzero(x > 0), "int32")),
    "scatter_add": lambda ops, x: ops.scatter_add(x, ops.nonzero(x > 0), ops.take(x, ops.nonzero(x > 0))),
    "largest_first": lambda ops, x: ops.largest_first(x),
    "count": lambda ops, x: ops.count(x > 0),
    "smallest": lambda ops, x: ops.smallest(x),
    "nonzero": lambda ops, x: ops.nonzero(x <= 0),
    "sign": lambda ops, x: ops.sign(x),
    "floor": lambda ops, x: ops.floor(x),
    "at_most": lambda ops, x: ops.at_most(x, 0.5),
    "row_max": lambda ops, x: ops.row_max(abs(x), 7),
    "row_sum": lambda ops, x: ops.row_sum(x, 7),
    "repeat": lambda ops, x: ops.repeat(x, 3, 3 * ops.size(x) - 2),
    "matrix": lambda ops, x: ops.matrix(x, 8, 8),
    "transpose": lambda ops, x: ops.flatten(ops.transpose(ops.matrix(x, 8, 8))),
    "to_bfloat16_bits": lambda ops, x: ops.to_bfloat16_bits(x),
    "from_bfloat16_bits": lambda ops, x: ops.from_bfloat16_bits(ops.to_bfloat16_bits(x), "float64"),
    "to_bytes": lambda ops, x: ops.to_bytes(x),
    "from_bytes": lambda ops, x: ops.from_bytes(ops.to_bytes(x), ops.dtype(x)),
    "from_bytes, of one": lambda ops, x: ops.from_bytes(ops.to_bytes(x), "int8"),
    "concat": lambda ops, x: ops.concat([x, ops.slice(x, 0, 1)]),
}
"""Of which every bit is told by the protocol; sums of 64ths are exact."""


@pytest.mark.parametrize("call", ELEMENTWISE.values(), ids=ELEMENTWISE)
@given(x=off_host_vectors())
def test_kernels_give_the_bits_of_numpy(call, x):
    same(call(off_host(), off_host().from_numpy(x)), call(NUMPY, x.copy()))


@pytest.mark.parametrize("dtype", FLOATS)
def test_kernels_on_nothing(dtype):
    ops, nothing = off_host(), tf.zeros(0, dtype)
    positions = tf.zeros(0, tf.int64)
    assert ops.all_finite(nothing) and not ops.starts_with_nan(nothing) and not ops.any(nothing > 0)
    for found in (ops.take(nothing, positions), ops.clear(nothing, positions), ops.from_bytes(ops.to_bytes(nothing), dtype)):
        assert (ops.size(found), ops.dtype(found)) == (0, dtype)
    same(ops.clear(tf.ones(2, dtype), positions), np.ones(2, dtype))
    same(ops.nonzero(nothing > 0), np.zeros(0, np.int64))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_kernels_find_what_is_not_finite(dtype, bad):
    ops, x = off_host(), np.linspace(-1, 1, 100).astype(dtype)
    assert ops.all_finite(tf.constant(x))
    assert ops.starts_with_nan(tf.constant([bad, 1.0], dtype)) == math.isnan(bad)
    x[37] = bad
    assert not ops.all_finite(tf.constant(x))


@given(x=off_host_vectors(), data=st.data())
def test_kernels_take_exactly_k_of_the_largest(x, data):
    k = data.draw(st.integers(1, x.size + 1))
    positions = off_host().top_positions(tf.constant(x), k)
    assert positions.dtype == tf.int64
    places = positions.numpy().tolist()
    assert len(places) == len(set(places)) == min(k, x.size)
    np.testing.assert_array_equal(np.sort(np.abs(x[places])), np.sort(np.abs(x))[max(0, x.size - k) :])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1.0, 1e30, 1e-30])
def test_kernels_measure_norms_that_squares_would_not_survive(dtype, size):
    x = (np.array([3.0, -4.0, 0.0, 0.0, 0.0, 12.0, 5.0]) * size).astype(dtype)
    found = off_host().row_norm(tf.constant(x), 3)
    assert found.dtype.name == dtype
    np.testing.assert_allclose(found.numpy(), NUMPY.row_norm(x, 3), rtol=2 * np.finfo(dtype).eps)  # a sum in another order
    most = np.finfo(dtype).max
    same(off_host().row_norm(tf.constant([most, -most, most, 0], dtype), 3), np.array([most, 0], dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_make_orthonormal_columns(dtype):
    ops, eps = off_host(), float(np.finfo(dtype).eps)
    for x in (np.random.default_rng(4).standard_normal((40, 3)).astype(dtype), np.zeros((12, 3), dtype)):
        q = ops.orthonormal(tf.constant(x)).numpy().astype(np.float64)
        assert np.abs(q.T @ q - np.eye(3)).max() <= 60 * eps
        assert np.abs(q @ (q.T @ x) - x).max() <= 60 * eps * np.linalg.norm(x)
        same(ops.matmul(tf.constant(np.round(x)), tf.eye(3, dtype=dtype)), np.round(x))


def test_a_nan_stays_one_in_the_bits_of_a_bfloat16():
    patterns = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    bits = off_host().to_bfloat16_bits(tf.constant(patterns))
    assert np.isnan(off_host().from_bfloat16_bits(bits, "float32").numpy()).all()


def test_bfloat16_rounds_once_to_even_also_from_doubles():
    halfway = 1 + 2.0**-8 * np.arange(1, 64)
    x = np.concatenate([halfway, np.nextafter(halfway, 0), np.nextafter(halfway, 2), [3e38, 3.4e38, 1e300, -1e300]])
    same(off_host().to_bfloat16_bits(tf.constant(x)), NUMPY.to_bfloat16_bits(x))


# ---- the maths, on kernels -------------------------------------------------------------------------------------------------


def test_random_numbers_are_numpys():
    like = tf.zeros(1)
    for seed in (1, -7):
        same(uniform(off_host(), root(seed), 40_000, like), uniform(NUMPY, root(seed), 40_000, np.zeros(1)))
        for k, n in ((3, 3), (17, 100), (5000, 2**20 - 3)):
            same(sample(off_host(), root(seed), k, n, like), sample(NUMPY, root(seed), k, n, np.zeros(1)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("method", "exchange"), [(m, e) for m in METHODS for e in m.exchanges], ids=repr)
def test_every_exchange_of_every_method_comes_to_numpys_mean(method, exchange, dtype):
    """To the roundings of a norm and of a product of matrices, which move no code of these numbers."""
    arrays = [np.random.default_rng([rank, 5]).standard_normal(37).astype(dtype) for rank in range(2)]
    found, expected = (exchanged(ops, method, EXCHANGES[exchange], arrays) for ops in (off_host(), NUMPY))
    near = 1e3 * float(np.finfo(dtype).eps)
    for one, other in zip(found, expected, strict=True):
        assert one.handed == other.handed
        assert one.mean.dtype == other.mean.dtype
        np.testing.assert_allclose(one.mean, other.mean, rtol=near, atol=near)
        np.testing.assert_allclose(one.kept_back, other.kept_back, rtol=near, atol=near)


@every_method
def test_the_same_draw_gives_the_same_codes(method):
    x = np.random.default_rng(3).standard_normal(200).astype(np.float32)
    ops = off_host()
    fields = [
        [ops_.to_numpy(field.array) for field in method.encode(ops_, ops_.from_numpy(x), draw()).fields] for ops_ in (ops, NUMPY)
    ]
    for one, other in zip(*fields, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype.kind != "f":  # positions may come in any order
            np.testing.assert_array_equal(np.sort(one), np.sort(other))
