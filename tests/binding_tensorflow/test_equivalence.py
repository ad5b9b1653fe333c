"""With nothing dropped the result is stock Horovod's; with much dropped ranks stay together and nothing is lost."""

from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf
from taped import batches, building, flat, loss_of, model, stepping, trained

import hvd_adaptive.tensorflow as hva
from hvd_adaptive import BFloat16, Half, Identity, RandomK, TopK

FACTOR_1 = [(Identity(), "reduce"), (Identity(), "gather"), (TopK(1), "gather"), (RandomK(1), "reduce"), (RandomK(1), "gather")]
FACTOR_100 = [(TopK(100), "gather"), (RandomK(100), "reduce"), (RandomK(100), "gather")]
OTHERS = [(Identity(), "gather"), (Half(), "reduce"), (Half(), "gather"), (BFloat16(), "gather")]
WAYS = [("layer-wise", None), ("layer-wise", 1), ("layer-wise", 2), ("entire-model", 1), ("bucketed", 1)]
"""Scopes, and in how many groups Horovod hands over the gradients; None is one by one."""


def differences_from_stock(traced: bool, cases: list[Any]) -> list[float]:
    """The largest, relative to the largest variable."""
    found = []
    for (scope, groups), (compressor, exchange) in cases:
        stock, _ = trained(None, 10, traced=traced, groups=groups)
        ours, _ = trained(building(scope, compressor, exchange=exchange), 10, traced=traced, groups=groups)
        found.append(float(abs(stock - ours).max() / abs(stock).max()))
    return found


@pytest.mark.parametrize(("size", "traced"), [(2, False), (3, True)], ids=["eager", "traced"])
def test_factor_1_equals_stock_horovod(ordered_ranks: Any, size: int, traced: bool) -> None:
    cases = [(way, method) for way in WAYS for method in FACTOR_1[: None if traced else 3]]
    for on_one in ordered_ranks(size).run(differences_from_stock, traced, cases):
        for case, difference in zip(cases, on_one, strict=True):
            # A gather is summed in another order than a reduction; ten steps carry float32's rounding on.
            assert difference <= (0.0 if case[1][1] == "reduce" else 1e-6), case


@pytest.mark.parametrize("options", [{"op": hvd.Sum}, {"gradient_predivide_factor": 2.0}], ids=["sum", "predivided"])
def test_means_are_scaled_as_stock_horovod_scales(ordered_ranks: Any, options: dict[str, Any]) -> None:
    def on_rank() -> Any:
        stock, _ = trained(None, 5, groups=1, **options)
        found = []
        for scope, groups in (("layer-wise", None), ("entire-model", 1)):
            ours, _ = trained(building(scope, TopK(1), exchange="gather"), 5, groups=groups, **options)
            found.append(float(abs(stock - ours).max() / abs(stock).max()))
        return found

    for on_one in ordered_ranks(2).run(on_rank):
        assert max(on_one) <= 1e-6  # a gather is summed in another order than a reduction


@pytest.mark.parametrize(("scope", "groups"), [("layer-wise", None), ("layer-wise", 1), ("entire-model", 1)])
def test_variables_of_several_dtypes(ranks: Any, scope: str, groups: int | None) -> None:
    """Horovod reduces together what has one dtype only, and knows no bfloat16."""
    dtypes = ["float16", "float32", "bfloat16", "float64"]

    def on_rank() -> Any:
        found = []
        for method in (Identity(), TopK(1)):
            variables = [tf.Variable(tf.zeros([30], dtype)) for dtype in dtypes]
            factors = [tf.constant(np.arange(30) * (place + 1) + 2 * hvd.rank(), dtype) for place, dtype in enumerate(dtypes)]
            compression = building(scope, method)(variables)
            with tf.GradientTape() as tape:
                sums = [tf.reduce_sum(v * factor) for v, factor in zip(variables, factors, strict=True)]
                loss = tf.add_n([tf.cast(one, tf.float32) for one in sums])
            tape = hvd.DistributedGradientTape(tape, compression=compression, groups=groups)
            gradients = tape.gradient(loss, variables)
            found.append([(one.dtype.name, one.numpy().astype(float).tolist()) for one in gradients])
        return found

    wanted = [(dtype, (np.arange(30.0) * (place + 1) + 1).tolist()) for place, dtype in enumerate(dtypes)]
    assert ranks(2).run(on_rank) == [[wanted, wanted]] * 2


def variables_and_balance(scope: str, groups: int | None, compressor: Any, exchange: str) -> tuple[Any, float]:
    """Variables after 50 steps, and how far sent + residual is from all gradients, relative to the largest sum."""
    variables = model()
    compression = building(scope, compressor, exchange=exchange)(variables)
    step = stepping(variables, compression, groups=groups)
    own, received = np.zeros(flat(variables).size), np.zeros(flat(variables).size)

    @tf.function(autograph=False)
    def local(inputs: Any, targets: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(variables, inputs, targets)
        return tape.gradient(loss, variables)

    for inputs, targets in batches(50, hvd.rank()):
        own += flat(local(inputs, targets))
        received += flat(step(inputs, targets))
    saved = {unit: memory["residual"] for unit, memory in compression.state_dict()["memory"].items()}
    order = {"layer-wise": sorted(saved), "entire-model": ["model"], "bucketed": sorted(saved, reverse=True)}[scope]
    kept = np.concatenate([saved[name] for name in order]) if saved else np.zeros_like(own)
    missing = hvd.allreduce(tf.constant(own - kept), name="balance").numpy() - received
    return flat(variables), float(abs(missing).max() / abs(own).max())


@pytest.mark.parametrize(
    ("size", "scope", "groups"), [*((2, *way) for way in WAYS), (3, "layer-wise", None), (3, "entire-model", 1)]
)
def test_ranks_stay_identical_and_nothing_is_lost(ranks: Any, size: int, scope: str, groups: int | None) -> None:
    cases = FACTOR_100 + OTHERS if size == 3 else FACTOR_100[:2]

    def on_rank() -> Any:
        return [variables_and_balance(scope, groups, *case) for case in cases]

    for case, *seen in zip(cases, *ranks(size).run(on_rank), strict=True):
        ends = [end for end, _ in seen]
        assert all(ends[0].tobytes() == end.tobytes() for end in ends), case
        # Half and BFloat16 round each gradient, and keep nothing back; others only lose what float32 rounds in 50 sums.
        rounding = {Half: 2e-3, BFloat16: 1e-2}.get(type(case[0]), 1e-5)
        assert all(balance <= rounding for _, balance in seen), case


def test_every_scope_has_a_name() -> None:
    assert list(hva.SCOPES) == ["layer-wise", "entire-model", "bucketed"]
