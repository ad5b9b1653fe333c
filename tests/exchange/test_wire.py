"""Buffers of all ranks, joined as a gather joins them, against what each rank put in; and two layouts byte by byte."""

import itertools
import struct
from dataclasses import replace

import numpy as np
import pytest
from methods import INSTANCES

from hvd_adaptive.compress import Payload, TopK
from hvd_adaptive.compress.base import Field
from hvd_adaptive.exchange import wire
from hvd_adaptive.prng import Draw, derive, root

METHODS = [method for methods in INSTANCES.values() for method in methods]
RANKS = [1, 2, 3, 8]
KEY = derive(root(4), 2)

every_size = pytest.mark.parametrize("ranks", RANKS)


def encoded(ops, method, n, dtype, rank):
    x = np.random.default_rng([n, rank]).standard_normal(n).astype(dtype)
    return method.encode(ops, ops.from_numpy(x), Draw(KEY, derive(KEY, rank + 1)))


def counted(ops, n, kept, dtype, rank=0):
    """A payload in which some fields are as long as there are elements kept, and some are not."""
    rng = np.random.default_rng([n, kept, rank])
    bits = (n - 1).bit_length()
    fields = (
        Field(ops.slice(ops.from_numpy(rng.permutation(n)), 0, kept), bits, counted=True),
        Field(
            ops.slice(ops.from_numpy(rng.standard_normal(n).astype(dtype)), 0, kept), np.dtype(dtype).itemsize * 8, counted=True
        ),
        Field(ops.from_numpy(rng.integers(0, 8, 5).astype(np.uint8)), 3),
        Field(ops.from_numpy(rng.standard_normal(1).astype(np.float32)), 32),
    )
    return Payload(fields, n, dtype, kept)


def told(ops, payload):
    """All that a receiver must know of a payload."""
    fields = [(ops.dtype(f.array), ops.size(f.array), f.bits, f.counted, ops.to_numpy(f.array).tobytes()) for f in payload.fields]
    support = None if payload.support is None else ops.to_numpy(payload.support).tolist()
    return fields, payload.n, payload.dtype, payload.kept, support


def check_round_trip(ops, payloads):
    buffers = [wire.pack(ops, payload) for payload in payloads]
    assert {ops.dtype(buffer) for buffer in buffers} == {"int64"}
    for template in payloads:  # every rank has its own
        received, healthy = wire.unpack(ops, ops.concat([*buffers, buffers[0][:0]]), len(payloads), template)
        assert healthy is True
        assert [told(ops, payload) for payload in received] == [told(ops, payload) for payload in payloads]
    return buffers


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@every_size
def test_every_methods_payload_arrives_at_every_rank(ops, method, dtype, ranks):
    """Odd lengths too, after which the next field or rank would begin where its dtype may not."""
    for n in (1, 2, 3, 5, 16, 17, 1001):
        buffers = check_round_trip(ops, [encoded(ops, method, n, dtype, rank) for rank in range(ranks)])
        assert len({ops.size(buffer) for buffer in buffers}) == 1 or any(
            f.counted for f in encoded(ops, method, n, dtype, 0).fields
        )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@every_size
