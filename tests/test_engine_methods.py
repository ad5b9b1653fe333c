"""Whole steps of every method under every legal exchange: what ranks hold, what is remembered, and that nothing is lost.

Gradients are multiples of 3 up to 48, whose mean over 3 ranks float16, in which Half sums them, holds exactly.
"""

from functools import partial

import numpy as np
import pytest
from engine_runs import SCOPES, SHAPES, gradients_of, plans_of, train
from methods import INSTANCES

from hvd_adaptive import Identity, RandomK, Residual, TopK
from hvd_adaptive.compress import DGC, QSGD, BFloat16, Half, NaturalCompression, PowerSGD, SignSGD, TernGrad
from hvd_adaptive.exchange import TwoSided
from hvd_adaptive.granularity import entire_model, layer_wise
from hvd_adaptive.ops.torch_ops import TorchOps

FIRST = [methods[0] for methods in INSTANCES.values()] + [
    SignSGD(scaled=True),
    TernGrad(clip=2.5),
    QSGD(3, bucket=16),
    PowerSGD(2),
]
PAIRS = [pytest.param(m, e, id=f"{m!r}-{e}") for m in FIRST for e in m.exchanges]
KEEPING = [pytest.param(m, e, id=f"{m!r}-{e}") for m in FIRST if not m.votes for e in m.exchanges]

every_scope = pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)


def spoil(gradients, value=np.nan):
    gradients["fc"][3, 1] = value
    return gradients


def unit_gradient(plan, gradients):
    return np.concatenate([gradients[slot.parameter.name].ravel() for slot in plan.unit.slots])


def check_identical(seen):
    for by_rank in seen:
        for number in range(len(by_rank[0][0])):
            assert len({means[number].tobytes() for means, _ in by_rank}) == 1


def check_balance(plans, seen, ranks, gradients, skipped=()):
    """P times the means so far, what ranks hold, and P times what masters hold, are all gradients so far.

    In each step at most 2 P + 8 roundings of numbers whose sum over ranks is at most P times the largest that occurs, and in the
    products of PowerSGD one for each rank of the matrix, of norms instead of elements.
    """
    for number, plan in enumerate(plans):
        came, used, largest = np.zeros(plan.unit.size), np.zeros(plan.unit.size), 0.0
        for step, by_rank in enumerate(seen):
            if (step, plan.unit.name) not in skipped:
                given = [unit_gradient(plan, gradients(rank, step)) for rank in range(ranks)]
                came += sum(given)
                used += ranks * by_rank[0][0][number]
                largest = max([largest, ranks * np.linalg.norm(by_rank[0][0][number]), *(np.linalg.norm(g) for g in given)])
            held = [memory[number] for _, memory in by_rank]
            largest = max([largest, *(np.linalg.norm(h["residual"]) for h in held)])
            total = used + sum(h["residual"] for h in held)
            if "master residual" in held[0]:
                total += ranks * np.concatenate([h["master residual"] for h in held])[: plan.unit.size]
            assert np.abs(total - came).max() <= (step + 1) * (2 * ranks + 8 + 4) * 2.0**-52 * ranks * largest


@pytest.mark.parametrize(("method", "exchange"), PAIRS)
@every_scope
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_hold_the_same_bits_and_what_is_remembered_is_told_beforehand(ops, method, exchange, scope, ranks):
    """Default feedback, float32; a checkpoint holds vectors of the lengths that the plan says."""
    plans = plans_of(method, scope, exchange, ranks=ranks, dtype="float32")
    seen, records = train(ops, ranks, plans, partial(gradients_of, dtype="float32"), steps=2)
    check_identical(seen)
    for by_rank in seen:
        for means, memory in by_rank:
            for plan, mean, held in zip(plans, means, memory, strict=True):
                assert np.isfinite(mean).all()
                assert mean.shape == (plan.unit.size,)
                assert {name: array.size for name, array in held.items()} == plan.remembers(ranks)
    assert all(record.finite for record in records)
    assert len(records) == 2 * len(plans)


@pytest.mark.parametrize(("method", "exchange"), KEEPING)
@every_scope
@pytest.mark.parametrize("ranks", [2, 3])
def test_nothing_is_lost(ops, method, exchange, scope, ranks):
    """Also where masters keep what they dropped: they are told to, for methods that would not."""
    plans = plans_of(method, scope, TwoSided(feedback=True) if exchange == "two-sided" else exchange, Residual(), ranks)
    seen, _ = train(ops, ranks, plans)
    check_identical(seen)
    check_balance(plans, seen, ranks, gradients_of)


