"""Factors and branches that change at random: what was sent and what is kept back are all gradients so far, at every step.

Gradients are whole numbers, sums stay far below 2^53 and means over two ranks are halves, so all of it is exact in float64.
"""

import numpy as np
import pytest
from engine_runs import end

from hvd_adaptive import DGC, RandomK, RedSync, Residual, TopK
from hvd_adaptive.collective import Loopback
from hvd_adaptive.control import DENSE, Decision, Wanted
from hvd_adaptive.engine import Engine
from hvd_adaptive.flight import Arrivals
from hvd_adaptive.granularity import Parameter, entire_model
from hvd_adaptive.monitor import Meter
from hvd_adaptive.plan import Options, build

SIZES = {"wide": 700, "small": 13, "one": 1}
N = sum(SIZES.values())
STEPS = 125
"""For each of 16 ways: 2,000 in all."""
FACTORS = [DENSE, 2.0, 4.0, 10.0, 33.3, 1000.0]
WAYS = [(method, exchange) for method in (TopK, DGC, RedSync) for exchange in ("gather", "shared-support")]
WAYS += [(RandomK, "reduce"), (RandomK, "gather")]


def gradient_of(rank, step):
    """Some elements far larger than the rest, and in some steps nothing but zeros on one rank."""
    rng = np.random.default_rng([rank, step])
    gradient = rng.integers(-9, 10, N) * np.where(rng.random(N) < 0.05, 100, 1)
    return (gradient * (step % 11 != 10 or rank == 0)).astype(np.float64)


def count(factor):
    """N / factor to the nearest, a half going up, and one at least."""
    return max(1, int(N / factor + 0.5))


def choices(seed, steps=STEPS):
    """Factor, factors to measure (None: nothing) and which gain, the same on every rank."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        least = rng.integers(1, len(FACTORS))
        wanted = [None, Wanted(), Wanted(tuple(FACTORS[least:])), Wanted(tuple(FACTORS[least:]), "raw")][rng.integers(4)]
        yield float(rng.choice(FACTORS)), wanted


def train(ops, method, exchange, seed, steps=STEPS):
    """By rank: the mean and the residual of each step, how many elements were kept, and how often a ranking served."""
    parameters = [Parameter(name, (n,), "float64") for name, n in SIZES.items()]
    options = Options(method(10), None, Residual(), exchange, 0, (), 0)
    (plan,) = build(parameters, entire_model, options, 2)

    def of_rank(collective):
        engine = Engine(ops, collective, 3, "test", Meter())
        memory, seen = {}, []
        for step, (factor, wanted) in enumerate(choices(seed, steps)):
            now, arrivals = plan.at(factor), Arrivals()
            gradient = gradient_of(collective.rank, step)
            for slot in reversed(plan.unit.slots):
                part = ops.from_numpy(gradient[slot.start : slot.stop].copy())
                memory = engine.absorb(plan, memory, arrivals, slot, part)
            ready, memory = engine.prepare(plan, memory, arrivals, step, wanted)
            before = ops.to_numpy(ready.x).copy()
            flight = engine.launch(now, ready, Decision(factor))
            engine.send(flight)
            engine.collect([flight])
            assert flight.outcome is not None
            kept = flight.outcome.kept
            mean, memory = end(engine, flight, memory)
            served = ready.ranked is not None and ready.ranked.least <= factor
            residual = ops.to_numpy(memory["residual"]).copy()
            seen.append((ops.to_numpy(mean).copy(), residual, kept, served, factor, before, ready.measured, wanted))
        return seen

    return Loopback(2, ops).run(of_rank)


@pytest.mark.parametrize(("method", "exchange"), WAYS, ids=lambda value: getattr(value, "__name__", value))
def test_nothing_is_lost_however_factors_and_branches_change(ops, method, exchange):
    ranks = train(ops, method, exchange, seed=WAYS.index((method, exchange)))
    came, used, rankings, changes, before = np.zeros(N), np.zeros(N), 0, 0, None
    for step, both in enumerate(zip(*ranks, strict=True)):
        came += gradient_of(0, step) + gradient_of(1, step)
        means, residuals, kept, served, factors, vectors, *_ = zip(*both, strict=True)
        assert means[0].tobytes() == means[1].tobytes()
        used += 2 * means[0]
        np.testing.assert_array_equal(used + residuals[0] + residuals[1], came)
        if factors[0] == DENSE:
            assert kept == (N, N)
            assert not residuals[0].any()
            assert not residuals[1].any()
        else:
            assert max(kept) <= (2 if method is RedSync else 1) * count(factors[0])
            if method is TopK and exchange == "gather":  # none left behind is larger, whatever was measured before
                assert kept == (count(factors[0]),) * 2
                for x, residual in zip(vectors, residuals, strict=True):
                    assert np.abs(residual).max() <= np.sort(np.abs(x))[N - kept[0]]
        rankings += served[0]
        changes += factors[0] != before
        before = factors[0]
    assert changes > STEPS / 2
    assert (rankings > 5) == (method is not RandomK)
    assert np.count_nonzero(used) > N / 2


@pytest.mark.parametrize("method", [TopK, DGC, RedSync, RandomK])
def test_what_was_measured_is_what_was_there(ops, method):
    """Whole and raw energies against numpy; a norm is rounded and squared again, so to a few roundings."""
    for rank, seen in enumerate(train(ops, method, "gather", seed=99, steps=30)):
        for step, (_, _, _, _, _, x, measured, wanted) in enumerate(seen):
            assert (measured is None) == (wanted is None)
            if wanted is None:
                continue
            own, whole = np.sum(gradient_of(rank, step) ** 2), np.sum(x**2)
            assert measured.gradient == pytest.approx(own, rel=1e-13)
            assert measured.whole == pytest.approx(whole if wanted.factors and wanted.gain == "energy" else own, rel=1e-13)
            assert len(measured.kept) == len(wanted.factors)
            assert list(measured.kept) == sorted(measured.kept, reverse=True)
            if method is TopK and wanted.factors:
                of = np.sort((x if wanted.gain == "energy" else gradient_of(rank, step)) ** 2)[::-1]
                best = [of[: count(factor)].sum() for factor in wanted.factors]
                assert measured.kept == pytest.approx(best, rel=1e-13)
