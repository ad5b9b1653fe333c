"""What a run under a controller reports, against what was handed to Horovod; and exact agreement with and without MPI."""

import json
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from counted import Counted
from rank_pool import RankPool
from steering_runs import decided, gravac, started, steered
from training import model, optimizer_for, train

import hvd_adaptive.torch as hva
from hvd_adaptive import DGC, Accordion, Budget, Fixed, RandomK, Schedule, TopK

SCOPES = list(hva.SCOPES)
STEPS = 12


CASES: list[tuple[str, Any, str, Any]] = [
    ("layer-wise", TopK(20), "gather", gravac(every=2)),
    ("entire-model", TopK(20), "shared-support", gravac(per_unit=True)),
    ("bucketed", DGC(20), "gather", Accordion(low=1, high=20, window=4, every=2)),
    ("layer-wise", RandomK(20), "reduce", Budget(4000, every=3)),
    ("bucketed", RandomK(20), "reduce", gravac(epsilon=0.8)),
    ("entire-model", TopK(20), "gather", gravac(probe_dense=True, window=4)),
    ("layer-wise", TopK(20), "gather", Schedule(lambda step: [1.0, 1.0, 9.0][step % 3])),
]


def test_the_log_is_rank_0s_and_agrees_with_the_stats(ranks: Any, tmp_path: Path) -> None:
    def on_rank() -> Any:
        found = []
        for number, (scope, compressor, exchange, controller) in enumerate(CASES):
            path = tmp_path / f"{number} {hvd.rank()}" / "log.jsonl"
            module, compression, optimizer = started(
                scope, compressor, controller, exchange=exchange, log=path, exclude=["4.bias", "0.bias"]
            )
            with Counted() as counted:
                train(module, optimizer, 1)
                start = time.perf_counter()
                train(module, optimizer, STEPS - 1, first=1)
                seconds = time.perf_counter() - start
            text = path.read_text() if path.exists() else None
            found.append((text, compression.stats(), counted.nbytes, seconds))
        return found

    first, *others = ranks(3).run(on_rank)
    for other in others:
        assert [text for text, _, _, _ in other] == [None] * len(CASES)
        assert [stats.bytes_sent for _, stats, _, _ in other] == [nbytes for _, _, nbytes, _ in other]
    for case, (text, stats, nbytes, seconds) in zip(CASES, first, strict=True):
        assert stats.bytes_sent == nbytes, case
        lines = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
        units = set(stats.factors)
        assert sorted((line["step"], line["unit"]) for line in lines) == sorted((n, unit) for n in range(STEPS) for unit in units)
        branches: dict[str, int] = {}
        gains: dict[str, Any] = {}
        for line in lines:
            assert line["factor"] == line["elements"] / max(1, line["kept"])
            assert line["finite"] is True
            assert line["bytes_sent"] > 0
            if line["branch"]:
                branches[line["branch"]] = branches.get(line["branch"], 0) + 1
            assert (line["branch"] == "") == (line["unit"] in ("4.bias", "0.bias"))
            assert all(0 <= gain <= 1 for gain in line["gains"].values())
            if line["gains"]:
                gains[line["unit"]] = {float(factor): gain for factor, gain in line["gains"].items()}
        assert branches == stats.branches
        assert gains == stats.gains
        assert {line["unit"]: line["factor"] for line in lines} == stats.factors
        assert sum(line["kept"] for line in lines) == stats.elements_sent
        assert sum(line["bytes_sent"] for line in lines) <= stats.bytes_sent
        parts = [{key: line[key] for key in line if key.endswith("seconds") or key == "steps_per_second"} for line in lines]
        by_step = {line["step"]: part for line, part in zip(lines, parts, strict=True)}
        assert all(by_step[line["step"]] == part for line, part in zip(lines, parts, strict=True))
        assert by_step[0]["compute_seconds"] is None
        assert by_step[0]["steps_per_second"] is None
        total = 0.0
        for step in range(1, STEPS):
            part = by_step[step]
            spent = sum(value for key, value in part.items() if key.endswith("_seconds"))
            assert min(value for key, value in part.items()) >= 0, part
            assert spent == pytest.approx(1 / part["steps_per_second"], rel=1e-6)
            total += spent
        assert 0.5 * seconds < total < 1.1 * seconds + 0.05