@pytest.mark.parametrize(("method", "exchange"), PAIRS)
@pytest.mark.parametrize("scope", [layer_wise, entire_model])
def test_a_step_that_is_not_finite_leaves_all_memory_as_it_was(ops, method, exchange, scope):
    """The residual to a rounding where the gradient was added and is taken out again; velocity, q and masters' to the bit."""
    if method.carries_all and method.feedback.remembers == ():
        return

    def gradients(rank, step):
        return spoil(gradients_of(rank, step)) if (rank, step) == (1, 2) else gradients_of(rank, step)

    plans = plans_of(method, scope, exchange)
    seen, records = train(ops, 2, plans, gradients, steps=4)
    check_identical(seen)
    for rank in range(2):
        (_, before), (means, after), (later, _) = (seen[step][rank] for step in (1, 2, 3))
        for number, plan in enumerate(plans):
            hit = any(slot.parameter.name == "fc" for slot in plan.unit.slots)
            assert np.isnan(means[number]).all() == hit
            assert np.isfinite(later[number]).all()
            if hit:
                assert set(before[number]) == set(after[number])
                for name, array in before[number].items():
                    exact = name != "residual" or "velocity" in before[number]
                    rounding = 0 if exact else 2 * 2.0**-52 * (np.abs(array) + 48)
                    assert np.all(np.abs(after[number][name] - array) <= rounding)
    assert [(r.step, r.unit) for r in records if not r.finite] == [
        (2, plan.unit.name) for plan in plans if any(slot.parameter.name == "fc" for slot in plan.unit.slots)
    ]
    if method.feedback == Residual():
        hit = {(2, p.unit.name) for p in plans if any(slot.parameter.name == "fc" for slot in p.unit.slots)}
        check_balance(plans, seen, 2, gradients_of, hit)


@pytest.mark.parametrize("worker", [Identity(), Half(), QSGD(7)], ids=repr)
@pytest.mark.parametrize("master", [*(m for m in FIRST if m not in (Identity(), Half(), BFloat16())), None], ids=repr)
def test_no_master_swallows_or_keeps_what_is_not_finite(ops, worker, master):
    """Also where the ranks' own method would carry it, the result is NaN throughout, once, and is counted."""

    def gradients(rank, step):
        return spoil(gradients_of(rank, step)) if (rank, step) == (1, 1) else gradients_of(rank, step)

    seen, records = train(ops, 2, plans_of(worker, entire_model, TwoSided(master)), gradients, steps=4)
    dense = master is None and worker.carries_all
    for by_rank in zip(*seen, strict=True):
        means = [means[0] for means, _ in by_rank]
        assert [bool(np.isfinite(mean).all()) for mean in means] == [True, False, True, True]
        assert np.isnan(means[1]).all() or dense
    assert [record.step for record in records if not record.finite] == [1]


@pytest.mark.parametrize("method", [RandomK(2), TopK(2), PowerSGD(1), DGC(2)], ids=repr)
@pytest.mark.parametrize("exchange", ["auto", "two-sided"])
def test_gradients_at_the_limit_of_the_dtype_do_not_stay_for_ever(method, exchange):
    """Two steps overflow the residual or the sum; when all that waited was sent, everything is finite again. Numpy would warn."""

    def gradients(rank, step):
        given = gradients_of(rank, step, "float32")
        return {name: np.full_like(g, 3.4e38) for name, g in given.items()} if step < 2 else given

    seen, _ = train(TorchOps(), 2, plans_of(method, entire_model, exchange, dtype="float32"), gradients, steps=16)
    assert not np.isfinite(seen[1][0][0][0]).all()
    for by_rank in seen[-1]:
        means, memory = by_rank
        assert np.isfinite(means[0]).all()
        assert all(np.isfinite(array).all() for array in memory[0].values())


def test_factors_that_overflow_leave_all_memory_as_it_was(ops):
    """No gradient is infinite, so that no rank could have known; training goes on."""

    def gradients(rank, step):
        given = gradients_of(rank, step, "float32")
        if step == 1:
            given["fc"] = np.full((8, 9), 3e38, np.float32)
        return given

    plans = plans_of(PowerSGD(1), layer_wise, "reduce", dtype="float32")
    seen, records = train(ops, 2, plans, gradients)
    number = [plan.unit.name for plan in plans].index("fc")
    for rank in range(2):
        (_, before), (means, after), (later, _) = (seen[step][rank] for step in range(3))
        assert np.isnan(means[number]).all()
        assert np.isfinite(later[number]).all()
        assert after[number]["q"].tobytes() == before[number]["q"].tobytes()
    assert [(r.step, r.unit) for r in records if not r.finite] == [(1, "fc")]


