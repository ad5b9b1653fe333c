"""Sent + residual = gradient + previous residual, exactly: the gradients are whole numbers, so that no sum is rounded."""

from functools import partial

import numpy as np
import pytest
import units
from backends import also_on_a_device, backend
from hypothesis import given
from hypothesis import strategies as st
from units import absorbed

from hvd_adaptive import ConfigError
from hvd_adaptive.compress import BFloat16, Half, Identity, RandomK, TopK
from hvd_adaptive.feedback import MomentumCorrection, NoFeedback, Residual
from hvd_adaptive.granularity import Parameter, entire_model
from hvd_adaptive.ops.verdicts import read
from hvd_adaptive.prng import Draw, derive, root

METHODS = [
    Identity(), Half(), BFloat16(), TopK(1), TopK(4), TopK(50), RandomK(1), RandomK(4), RandomK(50)
]  # fmt: skip
"""Those that send elements as they are, or shortened, so that no rounding hides what is lost."""
every_method = pytest.mark.parametrize("method", METHODS, ids=repr)


def draw_of(step, seed=0):
    shared = derive(derive(root(seed), step), 1)
    return Draw(shared, derive(shared, 1))


unit_of = partial(units.unit_of, dtype="float32")


def residual_of(ops, memory, unit):
    return ops.to_numpy(memory["residual"]).astype(np.float64).copy() if "residual" in memory else np.zeros(unit.size)


def sent_and_kept(ops, feedback, memory, unit, method, draw):
    """What was sent, and the memory afterwards, as an exchange of one payload does it."""
    x, memory = feedback.complete(ops, memory, unit, 1)
    payload = method.encode(ops, x, draw)
    sent = ops.to_numpy(method.decode(ops, payload, draw)).astype(np.float64).copy()

    def keep_back(vector):
        return method.keep_back(ops, vector, payload, draw)

    return sent, feedback.keep(ops, memory, unit, keep_back, method.positions(payload))


@every_method
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(1,), (7,), (5, 1, 30)])
def test_nothing_is_lost_over_many_steps(ops, method, dtype, sizes):
    unit, rng, memory = unit_of(sizes, dtype=dtype), np.random.default_rng(1), {}
    total = sent_in_all = np.zeros(unit.size)
    for step in range(25):
        gradient = rng.integers(-1000, 1000, unit.size).astype(dtype)
        before = residual_of(ops, memory, unit)
        memory, _ = absorbed(ops, Residual(), memory, unit, gradient)
        x, memory = Residual().complete(ops, memory, unit, 1)
        assert ops.dtype(x) == dtype
        np.testing.assert_array_equal(ops.to_numpy(x), before + gradient)
        sent, memory = sent_and_kept(ops, Residual(), memory, unit, method, draw_of(step))
        total, sent_in_all = total + gradient, sent_in_all + sent
        np.testing.assert_array_equal(sent + residual_of(ops, memory, unit), before + gradient)
    np.testing.assert_array_equal(sent_in_all + residual_of(ops, memory, unit), total)
    assert np.count_nonzero(sent_in_all)


@given(steps=st.lists(st.sampled_from(METHODS), min_size=2, max_size=12), seed=st.integers(0, 1000))
def test_nothing_is_lost_when_method_and_factor_change_on_the_way(ops, steps, seed):
    unit, rng, memory = unit_of((4, 9)), np.random.default_rng(seed), {}
    balance = np.zeros(unit.size)
    for step, method in enumerate(steps):
        gradient = rng.integers(-1000, 1000, unit.size).astype(np.float32)
        memory, _ = absorbed(ops, Residual(), memory, unit, gradient)
        sent, memory = sent_and_kept(ops, Residual(), memory, unit, method, draw_of(step, seed))
        balance = balance + gradient - sent
        np.testing.assert_array_equal(residual_of(ops, memory, unit), balance)


def test_a_dropped_element_is_sent_when_it_has_grown(ops):
    """By hand: of (3, 2) the 3 goes; 2 waits, grows to 4 and beats 3; then 3 + 3 goes."""
    unit, memory, sent_by_step = unit_of((2,)), {}, []
    for step in range(3):
        memory, _ = absorbed(ops, Residual(), memory, unit, np.array([3, 2], np.float32))
        sent, memory = sent_and_kept(ops, Residual(), memory, unit, TopK(2), draw_of(step))
        sent_by_step.append(sent.tolist())
    assert sent_by_step == [[3, 0], [0, 4], [6, 0]]
    np.testing.assert_array_equal(residual_of(ops, memory, unit), [0, 2])


