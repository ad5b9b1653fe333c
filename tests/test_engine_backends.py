"""The same gradients give the same payloads, means, residuals and decisions, whichever backend runs the engine.

Gradients are floats like real ones, of three ranks, over 20 steps: what is kept back is no whole number after the first.
"""

from unittest import mock

import numpy as np
import pytest
from backends import backend
from engine_runs import SCOPES, SHAPES, plans_of, train
from methods import INSTANCES

from hvd_adaptive import collective
from hvd_adaptive.compress import DGC, QSGD, EFSign, OneBit, PowerSGD, RedSync, SignSGD, TernGrad

RANKS, STEPS = 3, 20
FIRST = [methods[0] for methods in INSTANCES.values()] + [SignSGD(scaled=True)]
PAIRS = [pytest.param(m, e, id=f"{m!r}-{e}") for m in FIRST for e in m.exchanges]
IN_ONE_WAY = [pair for pair in PAIRS if pair.values[1] != "two-sided"]
"""A master compresses means again, which torch rounds once less than numpy."""
LOOSE = (DGC, EFSign, OneBit, PowerSGD, QSGD, RedSync, SignSGD, TernGrad)
"""Methods for which torch adds up a unit in another order than numpy, or lists positions in another one."""


def gradients_of(rank, step):
    rng = np.random.default_rng([7, rank, step])
    return {
        name: np.asarray(rng.standard_normal(shape) * rng.exponential(size=shape)).astype("float32")
        for name, shape in SHAPES.items()
    }


def run(name, method, scope, exchange):
    """What every rank handed to collectives, by rank, name and step; the means and memories by step and rank; the records."""
    sent = {}
    start = collective._LoopbackRank.start

    def noting(self, kind, x, label, splits=()):
        handed = backend(name).to_numpy(x)
        sent.setdefault((self.rank, label), []).append((kind, handed.dtype.name, handed.tobytes(), splits))
        return start(self, kind, x, label, splits)

    with mock.patch.object(collective._LoopbackRank, "start", noting):
        seen, records = train(
            backend(name), RANKS, plans_of(method, scope, exchange, ranks=RANKS, dtype="float32"), gradients_of, STEPS
        )
    return sent, seen, [(r.step, r.unit, r.kept, r.bytes_sent) for r in records]


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize(("method", "exchange"), PAIRS)
def test_tensorflow_is_numpy_bit_for_bit(method, exchange, scope):
    sent, seen, records = run("tensorflow", method, scope, exchange)
    oracle_sent, oracle_seen, oracle_records = run("numpy", method, scope, exchange)
    assert sent == oracle_sent
    assert records == oracle_records
    for found, wanted in zip(arrays(seen), arrays(oracle_seen), strict=True):
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize(("method", "exchange"), IN_ONE_WAY)
def test_torch_sends_what_numpy_sends(method, exchange, scope):
    sent, seen, records = run("torch", method, scope, exchange)
    oracle_sent, oracle_seen, oracle_records = run("numpy", method, scope, exchange)
    exact = not isinstance(method, LOOSE)
    if exact:
        assert sent == oracle_sent
        assert records == oracle_records
    last = STEPS if exact else 1  # from then on what differs in the last bit may be picked or not
    for found, wanted in zip(arrays(seen[:last]), arrays(oracle_seen[:last]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * abs(wanted).max(initial=0))  # a few roundings of float32


def arrays(seen):
    """All means and memories, in order."""
    for of_ranks in seen:
        for means, held in of_ranks:
            yield from means
            for unit in held:
                yield from (unit[name] for name in sorted(unit))