# ---- what is random --------------------------------------------------------------------------------------------------------

ROUNDING = [QSGD(3), TernGrad(), NaturalCompression()]


def alike(rank, step):
    """The same gradient on all ranks in all steps."""
    return {name: np.linspace(0.1, 1.3, int(np.prod(shape))).reshape(shape) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("method", ROUNDING, ids=repr)
def test_rounding_differs_by_rank_step_and_seed_and_repeats(ops, method):
    plans = plans_of(method, entire_model, "gather", Residual())
    runs = [train(ops, 2, plans, alike, 2, seed)[0] for seed in (7, 7, 8)]
    first, again, other = ([memory[0]["residual"].tobytes() for _, memory in run[0]] for run in runs)
    assert first == again != other
    assert first[0] != first[1]
    plain, _ = train(ops, 1, plans_of(method, entire_model, "gather", False), alike, 3)
    assert len({by_rank[0][0][0].tobytes() for by_rank in plain}) == 3
    for a, b in zip(*runs[:2], strict=True):
        assert [means[0].tobytes() for means, _ in a] == [means[0].tobytes() for means, _ in b]


@pytest.mark.parametrize(("method", "exchange"), [p for p in PAIRS if p.values[1] in ("reduce", "shared-support")])
def test_the_order_in_which_a_rank_launches_its_units_does_not_matter(ops, method, exchange):
    """Random-k picks the same positions on all ranks although each begins with another unit."""
    plans = plans_of(method, layer_wise, exchange, ranks=3)
    usual, _ = train(ops, 3, plans)
    mixed, _ = train(ops, 3, plans, order=lambda rank, number: (number * (rank + 1) + rank) % len(plans))
    for a, b in zip(usual, mixed, strict=True):
        assert [m.tobytes() for means, _ in a for m in means] == [m.tobytes() for means, _ in b for m in means]


def test_random_positions_of_all_ranks_coincide(ops):
    seen, _ = train(ops, 3, plans_of(RandomK(4), feedback=False), alike, order=lambda rank, number: (number + rank) % 5)
    check_identical(seen)
    for by_rank in seen:
        for mean, size in zip(by_rank[0][0], (24, 3, 72, 12, 1), strict=True):
            assert np.count_nonzero(mean) == max(1, size // 4)


# ---- momentum, masters, bytes ----------------------------------------------------------------------------------------------


def test_dgc_that_drops_nothing_is_momentum_without_masking(ops):
    """u = m u + g, sent whole each step: the mean is the velocity of the mean gradient. With masking it is the gradient."""
    for masking, momentum in ((False, 0.5), (True, 0.0)):
        plans = plans_of(DGC(1, momentum=0.5, masking=masking), entire_model)
        seen, _ = train(ops, 2, plans, steps=4)
        velocity = np.zeros(112)
        for step, by_rank in enumerate(seen):
            velocity = momentum * velocity + sum(unit_gradient(plans[0], gradients_of(rank, step)) for rank in range(2)) / 2
            np.testing.assert_array_equal(by_rank[0][0][0], velocity)
            assert set(by_rank[0][1][0]) == {"residual", "velocity"}


@pytest.mark.parametrize("worker", [TopK(3), Identity(), Half()], ids=repr)
@pytest.mark.parametrize("ranks", [2, 3])
def test_masters_of_another_method_lose_nothing(ops, worker, ranks):
    for master in (TopK(4), QSGD(7), SignSGD(scaled=True), PowerSGD(1)):
        plans = plans_of(worker, entire_model, TwoSided(master, feedback=True), Residual(), ranks)
        seen, _ = train(ops, ranks, plans, steps=4)
        check_identical(seen)
        check_balance(plans, seen, ranks, gradients_of)


def test_bytes_are_those_of_all_rounds(ops):
    """Of 72 doubles: two factors; a scale and lanes of 5 bits, 6 in a word; a count and positions, then values and a mark."""
    expected = {
        (PowerSGD(1), "reduce"): 8 * (8 + 9),
        (QSGD(7), "reduce"): 8 + 4 * 12,
        (TopK(8), "shared-support"): 8 + 16 + 8 * 10,
        (TopK(8), "gather"): 8 * 9 + 16,
        (Identity(), "two-sided"): 8 * 72 + 8 * 36,
        (TopK(9), "two-sided"): 2 * (8 * 4 + 8) + (8 * 4 + 8),
    }
    for (method, exchange), sent in expected.items():
        _, records = train(ops, 2, plans_of(method, layer_wise, exchange), steps=1)
        assert {r.unit: r.bytes_sent for r in records}["fc"] == sent
