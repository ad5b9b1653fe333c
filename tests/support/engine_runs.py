"""Whole steps of small models through the engine over Loopback."""

from functools import partial

import numpy as np

from hvd_adaptive import Memory
from hvd_adaptive.collective import Loopback
from hvd_adaptive.engine import Engine
from hvd_adaptive.flight import Arrivals
from hvd_adaptive.granularity import Parameter, bucketed, entire_model, layer_wise
from hvd_adaptive.monitor import Meter
from hvd_adaptive.plan import Options, build

SHAPES = {"conv": (4, 3, 2), "bias": (3,), "fc": (8, 9), "row": (1, 12), "scale": ()}
SCOPES = {"layer-wise": layer_wise, "entire-model": entire_model, "bucketed": partial(bucketed, bucket_bytes=250)}


def plans_of(method, scope=layer_wise, exchange="auto", feedback=None, ranks=2, dtype="float64"):
    model = [Parameter(name, shape, dtype) for name, shape in SHAPES.items()]
    return build(model, scope, Options(method, None, feedback, exchange, 0, (), 0), ranks)


def gradients_of(rank, step, dtype="float64"):
    rng = np.random.default_rng([rank, step])
    return {name: np.asarray(3 * rng.integers(-16, 17, shape)).astype(dtype) for name, shape in SHAPES.items()}


def end(engine, flight, memory, weight=1.0):
    """The mean of a unit that was collected, and its memory, as in a step of this unit alone."""
    mean = engine.mean(flight, weight)
    return mean, engine.settle(flight, memory, sent=engine.read([flight]))


def train(ops, ranks, plans, gradients=gradients_of, steps=3, seed=7, order=lambda _, number: -number):
    """By step and rank the means and the memory of every unit, in numpy; and the records of rank 0."""
    monitors = [Memory() for _ in range(ranks)]

    def of_rank(collective):
        engine = Engine(ops, collective, seed=seed, label="test", meter=Meter(monitors[collective.rank]))
        memory, seen = [{} for _ in plans], []
        for step in range(steps):
            flights = {}
            given = {name: ops.from_numpy(g) for name, g in gradients(collective.rank, step).items()}
            for number in sorted(range(len(plans)), key=partial(order, collective.rank)):
                plan, arrivals = plans[number], Arrivals()
                for slot in plan.unit.slots:
                    memory[number] = engine.absorb(plan, memory[number], arrivals, slot, given[slot.parameter.name])
                ready, memory[number] = engine.prepare(plan, memory[number], arrivals, step)
                flights[number] = engine.launch(plan, ready)
                engine.send(flights[number])
            engine.collect(list(flights.values()))
            means = {}
            for number, flight in flights.items():
                mean, memory[number] = end(engine, flight, memory[number])
                means[number] = ops.to_numpy(mean).copy()
            engine.meter.end_step()
            held = [{n: ops.to_numpy(a).copy() for n, a in unit.items() if n != "gradient"} for unit in memory]
            seen.append(([means[number] for number in range(len(plans))], held))
        return seen

    return list(zip(*Loopback(ranks, ops).run(of_rank), strict=True)), monitors[0].records
