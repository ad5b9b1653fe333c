"""Values of all ranks at the positions that one of them picks, against means in numpy at those positions."""

import numpy as np
import pytest
from driving import RANKS, draw_of, exchanged, whole
from methods import INSTANCES
from vectors import positions_bytes

from hvd_adaptive import ConfigError
from hvd_adaptive.compress import DGC, NAMES, AdaptiveThreshold, Identity, PowerSGD, RandomK, RedSync, Threshold, TopK
from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.exchange import SharedSupport
from hvd_adaptive.granularity import Parameter, layer_wise
from hvd_adaptive.plan import Options, build

SPARSE = [method for methods in INSTANCES.values() for method in methods if isinstance(method, Sparse)]
every_method = pytest.mark.parametrize("method", SPARSE, ids=repr)


def picked(ops, method, x, rank):
    return sorted(ops.to_numpy(method.select(ops, ops.from_numpy(x), draw_of(rank))).tolist())


@every_method
@pytest.mark.parametrize("ranks", RANKS)
def test_all_send_their_values_where_the_leader_says(ops, method, ranks):
    """The mean there and zero elsewhere; what was sent is cleared, on every rank the same positions; ranks take turns."""
    for n, dtype in ((1, np.float32), (2, np.float64), (37, np.float16), (300, np.float32)):
        arrays = whole(ranks, n, dtype)
        for step in sorted({0, 1, ranks - 1, ranks, 2 * ranks + 1}):
            leader = step - step // ranks * ranks
            positions = picked(ops, method, arrays[leader], leader)
            results = exchanged(ops, method, SharedSupport(), arrays, step=step)
            expected = np.zeros(n)
            expected[positions] = np.mean([x[positions].astype(np.float64) for x in arrays], axis=0) if positions else 0
            for x, result in zip(arrays, results, strict=True):
                assert result.mean.dtype == dtype
                if ranks == 3:  # the mean of whole numbers up to 12 is rounded once, or a third is and then the product
                    np.testing.assert_allclose(result.mean, expected, rtol=2 * float(np.finfo(dtype).eps), atol=0)
                else:
                    np.testing.assert_array_equal(result.mean, expected)
                left = x.copy()
                left[positions] = 0
                assert result.kept_back.tobytes() == left.tobytes()
                assert sorted(ops.to_numpy(result.outcome.positions).tolist()) == positions
                assert result.outcome.kept == len(positions)
                assert result.outcome.memory == {}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_nothing_and_everything_may_be_selected(ops, ranks):
    arrays = [1 + np.abs(x) for x in whole(ranks, 9, np.float32)]
    for result in exchanged(ops, Threshold(1e30), SharedSupport(), arrays):
        assert result.outcome.kept == 0
        assert result.mean.tolist() == [0.0] * 9
        assert [handed[2] for handed in result.handed][1] == 4  # the mark of health alone
    for result in exchanged(ops, Threshold(0), SharedSupport(), arrays):
        assert result.outcome.kept == 9
        assert not np.count_nonzero(result.kept_back)
        np.testing.assert_allclose(result.mean, np.mean(arrays, axis=0), rtol=2.0**-22)


def test_the_leaders_choice_by_hand(ops):
    """Rank 1's largest is the middle one, which rank 0 would not have sent."""
    arrays = [np.array([9, 1, 0], np.float32), np.array([2, -5, 1], np.float32)]
    for step, mean in ((0, [5.5, 0, 0]), (1, [0, -2, 0]), (2, [5.5, 0, 0])):
        assert [r.mean.tolist() for r in exchanged(ops, TopK(3), SharedSupport(), arrays, step=step)] == [mean] * 2


@pytest.mark.parametrize("ranks", [2, 3])
def test_what_it_costs(ops, ranks):
    """The leader hands out a count and packed positions, the others nothing; then all send values and a mark."""
    for n, factor in ((64, 4), (1000, 10)):
        k = n // factor
        told = 8 + (positions_bytes(k, n) + 7) // 8 * 8
        results = exchanged(ops, TopK(factor), SharedSupport(), whole(ranks, n, np.float32), step=1)
        for rank, result in enumerate(results):
            assert [h[0] for h in result.handed] == ["gather", "mean"]
            assert [h[2] for h in result.handed] == [told if rank == 1 else 0, 4 * (k + 1)]


@pytest.mark.parametrize("bad", [{0}, {1}, {2}, {0, 1, 2}])
@pytest.mark.parametrize("method", [TopK(3), Threshold(1e30), Threshold(0)], ids=repr)
def test_the_leader_and_the_others_may_be_unhealthy(ops, method, bad):
    for step in range(3):
        arrays = whole(3, 11, np.float32)
        for x, result in zip(arrays, exchanged(ops, method, SharedSupport(), arrays, bad=bad, step=step), strict=True):
            assert result.mean is None
            assert result.kept_back.tobytes() == x.tobytes()


@pytest.mark.parametrize("method", [Identity(), RandomK(3), PowerSGD(1), INSTANCES["qsgd"][0]], ids=repr)
def test_a_method_that_selects_nothing_is_refused(method):
    with pytest.raises(ConfigError, match=r"selects no positions to share; use a method such as TopK\(factor=100\)"):
        SharedSupport().check(method, 2)


def test_a_plan_says_so_before_the_first_step():
    """Also of a method that claims to be fit."""

    class Claiming(RandomK):
        exchanges = ("shared-support",)

    asked = Options(Claiming(2), None, None, "auto", 0, (), 0)
    with pytest.raises(ConfigError, match="selects no positions to share"):
        build([Parameter("w", (4,), "float32")], layer_wise, asked, 2)


def test_every_sparse_method_is_served():
    assert {type(method) for method in SPARSE} == {TopK, Threshold, AdaptiveThreshold, DGC, RedSync}
    assert {cls for cls in NAMES.values() if "shared-support" in cls.exchanges} == {type(method) for method in SPARSE}
    assert all(SharedSupport().check(method, size) is None for method in SPARSE for size in (1, 64))
