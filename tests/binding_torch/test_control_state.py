"""Checkpoints of a run under a controller, and what ranks are told that load, or build, something else."""

from pathlib import Path
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from counted import Counted
from horovod.common.exceptions import HorovodInternalError
from steering_runs import gravac, started
from training import attempt_soon, building, flat, model, train

import hvd_adaptive.torch as hva
from hvd_adaptive import (
    DGC,
    Accordion,
    AgreementError,
    Budget,
    ConfigError,
    Fixed,
    GraVAC,
    Half,
    HvdAdaptiveError,
    RandomK,
    Schedule,
    StateError,
    TopK,
)

SCOPES = list(hva.SCOPES)
SOON = 30.0

GOING_ON: dict[str, tuple[Any, Any, str, tuple[int, ...]]] = {
    "gravac": (gravac(), TopK(20), "gather", (1, 9, 10, 13)),
    "gravac exact, per unit": (gravac(agreement="exact", per_unit=True), TopK(20), "gather", (3, 11)),
    "gravac, no look ahead": (gravac(look_ahead=False, epsilon=0.6), RandomK(20), "reduce", (0, 5, 15)),
    "dense": (Schedule(lambda step: 9.0 if step < 4 else 1.0), TopK(20), "gather", (4, 5, 6)),
    "dense, then compressed": (Schedule(lambda step: 1.0 if step < 8 else 9.0), TopK(20), "shared-support", (5, 8, 9)),
    "in a trial": (gravac(probe_dense=True, window=5), TopK(20), "gather", (1, 2, 3)),
    "dgc": (Schedule(lambda step: [9.0, 1.0, 1.0][step % 3]), DGC(20), "gather", (4, 5, 6)),
    "accordion": (Accordion(low=1, high=30, window=4, every=2), TopK(20), "gather", (3, 7)),
}


@pytest.mark.parametrize("name", list(GOING_ON))
def test_a_run_goes_on_bit_for_bit(ranks: Any, name: str, tmp_path: Path) -> None:
    controller, compressor, exchange, stops = GOING_ON[name]
    scope = SCOPES[list(GOING_ON).index(name) % 3]
    steps = 5 if name == "in a trial" else 18  # after it times decide

    def on_rank() -> Any:
        parts = started(scope, compressor, controller, exchange=exchange)
        saved, bytes_before = {}, {}
        for step in range(steps):
            if step in stops:
                saved[step] = tmp_path / f"{step} {hvd.rank()}.pt"
                torch.save([part.state_dict() for part in parts], saved[step])
                bytes_before[step] = parts[1].stats().bytes_sent
            train(parts[0], parts[2], 1, first=step)
        found = [(flat(parts[0]), parts[1].state_dict())]
        for step, path in saved.items():
            for used in (False, True):
                again = started(scope, compressor, controller, exchange=exchange)
                if used:
                    train(again[0], again[2], 3)
                for part, state in zip(again, torch.load(path, weights_only=True), strict=True):
                    part.load_state_dict(state)
                train(again[0], again[2], steps - step, first=step)
                found.append((flat(again[0]), again[1].state_dict()))
        return found

    for (end, state), *others in ranks(2).run(on_rank):
        assert len(others) == 2 * len(stops)
        for other_end, other in others:
            assert torch.equal(end, other_end)
            assert other["steps"] == state["steps"] == steps
            assert without_times(other["control"]) == without_times(state["control"])
            for unit, vectors in state["memory"].items():
                assert all(torch.equal(vector, other["memory"][unit][key]) for key, vector in vectors.items())


def without_times(control: Any) -> Any:
    if isinstance(control, dict):
        return {k: without_times(v) for k, v in control.items() if k not in ("speeds", "dense", "compressed", "looks", "trial")}
    return [without_times(one) for one in control] if isinstance(control, list) else control


def test_a_budget_counts_from_where_a_state_was_loaded(ranks: Any) -> None:
    """Not what the object had sent before, in another run."""

    def on_rank() -> Any:
        found = []
        for used in (False, True):
            module, compression, optimizer = started("entire-model", TopK(20), Budget(3000, every=5))
            state = compression.state_dict()
            if used:
                train(module, optimizer, 30)
                compression.load_state_dict(state)
            train(module, optimizer, 2)
            found.append(compression.state_dict()["control"]["states"])
            compression.reset()
            train(module, optimizer, 2)
            found.append(compression.state_dict()["control"]["states"])
        return found

    for first, *others in ranks(2).run(on_rank):
        assert others == [first] * 3


def test_the_state_of_three_ranks_serves_two(ranks: Any) -> None:
    controller = gravac(epsilon=0.8)

    def three() -> Any:
        module, compression, optimizer = started("bucketed", TopK(20), controller)
        train(module, optimizer, 13)
        return compression.state_dict()

    first, *others = ranks(3).run(three)
    assert all(other["control"] == first["control"] for other in others)

    def two() -> Any:
        module, compression, optimizer = started("bucketed", TopK(20), controller)
        with pytest.raises(StateError, match=r"saved by rank 0 of 3, this is rank . of 2") as caught:
            compression.load_state_dict(first)
        assert compression.state_dict()["steps"] == 0
        compression.load_state_dict(first, strict=False)
        state = compression.state_dict()
        held = max(float(vector.abs().max()) for vectors in state["memory"].values() for vector in vectors.values())
        train(module, optimizer, 8)
        return str(caught.value), state["steps"], state["control"], held, flat(module)

    (message, steps, control, held, mine), (_, _, same, _, other) = ranks(2).run(two)
    assert "strict=False" in message
    assert (steps, held) == (13, 0.0)
    assert control == same == first["control"]
    assert torch.equal(mine, other)


