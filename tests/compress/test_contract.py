"""What every method must keep, on every backend: one table over ``NAMES``, so a new method is held to it at once.

Nothing is assumed of what the fields of a payload mean. What holds for one family of methods only asks for its base class.
"""

import dataclasses
import inspect
import math
import random
import re
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from methods import INSTANCES

from hvd_adaptive.collective import REDUCIBLE
from hvd_adaptive.compress import NAMES, NaturalCompression, PowerSGD, RandomK, TernGrad, Threshold
from hvd_adaptive.compress.base import ExchangeName, dtype_bits
from hvd_adaptive.compress.dense import Dense
from hvd_adaptive.compress.levels import Levels
from hvd_adaptive.compress.sparse import Sparse
from hvd_adaptive.exchange import NAMES as EXCHANGES
from hvd_adaptive.exchange import in_one_round
from hvd_adaptive.ops.numpy_ops import NumpyOps
from hvd_adaptive.prng import Draw, derive, root

METHODS = [pytest.param(method, id=repr(method)) for name in INSTANCES for method in INSTANCES[name]]
DTYPES = ("float16", "float32", "float64")
KEY = derive(derive(root(1), 2), 3)


def draw_of(step, rank=0):
    """The draws of one unit, a step each."""
    shared = derive(derive(root(1), step), 3)
    return Draw(shared, derive(shared, rank + 1))


DRAW = draw_of(2)
OTHERS = draw_of(2, rank=5)
"""Another rank's in the same step."""

every_method = pytest.mark.parametrize("method", METHODS)
few = settings(max_examples=3)  # of up to 50 elements each
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def only(holds):
    """Those methods for which it holds."""
    return pytest.mark.parametrize("method", [m for m in METHODS if holds(m.values[0])])


def is_exact(method):
    """True if what arrives of an element is the element, or its nearest shorter float, so that the difference is a float."""
    return isinstance(method, (Dense, Sparse)) or (isinstance(method, RandomK) and not method.unbiased)


def is_random(method):
    """True if what is sent may depend on the draw, in units of up to 256 elements, which DGC looks through."""
    return isinstance(method, (RandomK, Levels, NaturalCompression, PowerSGD))


@st.composite
def gradients(draw, method, dtype):
    """Vectors in the normal range of every code, where no code overflows: 0 or 2^-14 to 60000 in magnitude.

    What a method may magnify, by the number of elements or their norm, stays below 64, for float16 must hold that too.
    """
    magnitudes = st.floats(2.0**-14, 6e4 if is_exact(method) else 64.0, width=np.dtype(dtype).itemsize * 8)
    elements = st.one_of(st.just(0.0), magnitudes, magnitudes.map(lambda value: -value))
    return draw(hnp.arrays(dtype, st.integers(1, 50), elements=elements, fill=st.nothing()))


def encoded(ops, method, x, draw=DRAW):
    return method.encode(ops, ops.from_numpy(x), draw)


def roundtrip(ops, method, x, draw=DRAW):
    return ops.to_numpy(method.decode(ops, encoded(ops, method, x, draw), draw)).copy()


def contents(ops, payload):
    """All that a payload holds, as bytes."""
    arrays = [field.array for field in payload.fields] + ([] if payload.support is None else [payload.support])
    return [ops.to_numpy(array).tobytes() for array in arrays]


def check_close(method, actual, expected, *magnitudes):
    """Equal where nothing is rounded; else within 8 roundings of the ``magnitudes`` that were added up."""
    if is_exact(method):
        np.testing.assert_array_equal(actual.astype(np.float64), expected)
    else:
        bound = 8 * float(np.finfo(actual.dtype).eps) * sum(np.abs(m).astype(np.float64) for m in magnitudes)
        assert np.all(np.abs(actual.astype(np.float64) - expected) <= bound)


def test_the_table_holds_every_method():
    assert list(INSTANCES) == list(NAMES)
    assert all({type(method) for method in INSTANCES[name]} == {NAMES[name]} for name in NAMES)


