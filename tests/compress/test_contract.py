"""What every method must keep, on every backend: one table over ``NAMES``, so a new method is held to it at once."""

import dataclasses
import inspect
import random
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hvd_adaptive.collective import GATHERABLE, REDUCIBLE
from hvd_adaptive.compress import NAMES, compressor
from hvd_adaptive.exchange import NAMES as EXCHANGES
from hvd_adaptive.prng import derive, root


def _instances(name):
    """The method with each of some factors, if it has one."""
    fields = [field.name for field in dataclasses.fields(NAMES[name])]
    return [compressor(name, factor=factor) for factor in (1, 3, 1000)] if fields == ["factor"] else [compressor(name)]


METHODS = [pytest.param(method, id=repr(method)) for name in NAMES for method in _instances(name)]
DTYPES = ("float16", "float32", "float64")
KEY = derive(derive(root(1), 2), 3)

every_method = pytest.mark.parametrize("method", METHODS)
few = settings(max_examples=4)  # of up to 50 elements each
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@st.composite
def gradients(draw, dtype):
    """Vectors in the normal range of every code, where no code overflows: 0 or 2^-14 to 60000 in magnitude."""
    magnitudes = st.floats(2.0**-14, 6e4, width=np.dtype(dtype).itemsize * 8)
    elements = st.one_of(st.just(0.0), magnitudes, magnitudes.map(lambda value: -value))
    return draw(hnp.arrays(dtype, st.integers(1, 50), elements=elements, fill=st.nothing()))


def roundtrip(ops, method, x, key=KEY):
    payload = method.encode(ops, ops.from_numpy(x), key)
    return ops.to_numpy(method.decode(ops, payload, key)).copy()


