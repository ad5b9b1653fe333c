"""An interrupted run goes on as if it had not been; a state that does not fit is refused, saying why."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from rank_pool import RankPool
from torch import nn
from training import batches, building, flat, loss_of, model, optimizer_for, residuals, train

import hvd_adaptive.torch as hva
from hvd_adaptive import ConfigError, Controller, Decision, RandomK, StateError, TopK, Wanted

SCOPES = list(hva.SCOPES)
CASES = [(scope, method) for scope in SCOPES for method in (TopK(20), RandomK(20))]
STOP, STEPS = 30, 50


class Halving(Controller):
    """A controller with a state: the factor halves after every 20 steps."""

    def start(self) -> Any:
        return {"factor": 64.0, "seen": []}

    def wants(self, state: Any, step: int) -> Wanted:
        return Wanted()

    def decide(self, state: Any, step: int) -> Decision:
        return Decision(max(1.0, state["factor"]))

    def observe(self, state: Any, observation: Any) -> Any:
        factor = state["factor"] / 2 if observation.step % 20 == 0 else state["factor"]
        return {"factor": factor, "seen": [*state["seen"], observation.step]}


def built(scope: str, method: Any, **options: Any) -> tuple[nn.Module, Any, Any]:
    module = model()
    compression = building(scope, method, **options)(module)
    return module, compression, optimizer_for(module, compression)


def file_of(folder: Path, scope: str, name: object) -> Path:
    return folder / f"{scope} {name} {hvd.rank()}.pt"


def save(path: Path, module: nn.Module, compression: Any, optimizer: Any) -> None:
    parts = {"model": module, "optimizer": optimizer, "compression": compression}
    torch.save({name: part.state_dict() for name, part in parts.items()}, path)


def load(path: Path, module: nn.Module, compression: Any, optimizer: Any) -> None:
    saved = torch.load(path, weights_only=True)
    module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    compression.load_state_dict(saved["compression"])


@pytest.fixture(scope="module")
def new_processes() -> Iterator[RankPool]:
    pool = RankPool(2)
    yield pool
    pool.close()


def test_a_run_goes_on_in_new_processes_bit_for_bit(ranks: Any, new_processes: RankPool, tmp_path: Path) -> None:
    """Saved on the way and loaded by fresh processes, against the run that was never interrupted."""

    def whole_run() -> Any:
        ends = []
        for scope, method in CASES:
            module, compression, optimizer = built(scope, method)
            train(module, optimizer, STOP)
            save(file_of(tmp_path, scope, method), module, compression, optimizer)
            train(module, optimizer, STEPS - STOP, first=STOP)
            ends.append((flat(module), compression.state_dict()))
        return ends

    def second_part() -> Any:
        ends = []
        for scope, method in CASES:
            module, compression, optimizer = built(scope, method)
            load(file_of(tmp_path, scope, method), module, compression, optimizer)
            train(module, optimizer, STEPS - STOP, first=STOP)
            ends.append((flat(module), compression.state_dict()))
        return ends

    def without_residuals() -> torch.Tensor:
        scope, method = CASES[0]
        module, compression, optimizer = built(scope, method)
        load(file_of(tmp_path, scope, method), module, compression, optimizer)
        compression.reset()
        train(module, optimizer, STEPS - STOP, first=STOP)
        return flat(module)

    uninterrupted, resumed = ranks(2).run(whole_run), new_processes.run(second_part)
    for rank in range(2):
        for case, (end, state), (again, again_state) in zip(CASES, uninterrupted[rank], resumed[rank], strict=True):
            assert torch.equal(end, again), case
            assert state["steps"] == again_state["steps"] == STEPS
            kept, again_kept = residuals(state), residuals(again_state)
            assert set(kept) == set(again_kept) != set()
            assert all(torch.equal(kept[unit], r) for unit, r in again_kept.items()), case
    assert not torch.equal(new_processes.run(without_residuals)[0], uninterrupted[0][0][0]), "residuals make no difference"


@pytest.mark.parametrize("scope", SCOPES)
def test_a_controller_goes_on_where_it_was(ranks: Any, tmp_path: Path, scope: str) -> None:
    def on_rank() -> Any:
        module, compression, optimizer = built(scope, TopK(2), controller=Halving())
        train(module, optimizer, 25)
        save(file_of(tmp_path, scope, "halving"), module, compression, optimizer)
        train(module, optimizer, 5, first=25)
        resumed = built(scope, TopK(2), controller=Halving())
        load(file_of(tmp_path, scope, "halving"), *resumed)
        train(resumed[0], resumed[2], 5, first=25)
        states = [c.state_dict()["control"] for c in (compression, resumed[1])]
        return flat(module), flat(resumed[0]), states, compression.stats().factors, resumed[1].stats().factors

    for whole, resumed, states, factors, resumed_factors in ranks(2).run(on_rank):
        assert torch.equal(whole, resumed)
        assert states[0] == states[1]
        assert states[0]["states"] == [{"factor": 32.0, "seen": list(range(1, 31))}]
        assert factors == resumed_factors


def test_a_state_is_not_changed_by_going_on(ranks: Any) -> None:
    """What was saved stays as it was, and so does what it was loaded into when it is loaded again elsewhere."""

    def on_rank() -> Any:
        module, compression, optimizer = built("entire-model", TopK(20))
        train(module, optimizer, 2)
        saved = compression.state_dict()
        kept = residuals(saved)["model"].clone()
        train(module, optimizer, 2, first=2)
        other, other_compression, other_optimizer = built("entire-model", TopK(20))
        other_compression.load_state_dict(saved)
        train(other, other_optimizer, 1)
        return kept, residuals(saved)["model"], residuals(compression.state_dict())["model"]

    for kept, saved, later in ranks(2).run(on_rank):
        assert torch.equal(kept, saved)
        assert not torch.equal(kept, later)


def refusal(scope: str, method: Any, change: Any, **options: Any) -> str:
    """The message with which a changed object refuses the state of one of the given scope and method."""
    _, compression, optimizer = module_parts = built(scope, method)
    train(module_parts[0], optimizer, 1)
    saved = compression.state_dict()
    other = change()
    with pytest.raises(StateError) as caught:
        other.load_state_dict(saved)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def wider() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 61), nn.ReLU(), nn.Linear(61, 40), nn.Tanh(), nn.Linear(40, 5))


def deeper() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 40), nn.Tanh(), nn.Linear(40, 5), nn.Linear(5, 5))


def partly_frozen() -> nn.Module:
    module = model()
    module[0].weight.requires_grad_(False)
    return module


CHANGES = {
    "scope": (lambda: building("layer-wise", TopK(20))(model()), "scope"),
    "compressor": (lambda: building("entire-model", RandomK(20), exchange="gather")(model()), "compressor"),
    "factor": (lambda: building("entire-model", TopK(21))(model()), "factor=21.0"),
    "seed": (lambda: building("entire-model", TopK(20), seed=1)(model()), "seed"),
    "feedback": (lambda: building("entire-model", TopK(20), feedback=False)(model()), "feedback"),
    "exclude": (lambda: building("entire-model", TopK(20), exclude="4.bias")(model()), "exclude"),
    "controller": (lambda: building("entire-model", TopK(20), controller=Halving())(model()), "controller"),
    "shape": (lambda: building("entire-model", TopK(20))(wider()), "(61, 20)"),
    "further layer": (lambda: building("entire-model", TopK(20))(deeper()), "parameter '5.weight'"),
    "dtype": (lambda: building("entire-model", TopK(20))(model().double()), "float64"),
    "frozen": (lambda: building("entire-model", TopK(20))(partly_frozen()), "frozen"),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_state_of_something_else_is_refused(ranks: Any, name: str) -> None:
    change, word = CHANGES[name]
    for message in ranks(2).run(refusal, "entire-model", TopK(20), change):
        assert "belongs to another compression object" in message
        assert word in message
        assert "the saved state" in message
        assert "this object" in message


def test_another_bucket_size_is_refused(ranks: Any) -> None:
    def change() -> Any:
        return building("bucketed", TopK(20), bucket_bytes=1 << 20)(model())

    assert all("in unit 'bucket" in message for message in ranks(2).run(refusal, "bucketed", TopK(20), change))


def test_a_refused_state_changes_nothing(ranks: Any) -> None:
    def on_rank() -> Any:
        module, compression, optimizer = built("entire-model", TopK(20))
        train(module, optimizer, 2)
        before = compression.state_dict()
        saved = built("entire-model", TopK(21))[1].state_dict()
        with pytest.raises(StateError):
            compression.load_state_dict(saved)
        after = compression.state_dict()
        return before["steps"], after["steps"], residuals(before)["model"], residuals(after)["model"]

    for steps, steps_after, residual, residual_after in ranks(2).run(on_rank):
        assert steps == steps_after == 2
        assert torch.equal(residual, residual_after)


def test_another_ranks_state_is_refused(ranks: Any) -> None:
    def on_rank() -> Any:
        _, compression, _ = built("entire-model", TopK(20))
        states = hvd.allgather_object(compression.state_dict(), name="states")
        with pytest.raises(StateError) as caught:
            compression.load_state_dict(states[1 - hvd.rank()])
        return str(caught.value)

    first, second = ranks(2).run(on_rank)
    assert "saved by rank 1 of 2, this is rank 0 of 2" in first
    assert "saved by rank 0 of 2, this is rank 1 of 2" in second
    assert "one file per rank" in first


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_that_load_states_of_different_steps_are_told_at_the_next_step(ranks: Any, size: int) -> None:
    def on_rank() -> str:
        module, compression, optimizer = built("entire-model", RandomK(20), exchange="gather")
        states = []
        for step in range(2):
            train(module, optimizer, 1, first=step)
            states.append(compression.state_dict())
        compression.load_state_dict(states[0 if hvd.rank() == 1 else 1])
        with pytest.raises(ConfigError) as caught:
            train(module, optimizer, 1)
        return str(caught.value)

    for message in ranks(size).run(on_rank):
        assert "load or reset the same state on all of them" in message


def test_a_state_of_fewer_ranks_is_refused(ranks: Any) -> None:
    def state() -> Any:
        _, compression, _ = built("entire-model", TopK(20))
        return compression.state_dict()

    states = ranks(2).run(state)

    def on_rank() -> str:
        _, compression, _ = built("entire-model", TopK(20))
        with pytest.raises(StateError) as caught:
            compression.load_state_dict(states[min(hvd.rank(), 1)])
        return str(caught.value)

    assert "saved by rank 0 of 2, this is rank 0 of 3" in ranks(3).run(on_rank)[0]


GARBAGE: dict[str, Any] = {
    "empty": {},
    "of an optimizer": {"state": {}, "param_groups": []},
    "nothing": None,
    "a list": [1, 2],
    "a later format": {"format": 99},
    "an earlier format": {"format": 1},
}


@pytest.mark.parametrize("name", list(GARBAGE))
def test_what_is_no_state_is_refused(ranks: Any, name: str) -> None:
    garbage = GARBAGE[name]

    def on_rank() -> str:
        _, compression, _ = built("entire-model", TopK(20))
        given = compression.state_dict() | garbage if str(name).endswith("format") else garbage
        with pytest.raises(StateError) as caught:
            compression.load_state_dict(given)
        return str(caught.value)

    for message in ranks(2).run(on_rank):
        assert "no state of a compression object" in message
        assert "control, description, format, memory, rank, ranks, steps" in message


DAMAGE = {
    "of another size": ({"model": {"residual": torch.zeros(3)}}, "float32[3], but float32[3905] is expected"),
    "of two dimensions": (
        {"model": {"residual": torch.zeros(5, 781)}},
        "float32[5, 781], but float32[3905] is expected",
    ),
    "of no unit": ({"0.weight": {"residual": torch.zeros(1200)}}, "float32[1200], but no such unit keeps one"),
    "of another dtype": (
        {"model": {"residual": torch.zeros(3905, dtype=torch.float64)}},
        "float64[3905], but float32[3905] is expected",
    ),
    "of another name": (
        {"model": {"residual": torch.zeros(3905), "momentum": torch.zeros(3905)}},
        "float32[3905], but no such unit keeps one",
    ),
}


MALFORMED = {
    "no units": {"memory": None},
    "a list of units": {"memory": []},
    "no vectors": {"memory": {"model": None}},
    "no vector": {"memory": {"model": {"residual": None}}},
    "an infinite residual": {"memory": {"model": {"residual": torch.full((3905,), torch.inf)}}},
    "no description": {"description": None},
    "a list for a description": {"description": [1]},
    "a boolean number of steps": {"steps": True},
}


@pytest.mark.parametrize("name", list(MALFORMED))
def test_a_malformed_state_is_refused(ranks: Any, name: str) -> None:
    damage = MALFORMED[name]

    def on_rank() -> str:
        module, compression, optimizer = built("entire-model", TopK(20))
        train(module, optimizer, 1)
        with pytest.raises(StateError) as caught:
            compression.load_state_dict(compression.state_dict() | damage)
        return str(caught.value)

    first, second = ranks(2).run(on_rank)
    assert first == second
    assert "damaged" in first or "number of steps" in first


@pytest.mark.parametrize("name", list(DAMAGE))
def test_a_damaged_state_is_refused(ranks: Any, name: str) -> None:
    damage, reason = DAMAGE[name]
    (unit,) = damage
    vector = list(damage[unit])[-1]

    def on_rank() -> str:
        module, compression, optimizer = built("entire-model", TopK(20))
        train(module, optimizer, 1)
        with pytest.raises(StateError) as caught:
            compression.load_state_dict(compression.state_dict() | {"memory": damage})
        return str(caught.value)

    assert ranks(2).run(on_rank) == [f"the {vector} of unit {unit!r} is {reason}"] * 2


@pytest.mark.parametrize("scope", SCOPES)
def test_saving_within_a_step_is_refused(ranks: Any, scope: str) -> None:
    def on_rank() -> Any:
        module, compression, optimizer = built(scope, TopK(20))
        compression.state_dict()
        ((inputs, targets),) = batches(1, hvd.rank())
        loss_of(module, inputs, targets).backward()
        with pytest.raises(StateError, match="between backward"):
            compression.state_dict()
        optimizer.synchronize()
        between = compression.state_dict()["steps"]
        with optimizer.skip_synchronize():
            optimizer.step()
        return between, compression.state_dict()["steps"]

    assert ranks(2).run(on_rank) == [(1, 1)] * 2


@pytest.mark.parametrize("method", [TopK(20), RandomK(20)], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_reset_makes_it_as_new(ranks: Any, scope: str, method: Any) -> None:
    def on_rank() -> Any:
        module, compression, optimizer = built(scope, method, controller=Halving())
        start = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        first_momentum = optimizer.state_dict()
        train(module, optimizer, 3)
        end, stats = flat(module), compression.stats()
        compression.reset()
        empty = compression.stats()
        module.load_state_dict(start)
        optimizer.load_state_dict(first_momentum)
        train(module, optimizer, 3)
        return end, flat(module), stats, empty, compression.stats()

    for first, second, stats, empty, again in ranks(2).run(on_rank):
        assert torch.equal(first, second)
        assert (empty.steps, empty.bytes_sent, empty.elements_sent, empty.factors) == (0, 0, 0, {})
        assert set(empty.seconds.values()) == {0.0}
        assert (again.steps, again.factors, again.elements_sent) == (stats.steps, stats.factors, stats.elements_sent)


@pytest.mark.parametrize("change", [{"memory": {}}, {"memory": {"model": {}}}, {"steps": "3"}, {"steps": -1}], ids=str)
def test_a_state_with_a_part_missing_is_refused(ranks: Any, change: dict[str, Any]) -> None:
    def on_rank() -> None:
        module, compression, optimizer = built("entire-model", TopK(20))
        train(module, optimizer, 1)
        with pytest.raises(StateError):
            compression.load_state_dict(compression.state_dict() | change)

    ranks(2).run(on_rank)


@pytest.mark.parametrize("scope", ["entire-model", "bucketed"])
def test_a_parameter_may_be_named_like_a_unit(ranks: Any, scope: str) -> None:
    def on_rank() -> Any:
        named = [("model", nn.Parameter(torch.ones(7))), ("bucket0", nn.Parameter(torch.ones(5)))]
        named += [(f"layer{n}", nn.Parameter(torch.ones(30))) for n in range(2)]
        compression = hva.compression(scope, named, TopK(5), exclude=["model", "bucket0"])
        inner = torch.optim.SGD([p for _, p in named], lr=0.1)
        optimizer = hvd.DistributedOptimizer(inner, named_parameters=named, compression=compression)
        sum((p * torch.arange(p.numel())).sum() for _, p in named).backward()
        optimizer.step()
        state = compression.state_dict()
        compression.load_state_dict(state)
        kept = {name: residual.numel() for name, residual in residuals(compression.state_dict()).items()}
        return kept, len(compression.stats().factors)

    kept = {"model": 60} if scope == "entire-model" else {"bucket0": 60}
    assert ranks(2).run(on_rank) == [(kept, 3)] * 2


def test_loading_or_resetting_within_a_step_is_named(ranks: Any) -> None:
    def on_rank() -> None:
        module, compression, optimizer = built("layer-wise", TopK(20))
        train(module, optimizer, 1)
        state = compression.state_dict()
        ((inputs, targets),) = batches(1, hvd.rank())
        optimizer.zero_grad()
        loss_of(module, inputs, targets).backward()
        with pytest.raises(StateError, match="between backward"):
            compression.load_state_dict(state)
        compression.reset()
        with pytest.raises(StateError, match="was reset between"):
            optimizer.step()

    ranks(2).run(on_rank)
