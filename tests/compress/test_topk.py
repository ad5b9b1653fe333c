"""Oracle: a numpy sort, given k. Positions are never compared, because the order of ties differs by backend."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hvd_adaptive import ConfigError, TopK
from hvd_adaptive.prng import Draw, Key

DRAW = Draw(Key(1, 2), Key(3, 4))
vectors = st.sampled_from([16, 32, 64]).flatmap(
    lambda bits: hnp.arrays(f"float{bits}", st.integers(1, 60), elements=st.floats(-6e4, 6e4, width=bits, allow_nan=False))
)


def sent(ops, method, x):
    """Values, positions and the decoded vector."""
    payload = method.encode(ops, ops.from_numpy(x), DRAW)
    values, positions = (ops.to_numpy(f.array) for f in payload.fields)
    return values, positions, ops.to_numpy(method.decode(ops, payload, DRAW))


@given(x=vectors, factor=st.floats(1, 100))
def test_values_are_the_largest_and_stand_where_they_stood(ops, x, factor):
    values, positions, y = sent(ops, TopK(factor), x)
    k = values.size
    assert (values.dtype, positions.dtype) == (x.dtype, np.dtype(np.int64))
    np.testing.assert_array_equal(np.sort(np.abs(values)), np.sort(np.abs(x))[x.size - k :])
    assert len(set(positions.tolist())) == positions.size == k
    expected = np.zeros_like(x)
    expected[positions] = x[positions]
    np.testing.assert_array_equal(values, x[positions])
    np.testing.assert_array_equal(y, expected)


@given(x=vectors, factor=st.floats(1, 100))
def test_the_error_is_the_energy_of_the_dropped_tail(ops, x, factor):
    values, _, y = sent(ops, TopK(factor), x)
    wide = x.astype(np.float64)
    tail = np.sort(np.abs(wide))[: x.size - values.size]
    error, energy = np.sum((wide - y.astype(np.float64)) ** 2), np.sum(wide**2)
    np.testing.assert_allclose(error, np.sum(tail**2), rtol=1e-12, atol=0)
    assert error <= (1 - values.size / x.size) * energy * (1 + 1e-12)


BY_HAND = [
    (100, 14, 7),
    (100, 1000, 1),
    (1, 100, 1),
    (7, 7 / 3, 3),
    (5, 1, 5),
    (10, 4, 3),
    (1000, 10, 100),
    (2, 1.5, 1),
    (3, 2, 2),
]
"""n, factor, k = n / factor to the nearest, a half going up, and one at least."""


@pytest.mark.parametrize(("n", "factor", "k"), BY_HAND)
@pytest.mark.parametrize("fill", [0.0, 1.0, -3.0])
def test_keeps_exactly_k_even_when_all_elements_tie(ops, n, factor, k, fill):
    values, positions, y = sent(ops, TopK(factor), np.full(n, fill, np.float32))
    assert values.size == len(set(positions.tolist())) == k
    assert np.count_nonzero(y) == (k if fill else 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_code_is_the_same_length_whatever_the_gradient(ops, dtype):
    """The gathered buffer is cut into equal parts, so ranks with other values must send as much."""
    rng = np.random.default_rng(0)
    gradients = (np.zeros(50), np.ones(50), rng.standard_normal(50), np.eye(1, 50)[0])
    lengths = {tuple(a.size for a in sent(ops, TopK(7), g.astype(dtype))[:2]) for g in gradients}
    assert lengths == {(7, 7)}


def test_a_gradient_with_nan_is_encoded_without_trouble(ops):
    """The engine tells the ranks that it was not finite; the code itself has its usual length."""
    x = np.arange(20, dtype=np.float32)
    x[[3, 9]] = np.nan, np.inf
    values, positions, _ = sent(ops, TopK(5), x)
    assert values.size == len(set(positions.tolist())) == 4


@pytest.mark.parametrize(
    ("n", "bits"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (128, 7), (129, 8), (1000, 10), (1024, 10), (1025, 11)]
)
def test_positions_travel_in_as_few_bits_as_tell_n_of_them_apart(ops, n, bits):
    payload = TopK(2).encode(ops, ops.from_numpy(np.ones(n, np.float32)), DRAW)
    assert [(field.bits, field.counted) for field in payload.fields] == [(32, False), (bits, False)]
    assert payload.kept == payload.fields[1].array.shape[0]


def test_keeping_back_needs_no_copy(ops):
    x = ops.from_numpy(np.array([5.0, -6.0, 1.0, 2.0]))
    payload = TopK(2).encode(ops, x, DRAW)
    kept = TopK(2).keep_back(ops, x, payload, DRAW)
    assert kept is x
    np.testing.assert_array_equal(ops.to_numpy(kept), [0, 0, 1, 2])


@pytest.mark.parametrize("factor", [1, 2, np.float32(8), np.int64(8), 1e30])
def test_a_factor_may_be_any_real_number_from_1_on(factor):
    assert TopK(factor) == TopK(factor=float(factor))
    assert type(TopK(factor).factor) is float


@pytest.mark.parametrize("factor", [0, 0.5, -1, 0.999, float("nan"), float("inf"), "10", None, True, 1j, [10]])
def test_refuses_a_bad_factor(factor):
    with pytest.raises(ConfigError) as raised:
        TopK(factor)
    assert str(raised.value).startswith("TopK: factor must be a finite number >= 1")
    assert str(raised.value).endswith(f"got {factor!r}")