# ---- encoding and decoding -------------------------------------------------------------------------------------------------


@every_method
@every_dtype
@few
@given(data=st.data())
def test_shape_and_dtype_come_back(ops, method, dtype, data):
    x = data.draw(gradients(method, dtype))
    y = roundtrip(ops, method, x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert np.isfinite(y).all()


@every_method
@every_dtype
@few
@given(data=st.data())
def test_encoding_leaves_the_gradient_alone(ops, method, dtype, data):
    x = data.draw(gradients(method, dtype))
    there = ops.from_numpy(x)
    payload = method.encode(ops, there, DRAW)
    method.decode(ops, payload, DRAW)
    assert ops.to_numpy(there).tobytes() == x.tobytes()


@every_method
@every_dtype
def test_a_long_gradient(ops, method, dtype):
    x = np.random.default_rng(3).standard_normal(10_007).astype(dtype)
    payload = encoded(ops, method, x)
    y = ops.to_numpy(method.decode(ops, payload, DRAW))
    assert (payload.n, payload.dtype, y.size, y.dtype) == (x.size, dtype, x.size, dtype)
    if isinstance(method, Threshold):  # nothing at all, where it is above the largest
        assert np.count_nonzero(y) == payload.kept == np.count_nonzero(np.abs(x.astype(np.float32)) >= np.float32(method.value))
        return
    assert np.count_nonzero(y) > 0
    if isinstance(method, PowerSGD):  # numbers of the factors of a matrix of 100 rows, and 101 columns to hold all
        assert payload.kept == method.rank * (100 + 101) == sum(ops.size(field.array) for field in payload.fields)
        return
    assert np.count_nonzero(y) <= payload.kept
    if isinstance(method, (Dense, NaturalCompression)):
        assert payload.kept == np.count_nonzero(y) == x.size


@every_method
@every_dtype
def test_zeros_stay_zeros(ops, method, dtype):
    for n in (1, 2, 100):
        np.testing.assert_array_equal(roundtrip(ops, method, np.zeros(n, dtype)), np.zeros(n))


@only(lambda method: isinstance(method, (Dense, RandomK)) or (isinstance(method, Sparse) and not method.counted))
@every_dtype
def test_a_single_element_always_travels(ops, method, dtype):
    for value in (1.5, -0.25, 2048.0):
        np.testing.assert_array_equal(roundtrip(ops, method, np.array([value], dtype)), [value])


@every_method
@every_dtype
@few
@given(data=st.data())
def test_the_same_draw_gives_the_same_bits(ops, method, dtype, data):
    x = data.draw(gradients(method, dtype))
    first, second = (encoded(ops, method, x) for _ in range(2))
    assert contents(ops, first) == contents(ops, second)
    assert roundtrip(ops, method, x).tobytes() == roundtrip(ops, method, x).tobytes()


@every_method
@every_dtype
@few
@given(data=st.data())
def test_any_rank_decodes_the_same(ops, method, dtype, data):
    """What is a rank's own must not be needed."""
    payload = encoded(ops, method, data.draw(gradients(method, dtype)))
    first, second = (ops.to_numpy(method.decode(ops, payload, draw, weight=0.5)).tobytes() for draw in (DRAW, OTHERS))
    assert first == second


@every_method
def test_global_generators_are_left_alone(ops, method):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    roundtrip(ops, method, np.arange(50, dtype=np.float32))
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


# ---- payloads --------------------------------------------------------------------------------------------------------------


@every_method
@every_dtype
def test_kept_is_the_number_of_elements_carried(ops, method, dtype):
    """All, or those at ``positions``, which are distinct; fields that are counted are as long; elsewhere nothing arrives."""
    for n in (1, 2, 3, 17, 1000, 1001):
        payload = encoded(ops, method, (np.arange(n) % 13 + 1).astype(dtype))
        assert (payload.n, payload.dtype) == (n, dtype)
        assert 0 <= payload.kept <= n
        if isinstance(method, PowerSGD):  # what is kept are the numbers that travel: those of factors, if they are fewer
            assert payload.kept == sum(ops.size(field.array) for field in payload.fields)
            assert (payload.kept < n) == (len(payload.fields) == 2)
            assert method.positions(payload) is None
            continue
        counted = [field for field in payload.fields if field.counted]
        assert all(ops.size(field.array) == payload.kept for field in counted)
        assert payload.kept >= 1 or counted
        where = method.positions(payload)
        if where is None:
            assert payload.kept == n
            continue
        positions = ops.to_numpy(where)
        assert positions.dtype == np.int64
        assert len(set(positions.tolist())) == positions.size == payload.kept
        assert all(0 <= position < n for position in positions.tolist())
        y = ops.to_numpy(method.decode(ops, payload, DRAW))
        assert set(np.flatnonzero(y).tolist()) <= set(positions.tolist())


@every_method
@every_dtype
def test_a_field_is_floats_or_codes_of_so_many_bits(ops, method, dtype):
    """A field of fewer bits than its dtype is packed, which takes whole numbers from 0 to below 2^bits."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 16, 17, 1000):
        for x in (np.zeros(n), np.full(n, -3.0), rng.standard_normal(n), np.eye(1, n, n - 1)[0] * 1000):
            for field in encoded(ops, method, x.astype(dtype)).fields:
                width = dtype_bits(ops.dtype(field.array))
                assert 0 <= field.bits <= width
                if field.bits < width:
                    codes = ops.to_numpy(field.array)
                    assert codes.dtype.kind in "iu"
                    assert all(0 <= code < 2**field.bits for code in codes.tolist())


@every_method
@every_dtype
def test_payloads_of_one_length_have_one_layout(ops, method, dtype):
    """Other ranks' buffers are cut as one's own: only counted fields may differ, and only in length."""
    rng = np.random.default_rng(1)
    for n in (1, 2, 50, 333):
        vectors = (np.zeros(n), np.ones(n), -rng.exponential(1, n), rng.standard_normal(n), np.eye(1, n)[0])
        payloads = [encoded(ops, method, x.astype(dtype), draw_of(2, rank)) for rank, x in enumerate(vectors)]
        layouts = {
            tuple((ops.dtype(f.array), f.bits, f.counted, None if f.counted else ops.size(f.array)) for f in payload.fields)
            for payload in payloads
        }
        assert len(layouts) == 1
        assert len({None if p.support is None else ops.to_numpy(p.support).tobytes() for p in payloads}) == 1


# ---- what is kept back -----------------------------------------------------------------------------------------------------


@every_method
@every_dtype
@few
@given(data=st.data())
def test_what_arrives_and_what_is_kept_back_are_the_gradient(ops, method, dtype, data):
    """Exactly, element by element, where what arrives is a shortened float: the error of that is itself a float."""
    x = data.draw(gradients(method, dtype))
    payload = encoded(ops, method, x)
    arrived = ops.to_numpy(method.decode(ops, payload, DRAW)).astype(np.float64)
    kept_back = ops.to_numpy(method.keep_back(ops, ops.from_numpy(x), payload, DRAW))
    assert kept_back.dtype == x.dtype
    check_close(method, kept_back, x.astype(np.float64) - arrived, x, arrived)


@every_method
@every_dtype
@few
@given(data=st.data())
def test_keeping_back_leaves_the_payload_alone(ops, method, dtype, data):
    """Its arrays travel at that moment; ``x`` is the one that was encoded, which the payload may alias."""
    x = data.draw(gradients(method, dtype))
    there = ops.from_numpy(x)
    payload = method.encode(ops, there, DRAW)
    before = contents(ops, payload)
    method.keep_back(ops, there, payload, DRAW)
    assert contents(ops, payload) == before


# ---- sums ------------------------------------------------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@few
@given(data=st.data(), weight=st.sampled_from([1.0, 0.5, -4.0, 0.0]))
def test_decoding_onto_adds_a_weighted_copy(ops, method, dtype, data, weight):
    """Whole numbers below 2^17 and weights that are powers of two: no sum is rounded where values arrive as they are."""
    x = np.rint(data.draw(gradients(method, dtype)))
    base = np.arange(x.size, dtype=dtype) - 7
    payload = encoded(ops, method, x)
    plain = roundtrip(ops, method, x).astype(np.float64)
    weighted = ops.to_numpy(method.decode(ops, payload, DRAW, weight=weight)).copy()
    onto = ops.to_numpy(method.decode(ops, payload, DRAW, onto=ops.from_numpy(base), weight=weight))
    assert weighted.dtype == onto.dtype == x.dtype
    check_close(method, weighted, weight * plain, weight * plain)
    check_close(method, onto, base + weight * plain, base, weight * plain)


@every_method
def test_decoding_onto_leaves_the_payload_alone(ops, method):
    """A weight of 1 is the case in which a copy may be spared."""
    for weight in (1.0, 0.5):
        payload = encoded(ops, method, np.arange(1.0, 21.0))
        before = contents(ops, payload)
        method.decode(ops, payload, DRAW, onto=ops.from_numpy(np.ones(20)), weight=weight)
        method.decode(ops, payload, DRAW, weight=weight)
        assert contents(ops, payload) == before


@every_method
def test_exchanges_are_legal_and_the_default_is_there(method):
    assert len(set(method.exchanges)) == len(method.exchanges)
    assert set(method.exchanges) <= set(get_args(ExchangeName))
    assert method.exchanges[0] in EXCHANGES


REDUCIBLY = only(lambda method: "reduce" in method.exchanges and in_one_round(method))
"""Those whose payload travels as it is; levels are summed under shared scales, and factors one after the other."""


def test_all_but_levels_and_factors_ride_in_one_round():
    riding = {type(m.values[0]).__name__ for m in METHODS if "reduce" in m.values[0].exchanges and in_one_round(m.values[0])}
    assert riding == {"Identity", "Half", "RandomK"}
    others = {type(m.values[0]) for m in METHODS if "reduce" in m.values[0].exchanges and not in_one_round(m.values[0])}
    assert all(issubclass(method, (Levels, PowerSGD)) for method in others)
    assert {method.__name__ for method in others} == {"TernGrad", "QSGD", "SignSGD", "PowerSGD"}


@REDUCIBLY
@every_dtype
def test_what_rides_a_reduce_is_one_vector_that_horovod_sums(ops, method, dtype):
    (field,) = encoded(ops, method, np.arange(9).astype(dtype)).fields
    assert ops.dtype(field.array) in REDUCIBLE
    assert ops.dtype(field.array).startswith("float")
    assert not field.counted


@REDUCIBLY
@every_dtype
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_codes_that_ride_a_reduce_really_sum(ops, method, dtype, ranks):
    """Decoding the mean of the payloads is the mean of the decoded; multiples of 4 up to 400, so nothing is rounded."""
    rng = np.random.default_rng(ranks)
    payloads = [encoded(ops, method, 4 * rng.integers(-100, 100, 37).astype(dtype), draw_of(2, rank)) for rank in range(ranks)]
    sent = [payload.fields[0].array for payload in payloads]
    mean = np.mean([ops.to_numpy(a).astype(np.float64) for a in sent], axis=0).astype(ops.dtype(sent[0]))
    fields = (payloads[0].fields[0]._replace(array=ops.from_numpy(mean)),)
    of_mean = ops.to_numpy(method.decode(ops, dataclasses.replace(payloads[0], fields=fields), DRAW))
    each = [ops.to_numpy(method.decode(ops, p, DRAW)).astype(np.float64) for p in payloads]
    assert np.count_nonzero(np.mean(each, axis=0))
    check_close(method, of_mean, np.mean(each, axis=0), np.mean(np.abs(each), axis=0))


@only(lambda method: method.carries_all)
@every_dtype
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_method_that_says_it_carries_all_carries_nan_and_infinity(ops, method, dtype, value):
    x = np.ones(9, dtype)
    x[5] = value
    np.testing.assert_array_equal(roundtrip(ops, method, x), x)


# ---- bounds ----------------------------------------------------------------------------------------------------------------

SHAPES = {
    "normal": lambda n: np.random.default_rng(n).standard_normal(n),
    "one element": lambda n: np.eye(1, n, n // 2)[0] * 3.0,
    "constant": lambda n: np.full(n, -2.0),
    "wide": lambda n: np.ldexp(1.0, np.arange(n) % 20 - 10),
}


@every_method
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [1, 7, 100])
def test_the_energy_that_arrives_is_within_omega(ops, method, shape, n):
    """E||D(C(x))||^2 <= (1 + omega) ||x||^2, to 6 standard errors of the mean where it is random at all."""
    if method.omega(n) == math.inf:
        return
    x = SHAPES[shape](n).astype(np.float32)
    few_will_do = not isinstance(ops, NumpyOps)  # which draws the same numbers, only slower
    draws = (40 if few_will_do else 200) if is_random(method) else 1
    sums = [np.sum(roundtrip(ops, method, x, draw_of(step)).astype(np.float64) ** 2) for step in range(draws)]
    bound = (1 + method.omega(n)) * np.sum(x.astype(np.float64) ** 2)
    assert method.omega(n) >= -1
    assert np.mean(sums) <= bound * (1 + 8 * 2.0**-23) + 6 * np.std(sums) / math.sqrt(len(sums))


@only(lambda method: not method.biased)
@pytest.mark.parametrize("n", [1, 7, 20])
def test_what_arrives_has_the_gradient_for_its_mean(ops, method, n):
    """Whole numbers up to 12, which every float holds; each element within 6 standard errors of many draws."""
    x = np.random.default_rng(n).integers(-12, 13, n).astype(np.float32)
    draws = 1000 if is_random(method) else 1
    arrived = np.stack([roundtrip(ops, method, x, draw_of(step, step % 3)) for step in range(draws)]).astype(np.float64)
    error = np.abs(arrived.mean(0) - x)
    assert np.all(error <= 6 * arrived.std(0) / math.sqrt(draws) + 8 * 2.0**-23 * np.abs(x).max())


@only(lambda method: not is_random(method))
@pytest.mark.parametrize("n", [1, 7, 256])
def test_what_is_not_random_does_not_depend_on_the_draw(ops, method, n):
    """Zeros and ties among the elements; a draw is taken where one is needed, and nowhere else."""
    x = np.random.default_rng(n).integers(-3, 4, n).astype(np.float32)
    assert len({tuple(contents(ops, encoded(ops, method, x, draw_of(step, step)))) for step in range(4)}) == 1


@every_method
def test_a_biased_method_keeps_something_back_by_default(method):
    """But for votes, which have no magnitude to take away, and clipped TernGrad, whose authors cut off for good."""
    cut_off = isinstance(method, TernGrad) and method.clip is not None
    assert bool(method.feedback.remembers) == (method.biased and not method.votes and not cut_off)


@every_method
def test_only_votes_have_no_bound(method):
    assert (method.omega(10) == math.inf) == method.votes


# ---- what the source says --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_module_says_what_the_method_does(name):
    header = inspect.getmodule(NAMES[name]).__doc__
    first, *rest = header.splitlines()
    assert first.endswith(".")
    fields = dict(match.groups() for line in rest if (match := re.match(r"(Contract|On wire|Source|Differs) +(\S.*)", line)))
    assert list(fields) == ["Contract", "On wire", "Source", "Differs"]


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_a_frozen_value(name):
    first, second = INSTANCES[name][0], INSTANCES[name][0]
    assert first == second
    assert hash(first) == hash(second)
    assert eval(repr(first), {NAMES[name].__name__: NAMES[name]}) == first  # noqa: S307 - repr is what the ranks compare
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.factor = 2.0