def test_a_residual_may_decay(ops):
    """By hand: the 2 that waits is halved, then (1 + 2) / 2, then (1.5 + 2) / 2; it would have grown to 6 and beaten the 5."""
    unit, memory, seen = unit_of((2,)), {}, []
    for step in range(3):
        memory, _ = absorbed(ops, Residual(0.5), memory, unit, np.array([5, 2], np.float32))
        sent, memory = sent_and_kept(ops, Residual(0.5), memory, unit, TopK(2), draw_of(step))
        seen.append((sent.tolist(), residual_of(ops, memory, unit).tolist()))
    assert seen == [([5, 0], [0, 1]), ([5, 0], [0, 1.5]), ([5, 0], [0, 1.75])]


@pytest.mark.parametrize("decay", [0.0, 0.25, 0.5])
def test_what_decays_is_lost_and_nothing_else(ops, decay):
    """The balance by the recurrence r' = decay (r + g - sent), exact for powers of two and few steps."""
    unit, rng, memory, expected = unit_of((4, 9)), np.random.default_rng(3), {}, np.zeros(13)
    for step in range(5):
        gradient = 64.0 * rng.integers(-8, 9, unit.size)
        memory, _ = absorbed(ops, Residual(decay), memory, unit, gradient.astype(np.float32))
        sent, memory = sent_and_kept(ops, Residual(decay), memory, unit, TopK(4), draw_of(step))
        expected = decay * (expected + gradient - sent)
        np.testing.assert_array_equal(residual_of(ops, memory, unit), expected)
    assert bool(np.count_nonzero(expected)) == (decay > 0)


@pytest.mark.parametrize("decay", [-0.1, 1.1, float("nan"), "1", None, True])
def test_a_decay_is_a_number_from_0_to_1(decay):
    with pytest.raises(ConfigError) as raised:
        Residual(decay)
    assert str(raised.value) == f"Residual: decay must be a number from 0 to 1, got {decay!r}"


@pytest.mark.parametrize("feedback", [Residual(), Residual(0.5)], ids=repr)
@every_method
@pytest.mark.parametrize("first", [True, False], ids=["first step", "later step"])
def test_undo_leaves_no_trace_of_the_step(ops, method, first, feedback):
    """Nothing was sent, so what decay would have taken is still there."""
    unit, rng, memory = unit_of((4, 9)), np.random.default_rng(2), {}
    if not first:
        memory, _ = absorbed(ops, feedback, memory, unit, rng.integers(-1000, 1000, unit.size).astype(np.float32))
        _, memory = sent_and_kept(ops, feedback, memory, unit, method, draw_of(0))
    before = residual_of(ops, memory, unit)
    memory, gradients = absorbed(ops, feedback, memory, unit, rng.integers(-1000, 1000, unit.size).astype(np.float32))
    x, memory = feedback.complete(ops, memory, unit, 2)
    method.encode(ops, x, draw_of(9))
    undone = feedback.undo(ops, memory, unit, gradients)
    np.testing.assert_array_equal(residual_of(ops, undone, unit), before)
    assert set(undone) == {"residual"}


@pytest.mark.parametrize("feedback", [Residual(), Residual(0.5), NoFeedback()], ids=repr)
@pytest.mark.parametrize("sizes", [(6,), (2, 4)])
@every_method
def test_the_users_gradients_are_left_alone(ops, feedback, sizes, method):
    unit, gradient = unit_of(sizes), np.arange(1, 7, dtype=np.float32)
    memory = {}
    for step in range(3):
        memory, gradients = absorbed(ops, feedback, memory, unit, gradient)
        if step < 2:
            _, memory = sent_and_kept(ops, feedback, memory, unit, method, draw_of(step))
        else:
            memory = feedback.undo(ops, memory, unit, gradients)
        for slot, there in gradients:
            np.testing.assert_array_equal(ops.to_numpy(there), gradient[slot.start : slot.stop])


@pytest.mark.parametrize("feedback", [Residual(), NoFeedback()], ids=repr)
@pytest.mark.parametrize("sizes", [(6,), (2, 4)])
def test_what_else_is_remembered_is_left_alone(ops, feedback, sizes):
    """The memory is shared with the exchange, which keeps vectors under names of its own."""
    unit, gradient = unit_of(sizes), np.arange(1, 7, dtype=np.float32)
    other = ops.from_numpy(np.arange(3.0))
    memory, gradients = absorbed(ops, feedback, {"factor": other}, unit, gradient)
    assert memory["factor"] is other
    _, kept = sent_and_kept(ops, feedback, dict(memory), unit, TopK(2), draw_of(0))
    assert kept["factor"] is other
    undone = feedback.undo(ops, dict(memory), unit, gradients)
    assert undone["factor"] is other
    np.testing.assert_array_equal(ops.to_numpy(other), [0, 1, 2])


