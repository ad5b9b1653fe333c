"""Sent + residual = gradient + previous residual, exactly: the gradients are whole numbers, so that no sum is rounded."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hvd_adaptive.compress import NAMES, BFloat16, Half, Identity, RandomK, TopK
from hvd_adaptive.feedback import NoFeedback, Residual
from hvd_adaptive.granularity import Parameter, entire_model
from hvd_adaptive.ops.torch_ops import TorchOps
from hvd_adaptive.prng import derive, root

METHODS = [Identity(), Half(), BFloat16(), TopK(1), TopK(4), TopK(50), RandomK(1), RandomK(4), RandomK(50)]
every_method = pytest.mark.parametrize("method", METHODS, ids=repr)
KEY = derive(root(3), 1)


def test_the_table_holds_every_method():
    assert {type(method) for method in METHODS} == set(NAMES.values())


def unit_of(sizes, dtype="float32"):
    return entire_model([Parameter(f"p{i}", (n,), dtype) for i, n in enumerate(sizes)])[0]


def absorbed(ops, feedback, work, unit, gradient):
    """The work vector after all slots came, last one first as in a backward pass."""
    gradients = []
    for slot in reversed(unit.slots):
        gradients.append((slot, ops.from_numpy(gradient[slot.start : slot.stop])))
        work = feedback.absorb(ops, work, unit, *gradients[-1])
    return work, gradients


def sent_and_kept(ops, feedback, work, unit, method, key):
    payload = method.encode(ops, work, key)
    sent = ops.to_numpy(method.decode(ops, payload, key)).astype(np.float64).copy()
    return payload, sent, feedback.keep(ops, work, unit, method, payload, key)


@every_method
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(1,), (7,), (5, 1, 30)])
def test_nothing_is_lost_over_many_steps(ops, method, dtype, sizes):
    unit, rng, work = unit_of(sizes, dtype), np.random.default_rng(1), None
    total = sent_in_all = np.zeros(unit.size)
    for step in range(25):
        gradient = rng.integers(-1000, 1000, unit.size).astype(dtype)
        before = np.zeros(unit.size) if work is None else ops.to_numpy(work).astype(np.float64).copy()
        work, _ = absorbed(ops, Residual(), work, unit, gradient)
        assert ops.dtype(work) == dtype
        np.testing.assert_array_equal(ops.to_numpy(work), before + gradient)
        _, sent, work = sent_and_kept(ops, Residual(), work, unit, method, derive(root(0), step))
        total, sent_in_all = total + gradient, sent_in_all + sent
        np.testing.assert_array_equal(sent + ops.to_numpy(work), before + gradient)
    np.testing.assert_array_equal(sent_in_all + ops.to_numpy(work), total)
    assert np.count_nonzero(sent_in_all)


@given(steps=st.lists(st.sampled_from(METHODS), min_size=2, max_size=12), seed=st.integers(0, 1000))
def test_nothing_is_lost_when_method_and_factor_change_on_the_way(ops, steps, seed):
    unit, rng, work = unit_of((4, 9)), np.random.default_rng(seed), None
    balance = np.zeros(unit.size)
    for step, method in enumerate(steps):
        gradient = rng.integers(-1000, 1000, unit.size).astype(np.float32)
        work, _ = absorbed(ops, Residual(), work, unit, gradient)
        _, sent, work = sent_and_kept(ops, Residual(), work, unit, method, derive(root(seed), step))
        balance = balance + gradient - sent
        np.testing.assert_array_equal(ops.to_numpy(work), balance)


def test_a_dropped_element_is_sent_when_it_has_grown(ops):
    """By hand: of (3, 2) the 3 goes; 2 waits, grows to 4 and beats 3; then 3 + 3 goes."""
    unit, work, sent_by_step = unit_of((2,)), None, []
    for step in range(3):
        work, _ = absorbed(ops, Residual(), work, unit, np.array([3, 2], np.float32))
        _, sent, work = sent_and_kept(ops, Residual(), work, unit, TopK(2), derive(root(0), step))
        sent_by_step.append(sent.tolist())
    assert sent_by_step == [[3, 0], [0, 4], [6, 0]]
    np.testing.assert_array_equal(ops.to_numpy(work), [0, 2])


@every_method
@pytest.mark.parametrize("first", [True, False], ids=["first step", "later step"])
def test_undo_leaves_no_trace_of_the_step(ops, method, first):
    unit, rng, work = unit_of((4, 9)), np.random.default_rng(2), None
    if not first:
        work, _ = absorbed(ops, Residual(), None, unit, rng.integers(-1000, 1000, unit.size).astype(np.float32))
        _, _, work = sent_and_kept(ops, Residual(), work, unit, method, KEY)
    before = np.zeros(unit.size) if work is None else ops.to_numpy(work).copy()
    key = derive(root(9), 9)
    work, gradients = absorbed(ops, Residual(), work, unit, rng.integers(-1000, 1000, unit.size).astype(np.float32))
    payload, _, work = sent_and_kept(ops, Residual(), work, unit, method, key)
    undone = Residual().undo(ops, work, method, payload, key, gradients)
    np.testing.assert_array_equal(ops.to_numpy(undone), before)


@pytest.mark.parametrize("feedback", [Residual(), NoFeedback()], ids=repr)
@pytest.mark.parametrize("sizes", [(6,), (2, 4)])
@every_method
def test_the_users_gradients_are_left_alone(ops, feedback, sizes, method):
    unit, gradient = unit_of(sizes), np.arange(1, 7, dtype=np.float32)
    work = None
    for step in range(3):
        work, gradients = absorbed(ops, feedback, work, unit, gradient)
        key = derive(root(0), step)
        payload, _, work = sent_and_kept(ops, feedback, work, unit, method, key)
        for slot, there in gradients:
            np.testing.assert_array_equal(ops.to_numpy(there), gradient[slot.start : slot.stop])
    work = feedback.undo(ops, work, method, payload, key, gradients)
    for slot, there in gradients:
        np.testing.assert_array_equal(ops.to_numpy(there), gradient[slot.start : slot.stop])


def test_without_feedback_a_lone_gradient_is_not_copied(ops):
    unit, gradient = unit_of((6,)), ops.from_numpy(np.ones(6, np.float32))
    assert NoFeedback().absorb(ops, None, unit, unit.slots[0], gradient) is gradient
    assert NoFeedback().keep(ops, gradient, unit, TopK(2), TopK(2).encode(ops, gradient, KEY), KEY) is None


def test_without_feedback_several_gradients_share_a_buffer_that_serves_again(ops):
    unit = unit_of((2, 3))
    work, _ = absorbed(ops, NoFeedback(), None, unit, np.arange(1, 6, dtype=np.float32))
    np.testing.assert_array_equal(ops.to_numpy(work), [1, 2, 3, 4, 5])
    _, _, kept = sent_and_kept(ops, NoFeedback(), work, unit, TopK(2), KEY)
    assert kept is work
    again, _ = absorbed(ops, NoFeedback(), kept, unit, np.full(5, 9, np.float32))
    assert again is work
    np.testing.assert_array_equal(ops.to_numpy(again), [9] * 5)  # nothing of the last step
    assert NoFeedback().undo(ops, again, TopK(2), None, KEY, []) is again


@pytest.mark.parametrize(("given_dtype", "work_dtype"), [("bfloat16", "float32"), ("float16", "float16"), ("float64", "float64")])
def test_a_lone_bfloat16_gradient_is_widened_because_horovod_reduces_none(given_dtype, work_dtype):
    """Only torch has the dtype."""
    ops, unit = TorchOps(), unit_of((3,), given_dtype)
    gradient = torch.tensor([1.0, -2.5, 3.0], dtype=getattr(torch, given_dtype))
    work = NoFeedback().absorb(ops, None, unit, unit.slots[0], gradient)
    assert ops.dtype(work) == work_dtype
    assert work.tolist() == [1.0, -2.5, 3.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("feedback", [Residual(), NoFeedback()], ids=repr)
def test_several_narrow_gradients_are_gathered_up_in_float32(dtype, feedback):
    """And 2^-11 is added to 2 without loss, which neither bfloat16 nor float16 could hold."""
    ops, work = TorchOps(), None
    unit = entire_model([Parameter("a", (1,), dtype), Parameter("b", (2,), dtype)])[0]
    for value, expected in ((2.0, 2.0), (2.0**-11, 2.0 + 2.0**-11 if feedback.remembers else 2.0**-11)):
        for slot in unit.slots:
            gradient = torch.full((slot.stop - slot.start,), value, dtype=getattr(torch, dtype))
            work = feedback.absorb(ops, work, unit, slot, gradient)
        assert (ops.dtype(work), work.tolist()) == ("float32", [expected] * 3)


def test_only_error_feedback_is_state():
    assert Residual().remembers
    assert not NoFeedback().remembers
    assert Residual() == Residual()
    assert repr(NoFeedback()) == "NoFeedback()"
