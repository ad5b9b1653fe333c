"""Every legal pair of compressor and exchange against the mean, in numpy's float64, of what each rank's payload decodes to."""

import dataclasses

import numpy as np
import pytest

from hvd_adaptive import BFloat16, ConfigError, Half, Identity, RandomK, TopK
from hvd_adaptive.collective import Loopback
from hvd_adaptive.compress import NAMES
from hvd_adaptive.exchange import NAMES as EXCHANGES
from hvd_adaptive.exchange import Gather, Reduce, choose
from hvd_adaptive.prng import derive, root

METHODS = [Identity(), Half(), BFloat16(), TopK(1), TopK(3), TopK(500), RandomK(1), RandomK(3)]
PAIRS = [pytest.param(m, EXCHANGES[e], id=f"{m!r}-{e}") for m in METHODS for e in m.exchanges]
RANKS = [1, 2, 3, 8, 64]
KEY = derive(root(4), 2)
UNKNOWN = object()

every_pair = pytest.mark.parametrize(("method", "exchange"), PAIRS)


class Counting:
    """A collective that adds up the bytes it is handed."""

    def __init__(self, ops, collective):
        self._ops, self._collective = ops, collective
        self.rank, self.size, self.handed = collective.rank, collective.size, 0
        self.names = []

    def allreduce(self, x, name):
        return self._start(self._collective.allreduce, x, name)

    def allgather(self, x, name):
        return self._start(self._collective.allgather, x, name)

    def _start(self, start, x, name):
        self.handed += len(self._ops.to_numpy(x).tobytes())
        self.names.append(name)
        return start(x, name)

    def wait(self, handle):
        return self._collective.wait(handle)


def gradients(ranks, n, dtype):
    """Whole numbers, so that the sum of up to 64 of them is exact even in float16."""
    return [np.random.default_rng([n, rank]).integers(-15, 16, n).astype(dtype) for rank in range(ranks)]


def exchanged(ops, method, exchange, arrays, weight=1.0, bad=()):
    """Each rank's result, what it decodes to by itself, stated bytes and bytes really handed over.

    Of more than 8 ranks only the outer ones decode, for it takes each as long as there are ranks.
    """
    decoding = {0, 1, len(arrays) - 1} if len(arrays) > 8 else range(len(arrays))

    def step(collective):
        counting = Counting(ops, collective)
        payload = method.encode(ops, ops.from_numpy(arrays[collective.rank]), KEY)
        own = ops.to_numpy(method.decode(ops, payload, KEY)).astype(np.float64).copy()
        sent = method.poison(ops, payload) if collective.rank in bad else payload
        received = exchange.wait(counting, exchange.start(ops, counting, sent, "unit"))
        assert all(name.startswith("unit") for name in counting.names)
        rest = own, exchange.nbytes(ops, payload), counting.handed
        if collective.rank not in decoding:
            return UNKNOWN, *rest
        mean = exchange.decode(ops, received, collective.size, sent, method, KEY, weight)
        return mean if mean is None else ops.to_numpy(mean), *rest

    return Loopback(len(arrays), ops).run(step)


def known(results):
    """The results of the ranks that decoded."""
    return [mean for mean, *_ in results if mean is not UNKNOWN]


def check_mean(ops, method, exchange, arrays, weight=1.0):
    results, dtype = exchanged(ops, method, exchange, arrays, weight), arrays[0].dtype
    own = [decoded for _, decoded, _, _ in results]
    means = known(results)
    assert all(mean.dtype == dtype for mean in means)
    assert len({mean.tobytes() for mean in means}) == 1  # the same bits on every rank
    expected = weight * np.mean(own, axis=0)
    if len(own) in (1, 2, 8, 64):  # whole numbers over a power of two: nothing is rounded
        np.testing.assert_array_equal(means[0].astype(np.float64), expected)
    else:  # each term may be rounded, and each partial sum, none of which exceeds the sum of magnitudes
        summed_in = np.float16 if (method, exchange) == (Half(), Reduce()) else dtype
        bound = len(own) * float(np.finfo(summed_in).eps) * np.mean(np.abs(own), axis=0)
        assert np.all(np.abs(means[0] - expected) <= abs(weight) * bound)
    return expected


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
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_mean_is_weighted(ops, method, exchange, ranks):
    """Also by the number of ranks, where each term's weight is 1 and a copy might be spared."""
    for weight in (2.0, -0.5, 3.0):
        check_mean(ops, method, exchange, gradients(ranks, 20, np.float32), weight)


@every_pair
def test_nothing_dropped_is_the_plain_mean(ops, method, exchange):
    """Whole numbers below 2^8 survive every code that sends all elements."""
    arrays = gradients(8, 50, np.float32)
    if method.kept(50) < 50:
        method = dataclasses.replace(method, factor=1)
    for mean, *_ in exchanged(ops, method, exchange, arrays):
        np.testing.assert_array_equal(mean, np.mean(arrays, axis=0))