def test_ranks_may_keep_different_numbers_of_elements(ops, dtype, ranks):
    """Nothing at all among them, on any of the ranks or on all."""
    for n in (1, 2, 9, 100):
        for counts in ([0] * ranks, [n] * ranks, [rank % (n + 1) for rank in range(ranks)], [n, *[0] * (ranks - 1)]):
            check_round_trip(ops, [counted(ops, n, kept, dtype, rank) for rank, kept in enumerate(counts)])


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_no_field_lies_where_its_dtype_may_not(ops, order):
    """Whatever their order in the payload; 3 halves before a double would leave it askew."""
    fields = [
        Field(ops.from_numpy(np.array([1.5, -2.0, 3.0], np.float16)), 16),
        Field(ops.from_numpy(np.array([np.pi])), 64),
        Field(ops.from_numpy(np.array([7.0, -8.0, 9.0], np.float32)), 32),
        Field(ops.from_numpy(np.array([1, 0, 30, 31, 5])), 5),
    ]
    payload = Payload(tuple(fields[number] for number in order), 5, "float32", 5)
    (buffer,) = check_round_trip(ops, [payload])
    assert ops.size(buffer) == -(-(8 + 12 + 6 + 5) // 8)
    check_round_trip(ops, [payload] * 3)


def test_bytes_of_same_length_by_hand(ops):
    """Of 20 elements: 3 floats, then positions of 5 bits in 5 bytes, then zeros up to a multiple of 8."""
    values, positions = [1.0, -2.0, 0.5], [19, 0, 7]
    fields = Field(ops.from_numpy(np.array(positions)), 5), Field(ops.from_numpy(np.array(values, np.float32)), 32)
    buffer = ops.to_numpy(wire.pack(ops, Payload(fields, 20, "float32", 3))).tobytes()
    stream = positions[0] | positions[1] << 5 | positions[2] << 10
    assert buffer == struct.pack("<3f", *values) + stream.to_bytes(5, "little") + bytes(7)


def test_bytes_with_a_count_by_hand(ops):
    """The number kept in 8 bytes; 2 doubles; 2 positions of 3 bits in 3 bytes; then zeros."""
    fields = (
        Field(ops.from_numpy(np.array([1.5, -3.0])), 64, counted=True),
        Field(ops.from_numpy(np.array([6, 1])), 3, counted=True),
    )
    buffer = ops.to_numpy(wire.pack(ops, Payload(fields, 8, "float64", 2))).tobytes()
    assert buffer == struct.pack("<q2d", 2, 1.5, -3.0) + (6 | 1 << 3).to_bytes(3, "little") + bytes(5)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["fixed, one word", "fixed, several words", "counted"])
def test_an_unhealthy_rank_anywhere_is_seen_by_all(ops, kind, ranks):
    """Every choice of unhealthy ranks."""
    for healthy in itertools.product([True, False], repeat=ranks):
        payloads = [
            {
                "fixed, one word": lambda rank=rank: encoded(ops, TopK(2), 2, "float32", rank),
                "fixed, several words": lambda rank=rank: encoded(ops, TopK(2), 50, "float32", rank),
                "counted": lambda rank=rank: counted(ops, 9, 3 * rank % 5, "float32", rank),
            }[kind]()
            for rank in range(ranks)
        ]
        buffers = [wire.pack(ops, payload, healthy=good) for payload, good in zip(payloads, healthy, strict=True)]
        assert all(ops.dtype(buffer) == "int64" for buffer in buffers)
        for template in payloads:
            received, known = wire.unpack(ops, ops.concat([*buffers, buffers[0][:0]]), ranks, template)
            assert known is all(healthy)
            if all(healthy):
                assert [told(ops, payload) for payload in received] == [told(ops, payload) for payload in payloads]
            else:
                assert received is None


@pytest.mark.parametrize("bad", [{0}, {7}, {3, 4}, set(range(8))])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_an_unhealthy_rank_of_eight_is_seen_whatever_the_method(ops, method, bad):
    for n in (1, 2, 3, 64):
        payloads = [encoded(ops, method, n, "float32", rank) for rank in range(8)]
        joined = ops.concat([wire.pack(ops, payload, healthy=rank not in bad) for rank, payload in enumerate(payloads)])
        assert wire.unpack(ops, joined, 8, payloads[0]) == (None, False)


def test_what_was_packed_is_left_alone_and_what_arrives_is_not_the_senders(ops):
    payload = encoded(ops, TopK(3), 50, "float32", 0)
    before = told(ops, payload)
    buffer = wire.pack(ops, payload)
    received = wire.unpack(ops, buffer, 1, replace(payload))[0][0]
    for field in received.fields:
        field.array[:] = 0
    assert told(ops, payload) == before
