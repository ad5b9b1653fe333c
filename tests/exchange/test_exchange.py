"""Every legal pair of compressor and exchange against the mean, in numpy's float64, of what each rank's payload decodes to."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
from vectors import positions_bytes

from hvd_adaptive import BFloat16, ConfigError, Half, Identity, RandomK, TopK
from hvd_adaptive.collective import Loopback
from hvd_adaptive.compress.base import kept_count
from hvd_adaptive.exchange import NAMES as EXCHANGES
from hvd_adaptive.exchange import Gather, Outcome, Reduce, Situation, choose
from hvd_adaptive.prng import Draw, derive, root

METHODS = [
    Identity(), Half(), BFloat16(), TopK(1), TopK(3), TopK(500), RandomK(1), RandomK(3), RandomK(4, unbiased=True)
]  # fmt: skip
PLAIN = ("reduce", "gather")
"""The exchanges whose outcome is the mean of what each rank's payload of the whole unit decodes to."""
PAIRS = [pytest.param(m, EXCHANGES[e], id=f"{m!r}-{e}") for m in METHODS for e in m.exchanges if e in PLAIN]
RANKS = [1, 2, 3, 8, 64]
KEY = derive(root(4), 2)

every_pair = pytest.mark.parametrize(("method", "exchange"), PAIRS)


@dataclass
class Result:
    """What one rank saw.

    Attributes:
        mean: the outcome's, or None.
        own: what its own payload decodes to.
        kept_back: what the outcome makes of ``x``, if gradients are checked, else nothing is kept.
        x: the vector when the outcome was there, before anything was kept back.
        handed: kind, name and bytes of each collective.
    """

    outcome: Outcome
    mean: np.ndarray | None
    own: np.ndarray
    kept_back: np.ndarray | None
    x: np.ndarray
    handed: list


def draw_of(rank):
    return Draw(KEY, derive(KEY, rank + 1))


def situation_of(ops, collective, n, **changes):
    return Situation(ops, collective.rank, collective.size, 0, draw_of(collective.rank), (n,), {}, **changes)


def drive(collective, rounds, handed):
    """Run ``rounds`` to their outcome as the engine does, one at a time."""
    needed = next(rounds)
    while True:
        name = f"unit.{len(handed)}"
        array = needed.array
        handed.append((needed.kind, name, array.nbytes))
        brought = collective.wait(collective.start(needed.kind, array, name, needed.splits))
        try:
            needed = rounds.send(brought)
        except StopIteration as end:
            return end.value


def exchanged(ops, method, exchange, arrays, bad=(), checks=True):
    """What every rank saw. ``bad`` ranks hold a gradient that was not finite."""

    def step(collective):
        x, handed = ops.from_numpy(arrays[collective.rank]), []
        draw = draw_of(collective.rank)
        own = method.decode(ops, method.encode(ops, ops.from_numpy(arrays[collective.rank]), draw), draw)
        situation = situation_of(ops, collective, ops.size(x), checks=checks, healthy=collective.rank not in bad)
        outcome = drive(collective, exchange.rounds(method, x, situation), handed)
        after = ops.to_numpy(x).copy()
        mean = None if outcome.mean is None else ops.to_numpy(outcome.mean).copy()
        kept_back = ops.to_numpy(outcome.keep_back(x)).copy() if checks else None
        return Result(outcome, mean, ops.to_numpy(own).astype(np.float64), kept_back, after, handed)

    return Loopback(len(arrays), ops).run(step)


def gradients(ranks, n, dtype):
    """Multiples of 4, so that the sum of up to 64 of them is exact even in float16."""
    return [4 * np.random.default_rng([n, rank]).integers(-3, 4, n).astype(dtype) for rank in range(ranks)]


def check_mean(ops, method, exchange, arrays):
    results, dtype = exchanged(ops, method, exchange, arrays), arrays[0].dtype
    own = [result.own for result in results]
    assert all(result.mean.dtype == dtype for result in results)
    assert len({result.mean.tobytes() for result in results}) == 1  # the same bits on every rank
    expected = np.mean(own, axis=0)
    if len(own) in (1, 2, 8, 64) and not unround(method):  # whole numbers over a power of two: nothing is rounded
        np.testing.assert_array_equal(results[0].mean.astype(np.float64), expected)
    else:  # each term may be rounded, and each partial sum, none of which exceeds the sum of magnitudes
        summed_in = np.float16 if (method, exchange) == (Half(), Reduce()) else dtype
        bound = (len(own) + 2) * float(np.finfo(summed_in).eps) * np.mean(np.abs(own), axis=0)
        assert np.all(np.abs(results[0].mean - expected) <= bound)
    return expected