def test_a_log_is_appended_to_and_survives_its_object(ranks: Any, tmp_path: Path) -> None:
    def on_rank() -> Any:
        path = tmp_path / "log.jsonl"
        for _ in range(2):
            steered("entire-model", TopK(20), Fixed(3), 4, log=str(path))
        return [json.loads(line)["step"] for line in path.read_text().splitlines()] if hvd.rank() == 0 else None

    assert ranks(2).run(on_rank) == [[*range(4), *range(4)], None]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("compressor", [TopK(20), RandomK(20)], ids=str)
def test_a_dense_stretch_costs_nothing(ranks: Any, scope: str, compressor: Any) -> None:
    """Gradients themselves, under Horovod's own names, and nothing else; from the first step on, and once residuals are sent."""

    def on_rank() -> Any:
        stock = model()
        optimizer = optimizer_for(stock, None)
        with Counted() as counted:
            train(stock, optimizer, 2)
        expected = sorted((name.split(".", 1)[-1], elements, nbytes) for name, elements, nbytes in counted.calls)
        found = []
        for controller in (Fixed(1), Schedule(lambda step: 9.0 if step < 3 else 1.0)):
            module, compression, optimizer = started(scope, compressor, controller)
            if not isinstance(controller, Fixed):
                train(module, optimizer, 4)  # the fourth sends residuals
            before = compression.stats()
            with Counted() as counted:
                train(module, optimizer, 2, first=4)
            sent = sorted((name.split(".", 1)[-1], elements, nbytes) for name, elements, nbytes in counted.calls)
            after = compression.stats()
            spent = {phase: after.seconds[phase] - before.seconds[phase] for phase in after.seconds}
            found.append((sent == expected, after.bytes_sent - before.bytes_sent - counted.nbytes, set(spent.values())))
        return found

    assert ranks(2).run(on_rank) == [[(True, 0, {0.0})] * 2] * 2


def agreed_exactly() -> Any:
    """What is decided, and the calls of Horovod that ask for agreement."""
    found = []
    for scope in SCOPES:
        for controller in (gravac(agreement="exact", every=1), gravac(agreement="exact", per_unit=True, epsilon=0.7)):
            with Counted() as counted:
                end, records, compression = steered(scope, TopK(20), controller, STEPS, dtype=torch.float64)
            asked = [nbytes for name, _, nbytes in counted.calls if "observed" in str(name)]
            built = 32 + 8
            found.append((end, decided(records), asked, compression.stats().bytes_sent - (counted.nbytes - built)))
    return found


def test_exact_agreement_is_the_same_with_and_without_mpi(ranks: Any, gloo_ranks: RankPool) -> None:
    over_mpi, over_gloo = ranks(2).run(agreed_exactly), gloo_ranks.run(agreed_exactly)
    for one, other in [(over_mpi[0], over_mpi[1]), (over_gloo[0], over_gloo[1])]:
        assert all(torch.equal(a[0], b[0]) and a[1] == b[1] for a, b in zip(one, other, strict=True))
    for (end, decisions, asked, uncounted), (same_end, same, asked_horovod, nothing) in zip(
        *(over_mpi[0], over_gloo[0]), strict=True
    ):
        assert torch.equal(end, same_end)  # a sum of two has one order
        assert [one[:4] for one in decisions] == [one[:4] for one in same]
        assert asked == []  # mpi4py carries it, past Horovod
        assert len(asked_horovod) > 3
        assert uncounted == sum(asked_horovod)
        assert nothing == 0
