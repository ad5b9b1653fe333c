"""Oracle: the algorithm of Lin et al. 2018 in numpy. Gradients are whole numbers, so that without clipping no sum is rounded."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import units
from units import absorbed

from hvd_adaptive import ConfigError, MomentumCorrection, Residual

SIZES = [(1,), (5, 1, 30)]


unit_of = partial(units.unit_of, dtype="float64")


def remembered(ops, memory):
    return {name: ops.to_numpy(memory[name]).copy() for name in ("residual", "velocity") if name in memory}


class Paper:
    """Algorithm 1 with momentum correction, local clipping and momentum factor masking."""

    def __init__(self, n, feedback, ranks):
        self.u, self.v, self.feedback, self.ranks = np.zeros(n), np.zeros(n), feedback, ranks

    def step(self, g):
        """What is compared against the threshold."""
        norm = math.sqrt(math.fsum(g**2))
        if self.feedback.clip is not None and norm > self.feedback.clip * self.ranks**-0.5:
            g = g * (self.feedback.clip * self.ranks**-0.5 / norm)
        m = self.feedback.momentum
        self.u = m * self.u + g
        self.v = self.v + (m * self.u + g if self.feedback.nesterov else self.u)
        return self.v.copy()

    def sent(self, positions):
        self.v[positions] = 0
        if self.feedback.masking:
            self.u[positions] = 0


def follow(ops, feedback, sizes, *, ranks=1, steps=20, dtype="float64", near=0.0):
    unit, rng, memory = unit_of(sizes, dtype=dtype), np.random.default_rng(4), {}
    paper = Paper(unit.size, feedback, ranks)
    for step in range(steps):
        gradient = rng.integers(-100, 101, unit.size).astype(dtype)
        memory, gradients = absorbed(ops, feedback, memory, unit, gradient)
        ready, memory = feedback.complete(ops, memory, unit, ranks)
        assert ops.dtype(ready) == dtype
        expected = paper.step(gradient.astype(np.float64))
        np.testing.assert_allclose(ops.to_numpy(ready), expected, rtol=near, atol=near * 1000)
        positions = rng.permutation(unit.size)[: rng.integers(0, max(2, unit.size // 3))] if step % 4 else np.arange(0)
        places = ops.from_numpy(positions)
        memory = feedback.keep(ops, memory, unit, lambda v, places=places: ops.clear(v, places), places)
        paper.sent(positions)
        found = remembered(ops, memory)
        np.testing.assert_allclose(found["residual"], paper.v, rtol=near, atol=near * 1000)
        np.testing.assert_allclose(found["velocity"], paper.u, rtol=near, atol=near * 1000)
        for slot, given in gradients:
            np.testing.assert_array_equal(ops.to_numpy(given), gradient[slot.start : slot.stop])
    return paper


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("masking", [False, True])
@pytest.mark.parametrize("momentum", [0, 0.5])
def test_follows_the_paper_exactly(ops, sizes, nesterov, masking, momentum):
    follow(ops, MomentumCorrection(momentum, nesterov, masking=masking), sizes)
    follow(ops, MomentumCorrection(momentum, nesterov, masking=masking), sizes, steps=8, dtype="float32")


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("ranks", [1, 4, 7])
def test_follows_the_paper_when_it_clips(ops, sizes, nesterov, ranks):
    """Norms are about 60 for one element and 350 for 36, so that of either some steps are cut and some are not."""
    for clip in (50.0, 350.0 * ranks**0.5, 1e9):
        follow(ops, MomentumCorrection(0.9, nesterov, clip), sizes, ranks=ranks, near=1e-13)


@pytest.mark.parametrize(("ranks", "factor"), [(1, 1), (4, 0.5)])
def test_clipping_by_hand(ops, ranks, factor):
    """(30, 40) has norm 50, which is cut to 5 / sqrt(ranks); (3, 4) to 5 / sqrt(ranks) too, and not at all on a lone rank."""
    unit, feedback = unit_of((1, 1), dtype="float32"), MomentumCorrection(0, clip=5)
    for gradient in ([30, 40], [3, 4]):
        memory, _ = absorbed(ops, feedback, {}, unit, np.array(gradient, np.float32))
        ready, _ = feedback.complete(ops, memory, unit, ranks)
        np.testing.assert_allclose(ops.to_numpy(ready), [3 * factor, 4 * factor], rtol=2**-22)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("clip", [1e-30, 1.0, 1e30])
def test_zeros_are_not_clipped_and_leave_zeros(ops, dtype, clip):
    unit, feedback = unit_of((2, 3), dtype=dtype), MomentumCorrection(clip=clip)
    memory, _ = absorbed(ops, feedback, {}, unit, np.zeros(5, dtype))
    ready, _ = feedback.complete(ops, memory, unit, 4)
    assert ops.to_numpy(ready).tolist() == [0] * 5


def test_a_norm_within_the_limit_leaves_every_bit(ops):
    unit, feedback = unit_of((3,), dtype="float32"), MomentumCorrection(0.9, clip=10)
    gradient = np.array([0.1, -1 / 3, 1e-40], np.float32)
    memory, _ = absorbed(ops, feedback, {}, unit, gradient)
    np.testing.assert_array_equal(ops.to_numpy(feedback.complete(ops, memory, unit, 2)[0]), gradient)


def test_momentum_gathers_while_an_element_waits(ops):
    """By hand, momentum 1/2 and gradient 1: velocities 1, 1.5, 1.75 add up to 1, 2.5, 4.25; sent and masked, it begins anew."""
    for masking, after in ((True, 1.0), (False, 1.875)):
        unit, feedback, memory, seen = unit_of((1,)), MomentumCorrection(0.5, masking=masking), {}, []
        for step in range(4):
            memory, _ = absorbed(ops, feedback, memory, unit, np.ones(1))
            ready, memory = feedback.complete(ops, memory, unit, 1)
            seen.append(float(ready[0]))
            positions = ops.from_numpy(np.arange(1 if step == 2 else 0))
            memory = feedback.keep(ops, memory, unit, lambda v, p=positions: ops.clear(v, p), positions)
        assert seen == [1, 2.5, 4.25, after]


def test_without_positions_all_was_sent_and_the_velocity_stays(ops):
    """A dense method under momentum correction is momentum itself."""
    unit, feedback = unit_of((2,)), MomentumCorrection(0.5)
    memory, _ = absorbed(ops, feedback, {}, unit, np.array([4.0, -2]))
    _, memory = feedback.complete(ops, memory, unit, 1)
    memory = feedback.keep(ops, memory, unit, lambda v: ops.full_like(v, 0.0), None)
    assert {name: array.tolist() for name, array in remembered(ops, memory).items()} == {"residual": [0, 0], "velocity": [4, -2]}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("completed", [False, True])
def test_undo_leaves_every_bit_of_residual_and_velocity(ops, sizes, nesterov, steps, completed):
    unit, rng, memory = unit_of(sizes, dtype="float32"), np.random.default_rng(0), {}
    feedback = MomentumCorrection(0.9, nesterov, clip=1.0)
    for _ in range(steps):
        memory, _ = absorbed(ops, feedback, memory, unit, rng.standard_normal(unit.size).astype(np.float32))
        _, memory = feedback.complete(ops, memory, unit, 2)
        positions = ops.from_numpy(np.arange(unit.size // 2))
        memory = feedback.keep(ops, memory, unit, lambda v, p=positions: ops.clear(v, p), positions)
    before = remembered(ops, memory)
    assert len(before) == (2 if steps else 0)
    for bad in (1e30, np.nan, np.inf):
        memory, gradients = absorbed(ops, feedback, memory, unit, np.full(unit.size, bad, np.float32))
        if completed:
            with np.errstate(all="ignore"):
                _, memory = feedback.complete(ops, memory, unit, 2)
        memory = feedback.undo(ops, memory, unit, gradients)
        after = remembered(ops, memory)
        assert set(memory) - {"gradient"} == set(after) == set(before)
        assert ("gradient" in memory) == (len(sizes) > 1)
        for name, array in before.items():
            assert after[name].tobytes() == array.tobytes()


def test_no_memory_but_what_a_checkpoint_holds_is_needed(ops):
    unit, feedback = unit_of((2, 3)), MomentumCorrection(0.5)
    memory, _ = absorbed(ops, feedback, {}, unit, np.arange(5.0))
    _, memory = feedback.complete(ops, memory, unit, 1)
    memory = feedback.keep(
        ops, memory, unit, lambda v: ops.clear(v, ops.from_numpy(np.array([4]))), ops.from_numpy(np.array([4]))
    )
    assert set(memory) - {"gradient"} == set(feedback.remembers)
    saved = {name: ops.from_numpy(array) for name, array in remembered(ops, memory).items()}
    vectors = []
    for start in (memory, saved):
        again, _ = absorbed(ops, feedback, start, unit, np.ones(5))
        vectors.append(ops.to_numpy(feedback.complete(ops, again, unit, 1)[0]).tolist())
    assert vectors[0] == vectors[1] == [1, 2.5, 4, 5.5, 1]


def test_a_narrow_gradient_is_remembered_in_float32(ops):
    unit, feedback = unit_of((2,), dtype="float16"), MomentumCorrection(0.5)
    memory, _ = absorbed(ops, feedback, {}, unit, np.array([1, 2], np.float16))
    ready, memory = feedback.complete(ops, memory, unit, 1)
    assert ops.dtype(ready) == "float32"
    memory = feedback.keep(ops, memory, unit, lambda v: v, None)
    assert {ops.dtype(memory[name]) for name in feedback.remembers} == {"float32"}


# ---- error feedback that fades ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0, 0.25, 0.5, 1])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_residual_fades_by_its_decay(ops, decay, sizes):
    """Half of everything is sent; powers of two leave nothing to round."""
    unit, feedback, memory = unit_of(sizes), Residual(decay), {}
    rng, residual = np.random.default_rng(0), np.zeros(unit.size)
    for _ in range(10):
        gradient = rng.integers(-100, 101, unit.size).astype(np.float64)
        memory, _ = absorbed(ops, feedback, memory, unit, gradient)
        ready, memory = feedback.complete(ops, memory, unit, 3)
        residual = residual + gradient
        np.testing.assert_array_equal(ops.to_numpy(ready), residual)
        memory = feedback.keep(ops, memory, unit, lambda v: ops.scale(v, 0.5), None)
        residual = decay * (residual * 0.5)
        np.testing.assert_array_equal(remembered(ops, memory)["residual"], residual)


def test_undo_takes_out_the_gradient_and_does_not_fade(ops):
    unit, feedback = unit_of((1, 2)), Residual(0.5)
    memory, _ = absorbed(ops, feedback, {}, unit, np.array([4.0, 8, -16]))
    memory = feedback.keep(ops, memory, unit, lambda v: v, None)
    memory, gradients = absorbed(ops, feedback, memory, unit, np.array([1.0, 1, 1]))
    memory = feedback.undo(ops, memory, unit, gradients)
    assert remembered(ops, memory)["residual"].tolist() == [2, 4, -8]


# ---- options ---------------------------------------------------------------------------------------------------------------

BAD = {
    "momentum": [-0.1, 1, 1.5, float("nan"), float("inf"), "0.9", None, False],
    "clip": [0, -1, float("nan"), float("inf"), "1", True],
    "nesterov": [0, 1, None, "yes"],
    "masking": [0, 1, None, "yes"],
}
LEGAL = {
    "momentum": "a number from 0 to 0.9999",
    "clip": "a number from 1e-30 to 1e+30 (a norm, or None)",
    "nesterov": "True or False",
    "masking": "True or False",
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_refuses_bad_values(name, value):
    with pytest.raises(ConfigError) as raised:
        MomentumCorrection(**{name: value})
    assert str(raised.value) == f"MomentumCorrection: {name} must be {LEGAL[name]}, got {value!r}"


@pytest.mark.parametrize("decay", [-0.1, 1.1, float("nan"), float("inf"), "1", None, True])
def test_refuses_a_bad_decay(decay):
    with pytest.raises(ConfigError) as raised:
        Residual(decay)
    assert str(raised.value) == f"Residual: decay must be a number from 0 to 1, got {decay!r}"


def test_usual_values():
    assert MomentumCorrection() == MomentumCorrection(0.9, False, None, True)
    assert MomentumCorrection.remembers == ("residual", "velocity")
    assert replace(MomentumCorrection(), clip=2).clip == 2.0
    assert Residual() == Residual(1)