@every_pair
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_every_rank_holds_the_same_bits_where_sums_are_rounded(ops, method, exchange, ranks):
    """Which they would not if each began with its own payload."""
    arrays = [np.random.default_rng(rank).standard_normal(200).astype(np.float32) for rank in range(ranks)]
    results = exchanged(ops, method, exchange, arrays)
    assert len({mean.tobytes() for mean in known(results)}) == 1
    precision = np.float16 if (method, exchange) == (Half(), Reduce()) else np.float32
    magnitude = np.mean([np.abs(own) for _, own, _, _ in results], axis=0)
    error = np.abs(results[0][0] - np.mean([own for _, own, _, _ in results], axis=0))
    assert np.all(error <= ranks * float(np.finfo(precision).eps) * magnitude)


def test_ranks_that_pick_other_positions_all_count(ops):
    """By hand: each rank's largest element is elsewhere, and rank 0's and 3's coincide."""
    arrays = [np.array(row, np.float32) for row in ([8, 1, 0], [1, -4, 2], [0, 1, 12], [-16, 0, 3])]
    for mean, *_ in exchanged(ops, TopK(3), Gather(), arrays):
        assert mean.tolist() == [-2.0, -1.0, 3.0]


@every_pair
@pytest.mark.parametrize(("ranks", "bad"), [(1, {0}), (2, {0}), (3, {2}), (3, {0, 1, 2}), (64, {40})])
def test_one_poisoned_payload_is_seen_by_all(ops, method, exchange, ranks, bad):
    results = exchanged(ops, method, exchange, gradients(ranks, 11, np.float32), bad=bad)
    assert all(mean is None for mean in known(results))


@every_pair
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_stated_bytes_are_those_handed_to_the_network(ops, method, exchange, dtype):
    width = np.dtype(dtype).itemsize
    per_element = {Half: 2, BFloat16: 2, TopK: width + 4}.get(type(method), width)
    for n in (1, 3, 7, 64):
        exact = per_element * method.kept(n)
        expected = exact if exchange == Reduce() else (exact + 7) // 8 * 8  # a gathered buffer is a multiple of 8 bytes
        results = exchanged(ops, method, exchange, gradients(2, n, dtype))
        assert [(stated, handed) for _, _, stated, handed in results] == [(expected, expected)] * 2


def test_a_gather_costs_one_collective(ops):
    def step(collective):
        counting = Counting(ops, collective)
        payload = TopK(4).encode(ops, ops.from_numpy(np.ones(20)), KEY)
        Gather().wait(counting, Gather().start(ops, counting, payload, "unit"))
        return counting.names

    assert Loopback(2, ops).run(step) == [["unit"]] * 2


@every_pair
def test_the_payload_that_was_sent_is_left_alone(ops, method, exchange):
    """Undoing a step decodes it once more."""

    def step(collective):
        payload = method.encode(ops, ops.from_numpy(np.arange(1.0, 30.0)), KEY)
        before = [ops.to_numpy(a).tobytes() for a in payload.arrays]
        received = exchange.wait(collective, exchange.start(ops, collective, payload, "unit"))
        mean = exchange.decode(ops, received, collective.size, payload, method, KEY, 1.0 * collective.size)
        ops.set_slice(mean, 0, ops.from_numpy(np.full(29, -1.0)))
        return before == [ops.to_numpy(a).tobytes() for a in payload.arrays]

    for ranks in (1, 2):
        assert all(Loopback(ranks, ops).run(step))


@pytest.mark.parametrize("name", NAMES)
def test_auto_is_the_first_legal_exchange(name):
    method = next(m for m in METHODS if type(m) is NAMES[name])
    assert choose(method, "auto") == EXCHANGES[method.exchanges[0]]
    assert [choose(method, legal).name for legal in method.exchanges] == list(method.exchanges)


@pytest.mark.parametrize(("method", "requested"), [(m, e) for m in METHODS for e in EXCHANGES if e not in m.exchanges])
def test_an_illegal_pair_is_told_the_legal_ones(method, requested):
    with pytest.raises(ConfigError) as raised:
        choose(method, requested)
    assert str(raised.value).startswith(f"{method!r} cannot use exchange={requested!r}")
    assert str(raised.value).endswith(f"legal are auto, {', '.join(method.exchanges)}")


def test_positions_can_never_be_summed():
    with pytest.raises(ConfigError, match=r"TopK\(factor=10\.0\) cannot use exchange='reduce'.*legal are auto, gather$"):
        choose(TopK(10), "reduce")


@pytest.mark.parametrize("requested", ["allreduce", "", "Gather", None])
def test_an_unknown_exchange_is_told_the_known_ones(requested):
    with pytest.raises(ConfigError) as raised:
        choose(Identity(), requested)
    assert str(raised.value) == f"unknown exchange {requested!r}; legal are auto, reduce, gather"