@every_method
@every_dtype
@few
@given(data=st.data())
def test_shape_and_dtype_come_back(ops, method, dtype, data):
    x = data.draw(gradients(dtype))
    y = roundtrip(ops, method, x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert np.isfinite(y).all()


@every_method
@every_dtype
@few
@given(data=st.data())
def test_encoding_leaves_the_gradient_alone(ops, method, dtype, data):
    x = data.draw(gradients(dtype))
    there = ops.from_numpy(x)
    payload = method.encode(ops, there, KEY)
    method.decode(ops, payload, KEY)
    assert ops.to_numpy(there).tobytes() == x.tobytes()


@every_method
@every_dtype
def test_a_long_gradient(ops, method, dtype):
    x = np.random.default_rng(3).standard_normal(10_007).astype(dtype)
    payload = method.encode(ops, ops.from_numpy(x), KEY)
    assert ops.size(payload.arrays[0]) == method.kept(x.size)
    y = ops.to_numpy(method.decode(ops, payload, KEY))
    assert 0 < np.count_nonzero(y) <= method.kept(x.size)


@every_method
@every_dtype
def test_zeros_stay_zeros(ops, method, dtype):
    for n in (1, 2, 100):
        np.testing.assert_array_equal(roundtrip(ops, method, np.zeros(n, dtype)), np.zeros(n))


@every_method
@every_dtype
def test_a_single_element_always_travels(ops, method, dtype):
    for value in (1.5, -0.25, 2048.0):
        np.testing.assert_array_equal(roundtrip(ops, method, np.array([value], dtype)), [value])


@every_method
@every_dtype
@few
@given(data=st.data())
def test_the_same_key_gives_the_same_bits(ops, method, dtype, data):
    x = data.draw(gradients(dtype))
    first, second = (method.encode(ops, ops.from_numpy(x), KEY) for _ in range(2))
    assert [ops.to_numpy(a).tobytes() for a in first.arrays] == [ops.to_numpy(a).tobytes() for a in second.arrays]
    assert roundtrip(ops, method, x).tobytes() == roundtrip(ops, method, x).tobytes()


@every_method
def test_global_generators_are_left_alone(ops, method):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    roundtrip(ops, method, np.arange(50, dtype=np.float32))
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


@every_method
@every_dtype
def test_kept_is_what_travels(ops, method, dtype):
    """The first array holds the values; ``n`` and the dtype are told along."""
    for n in (1, 2, 3, 17, 1000, 1001):
        payload = method.encode(ops, ops.from_numpy(np.arange(1, n + 1).astype(dtype)), KEY)
        assert ops.size(payload.arrays[0]) == method.kept(n)
        assert 1 <= method.kept(n) <= n
        assert (payload.n, payload.dtype) == (n, dtype)


@every_method
@every_dtype
@few
@given(data=st.data())
def test_what_arrives_and_what_is_kept_back_are_the_gradient(ops, method, dtype, data):
    """Exactly, element by element: the error of rounding to a shorter float is itself a float."""
    x = data.draw(gradients(dtype))
    payload = method.encode(ops, ops.from_numpy(x), KEY)
    arrived = ops.to_numpy(method.decode(ops, payload, KEY)).astype(np.float64)
    kept_back = ops.to_numpy(method.keep_back(ops, ops.from_numpy(x), payload, KEY))
    assert kept_back.dtype == x.dtype
    np.testing.assert_array_equal(kept_back.astype(np.float64), x.astype(np.float64) - arrived)


@every_method
@every_dtype
@few
@given(data=st.data())
def test_keeping_back_leaves_the_payload_alone(ops, method, dtype, data):
    """Its arrays travel at that moment; ``x`` is the one that was encoded, which the payload may alias."""
    x = data.draw(gradients(dtype))
    there = ops.from_numpy(x)
    payload = method.encode(ops, there, KEY)
    before = [ops.to_numpy(a).tobytes() for a in payload.arrays]
    method.keep_back(ops, there, payload, KEY)
    assert [ops.to_numpy(a).tobytes() for a in payload.arrays] == before


@every_method
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@few
@given(data=st.data(), weight=st.sampled_from([1.0, 0.5, -4.0, 0.0]))
def test_decoding_onto_adds_a_weighted_copy(ops, method, dtype, data, weight):
    """Whole numbers below 2^17 and weights that are powers of two: no sum is rounded."""
    x = np.rint(data.draw(gradients(dtype)))
    base = np.arange(x.size, dtype=dtype) - 7
    payload = method.encode(ops, ops.from_numpy(x), KEY)
    plain = roundtrip(ops, method, x).astype(np.float64)
    weighted = ops.to_numpy(method.decode(ops, payload, KEY, weight=weight)).copy()
    onto = ops.to_numpy(method.decode(ops, payload, KEY, onto=ops.from_numpy(base), weight=weight))
    assert weighted.dtype == onto.dtype == x.dtype
    np.testing.assert_array_equal(weighted.astype(np.float64), weight * plain)
    np.testing.assert_array_equal(onto.astype(np.float64), base + weight * plain)


@every_method
def test_decoding_onto_leaves_the_payload_alone(ops, method):
    """A weight of 1 is the case in which a copy may be spared."""
    for weight in (1.0, 0.5):
        payload = method.encode(ops, ops.from_numpy(np.arange(1.0, 21.0)), KEY)
        before = [ops.to_numpy(a).tobytes() for a in payload.arrays]
        method.decode(ops, payload, KEY, onto=ops.from_numpy(np.ones(20)), weight=weight)
        method.decode(ops, payload, KEY, weight=weight)
        assert [ops.to_numpy(a).tobytes() for a in payload.arrays] == before


@every_method
def test_exchanges_are_legal_and_there_is_one(method):
    assert method.exchanges
    assert len(set(method.exchanges)) == len(method.exchanges)
    assert set(method.exchanges) <= set(EXCHANGES)


@every_method
@every_dtype
def test_every_array_may_take_the_collective_of_a_legal_exchange(ops, method, dtype):
    payload = method.encode(ops, ops.from_numpy(np.arange(9).astype(dtype)), KEY)
    takes = {"reduce": REDUCIBLE, "gather": GATHERABLE}
    for exchange in method.exchanges:
        assert [ops.dtype(a) for a in payload.arrays if ops.dtype(a) not in takes[exchange]] == []


@pytest.mark.parametrize("method", [m for m in METHODS if "reduce" in m.values[0].exchanges])
@every_dtype
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_codes_that_ride_a_reduce_really_sum(ops, method, dtype, ranks):
    """Decoding the mean of the payloads is the mean of the decoded; multiples of 4 up to 400, so nothing is rounded."""
    rng = np.random.default_rng(ranks)
    payloads = [method.encode(ops, ops.from_numpy(4 * rng.integers(-100, 100, 37).astype(dtype)), KEY) for _ in range(ranks)]
    sent = zip(*(payload.arrays for payload in payloads), strict=True)
    mean = [np.mean([ops.to_numpy(a).astype(np.float64) for a in arrays], axis=0) for arrays in sent]
    arrays = tuple(ops.from_numpy(m.astype(ops.dtype(a))) for m, a in zip(mean, payloads[0].arrays, strict=True))
    of_mean = ops.to_numpy(method.decode(ops, dataclasses.replace(payloads[0], arrays=arrays), KEY))
    mean_of = np.mean([ops.to_numpy(method.decode(ops, p, KEY)).astype(np.float64) for p in payloads], axis=0)
    assert np.count_nonzero(mean_of)
    np.testing.assert_array_equal(of_mean.astype(np.float64), mean_of)


@pytest.mark.parametrize("method", [m for m in METHODS if m.values[0].carries_all])
@every_dtype
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_method_that_says_it_carries_all_carries_nan_and_infinity(ops, method, dtype, value):
    x = np.ones(9, dtype)
    x[5] = value
    np.testing.assert_array_equal(roundtrip(ops, method, x), x)


@every_method
@every_dtype
def test_poison_shows_in_the_payload_alone_and_in_the_mean(ops, method, dtype):
    """How one rank tells all that its gradient was not finite; a mean with a healthy payload is poisoned too."""
    x = ops.from_numpy(np.arange(1, 10).astype(dtype))
    payload = method.encode(ops, x, KEY)
    bad = method.poison(ops, payload)
    assert method.is_poisoned(ops, bad)
    assert not method.is_poisoned(ops, payload)
    assert [(ops.dtype(a), ops.size(a)) for a in bad.arrays] == [(ops.dtype(a), ops.size(a)) for a in payload.arrays]
    if "reduce" in method.exchanges:
        means = tuple((a + b) / 2 for a, b in zip(bad.arrays, payload.arrays, strict=True))
        assert method.is_poisoned(ops, dataclasses.replace(payload, arrays=means))


@pytest.mark.parametrize("name", NAMES)
def test_the_module_says_what_the_method_does(name):
    header = inspect.getmodule(NAMES[name]).__doc__
    first, *rest = header.splitlines()
    assert first.endswith(".")
    fields = dict(match.groups() for line in rest if (match := re.match(r"(Contract|On wire|Source|Differs) +(\S.*)", line)))
    assert list(fields) == ["Contract", "On wire", "Source", "Differs"]


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_a_frozen_value(name):
    first, second = _instances(name)[0], _instances(name)[0]
    assert first == second
    assert hash(first) == hash(second)
    assert eval(repr(first), {NAMES[name].__name__: NAMES[name]}) == first  # noqa: S307 - repr is what the ranks compare
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.factor = 2.0