@also_on_a_device
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("sizes", [(6,), (2, 4)])
@pytest.mark.parametrize("feedback", [Residual(), NoFeedback(), MomentumCorrection(0.5)], ids=repr)
def test_zeros_are_compressed_in_place_of_a_gradient_that_is_not_finite(ops, feedback, sizes, bad):
    """Codes of NaN could be any, and positions read from them."""
    unit, memory, verdicts = unit_of(sizes), {}, []
    for slot in unit.slots:
        gradient = np.ones(slot.stop - slot.start, np.float32)
        if slot is unit.slots[-1]:
            gradient[1] = bad
        memory, finite = feedback.absorb(ops, memory, unit, slot, ops.from_numpy(gradient), checks=True)
        verdicts.append(finite)
    x, _ = feedback.complete(ops, memory, unit, 3)
    assert read(ops, verdicts) == [True] * (len(sizes) - 1) + [False]
    assert ops.to_numpy(x).tolist() == [1.0] * unit.slots[-1].start + [0.0] * sizes[-1]


def test_without_feedback_a_lone_gradient_is_not_copied_and_not_kept(ops):
    unit, gradient = unit_of((6,)), ops.from_numpy(np.ones(6, np.float32))
    memory, _ = NoFeedback().absorb(ops, {}, unit, unit.slots[0], gradient, checks=True)
    x, memory = NoFeedback().complete(ops, memory, unit, 3)
    assert x is gradient
    _, kept = sent_and_kept(ops, NoFeedback(), memory, unit, TopK(2), draw_of(0))
    assert kept == {}
    assert NoFeedback().undo(ops, memory, unit, []) == {}


def test_without_feedback_several_gradients_share_a_buffer_that_serves_again(ops):
    unit = unit_of((2, 3))
    memory, _ = absorbed(ops, NoFeedback(), {}, unit, np.arange(1, 6, dtype=np.float32))
    x, memory = NoFeedback().complete(ops, memory, unit, 3)
    np.testing.assert_array_equal(ops.to_numpy(x), [1, 2, 3, 4, 5])
    _, kept = sent_and_kept(ops, NoFeedback(), memory, unit, TopK(2), draw_of(0))
    again, _ = absorbed(ops, NoFeedback(), kept, unit, np.full(5, 9, np.float32))
    assert NoFeedback().complete(ops, again, unit, 3)[0] is x
    np.testing.assert_array_equal(ops.to_numpy(x), [9] * 5)  # nothing of the last step
    undone = NoFeedback().undo(ops, again, unit, [])
    assert list(undone.values()) == [x]


@pytest.mark.parametrize(("given_dtype", "work_dtype"), [("bfloat16", "float32"), ("float16", "float16"), ("float64", "float64")])
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_lone_bfloat16_gradient_is_widened_because_horovod_reduces_none(framework, given_dtype, work_dtype):
    """Which numpy does not have."""
    ops, unit = backend(framework), unit_of((3,), dtype=given_dtype)
    gradient = ops.cast(ops.from_numpy(np.array([1.0, -2.5, 3.0])), given_dtype)
    memory, _ = NoFeedback().absorb(ops, {}, unit, unit.slots[0], gradient, checks=False)
    x, _ = NoFeedback().complete(ops, memory, unit, 1)
    assert ops.dtype(x) == work_dtype
    assert x.tolist() == [1.0, -2.5, 3.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("feedback", [Residual(), NoFeedback()], ids=repr)
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_several_narrow_gradients_are_gathered_up_in_float32(framework, dtype, feedback):
    """And 2^-11 is added to 2 without loss, which neither bfloat16 nor float16 could hold."""
    ops, memory = backend(framework), {}
    unit = entire_model([Parameter("a", (1,), dtype), Parameter("b", (2,), dtype)])[0]
    for value, expected in ((2.0, 2.0), (2.0**-11, 2.0 + 2.0**-11 if feedback.remembers else 2.0**-11)):
        for slot in unit.slots:
            gradient = ops.cast(ops.from_numpy(np.full(slot.stop - slot.start, value)), dtype)
            memory, _ = feedback.absorb(ops, memory, unit, slot, gradient, checks=True)
        x, memory = feedback.complete(ops, memory, unit, 4)
        assert (ops.dtype(x), x.tolist()) == ("float32", [expected] * 3)


def test_what_overflows_as_it_is_taken_out_does_not_stay(ops):
    """Unbiased random-k takes out four times what was there, and with it would keep infinity."""
    unit, method = unit_of((40,)), RandomK(4, unbiased=True)
    memory, _ = absorbed(ops, Residual(), {}, unit, np.full(40, 3e38, np.float32))
    with np.errstate(over="ignore"):
        _, memory = sent_and_kept(ops, Residual(), memory, unit, method, draw_of(0))
    kept = residual_of(ops, memory, unit)
    assert sorted(kept.tolist()) == [0.0] * 10 + [float(np.float32(3e38))] * 30


def test_only_error_feedback_is_state():
    assert Residual().remembers == ("residual",)
    assert NoFeedback().remembers == ()
    assert Residual() == Residual(1) != Residual(0.5)
    assert repr(NoFeedback()) == "NoFeedback()"