def unround(method):
    """True if n/k, which is no power of two, is multiplied into the values."""
    return isinstance(method, RandomK) and method.unbiased


@every_pair
@pytest.mark.parametrize("ranks", RANKS)
def test_the_result_is_the_mean_of_what_was_sent(ops, method, exchange, ranks):
    arrays = gradients(ranks, 37, np.float32)
    expected = check_mean(ops, method, exchange, arrays)
    assert np.count_nonzero(expected)


@every_pair
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_any_length_and_dtype(ops, method, exchange, dtype):
    """A code of an odd number of 2-byte elements leaves the next array or rank askew unless it is cared for."""
    for n in (1, 2, 3, 5, 16, 1001):
        check_mean(ops, method, exchange, gradients(3, n, dtype))


@every_pair
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_what_was_sent_is_taken_out_and_the_vector_is_left_alone_until_then(ops, method, exchange, ranks):
    """x - D(C(x)) of a rank's own payload, although a mean of all came back; and where it came from, and how much it was."""
    for dtype in (np.float32, np.float64):
        arrays = gradients(ranks, 37, dtype)
        for x, result in zip(arrays, exchanged(ops, method, exchange, arrays), strict=True):
            assert result.x.tobytes() == x.tobytes()
            if unround(method):
                np.testing.assert_allclose(result.kept_back, x - result.own, rtol=0, atol=4 * 37 * np.finfo(dtype).eps * 12)
            else:
                np.testing.assert_array_equal(result.kept_back, x - result.own)
            assert result.outcome.kept == kept_count(getattr(method, "factor", 1), 37)
            assert result.outcome.memory == {}
            if result.outcome.positions is None:
                assert result.outcome.kept == 37
            else:
                where = set(ops.to_numpy(result.outcome.positions).tolist())
                assert len(where) == result.outcome.kept
                assert set(np.flatnonzero(result.own).tolist()) <= where


@every_pair
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_mean_belongs_to_its_rank(ops, method, exchange, ranks):
    """Whoever writes into it changes neither the vector, nor what is kept back, nor the mean that others hold."""
    arrays = gradients(ranks, 20, np.float32)

    def step(collective):
        x = ops.from_numpy(arrays[collective.rank])
        outcome = drive(collective, exchange.rounds(method, x, situation_of(ops, collective, 20)), [])
        kept_back = outcome.keep_back(x)
        before = ops.to_numpy(outcome.mean).copy(), ops.to_numpy(kept_back).copy()
        outcome.mean[:] = 77.0 + collective.rank
        return *before, ops.to_numpy(kept_back).copy()

    for mean, before, after in Loopback(ranks, ops).run(step):
        assert before.tobytes() == after.tobytes()
        assert np.all(np.abs(mean) < 70)


@every_pair
def test_nothing_dropped_is_the_plain_mean(ops, method, exchange):
    """Whole numbers below 2^8 survive every code that sends all elements."""
    arrays = gradients(8, 50, np.float32)
    if hasattr(method, "factor"):
        method = dataclasses.replace(method, factor=1)
    for result in exchanged(ops, method, exchange, arrays):
        np.testing.assert_array_equal(result.mean, np.mean(arrays, axis=0))


@every_pair
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_every_rank_holds_the_same_bits_where_sums_are_rounded(ops, method, exchange, ranks):
    """Which they would not if each began with its own payload."""
    arrays = [np.random.default_rng(rank).standard_normal(200).astype(np.float32) for rank in range(ranks)]
    results = exchanged(ops, method, exchange, arrays)
    assert len({result.mean.tobytes() for result in results}) == 1
    precision = np.float16 if (method, exchange) == (Half(), Reduce()) else np.float32
    magnitude = np.mean([np.abs(result.own) for result in results], axis=0)
    error = np.abs(results[0].mean - np.mean([result.own for result in results], axis=0))
    assert np.all(error <= (ranks + 2) * float(np.finfo(precision).eps) * magnitude)


def test_ranks_that_pick_other_positions_all_count(ops):
    """By hand: each rank's largest element is elsewhere, and rank 0's and 3's coincide."""
    arrays = [np.array(row, np.float32) for row in ([8, 1, 0], [1, -4, 2], [0, 1, 12], [-16, 0, 3])]
    for result in exchanged(ops, TopK(3), Gather(), arrays):
        assert result.mean.tolist() == [-2.0, -1.0, 3.0]


# ---- gradients that are not finite -----------------------------------------------------------------------------------------