DAMAGE: dict[str, Any] = {
    "nothing": None,
    "a list": [],
    "no states": {"states": [], "empty": []},
    "two states": {"states": [{}, {}], "empty": []},
    "states that are none": {"states": None, "empty": []},
    "a state that is none": {"states": [None], "empty": []},
    "a state of another controller": {"states": [{"factor": 3.0}], "empty": []},
    "without the empty units": {"states": [{}]},
    "no list of empty units": {"states": None, "empty": None},
    "an unknown unit": {"states": None, "empty": ["elsewhere"]},
}


@pytest.mark.parametrize("name", list(DAMAGE))
def test_a_damaged_control_entry_is_refused(ranks: Any, name: str) -> None:
    damage = DAMAGE[name]

    def on_rank() -> str:
        module, compression, optimizer = started("entire-model", TopK(20), gravac())
        train(module, optimizer, 3)
        saved = compression.state_dict()
        if isinstance(damage, dict) and name in ("no list of empty units", "an unknown unit"):
            damage["states"] = saved["control"]["states"]
        with pytest.raises(StateError, match="controller's state") as caught:
            compression.load_state_dict(saved | {"control": damage})
        assert compression.state_dict()["steps"] == 3
        train(module, optimizer, 1, first=3)
        return str(caught.value)

    assert all("damaged" in message for message in ranks(2).run(on_rank))


@pytest.mark.parametrize("agreement", ["lagged", "exact"])
@pytest.mark.parametrize("scope", SCOPES)
def test_ranks_that_load_different_control_states_are_told(ranks: Any, scope: str, agreement: str) -> None:
    """Of the same step, so that only the controller's state differs, or of steps of which one is measured and one is not.

    With lagged agreement it may be Horovod that tells them, for what they send does not fit.
    """

    def on_rank(change: bool) -> str:
        module, compression, optimizer = started(scope, TopK(20), gravac(agreement=agreement, every=4))
        states = []
        for step in range(8):
            train(module, optimizer, 1, first=step)
            states.append(compression.state_dict())
        if change:
            given = states[7]
            if hvd.rank() == 1:
                control = given["control"]
                given = given | {"control": control | {"states": [s | {"low": 16.0} for s in control["states"]]}}
        else:
            given = states[6 if hvd.rank() == 1 else 7]
        compression.load_state_dict(given)
        with pytest.raises((ConfigError, HorovodInternalError)) as caught:
            train(module, optimizer, 1)
        return str(caught.value)

    for change in (True, False):
        for answer in attempt_soon(ranks(2), on_rank, change, seconds=SOON):
            words = "load or reset the same state on all of them"
            assert words in str(answer) or (agreement == "lagged" and "Mismatched" in str(answer)), answer


ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "a method without a factor": ({"compressor": Half(), "controller": GraVAC()}, "no factor"),
    "two controllers": ({"controller": [GraVAC(), Fixed(2)]}, "one instance"),
    "a class": ({"controller": GraVAC}, "instance"),
    "a folder for a log": ({"log": "/"}, "log"),
    "a log below a file": ({"log": "/dev/null/log.jsonl"}, "log"),
    "no path for a log": ({"log": 3.5}, "log"),
}


@pytest.mark.parametrize("name", list(ILLEGAL))
def test_what_is_illegal_is_refused_on_all_ranks(ranks: Any, name: str) -> None:
    """Only rank 0 opens a log, and the others do not wait for it."""
    arguments, words = ILLEGAL[name]

    def on_rank() -> Any:
        with pytest.raises(HvdAdaptiveError) as caught:
            building("layer-wise", **({"compressor": TopK(20)} | arguments))(model())
        return str(caught.value)

    answers = attempt_soon(ranks(2), on_rank, seconds=SOON)
    assert [words in str(answer) for answer in answers] == [True, True], answers


@pytest.mark.parametrize("change", [{"epsilon": 0.4}, {"agreement": "exact"}, {"probe_dense": True}, {"every": 5}], ids=str)
def test_ranks_with_different_settings_are_told(ranks: Any, change: dict[str, Any]) -> None:
    def on_rank() -> None:
        building("entire-model", TopK(20), controller=gravac(**(change if hvd.rank() else {})))(model())

    for answer in attempt_soon(ranks(3), on_rank, seconds=SOON):
        assert isinstance(answer, AgreementError), answer
        ((setting, value),) = change.items()
        assert f"{setting}={value!r}" in str(answer)


def test_a_rank_that_raises_in_a_step_may_reset_and_go_on(ranks: Any) -> None:
    """Here all raise, as after NaN in a loss, before any gradient came."""

    def on_rank() -> torch.Tensor:
        module, compression, optimizer = started("entire-model", TopK(20), gravac(agreement="exact"))
        train(module, optimizer, 3)
        with Counted() as counted, pytest.raises(ZeroDivisionError):
            train(module, optimizer, 1 // 0)
        assert counted.calls == []
        compression.reset()
        train(module, optimizer, 3)
        return flat(module)

    assert torch.equal(*ranks(2).run(on_rank))
