"""The same gradients through both bindings on real ranks: the same means, residuals, bytes and decisions."""

from typing import Any

import horovod.tensorflow as hvd
import horovod.torch as hvd_torch
import numpy as np
import pytest
import tensorflow as tf
import torch
from launcher import ONE_ORDER
from rank_pool import pools

import hvd_adaptive.tensorflow as hva
import hvd_adaptive.torch as hva_torch
from hvd_adaptive import GraVAC, Memory
from hvd_adaptive.compress import Half, Identity, NaturalCompression, RandomK, Threshold, TopK

SHAPES = [(30, 40), (40,), (40, 25), (5,)]
STEPS = 20
STEERED = GraVAC(min_factor=4, max_factor=64, epsilon=0.5, omega=1e-12, window=5, every=4, probe_dense=False)
METHODS = [Identity(), Half(), TopK(10), RandomK(10), Threshold(0.5), NaturalCompression()]
CASES = [(scope, method, None) for scope in ("layer-wise", "entire-model", "bucketed") for method in METHODS]
CASES += [(scope, TopK(4), STEERED) for scope in ("layer-wise", "entire-model")]
OPTIONS = {"layer-wise": {"dense_below": 0}, "entire-model": {}, "bucketed": {"bucket_bytes": 5000}}


def gradients(rank: int, step: int) -> list[np.ndarray]:
    rng = np.random.default_rng([rank, step])
    return [(rng.standard_normal(shape) * rng.exponential(size=shape)).astype("float32") for shape in SHAPES]


def over_torch() -> Any:
    found = []
    for scope, method, controller in CASES:
        named = [(f"{number}.p", torch.nn.Parameter(torch.zeros(shape))) for number, shape in enumerate(SHAPES)]
        memory = Memory()
        compression = hva_torch.compression(scope, named, method, controller=controller, monitor=memory, **OPTIONS[scope])
        optimizer = hvd_torch.DistributedOptimizer(torch.optim.SGD([p for _, p in named], 1.0), named, compression=compression)
        for step in range(STEPS):
            optimizer.zero_grad()
            terms = zip(named, gradients(hvd_torch.rank(), step), strict=True)
            sum((p * torch.from_numpy(g)).sum() for (_, p), g in terms).backward()
            optimizer.step()
        kept = {unit: {n: a.numpy() for n, a in part.items()} for unit, part in compression.state_dict()["memory"].items()}
        found.append(([-p.detach().numpy() for _, p in named], kept, told(memory)))
    return found


def over_tensorflow() -> Any:
    found = []
    for scope, method, controller in CASES:
        variables, memory = [tf.Variable(tf.zeros(shape), name="p") for shape in SHAPES], Memory()
        compression = hva.compression(scope, variables, method, controller=controller, monitor=memory, **OPTIONS[scope])
        groups = None if scope == "layer-wise" else 1

        @tf.function(autograph=False)
        def step(given: Any, variables: Any = variables, compression: Any = compression, groups: Any = groups) -> None:
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(v * g) for v, g in zip(variables, given, strict=True)])
            tape = hvd.DistributedGradientTape(tape, compression=compression, groups=groups)
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
                variable.assign_sub(gradient)

        for number in range(STEPS):
            step([tf.constant(g) for g in gradients(hvd.rank(), number)])
        found.append(([-v.numpy() for v in variables], compression.state_dict()["memory"], told(memory)))
    return found


def told(memory: Memory) -> Any:
    return sorted(
        (r.step, r.unit, r.kept, r.bytes_sent, r.branch, r.candidate or 0.0, sorted(r.gains.items())) for r in memory.records
    )


@pytest.mark.parametrize("size", [2, 3])
def test_both_bindings_do_the_same(ordered_ranks: Any, size: int) -> None:
    torch_ranks = pools(ONE_ORDER)(size).run(over_torch)
    for of_torch, of_tensorflow in zip(torch_ranks, ordered_ranks(size).run(over_tensorflow), strict=True):
        for case, (sums, kept, records), (own_sums, own_kept, own_records) in zip(CASES, of_torch, of_tensorflow, strict=True):
            assert [r[:6] for r in own_records] == [r[:6] for r in records], case
            for own, other in zip(own_records, records, strict=True):  # energies are summed in another order
                np.testing.assert_allclose(np.array(own[6]), np.array(other[6]), rtol=1e-5, atol=0)
            for own, other in zip(own_sums, sums, strict=True):
                np.testing.assert_allclose(own, other, rtol=0, atol=2e-5)  # twenty sums of numbers up to 30 in float32
            assert own_kept.keys() == kept.keys()
            for unit, part in kept.items():
                for name, vector in part.items():
                    assert own_kept[unit][name].tobytes() == vector.tobytes(), (case, unit, name)
