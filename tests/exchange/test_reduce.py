"""Levels under shared scales, and PowerSGD, against the same written in numpy; what rides in one round is in test_exchange.py."""

import numpy as np
import pytest
from driving import RANKS, draw_of, exchanged, whole

from hvd_adaptive import ConfigError
from hvd_adaptive.compress import QSGD, Identity, PowerSGD, RandomK, SignSGD, TernGrad
from hvd_adaptive.exchange import Reduce
from hvd_adaptive.granularity import Parameter, layer_wise
from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.plan import Options, build

LEVELS = [
    TernGrad(), TernGrad(clip=2.5), QSGD(1), QSGD(7), QSGD(127, norm="max"), QSGD(3, bucket=16), SignSGD(), SignSGD(scaled=True)
]  # fmt: skip
every_level = pytest.mark.parametrize("method", LEVELS, ids=repr)
every_number = pytest.mark.parametrize("ranks", RANKS)


def normal(ranks, n, dtype, seed=0):
    return [np.random.default_rng([seed, n, rank]).standard_normal(n).astype(dtype) for rank in range(ranks)]


# ---- levels ----------------------------------------------------------------------------------------------------------------


def single(x):
    return x if x.dtype == np.float64 else x.astype(np.float32)


def summed_levels(ops, method, arrays):
    """The mean and what each rank sent, in float64, from each rank's codes under the scale that all share."""
    ranks, n, top = len(arrays), arrays[0].size, method.top
    scales = np.stack([ops.to_numpy(method.scale(ops, ops.from_numpy(single(x)))) for x in arrays])
    shared = scales.max(0) if not (isinstance(method, SignSGD) and method.scaled) else scales.sum(0) / scales.dtype.type(ranks)
    there = ops.from_numpy(shared.astype(scales.dtype))
    codes = [
        ops.to_numpy(method.codes(ops, ops.from_numpy(single(x)), there, draw_of(rank))).astype(np.int64)
        for rank, x in enumerate(arrays)
    ]
    assert all(0 <= c.min() <= c.max() <= top for c in codes)
    width = getattr(method, "bucket", None) or n
    per_element = np.array([shared[i // width] for i in range(n)], np.float64)
    mean = per_element * (2 * sum(codes) - top * ranks) / (top * ranks)
    own = [per_element * (2 * c - top) / top for c in codes]
    return np.sign(mean) if method.votes else mean, own, 4 * ranks * float(np.finfo(shared.dtype).eps)


@every_level
@every_number
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_codes_are_summed_under_a_scale_that_all_share(ops, method, ranks, dtype):
    """Rounded in a division, a product and, to float16, a cast; the sum of scales in another order, a rounding a rank."""
    for n in (1, 2, 40, 333):
        arrays = normal(ranks, n, dtype)
        mean, own, rounding = summed_levels(ops, method, arrays)
        rounding += float(np.finfo(dtype).eps)
        least = 2.0**-24 if dtype == np.float16 else 0.0
        results = exchanged(ops, method, Reduce(), arrays)
        assert len({result.mean.tobytes() for result in results}) == 1
        assert results[0].mean.dtype == dtype
        np.testing.assert_allclose(results[0].mean, mean, rtol=rounding, atol=least)
        for x, sent, result in zip(arrays, own, results, strict=True):
            assert result.x.tobytes() == x.tobytes()
            assert (result.outcome.kept, result.outcome.positions, result.memory) == (n, None, {})
            if not method.votes:
                bound = rounding * (np.abs(x.astype(np.float64)) + np.abs(sent)) + least
                assert np.all(np.abs(result.kept_back - (x.astype(np.float64) - sent)) <= bound)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_reduce_of_levels_takes_two_rounds(ops, ranks):
    """QSGD(7), codes to 14: lanes for up to 14, 28 and 42, in 4, 5 and 6 bits, so 7, 6 and 5 in a word."""
    for method, kind, scales in ((QSGD(7), "max", 1), (QSGD(7, bucket=16), "max", 7), (SignSGD(scaled=True), "mean", 1)):
        in_a_word = (31, 15, 15)[ranks - 1] if isinstance(method, SignSGD) else (7, 6, 5)[ranks - 1]
        for dtype, width in ((np.float16, "float32"), (np.float32, "float32"), (np.float64, "float64")):
            for result in exchanged(ops, method, Reduce(), normal(ranks, 100, dtype)):
                words = -(-100 // in_a_word)
                assert result.handed == [(kind, width, scales * (8 if width == "float64" else 4)), ("sum", "int32", 4 * words)]


def test_a_majority_and_ties_by_hand(ops):
    """Of 3 ranks two win; of 2 that disagree none does; one alone is followed; where a rank has zeros only it still tosses."""
    rows = [[1, 1, -2, 5], [3, -1, -1, 7], [2, -9, 4, 1]]
    for result in exchanged(ops, SignSGD(), Reduce(), [np.array(row, np.float32) for row in rows]):
        assert result.mean.tolist() == [1, -1, -1, 1]
    for result in exchanged(ops, SignSGD(), Reduce(), [np.array(row, np.float32) for row in ([1, 2, -3], [-5, 1, -1])]):
        assert result.mean.tolist() == [0, 1, -1]
    for result in exchanged(ops, SignSGD(), Reduce(), [np.zeros(5, np.float32)] * 3):
        assert result.mean.tolist() == [0] * 5


@every_level
def test_zeros_everywhere_stay_zeros(ops, method):
    for result in exchanged(ops, method, Reduce(), [np.zeros(20, np.float32)] * 3):
        assert result.mean.tolist() == [0] * 20
        assert result.kept_back.tolist() == [0] * 20


@every_level
def test_a_rank_of_zeros_beside_others(ops, method):
    """Its scale is 0, the shared one is not."""
    arrays = [np.zeros(40, np.float32), *normal(2, 40, np.float32)]
    mean, _, rounding = summed_levels(ops, method, arrays)
    np.testing.assert_allclose(exchanged(ops, method, Reduce(), arrays)[1].mean, mean, rtol=rounding + 2.0**-23)


@pytest.mark.parametrize("ranks", [1, 2, 64])
def test_so_many_levels_that_float32_could_not_tell_the_sums_apart(ops, ranks):
    """Twice 2^20 levels of 64 ranks are 2^27; where a float32 is not enough the fraction is taken in double precision."""
    method = QSGD(2**20, norm="max")
    arrays = [np.array([1.0, 0.5, -0.25, 1 / 3], np.float32)] * ranks
    mean, _, _ = summed_levels(ops, method, arrays)
    got = exchanged(ops, method, Reduce(), arrays)[0].mean
    assert np.all(np.abs(got - mean) <= 2.0**-24 * np.abs(mean))
    assert got[:3].tolist() == [1.0, 0.5, -0.25]


@pytest.mark.parametrize("levels", [1, 7, 127, 2**20])
def test_too_many_levels_for_so_many_ranks_are_refused_at_start(levels):
    """31 bits hold 2^31 - 1; a plan asks before the first step."""
    most = (2**31 - 1) // (2 * levels)
    model = [Parameter("w", (4,), "float32")]
    build(model, layer_wise, Options(QSGD(levels), None, None, "reduce", 0, (), 0), most)
    build(model, layer_wise, Options(QSGD(levels), None, None, "gather", 0, (), 0), most + 1)
    for asked in ("reduce", Reduce()):
        with pytest.raises(ConfigError, match="use exchange='gather', or fewer levels"):
            build(model, layer_wise, Options(QSGD(levels), None, None, asked, 0, (), 0), most + 1)
    for other in (Identity(), RandomK(3), PowerSGD(1)):
        assert Reduce().check(other, most + 1) is None


# ---- PowerSGD --------------------------------------------------------------------------------------------------------------


def powered(method, matrices, q):
    """Vogels et al., algorithm 1 without error feedback: the mean's factors, what each rank sent, and how well p is told."""
    p = np.mean(matrices, axis=0) @ np.linalg.qr(q)[0]
    values = np.linalg.svd(p, compute_uv=False)
    p = np.linalg.qr(p)[0]
    sent = [m.T @ p for m in matrices]
    q = np.mean(sent, axis=0)
    return p @ q.T, [p @ one.T for one in sent], q, values[0] / values[-1]


def started(method, columns, rank, like):
    """The first q, the only thing that is taken from the code: uniform, the same on every rank."""
    ops = NumpyOps()
    form = method.form(like)
    assert (form.columns, form.rank) == (columns, rank)
    return method.first(ops, form, draw_of(0), np.zeros(1)).astype(np.float64)


@pytest.mark.parametrize(
    ("shape", "rows", "columns"), [((12, 9), 12, 9), ((6, 2, 5), 6, 10), ((150,), 12, 13), ((9, 12), 9, 12), ((40,), 6, 7)]
)
@pytest.mark.parametrize("rank", [1, 2])
@every_number
def test_two_rounds_of_power_iteration_that_start_where_the_last_step_ended(ops, shape, rows, columns, rank, ranks):
    """Four steps in float64: an error of the span of p, which the conditioning magnifies, and of the products."""
    method, n = PowerSGD(rank), int(np.prod(shape))
    q, memories = started(method, columns, rank, shape), None
    for step in range(4):
        arrays = normal(ranks, n, np.float64, seed=step)
        matrices = [np.concatenate([x, np.zeros(rows * columns - n)]).reshape(rows, columns) for x in arrays]
        mean, sent, q, condition = powered(method, matrices, q)
        results = exchanged(ops, method, Reduce(), arrays, step=step, shape=shape, memories=memories)
        memories = [result.memory for result in results]
        norm = np.linalg.norm(arrays)
        bound = 64 * 2.0**-52 * condition * norm * (step + 1)
        assert condition < 1e4
        assert len({result.mean.tobytes() for result in results}) == 1
        assert np.abs(results[0].mean - mean.reshape(-1)[:n]).max() <= bound
        for x, own, result in zip(arrays, sent, results, strict=True):
            assert result.x.tobytes() == x.tobytes()
            assert np.abs(result.kept_back - (x - own.reshape(-1)[:n])).max() <= bound
            assert result.handed == [("mean", "float64", 8 * rows * rank), ("mean", "float64", 8 * columns * rank)]
            assert result.outcome.kept == rank * (rows + columns)
            (name,) = result.memory
            assert name == "q"
            assert result.memory["q"].shape == (columns * rank,)
            assert Reduce().remembers(method, shape, ranks) == {"q": columns * rank}
        assert len({memory["q"].tobytes() for memory in memories}) == 1


@every_number
@pytest.mark.parametrize("rank", [1, 3])
def test_a_mean_of_no_higher_rank_arrives_whole(ops, ranks, rank):
    """Ranks whose matrices share their columns' span, so that the mean has no higher rank either."""
    rng = np.random.default_rng(rank)
    left = rng.standard_normal((20, rank))
    arrays = [(left @ rng.standard_normal((rank, 15))).reshape(-1) for _ in range(ranks)]
    for x, result in zip(arrays, exchanged(ops, PowerSGD(rank), Reduce(), arrays, shape=(20, 15)), strict=True):
        bound = 2.0**-52 * 1e4 * np.linalg.norm(arrays)
        assert np.abs(result.mean - np.mean(arrays, axis=0)).max() <= bound
        assert np.abs(result.kept_back).max() <= bound
        assert np.linalg.norm(x) > 1


def test_a_gradient_that_vanished_comes_back(ops):
    """A q of zeros spans nothing; the step after it is as the first."""
    arrays = normal(2, 108, np.float32)
    first = exchanged(ops, PowerSGD(2), Reduce(), arrays, shape=(12, 9))
    gone = exchanged(
        ops, PowerSGD(2), Reduce(), [np.zeros(108, np.float32)] * 2, shape=(12, 9), memories=[r.memory for r in first]
    )
    again = exchanged(ops, PowerSGD(2), Reduce(), arrays, shape=(12, 9), memories=[result.memory for result in gone])
    for before, between, after in zip(first, gone, again, strict=True):
        assert not np.count_nonzero(between.mean)
        assert not np.count_nonzero(between.memory["q"])
        assert after.mean.tobytes() == before.mean.tobytes()
        assert after.memory["q"].tobytes() == before.memory["q"].tobytes()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_finite_gradient_whose_factors_overflow_is_not_used(ops, ranks):
    """On one rank or on all; nothing is remembered, and nobody waits."""
    calm = normal(ranks, 1024, np.float32)
    memories = [result.memory for result in exchanged(ops, PowerSGD(1), Reduce(), calm, shape=(32, 32))]
    huge = np.full(1024, 3e38, np.float32)
    for arrays in ([huge] * ranks, [huge, *calm[1:]]):
        for x, result in zip(
            arrays, exchanged(ops, PowerSGD(1), Reduce(), arrays, shape=(32, 32), memories=memories), strict=True
        ):
            assert result.mean is None
            assert result.memory == {}
            assert result.kept_back.tobytes() == x.tobytes()


@pytest.mark.parametrize(("shape", "rank"), [((1,), 1), ((2, 2), 1), ((3, 3), 2), ((1, 50), 1), ((50, 1), 1), ((6,), 4), ((), 1)])
def test_dense_where_factors_would_not_be_smaller(ops, shape, rank):
    n = int(np.prod(shape))
    assert Reduce().remembers(PowerSGD(rank), shape, 3) == {}
    arrays = whole(2, n, np.float32)
    for result in exchanged(ops, PowerSGD(rank), Reduce(), arrays, shape=shape):
        np.testing.assert_array_equal(result.mean, np.mean(arrays, axis=0))
        assert result.kept_back.tolist() == [0] * n
        assert result.handed == [("mean", "float32", 4 * n)]
        assert (result.outcome.kept, result.memory) == (n, {})


@pytest.mark.parametrize(
    ("shape", "rank", "smaller"), [((4, 4), 1, True), ((4, 4), 2, False), ((3, 7), 2, True), ((5, 3), 9, False)]
)
def test_factors_are_sent_exactly_where_they_are_smaller(shape, rank, smaller):
    """8 of 16; 16 of 16; 20 of 21; rank 3 at most, 24 of 15."""
    assert bool(Reduce().remembers(PowerSGD(rank), shape, 3)) == smaller


@pytest.mark.parametrize(("ranks", "bad"), [(1, {0}), (3, {1}), (3, {0, 1, 2})])
def test_an_unhealthy_rank_ends_the_exchange_after_its_first_round(ops, ranks, bad):
    """Scales or factors that are not finite are not worked with, which costs less, and a QR of NaN may fail on some devices."""
    for method, kind in ((PowerSGD(1), "mean"), (QSGD(7), "max"), (SignSGD(scaled=True), "mean")):
        for result in exchanged(ops, method, Reduce(), normal(ranks, 108, np.float32), bad=bad, shape=(12, 9)):
            assert [handed[0] for handed in result.handed] == [kind]
            assert result.mean is None
