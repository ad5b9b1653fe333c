"""Oracle: the projection onto the columns of M q by numpy's singular values, in doubles; q of the scalar generator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_oracle import uniform
from vectors import BAD_COUNTS, DTYPES, LARGEST, draw, sent

from hvd_adaptive import ConfigError, PowerSGD
from hvd_adaptive.feedback import Residual

SIZES = [100, 144, 150, 1000]


def matrix_of(x):
    """Nearly square, filled up with zeros."""
    rows = int(x.size**0.5)
    columns = -(-x.size // rows)
    return np.concatenate([x.astype(np.float64), np.zeros(rows * columns - x.size)]).reshape(rows, columns)


def projected(matrix, q):
    """``matrix`` projected onto the columns of ``matrix q``."""
    u, s, _ = np.linalg.svd(matrix @ q, full_matrices=False)
    u = u[:, s > 1e-12 * max(s[0], 1e-300)]
    return u @ (u.T @ matrix)


def start(columns, rank, streams=None):
    return np.array(uniform((streams or draw()).shared, columns * rank)).reshape(columns, rank) - 0.5


def of_rank(rank, n, dtype="float64", seed=0):
    rows = int(n**0.5)
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, -(-n // rows)))).reshape(-1).astype(dtype)


# ---- the matrix of a shape -------------------------------------------------------------------------------------------------

BY_HAND = [
    ((100,), 4, (10, 10, 4)),
    ((100,), 5, (10, 10, 0)),  # 5 (10 + 10) is no less than 100
    ((101,), 4, (10, 11, 4)),
    ((99,), 4, (9, 11, 4)),
    ((8, 3, 3, 3), 4, (8, 27, 4)),
    ((8, 3, 3, 3), 7, (8, 27, 0)),
    ((8, 4), 2, (8, 4, 2)),
    ((8, 4), 9, (8, 4, 0)),  # a rank of 4 at most
    ((60, 3), 2, (60, 3, 2)),
    ((1, 100), 1, (1, 100, 0)),
    ((100, 1), 1, (100, 1, 0)),
    ((2, 2), 1, (2, 2, 0)),
    ((3, 3), 1, (3, 3, 1)),
    ((), 1, (1, 1, 0)),
    ((1,), 1, (1, 1, 0)),
    ((5,), 1, (2, 3, 0)),
    ((9,), 1, (3, 3, 1)),
]


@pytest.mark.parametrize(("shape", "rank", "form"), BY_HAND)
def test_form_by_hand(shape, rank, form):
    assert PowerSGD(rank).form(shape) == form


@given(shape=st.lists(st.integers(1, 30), min_size=1, max_size=4).map(tuple), rank=st.integers(1, 9))
def test_factors_are_smaller_or_none_are_sent(shape, rank):
    n, form = int(np.prod(shape)), PowerSGD(rank).form(shape)
    assert form.rows * (form.columns - 1) < n <= form.rows * form.columns
    assert form.rank in {0, min(rank, form.rows, form.columns)}
    smaller = min(rank, form.rows, form.columns) * (form.rows + form.columns) < n
    assert bool(form.rank) == smaller


# ---- one step of power iteration -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "near"), [("float16", 2**-9), ("float32", 1e-4), ("float64", 1e-11)])
def test_it_is_a_projection_onto_the_columns_of_m_q(ops, n, rank, dtype, near):
    """The condition of M q, below 100 here, times some roundings of float32 is 1e-4; what is projected away is of size 1."""
    x = np.random.default_rng(n).standard_normal(n).astype(dtype)
    matrix = matrix_of(x)
    result = sent(ops, PowerSGD(rank), x)
    expected = projected(matrix, start(matrix.shape[1], rank)).reshape(-1)[:n]
    assert np.abs(expected - x).max() > 0.5
    assert np.linalg.norm(result.y - expected) < near * np.linalg.norm(x.astype(float))
    assert [field.size for field in result.fields] == [matrix.shape[0] * rank, matrix.shape[1] * rank]
    assert result.payload.kept == sum(field.size for field in result.fields) < n
    p = result.fields[0].reshape(-1, rank).astype(np.float64)
    np.testing.assert_allclose(p.T @ p, np.eye(rank), rtol=0, atol=1e-5)  # float32's 6e-8, at a QR of up to some hundred rows


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("rank", [1, 3])
def test_no_more_than_the_gradient_is_lost_and_its_rank_is_small(ops, n, rank):
    """The matrix is projected, so squares add up; with padding the decoded vector loses what fell into it."""
    x = np.random.default_rng(n).standard_normal(n)
    y = sent(ops, PowerSGD(rank), x).y
    error, size = np.linalg.norm(x - y), np.linalg.norm(x)
    assert 0 < error < size
    if matrix_of(x).size == n:
        # in double: a QR and two products of some hundred terms, a rounding of 1e-16 each
        np.testing.assert_allclose(error**2 + np.linalg.norm(y) ** 2, size**2, rtol=1e-12)
        assert np.linalg.matrix_rank(y.reshape(matrix_of(x).shape), tol=1e-10) == rank


@pytest.mark.parametrize(("sent_rank", "true_rank"), [(1, 1), (2, 1), (2, 2), (4, 2), (4, 4)])
@pytest.mark.parametrize(("dtype", "near"), [("float32", 1e-4), ("float64", 1e-11)])
def test_a_matrix_of_no_higher_rank_arrives_whole(ops, sent_rank, true_rank, dtype, near):
    x = of_rank(true_rank, 144, dtype)
    y = sent(ops, PowerSGD(sent_rank), x).y
    assert np.linalg.norm(y - x) < near * np.linalg.norm(x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [1, 4])
def test_zeros_stay_zeros_and_constants_arrive(ops, dtype, rank):
    assert not sent(ops, PowerSGD(rank), np.zeros(144, dtype)).y.any()
    tiny = float(np.finfo(dtype).smallest_normal)
    for fill in (1.0, -3.0, LARGEST[dtype], tiny):
        x = np.full(144, fill, dtype)
        # the factors are float32, a sum of 12 terms each; float16 then rounds the result by 5e-4
        np.testing.assert_allclose(sent(ops, PowerSGD(rank), x).y, x, rtol=1e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_that_lack_rank_are_finite(ops, dtype):
    rng = np.random.default_rng(0)
    half, one = rng.standard_normal(144).astype(dtype), np.zeros(144, dtype)
    half[:72], one[77] = 0, -2
    subnormal = np.full(144, np.finfo(dtype).smallest_subnormal, dtype)
    for x in (half, one, subnormal, np.tile(half[-12:], 12)):
        y = sent(ops, PowerSGD(4), x).y.astype(np.float64)
        assert np.isfinite(y).all()
        assert np.linalg.norm(x - y) <= np.linalg.norm(x.astype(np.float64)) * (1 + 1e-3)
    # as above: float32 factors, and float16's own rounding
    np.testing.assert_allclose(sent(ops, PowerSGD(4), one).y, one, rtol=0, atol=1e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 5, 8, 15])
def test_where_factors_are_not_smaller_the_elements_travel(ops, dtype, n):
    x = np.linspace(-3, 3, n).astype(dtype)
    result = sent(ops, PowerSGD(4), x)
    assert len(result.fields) == 1
    assert result.payload.kept == n
    np.testing.assert_array_equal(result.y, x)
    vector = ops.from_numpy(x)
    payload = PowerSGD(4).encode(ops, vector, draw())
    np.testing.assert_array_equal(ops.to_numpy(PowerSGD(4).decode(ops, payload, draw(), ops.from_numpy(x), -1.0)), np.zeros(n))
    np.testing.assert_array_equal(ops.to_numpy(PowerSGD(4).keep_back(ops, vector, payload, draw())), np.zeros(n))


def test_keeping_back_takes_out_the_product(ops):
    x = np.random.default_rng(1).standard_normal(150)
    y, vector = sent(ops, PowerSGD(2), x).y, ops.from_numpy(x)
    payload = PowerSGD(2).encode(ops, vector, draw())
    kept = ops.to_numpy(PowerSGD(2).keep_back(ops, vector, payload, draw()))
    np.testing.assert_allclose(kept, x - y, rtol=0, atol=1e-14)  # the product is made anew; elements of 4, two terms, 1e-16 each


# ---- where it starts -------------------------------------------------------------------------------------------------------


def test_the_first_q_is_uniform_and_shared(ops):
    method, like = PowerSGD(3), ops.from_numpy(np.zeros(1, np.float32))
    form = method.form((12, 20))
    q = ops.to_numpy(method.first(ops, form, draw(), like))
    np.testing.assert_array_equal(q, start(20, 3))
    np.testing.assert_array_equal(q, ops.to_numpy(method.first(ops, form, draw(rank=3), like)))
    assert np.all(q != ops.to_numpy(method.first(ops, form, draw(1)._replace(own=draw().own), like)))


def test_q_is_made_orthonormal_before_it_multiplies(ops):
    """Seen through the identity; the span stays, so a scaled q gives the same."""
    q = np.random.default_rng(0).standard_normal((12, 3))
    eye = ops.from_numpy(np.eye(12))
    p = ops.to_numpy(PowerSGD(3).project(ops, eye, ops.from_numpy(q)))
    np.testing.assert_allclose(p.T @ p, np.eye(3), rtol=0, atol=1e-14)  # a QR of 12 rows in double, 1e-16 for each step
    np.testing.assert_allclose(p @ (p.T @ q), q, rtol=0, atol=1e-13)
    for scale in (1e-30, 1e30):
        np.testing.assert_allclose(PowerSGD(3).project(ops, eye, ops.from_numpy(q * scale)), p, rtol=0, atol=1e-13)


def test_a_q_that_vanished_starts_anew(ops):
    zeros = ops.from_numpy(np.zeros((12, 3), np.float32))
    p = ops.to_numpy(PowerSGD(3).project(ops, ops.from_numpy(np.eye(12)), zeros))
    np.testing.assert_allclose(p.T @ p, np.eye(3), rtol=0, atol=1e-6)  # zeros in float32, 6e-8 a step


def test_repeated_it_finds_the_largest_singular_vectors(ops):
    """From the last q each step shrinks the others by their ratio, 1/4 here, squared."""
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((12, 12)))[0] for _ in "uv")
    matrix = u @ np.diag([4.0**-i for i in range(12)]) @ v.T
    method, m = PowerSGD(2), ops.from_numpy(matrix)
    q = method.first(ops, method.form((12, 12)), draw(), m)
    for _ in range(12):
        p = ops.orthonormal(method.project(ops, m, q))
        q = ops.matmul(ops.transpose(m), p)
    best = u[:, :2] @ u[:, :2].T @ matrix
    # 12 turns leave 16^-12 of the third singular vector, 4e-15, times how unluckily they began
    np.testing.assert_allclose(ops.to_numpy(ops.matmul(p, ops.transpose(q))), best, rtol=0, atol=1e-12)


def test_only_shared_draws_decide(ops):
    x = np.random.default_rng(2).standard_normal(144)
    y = sent(ops, PowerSGD(2), x).y.tolist()
    assert y == sent(ops, PowerSGD(2), x, draw(rank=1)).y.tolist()
    assert y != sent(ops, PowerSGD(2), x, draw(1)).y.tolist()


def test_what_others_may_rely_on():
    assert PowerSGD(1).biased
    assert PowerSGD(1).feedback == Residual()
    assert PowerSGD(1).omega(5) == 0
    assert PowerSGD(1).exchanges == ("reduce", "two-sided")
    assert PowerSGD(np.int32(4)) == PowerSGD(4)


@pytest.mark.parametrize("rank", [*BAD_COUNTS, None])
def test_refuses_a_bad_rank(rank):
    with pytest.raises(ConfigError) as raised:
        PowerSGD(rank)
    assert str(raised.value).startswith("PowerSGD: rank must be a whole number from 1 to ")
    assert str(raised.value).endswith(f"got {rank!r}")
