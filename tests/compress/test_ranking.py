"""One ranked selection against direct compression at each factor, and energies against numpy's float64."""

import math
from itertools import pairwise

import numpy as np
import pytest
import random_oracle
from hypothesis import given
from hypothesis import strategies as st
from vectors import draw, sent, usual_vectors

from hvd_adaptive import DGC, RandomK, RedSync, TopK, UnsupportedError
from hvd_adaptive.compress import QSGD
from hvd_adaptive.compress.ranking import Ranked, energies, squares

METHODS = {"topk": TopK, "dgc": DGC, "redsync": RedSync, "randomk": RandomK}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
sparse_method = pytest.mark.parametrize("method", [TopK, DGC, RedSync], ids=["topk", "dgc", "redsync"])
FACTORS = (2.0, 4.0, 7.0, 30.0, 1000.0)


def count(factor, n):
    """n / factor to the nearest, one at least."""
    return max(1, round(math.floor(2 * n / factor + 1) // 2))


def ranking_of(ops, method, x, factor=FACTORS[0]):
    return ops.to_numpy(method(factor).ranked(ops, ops.from_numpy(x), draw())).copy()


def kept(ops, method, x, factor, least=FACTORS[0]):
    """What a ranked selection at ``least`` keeps at ``factor``, encoded."""
    ranking = method(least).ranked(ops, ops.from_numpy(x), draw())
    result = sent(ops, Ranked(ranking, least, factor), x)
    return result.fields[1].tolist()


def gaussian(n, seed=0, dtype="float64"):
    return np.random.default_rng(seed).standard_normal(n).astype(dtype)


INPUTS = {
    "gaussian": gaussian(3000),
    "single": gaussian(2000, 1, "float32"),
    "half": gaussian(700, 2, "float16"),
    "heavy tail": gaussian(1000, 3) ** 5,
    "few": gaussian(5, 4),
    "one": np.array([3.0]),
    "zeros": np.zeros(600),
    "ties": np.tile([1.0, -1.0, 2.0, 0.0], 150),
    "one spike": np.eye(1, 900)[0],
}
every_input = pytest.mark.parametrize("x", INPUTS.values(), ids=INPUTS)


@sparse_method
@every_input
def test_the_ranking_is_what_the_method_selects_the_largest_first(ops, method, x):
    ranking = ranking_of(ops, method, x)
    selected = ops.to_numpy(method(2).select(ops, ops.from_numpy(x), draw()))
    assert ranking.dtype == np.int64
    assert sorted(ranking.tolist()) == sorted(selected.tolist())
    assert len(set(ranking.tolist())) == ranking.size
    magnitudes = np.abs(x[ranking].astype(np.float64))
    assert np.all(np.diff(magnitudes) <= 0)


@sparse_method
@every_input
def test_a_smaller_factor_keeps_what_a_larger_one_does(ops, method, x):
    """The first n/f of the ranking; at the factor that was ranked with, all of it, which RedSync has more of."""
    ranking = ranking_of(ops, method, x).tolist()
    found = [kept(ops, method, x, factor) for factor in FACTORS]
    assert found[0] == sorted(ranking)
    for factor, positions in zip(FACTORS[1:], found[1:], strict=True):
        assert positions == sorted(ranking[: count(factor, x.size)])
    for more, fewer in pairwise(found):
        assert set(fewer) <= set(more)


@every_input
@pytest.mark.parametrize("factor", FACTORS)
def test_top_k_is_as_direct_compression(ops, x, factor):
    """The same number of elements, of the same magnitudes: the same ones but for ties."""
    ranked = kept(ops, TopK, x, factor)
    direct = sent(ops, TopK(factor), x).fields[1].tolist()
    assert len(ranked) == len(direct) == min(x.size, count(factor, x.size))
    assert sorted(np.abs(x[ranked])) == sorted(np.abs(x[direct]))
    if np.unique(np.abs(x)).size == x.size:
        assert set(ranked) == set(direct)


@sparse_method
@given(x=usual_vectors(), least=st.floats(1, 20), more=st.floats(1, 50))
def test_none_left_behind_is_larger_at_any_factor(ops, method, x, least, more):
    """Of all, as the three select no smaller element than they leave; DGC no zeros, so it may keep fewer."""
    positions = kept(ops, method, x, least * more, least)
    assert len(positions) <= (2 if more == 1 else 1) * count(least * more, x.size)
    if method is not DGC:
        assert len(positions) >= min(x.size, count(least * more, x.size))
    left = np.delete(np.abs(x), positions)
    if positions and left.size:
        assert np.abs(x[positions]).min() >= left.max()


@pytest.mark.parametrize("least", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("n", [1, 2, 5, 100, 1000])
def test_random_k_ranks_in_the_order_that_direct_compression_draws(ops, n, least):
    """So the first n/f are what it sends at f; at factor 1 too, where it sends all in another order."""
    x = gaussian(n)
    ranking = ranking_of(ops, RandomK, x, least)
    streams = draw().shared
    assert ranking.tolist() == list(random_oracle.sample((streams.high, streams.low), count(least, n), n))
    for factor in (least, 2 * least, 7.0, 1000.0):
        payload = RandomK(factor).encode(ops, ops.from_numpy(x), draw())
        support = ops.to_numpy(payload.support).tolist()
        if factor > 1:
            assert ranking[: len(support)].tolist() == support
        else:
            assert sorted(ranking.tolist()) == support == list(range(n))


@every_method
@every_input
def test_energies_are_those_of_what_is_kept(ops, method, x):
    """numpy's float64 from the ranking. Norms are summed in doubles, n roundings, and each is rounded to float32 and squared."""
    array = ops.from_numpy(x)
    positions = method(FACTORS[0]).ranked(ops, array, draw())
    found = energies(ops, array, positions, FACTORS)
    chosen = np.asarray(ops.to_numpy(positions))
    sizes = [chosen.size, *(min(chosen.size, count(factor, x.size)) for factor in FACTORS[1:])]
    expected = [np.sum(x[chosen[:size]].astype(np.float64) ** 2) for size in sizes]
    assert {type(value) for value in found} == {float}
    eps = float(np.finfo(np.float64 if x.dtype == np.float64 else np.float32).eps)
    rtol = max(4 * eps, x.size * float(np.finfo(np.float64).eps))
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=0)
    assert list(found) == sorted(found, reverse=True)  # a larger factor never keeps more
    np.testing.assert_array_equal(ops.to_numpy(array), x)


def test_energies_by_hand(ops):
    x = ops.from_numpy(np.array([1.0, -4.0, 0.0, 3.0, 2.0, 0.0, 0.0, 0.0]))
    ranking = TopK(2).ranked(ops, x, draw())
    assert energies(ops, x, ranking, (2.0, 4.0, 8.0)) == pytest.approx((30.0, 25.0, 16.0), rel=1e-15)  # a root, squared again
    assert energies(ops, x, ranking, (2.0,)) == pytest.approx((30.0,), rel=1e-15)
    assert energies(ops, x, ranking, (2.0, 100.0, 1000.0)) == pytest.approx((30.0, 16.0, 16.0), rel=1e-15)


@every_method
def test_energies_of_nothing(ops, method):
    zeros = ops.from_numpy(np.zeros(600))
    positions = method(2).ranked(ops, zeros, draw())
    assert energies(ops, zeros, positions, FACTORS) == (0.0,) * 5
    none = ops.arange(0, zeros)
    assert energies(ops, ops.from_numpy(gaussian(600)), none, FACTORS) == (0.0,) * 5


def test_a_ranking_of_no_positions_sends_none(ops):
    """DGC finds none among zeros, at any factor."""
    x = np.zeros(600)
    assert ranking_of(ops, DGC, x).size == 0
    assert [kept(ops, DGC, x, factor) for factor in FACTORS] == [[]] * 5


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_energy_of_a_vector(ops, dtype):
    x = np.array([3.0, -4.0, 12.0], dtype)
    found = squares(ops, [ops.from_numpy(array) for array in (x[:0], x, 2 * x, x[:0])])
    assert found == pytest.approx([0, 169, 4 * 169, 0], rel=1e-6)  # a few roundings of float32
    assert squares(ops, []) == []


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([np.nan, 1], "float32"),
        ([np.inf, 1], "float64"),
        ([-np.inf, np.inf], "float32"),
        ([1e200, 1e200], "float64"),  # whose square is beyond any float
        ([1e160], "float64"),
    ],
)
def test_energy_is_not_finite_where_the_vector_or_its_square_is_not(ops, values, dtype):
    x = ops.from_numpy(np.array(values, dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        assert not math.isfinite(squares(ops, [x])[0])
        assert not math.isfinite(energies(ops, x, ops.arange(len(values), x), (1.0,))[0])


def test_energies_of_half_precision_do_not_end_where_its_norms_do(ops):
    """The norm of 1,000 elements of 4,000 is 126,491; float16 ends at 65,504."""
    x = ops.from_numpy(np.full(1000, 4000.0, np.float16))
    assert squares(ops, [x])[0] == pytest.approx(1.6e10, rel=1e-6)  # two roundings of float32
    assert energies(ops, x, TopK(2).ranked(ops, x, draw()), (2.0, 10.0)) == pytest.approx((8e9, 1.6e9), rel=1e-6)


def test_ranked_stands_in_for_the_method(ops):
    """As RedSync and DGC do, it tells how many it keeps, for ranks may differ."""
    x = gaussian(100)
    payload = Ranked(TopK(5).ranked(ops, ops.from_numpy(x), draw()), 5, 10).encode(ops, ops.from_numpy(x), draw())
    assert [field.counted for field in payload.fields] == [True, True]
    assert payload.kept == 10


def test_a_method_without_a_factor_ranks_nothing(ops):
    with pytest.raises(UnsupportedError, match="has no factor"):
        QSGD(7).ranked(ops, ops.from_numpy(gaussian(4)), draw())


def test_all_that_a_method_found_is_sent_at_the_factor_it_was_found_with(ops):
    """RedSync may find up to twice n/f; of a larger factor it is n/f exactly."""
    found = [kept(ops, RedSync, gaussian(3000, seed), 20.0, 20.0) for seed in range(5)]
    assert max(map(len, found)) > 150
    for seed, positions in enumerate(found):
        x = gaussian(3000, seed)
        assert sorted(positions) == sorted(ops.to_numpy(RedSync(20).select(ops, ops.from_numpy(x), draw())).tolist())
        ranking = ranking_of(ops, RedSync, x, 20.0).tolist()
        assert (sorted(ranking), sorted(ranking[:75])) == (positions, kept(ops, RedSync, x, 40.0, 20.0))
