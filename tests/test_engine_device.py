"""Whole steps on a device: what they compute is what they compute on a host, and how often the host waits for the device.

The device is one of the tests' own, which notes all waiting; see :mod:`fake_device`.
"""

import numpy as np
import pytest
from engine_runs import SHAPES, plans_of
from fake_device import DeviceOps, waits
from methods import INSTANCES

from hvd_adaptive import Memory
from hvd_adaptive.collective import Loopback
from hvd_adaptive.compress import DGC, QSGD, AdaptiveThreshold, RandomK, RedSync, SignSGD, TernGrad, Threshold, TopK
from hvd_adaptive.engine import Engine
from hvd_adaptive.flight import Arrivals
from hvd_adaptive.granularity import entire_model, layer_wise
from hvd_adaptive.monitor import Meter
from hvd_adaptive.ops.torch_ops import TorchOps

RANKS, STEPS = 2, 2
FIRST = [methods[0] for methods in INSTANCES.values()] + [SignSGD(scaled=True), TernGrad(clip=2.5), QSGD(3, bucket=16)]
PAIRS = [(m, e) for m in FIRST for e in m.exchanges]
COUNTED = (Threshold, AdaptiveThreshold, DGC, RedSync)
"""Methods of which nobody knows beforehand how much they send."""
KNOWN = [pair for pair in PAIRS if not isinstance(pair[0], COUNTED)]
BAD = (1, 1)
"""The rank and the step of a gradient that is not finite."""


def named(pairs):
    return pytest.mark.parametrize(("method", "exchange"), [pytest.param(m, e, id=f"{m!r}-{e}") for m, e in pairs])


def gradients_of(rank, step):
    rng = np.random.default_rng([7, rank, step])
    return {
        name: np.asarray(rng.standard_normal(shape) * rng.exponential(size=shape)).astype("float32")
        for name, shape in SHAPES.items()
    }


def spoilt(rank, step):
    gradients = gradients_of(rank, step)
    if (rank, step) == BAD:
        gradients["fc"][3, 1] = np.nan
    return gradients


def train(ops, plans, gradients, steps=STEPS):
    """Of every rank the means and memories of each step in numpy, the records, and by phase what waited in each step."""

    def of_rank(collective):
        monitor, seen, memory, waited = Memory(), [], [{} for _ in plans], []
        engine = Engine(ops, collective, seed=7, label="test", meter=Meter(monitor))
        for step in range(steps):
            given = {name: ops.from_numpy(g) for name, g in gradients(collective.rank, step).items()}
            flights, means = [], []
            with waits() as launching:
                for number, plan in enumerate(plans):
                    arrivals = Arrivals()
                    for slot in plan.unit.slots:
                        memory[number] = engine.absorb(plan, memory[number], arrivals, slot, given[slot.parameter.name])
                    ready, memory[number] = engine.prepare(plan, memory[number], arrivals, step)
                    flights.append(engine.launch(plan, ready))
                    engine.send(flights[-1])
            with waits() as collecting:
                engine.collect(flights)
                means = [engine.mean(flight) for flight in flights]
            with waits() as reading:
                sent = engine.read(flights)
            with waits() as settling:
                memory = [engine.settle(flight, memory[number], sent=sent) for number, flight in enumerate(flights)]
            engine.meter.end_step()
            waited.append((launching, collecting, reading, settling))
            held = [{name: ops.to_numpy(a).copy() for name, a in unit.items() if name != "gradient"} for unit in memory]
            seen.append(([ops.to_numpy(mean).copy() for mean in means], held))
        return seen, monitor.records, waited

    return list(zip(*Loopback(RANKS, ops).run(of_rank), strict=True))


def arrays(seen):
    """All means and memories, in order."""
    for means, held in seen:
        yield from means
        for unit in held:
            yield from (unit[name] for name in sorted(unit))


def check_same(on_device, on_host):
    """As far as a few roundings of float32 go, which torch's kernels and the host's compiled loops do in another order."""
    for found, wanted in zip(arrays(on_device), arrays(on_host), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.nan_to_num(abs(wanted)).max(initial=0))


