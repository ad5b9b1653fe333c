"""What every method keeps under every exchange that is legal for it."""

import dataclasses

import numpy as np
import pytest
from driving import RANKS, draw_of, exchanged, whole
from methods import INSTANCES

from hvd_adaptive import ConfigError
from hvd_adaptive.compress import QSGD, Identity, SignSGD, Threshold, TopK
from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.exchange import NAMES as EXCHANGES
from hvd_adaptive.exchange import Gather, SharedSupport, TwoSided, choose

PAIRS = [
    pytest.param(method, EXCHANGES[name], id=f"{method!r}-{name}")
    for methods in INSTANCES.values()
    for method in methods
    for name in method.exchanges
]
every_pair = pytest.mark.parametrize(("method", "exchange"), PAIRS)


def is_first(method):
    return method in [methods[0] for methods in INSTANCES.values()]


@every_pair
@pytest.mark.parametrize("ranks", RANKS)
def test_ranks_hold_the_same_bits_and_reach_the_same_rounds_whatever_their_data(ops, method, exchange, ranks):
    """Gradients at random, zeros on some ranks or on all, all alike, and large ones; units from one element on."""
    sizes = (1, 2, 5, 40) if ranks < 8 else (3, 20)
    if ranks == 8 and not is_first(method):
        return
    for n in sizes:
        rng = np.random.default_rng([n, ranks])
        usual = [rng.standard_normal(n).astype(np.float32) for _ in range(ranks)]
        some = [x if rank % 2 else np.zeros(n, np.float32) for rank, x in enumerate(usual)]
        seen = set()
        for arrays in (usual, some, [np.zeros(n, np.float32)] * ranks, [np.full(n, 1e3, np.float32)] * ranks):
            results = exchanged(ops, method, exchange, arrays)
            assert len({result.mean.tobytes() for result in results}) == 1
            assert np.isfinite(results[0].mean).all()
            for x, result in zip(arrays, results, strict=True):
                assert result.x.tobytes() == x.tobytes()
                assert (result.mean.shape, result.kept_back.shape) == ((n,), (n,))
                assert 0 <= result.outcome.kept <= n
                seen.add(tuple((kind, dtype) for kind, dtype, _ in result.handed))
        assert len(seen) == 1


@every_pair
@pytest.mark.parametrize(("ranks", "bad"), [(1, {0}), (2, {0}), (2, {1}), (3, {2}), (3, {0, 1, 2}), (8, {3, 4})])
def test_one_unhealthy_rank_is_seen_by_all(ops, method, exchange, ranks, bad):
    if ranks == 8 and not is_first(method):
        return
    for n in (1, 11):
        arrays = whole(ranks, n, np.float32)
        for x, result in zip(arrays, exchanged(ops, method, exchange, arrays, bad=bad), strict=True):
            assert result.mean is None
            assert result.memory == {}
            assert result.x.tobytes() == result.kept_back.tobytes() == x.tobytes()


@pytest.mark.parametrize("method", [methods[0] for methods in INSTANCES.values()], ids=repr)
def test_an_unhealthy_rank_among_many(ops, method):
    for name in method.exchanges[:1]:
        for result in exchanged(ops, method, EXCHANGES[name], whole(64, 5, np.float32), bad={63}):
            assert result.mean is None


@pytest.mark.parametrize("method", [method for methods in INSTANCES.values() for method in methods], ids=repr)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_gathered_the_mean_is_that_of_all_payloads(ops, method, ranks):
    """Or the sign of their sum; and what is kept back is the rest of a rank's own, each to a rounding for every term."""
    for n, dtype in ((1, np.float32), (40, np.float32), (41, np.float64)):
        arrays = [np.random.default_rng([n, rank]).standard_normal(n).astype(dtype) for rank in range(ranks)]
        own = []
        for rank, x in enumerate(arrays):
            payload = method.encode(ops, ops.from_numpy(x), draw_of(rank))
            own.append(ops.to_numpy(method.decode(ops, payload, draw_of(rank))).astype(np.float64))
        expected = np.sign(np.sum(own, axis=0)) if method.votes else np.mean(own, axis=0)
        eps = float(np.finfo(dtype).eps)
        for x, sent, result in zip(arrays, own, exchanged(ops, method, Gather(), arrays), strict=True):
            assert np.all(
                np.abs(result.mean - expected) <= (0 if method.votes else (ranks + 2) * eps) * np.mean(np.abs(own), axis=0)
            )
            assert np.all(np.abs(result.kept_back - (x - sent)) <= 8 * eps * (np.abs(x) + np.abs(sent)))


@pytest.mark.parametrize("exchange", [Gather(), SharedSupport(), TwoSided(feedback=False)], ids=repr)
def test_one_rank_may_have_nothing_to_send_and_another_all(ops, exchange):
    arrays = [np.zeros(9, np.float32), np.full(9, 4.0, np.float32), np.array([4.0, *[0.5] * 8], np.float32)]
    results = exchanged(ops, Threshold(1.0), exchange, arrays, step=1)
    if exchange.name == "shared-support":
        assert [result.outcome.kept for result in results] == [9] * 3
        expected = np.mean(arrays, axis=0)
    else:
        assert [result.outcome.kept for result in results] == [0, 9, 1]
        expected = np.array([8.0, *[4.0] * 8]) / 3
    for result in results:
        np.testing.assert_allclose(result.mean, expected, rtol=2.0**-22)


@pytest.mark.parametrize("ranks", [2, 8])
def test_votes_that_tie_cancel_whatever_the_exchange(ops, ranks):
    """Half of the ranks for, half against; and one vote more decides."""
    for more, expected in ((0, 0.0), (1, -1.0)):
        arrays = [np.full(6, -2.0 if rank < ranks // 2 + more else 7.0, np.float32) for rank in range(ranks)]
        for exchange in (Gather(), EXCHANGES["reduce"], TwoSided(Identity())):
            for result in exchanged(ops, SignSGD(), exchange, arrays):
                assert result.mean.tolist() == [expected] * 6


# ---- choices ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exchange", [TwoSided(), TwoSided(QSGD(7)), TwoSided(master=Identity(), feedback=True)], ids=repr)
def test_a_configured_exchange_is_used_as_it_is(exchange):
    for methods in INSTANCES.values():
        for method in methods:
            assert choose(method, exchange) is exchange


def test_two_sided_by_name_uses_the_ranks_method():
    assert choose(TopK(3), "two-sided") == TwoSided(None, None)


def test_shared_support_needs_positions():
    for methods in INSTANCES.values():
        for method in methods:
            if isinstance(method, Sparse):
                assert choose(method, SharedSupport()) == choose(method, "shared-support") == SharedSupport()
            else:
                with pytest.raises(ConfigError, match="cannot use exchange="):
                    choose(method, "shared-support")


@pytest.mark.parametrize("exchange", EXCHANGES.values(), ids=EXCHANGES)
def test_an_exchange_is_a_frozen_value(exchange):
    assert exchange == type(exchange)()
    assert hash(exchange) == hash(type(exchange)())
    with pytest.raises(dataclasses.FrozenInstanceError):
        exchange.master = None
