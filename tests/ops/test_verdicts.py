"""What is known at once, what only a device knows, and how often anyone waits to learn of it."""

import itertools
import math

import numpy as np
import pytest
from fake_device import DeviceOps, on_device, waits

from hvd_adaptive.ops.verdicts import is_read, opposite, read, spoilt

OPS = DeviceOps()


def unread(value):
    return on_device(np.array([value]))


def test_all_are_read_at_once_in_their_order():
    for values in itertools.product([True, False], repeat=4):
        mixed = [values[0], unread(values[1]), values[2], unread(values[3])]
        with waits() as heard:
            assert read(OPS, mixed) == list(values)
        assert len(heard) == 1


def test_what_is_known_is_not_waited_for(ops):
    with waits() as heard:
        assert read(ops, [True, False]) == [True, False]
        assert read(ops, []) == []
        assert opposite(True) is False
        assert opposite(False) is True
    assert heard == []


@pytest.mark.parametrize("value", [True, False])
def test_an_unread_one_is_joined_and_turned_without_waiting(value):
    with waits() as heard:
        joined = [unread(value) & True, True & unread(value), unread(value) & unread(True)]
        turned = opposite(unread(value))
        assert not any(is_read(one) for one in [*joined, turned])
    assert heard == []
    assert read(OPS, [*joined, turned]) == [value] * 3 + [not value]


@pytest.mark.parametrize("value", [0.0, math.inf, math.nan])
def test_a_vector_is_spoilt_where_the_verdict_is_false(ops, value):
    x = ops.from_numpy(np.arange(3.0))
    assert spoilt(ops, x, True, value) is x
    np.testing.assert_array_equal(ops.to_numpy(spoilt(ops, x, False, value)), np.full(3, value))
    on_it = on_device(np.arange(3.0))
    with waits() as heard:
        left, taken = spoilt(OPS, on_it, unread(True), value), spoilt(OPS, on_it, unread(False), value)
    assert heard == []
    np.testing.assert_array_equal(OPS.to_numpy(left), np.arange(3.0))
    np.testing.assert_array_equal(OPS.to_numpy(taken), np.full(3, value))
    assert OPS.to_numpy(on_it).tolist() == [0.0, 1.0, 2.0]