@pytest.mark.parametrize("scope", [layer_wise, entire_model])
@named(KNOWN)
def test_a_step_waits_once_at_its_end(method, exchange, scope):
    """Whatever the number of units: nothing waits before all is sent, nor while means are made or residuals settled.

    Under shared support ranks learn from the one that picks how many elements it picked, once a unit. Where chunks of a two-sided
    exchange do not cut a unit evenly, a sparse method finds out which of what it sent is none of the unit's.
    """
    plans = plans_of(method, scope, exchange, ranks=RANKS, dtype="float32")
    _, _, waited = train(DeviceOps(), plans, gradients_of)
    checks = any(plan.checks for plan in plans) or method.carries_all
    for launching, collecting, reading, settling in (step for of_rank in waited for step in of_rank):
        assert launching == []
        at_most = {"shared-support": len(plans), "two-sided": len(plans) * isinstance(method, (TopK, RandomK))}.get(exchange, 0)
        assert len(collecting) <= at_most, collecting
        assert len(reading) == checks
        assert settling == []


@named(p for p in PAIRS if isinstance(p[0], COUNTED))
def test_a_method_that_finds_out_how_much_it_sends_waits_for_that(method, exchange):
    """To launch, at most as often as the documentation says, and once more to learn whether its gradients were finite."""
    plans = plans_of(method, entire_model, exchange, ranks=RANKS, dtype="float32")
    _, _, waited = train(DeviceOps(), plans, gradients_of)
    most = {Threshold: 1, AdaptiveThreshold: 1, DGC: 11, RedSync: 17}[type(method)]
    chunks = RANKS if exchange == "two-sided" else 1
    for launching, _, reading, settling in (step for of_rank in waited for step in of_rank):
        assert len(launching) <= chunks * most + 1
        assert len(reading) == 1
        assert settling == []


@named(PAIRS)
def test_a_step_computes_what_it_does_on_a_host(method, exchange):
    """The first in full; in later ones what differs in the last bit may be picked or not."""
    plans = plans_of(method, entire_model, exchange, ranks=RANKS, dtype="float32")
    on_device, records, _ = train(DeviceOps(), plans, gradients_of, steps=1)
    on_host, records_there, _ = train(TorchOps(), plans, gradients_of, steps=1)
    for rank in range(RANKS):
        check_same(on_device[rank], on_host[rank])
        for mine, its in zip(records[rank], records_there[rank], strict=True):
            assert (mine.step, mine.unit, mine.kept, mine.finite) == (its.step, its.unit, its.kept, its.finite)
    for others in on_device[1:]:
        for mine, its in zip(on_device[0][0][0], others[0][0], strict=True):
            assert mine.tobytes() == its.tobytes()  # ranks stay the same


@named(PAIRS)
def test_a_step_that_is_not_finite_takes_nothing_out_of_any_unit(method, exchange):
    """All units, on all ranks: the means of that step are NaN where they must be, and the memory is that of the step before."""
    plans = plans_of(method, layer_wise, exchange, ranks=RANKS, dtype="float32")
    on_device, records, waited = train(DeviceOps(), plans, spoilt, steps=2)
    on_host, records_there, _ = train(TorchOps(), plans, spoilt, steps=2)
    for rank in range(RANKS):
        (_, before), (means, after) = on_device[rank]
        for plan, mean, there in zip(plans, means, on_host[rank][1][0], strict=True):
            hit = plan.unit.name == "fc"
            assert np.isnan(mean).all() == (hit and plan.checks)
            np.testing.assert_array_equal(np.isnan(mean), np.isnan(there))
        for old, new in zip(before, after, strict=True):
            assert set(old) == set(new)
            for name, array in old.items():
                np.testing.assert_allclose(new[name], array, rtol=0, atol=4e-6)  # taken in and out again: ulps of up to 16
        flags = [(r.step, r.unit, r.finite) for r in records[rank]]
        assert sorted(flags) == sorted((r.step, r.unit, r.finite) for r in records_there[rank])
        assert [flag for flag in flags if not flag[2]] == [(1, "fc", False)]
        assert all(len(reading) <= 1 for _, _, reading, _ in waited[rank])