@every_pair
@pytest.mark.parametrize(("ranks", "bad"), [(1, {0}), (2, {0}), (2, {1}), (3, {2}), (3, {0, 1, 2}), (8, {3, 4}), (64, {40})])
def test_one_unhealthy_rank_is_seen_by_all(ops, method, exchange, ranks, bad):
    """It costs no collective more, and leaves the vector alone."""
    for n in (1, 11):
        arrays = gradients(ranks, n, np.float32)
        well = exchanged(ops, method, exchange, arrays) if ranks < 8 else None
        results = exchanged(ops, method, exchange, arrays, bad=bad)
        assert all(result.mean is None for result in results)
        assert all(result.x.tobytes() == x.tobytes() for result, x in zip(results, arrays, strict=True))
        assert all(result.outcome.kept == kept_count(getattr(method, "factor", 1), n) for result in results)
        if well is not None:
            assert [[h[:2] for h in result.handed] for result in results] == [[h[:2] for h in r.handed] for r in well]


@every_pair
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_without_checks_a_bad_element_travels_as_any_other(ops, method, exchange, value):
    """Only where the method carries all is it left unchecked; the first element is where a mark would stand."""
    if not method.carries_all:
        return
    arrays = gradients(3, 9, np.float32)
    arrays[1][0] = value
    for result in exchanged(ops, method, exchange, arrays, checks=False):
        assert not np.isfinite(result.mean[0])
        # bfloat16 keeps 8 bits
        np.testing.assert_allclose(result.mean[1:], np.mean(arrays, axis=0)[1:], rtol=2.0**-9)


# ---- what it costs ---------------------------------------------------------------------------------------------------------


def bytes_of(method, n, width):
    """Of a payload: floats, and for top-k positions."""
    factor = getattr(method, "factor", 1)
    kept = min(n, max(1, int(n / factor + 0.5)))
    if isinstance(method, (Half, BFloat16)):
        return 2 * n
    return kept * width + (positions_bytes(kept, n) if isinstance(method, TopK) else 0)


@every_pair
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_bytes_handed_to_the_network_and_collectives_by_formula(ops, method, exchange, dtype):
    """One collective; a gathered buffer is a multiple of 8 bytes."""
    for n in (1, 3, 7, 64, 65, 1000):
        exact = bytes_of(method, n, np.dtype(dtype).itemsize)
        expected = ("mean", "unit.0", exact) if exchange == Reduce() else ("gather", "unit.0", (exact + 7) // 8 * 8)
        results = exchanged(ops, method, exchange, gradients(2, n, dtype))
        assert [result.handed for result in results] == [[expected]] * 2


# ---- choices ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_auto_is_the_first_legal_exchange(method):
    assert choose(method, "auto") == EXCHANGES[method.exchanges[0]]
    legal = [exchange for exchange in method.exchanges if exchange in EXCHANGES]
    assert [choose(method, name).name for name in legal] == legal


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_an_exchange_itself_may_be_asked_for(method):
    for exchange in EXCHANGES.values():
        if exchange.name in method.exchanges:
            assert choose(method, exchange) is exchange
        else:
            with pytest.raises(ConfigError, match="cannot use exchange="):
                choose(method, exchange)


def test_an_exchange_is_not_asked_for_by_its_class():
    with pytest.raises(ConfigError, match="unknown exchange"):
        choose(Identity(), Gather)


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
def test_the_plain_exchanges_remember_nothing_and_serve_any_number_of_ranks(exchange):
    if exchange.name in PLAIN:
        assert all(exchange.remembers(Identity(), (3, 4), size) == {} for size in (1, 2, 64))
        assert all(exchange.check(Identity(), size) is None for size in (1, 2, 64))


@pytest.mark.parametrize(("method", "requested"), [(m, e) for m in METHODS for e in EXCHANGES if e not in m.exchanges])
def test_an_illegal_pair_is_told_the_legal_ones(method, requested):
    with pytest.raises(ConfigError) as raised:
        choose(method, requested)
    assert str(raised.value).startswith(f"{method!r} cannot use exchange={requested!r}")
    assert str(raised.value).endswith(f"legal are auto, {', '.join(method.exchanges)}")


def test_positions_can_never_be_summed():
    with pytest.raises(
        ConfigError,
        match=r"TopK\(factor=10\.0\) cannot use exchange='reduce'.*legal are auto, gather, shared-support, two-sided$",
    ):
        choose(TopK(10), "reduce")


@pytest.mark.parametrize("requested", ["allreduce", "", "Gather", None])
def test_an_unknown_exchange_is_told_the_known_ones(requested):
    with pytest.raises(ConfigError) as raised:
        choose(Identity(), requested)
    legal = ", ".join(EXCHANGES)
    assert str(raised.value) == f"unknown exchange {requested!r}; legal are auto, {legal}, or an instance such as TwoSided()"
