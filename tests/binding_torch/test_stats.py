"""What stats and monitors report, against what was really handed to Horovod and against sums by hand."""

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from counted import Counted
from torch import nn
from training import batches, building, distributed, flat, flat_gradient, loss_of, model, optimizer_for, residuals, train
from vectors import positions_bytes

import hvd_adaptive.torch as hva
from hvd_adaptive import BFloat16, Controller, Decision, Half, Identity, JsonLines, Memory, RandomK, Stats, TopK, Wanted

SCOPES = list(hva.SCOPES)
STEPS = 2
SHAPES = {"0.weight": 1200, "0.bias": 60, "2.weight": 2400, "2.bias": 40, "4.weight": 200, "4.bias": 5}
"""Elements of the parameters of :func:`model`."""
ELEMENTS = 3905
TOKEN_BYTES = 6 * (16 + (STEPS - 1) * 4)
"""What tokens of six parameters take: two float64 in the first step, one float32 in each later one."""


# ---- bytes and elements ----------------------------------------------------------------------------------------------------

METHODS: list[tuple[Any, str]] = [
    (TopK(20), "gather"),
    (RandomK(20), "reduce"),
    (RandomK(20), "gather"),
    (Half(), "reduce"),
    (Half(), "gather"),
    (BFloat16(), "gather"),
    (Identity(), "reduce"),
    (Identity(), "gather"),
]
GROUPS: list[Any] = [None, 2]

KEPT = {  # each of the sizes above, a bucket of 5 + 200 + 40 elements, and one of 60 + 1200, by 20 and rounded
    "layer-wise": {"0.weight": 60, "0.bias": 3, "2.weight": 120, "2.bias": 2, "4.weight": 10, "4.bias": 1},
    "entire-model": {"model": 195},
    "bucketed": {"bucket0": 12, "bucket1": 120, "bucket2": 63},
}
SIZES = {
    "layer-wise": SHAPES,
    "entire-model": {"model": ELEMENTS},
    "bucketed": {"bucket0": 245, "bucket1": 2400, "bucket2": 1260},
}


@dataclass(frozen=True)
class Measured:
    """A short run."""

    building: Counted
    built: Stats
    training: Counted
    trained: Stats
    seconds: float


def measured(scope: str, compressor: Any, exchange: str, groups: Any) -> Measured:
    module = model()
    with Counted() as build:
        compression = building(scope, compressor, exchange=exchange)(module)
    built = compression.stats()
    optimizer = optimizer_for(module, compression, groups=groups)
    start = time.perf_counter()
    with Counted() as training:
        train(module, optimizer, STEPS)
    return Measured(build, built, training, compression.stats(), time.perf_counter() - start)


def of_stock_horovod() -> int:
    """Bytes that stock Horovod is handed in the same run."""
    module = model()
    optimizer = optimizer_for(module, None)
    with Counted() as counted:
        train(module, optimizer, STEPS)
    return counted.nbytes


Key = tuple[str, str, str, Any]


def cases() -> list[Key]:
    return [(s, str(c), e, g) for s in SCOPES for c, e in METHODS for g in GROUPS]


@pytest.fixture(scope="module")
def runs(ranks: Any) -> list[dict[Key, Measured]]:
    def on_rank() -> dict[Key, Measured]:
        return {(s, str(c), e, g): measured(s, c, e, g) for s in SCOPES for c, e in METHODS for g in GROUPS}

    found: list[dict[Key, Measured]] = ranks(2).run(on_rank)
    return found


@pytest.fixture(scope="module")
def stock_bytes(ranks: Any) -> int:
    counted: list[int] = ranks(2).run(of_stock_horovod)
    assert counted == [STEPS * ELEMENTS * 4] * 2, "the counter misses some"
    return counted[0]


@pytest.mark.parametrize("key", cases(), ids=str)
def test_bytes_are_those_that_horovod_was_handed(runs: Any, stock_bytes: int, key: Key) -> None:
    for run in (answer[key] for answer in runs):
        stats = run.trained
        assert stats.bytes_sent == run.training.nbytes
        assert stats.bytes_dense == stock_bytes
        assert (stats.ranks, stats.steps, stats.nonfinite_steps, stats.note) == (2, STEPS, 0, "")


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("scope", SCOPES)
def test_bytes_are_those_that_each_method_needs(runs: Any, scope: str, groups: Any) -> None:
    """By hand: elements kept times bytes of each, positions, buffers of a gather filled up to eights, and the tokens."""

    def gathered(bytes_each: int, kept: dict[str, int], positions: Callable[[int, int], int] = lambda _k, _n: 0) -> int:
        packed = {unit: positions(k, SIZES[scope][unit]) for unit, k in kept.items()}
        return STEPS * sum(-(-(k * bytes_each + packed[unit]) // 8) * 8 for unit, k in kept.items()) + TOKEN_BYTES

    def reduced(bytes_each: int, kept: dict[str, int]) -> int:
        riding = [k for unit, k in kept.items() if unit in SHAPES or unit == "bucket1"]
        tokens = TOKEN_BYTES * (len(SHAPES) - len(riding)) // len(SHAPES)
        return STEPS * bytes_each * sum(kept.values()) + tokens

    kept, whole = KEPT[scope], SIZES[scope]
    expected = {
        (TopK(20), "gather"): gathered(4, kept, positions_bytes),
        (RandomK(20), "reduce"): reduced(4, kept),
        (RandomK(20), "gather"): gathered(4, kept),
        (Half(), "reduce"): reduced(2, whole),
        (Half(), "gather"): gathered(2, whole),
        (BFloat16(), "gather"): gathered(2, whole),
        (Identity(), "reduce"): STEPS * 4 * sum(whole.values()),  # by stock Horovod, without tokens
        (Identity(), "gather"): gathered(4, whole),
    }
    for answer in runs:
        found = {(c, e): answer[scope, str(c), e, groups].training.nbytes for c, e in METHODS}
        assert found == expected


@pytest.mark.parametrize("key", cases(), ids=str)
def test_elements_and_factors(runs: Any, key: Key) -> None:
    scope, method, _, _ = key
    kept = KEPT[scope] if "20" in method else SIZES[scope]
    for run in (answer[key] for answer in runs):
        assert run.trained.elements_dense == STEPS * ELEMENTS
        assert run.trained.elements_sent == STEPS * sum(kept.values())
        assert run.trained.factors == {unit: size / kept[unit] for unit, size in SIZES[scope].items()}


@pytest.mark.parametrize("key", cases(), ids=str)
def test_seconds_are_counted_where_work_is_done(runs: Any, key: Key) -> None:
    scope, method, exchange, _ = key
    untouched = exchange == "reduce" and method == "Identity()"
    rides = untouched or (exchange == "reduce" and scope == "layer-wise")
    working = {
        "compress": not untouched,
        "exchange": not rides,  # the wait is Horovod's own, in its step()
        "decode": not untouched,
    }
    for run in (answer[key] for answer in runs):
        assert {phase: seconds > 0 for phase, seconds in run.trained.seconds.items()} == working
        assert sum(run.trained.seconds.values()) < run.seconds


def test_building_an_object_sends_a_digest_and_a_number_and_counts_as_nothing(runs: Any) -> None:
    for answer in runs:
        for run in answer.values():
            assert [nbytes for _, _, nbytes in run.building.calls] == [32, 8]
            totals = dataclasses.asdict(run.built)
            assert (totals.pop("ranks"), totals.pop("note")) == (2, "")
            assert totals.pop("seconds") == {"compress": 0.0, "exchange": 0.0, "decode": 0.0}
            assert [totals.pop(name) for name in ("factors", "branches", "gains")] == [{}, {}, {}]
            assert set(totals.values()) == {0}


class Mixed(nn.Module):
    """Parameters of 7 elements in all dtypes, and an image filter in another memory format."""

    def __init__(self, dtypes: list[torch.dtype]) -> None:
        super().__init__()
        self.vectors = nn.ParameterList([nn.Parameter(torch.linspace(-1, 1, 7).to(dtype)) for dtype in dtypes])
        self.filter = nn.Parameter(torch.linspace(-1, 1, 5 * 3 * 2 * 2).view(5, 3, 2, 2).to(memory_format=torch.channels_last))

    def forward(self) -> torch.Tensor:
        terms = [(vector.double() - hvd.rank()).square().sum() for vector in self.vectors]
        image = torch.linspace(0, 1, 3 * 4 * 4).view(1, 3, 4, 4).to(memory_format=torch.channels_last)
        return sum(terms) + nn.functional.conv2d(image, self.filter).square().sum()


@pytest.mark.parametrize("scope", SCOPES)
def test_bytes_of_other_dtypes_and_layouts(ranks: Any, scope: str) -> None:
    dtypes = [torch.float64, torch.bfloat16, torch.float16, torch.float32, torch.bfloat16]
    dense = 7 * (8 + 2 + 2 + 4 + 2) + 60 * 4

    def on_rank() -> Any:
        found = []
        for compressor, exchange in METHODS:
            module = Mixed(dtypes)
            compression = building(scope, compressor, exchange=exchange)(module)
            optimizer = distributed(torch.optim.SGD(module.parameters(), lr=0.01), module, compression)
            with Counted() as counted:
                for _ in range(STEPS):
                    optimizer.zero_grad()
                    module().backward()
                    optimizer.step()
            found.append((str(compressor), exchange, counted.nbytes, compression.stats()))
        return found

    for compressor, exchange, nbytes, stats in [case for answer in ranks(2).run(on_rank) for case in answer]:
        assert stats.bytes_sent == nbytes, (compressor, exchange)
        assert stats.bytes_dense == STEPS * dense
        assert stats.elements_dense == STEPS * (5 * 7 + 60)


# ---- one rank --------------------------------------------------------------------------------------------------------------


def test_one_rank_trains_as_without_and_says_so(ranks: Any) -> None:
    def on_rank() -> Any:
        plain = model()
        train(plain, torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9), STEPS)
        found = []
        for scope in SCOPES:
            for compressor, exchange in METHODS[:3]:
                module, memory = model(), Memory()
                compression = building(scope, compressor, exchange=exchange, monitor=memory)(module)
                train(module, optimizer_for(module, compression), STEPS)
                found.append((torch.equal(flat(plain), flat(module)), compression.stats(), memory.records))
        return found

    (found,) = ranks(1).run(on_rank)
    assert len(found) == len(SCOPES) * 3
    for same, stats, records in found:
        assert same
        assert "1 rank" in stats.note
        assert "nothing was compressed" in stats.note
        assert (stats.ranks, stats.steps, stats.bytes_sent, stats.bytes_dense, stats.elements_sent) == (1, 0, 0, 0, 0)
        assert stats.factors == {}
        assert set(stats.seconds.values()) == {0.0}
        assert records == []


# ---- monitors --------------------------------------------------------------------------------------------------------------


@dataclass
class Both:
    """Passes records on to two monitors."""

    monitors: tuple[Any, Any]

    def record(self, record: Any) -> None:
        for monitor in self.monitors:
            monitor.record(record)


@pytest.mark.parametrize("scope", SCOPES)
def test_monitors_hear_of_each_unit_in_each_step(ranks: Any, scope: str, tmp_path: Any) -> None:
    def on_rank() -> Any:
        found = []
        for number, (compressor, exchange) in enumerate(METHODS):
            memory, path = Memory(), tmp_path / str(number) / f"{hvd.rank()}.jsonl"
            module, both = model(), Both((memory, JsonLines(path)))
            compression = building(scope, compressor, exchange=exchange, monitor=both, exclude="4.*")(module)
            train(module, optimizer_for(module, compression), STEPS)
            found.append((memory.records, path.read_text(), compression.stats()))
        return found

    sizes = {
        "layer-wise": SHAPES,
        "entire-model": {"model": 3700, "4.weight": 200, "4.bias": 5},
        "bucketed": {"bucket0": 40, "bucket1": 2400, "bucket2": 1260, "4.weight": 200, "4.bias": 5},
    }[scope]
    for answer in ranks(2).run(on_rank):
        for records, text, stats in answer:
            expected = sorted((step, unit, size, size * 4) for step in range(STEPS) for unit, size in sizes.items())
            assert sorted((r.step, r.unit, r.elements, r.bytes_dense) for r in records) == expected
            assert [r.step for r in records] == sorted(r.step for r in records)
            assert all(r.finite and r.factor == r.elements / r.kept for r in records)
            assert sum(r.kept for r in records) == stats.elements_sent
            assert {r.unit: r.factor for r in records} == stats.factors
            tokens = stats.bytes_sent - sum(r.bytes_sent for r in records)
            assert 0 <= tokens <= TOKEN_BYTES
            assert [json.loads(line) for line in text.splitlines()] == [dataclasses.asdict(r) for r in records]


# ---- what goes dense -------------------------------------------------------------------------------------------------------

WEIGHTS = {"0.weight", "2.weight", "4.weight"}
BIASES = set(SHAPES) - WEIGHTS
DENSE: list[tuple[dict[str, Any], set[str]]] = [
    ({"dense_below": 0}, set()),
    ({"dense_below": 5}, set()),
    ({"dense_below": 6}, {"4.bias"}),
    ({"dense_below": 1200}, set(SHAPES) - {"0.weight", "2.weight"}),
    ({"dense_below": 1201}, set(SHAPES) - {"2.weight"}),
    ({"dense_below": 10**9}, set(SHAPES)),
    ({"dense_below": 0, "exclude": "*.bias"}, BIASES),
    ({"dense_below": 0, "exclude": ["2.weight"]}, {"2.weight"}),
    ({"dense_below": 0, "exclude": ("4.*", "?.bias")}, BIASES | {"4.weight"}),
    ({"dense_below": 100, "exclude": "2.weight"}, BIASES | {"2.weight"}),
    ({"dense_below": 0, "exclude": "*"}, set(SHAPES)),
]
BY_DEFAULT = {"layer-wise": set(SHAPES) - {"0.weight", "2.weight"}, "entire-model": set(), "bucketed": set()}


def first_step(compression: Any, module: nn.Module) -> tuple[torch.Tensor, Counted]:
    """Gradients as Horovod returns them in the first step, and what it was handed."""
    optimizer = optimizer_for(module, compression)
    (inputs, targets) = batches(1, hvd.rank())[0]
    with Counted() as counted:
        loss_of(module, inputs, targets).backward()
        optimizer.synchronize()
    return flat_gradient(module), counted


@pytest.mark.parametrize("compressor", [TopK(1000), RandomK(1000)], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_small_and_excluded_parameters_go_dense(ranks: Any, scope: str, compressor: Any) -> None:
    def on_rank() -> Any:
        stock, _ = first_step(None, model())
        found = []
        for options, _ in [*DENSE, ({}, None)]:
            module = model()
            compression = hva.compression(scope, module.named_parameters(), compressor, **options)
            ours, counted = first_step(compression, module)
            pairs = zip(stock.split(list(SHAPES.values())), ours.split(list(SHAPES.values())), strict=True)
            same = {name for name, (a, b) in zip(SHAPES, pairs, strict=True) if torch.equal(a, b)}
            whole = {name for name, elements, _ in counted.calls if elements == SHAPES.get(name)}
            found.append((same, whole, counted.nbytes, compression.stats()))
        return found

    for answer in ranks(2).run(on_rank):
        for (options, dense), (same, whole, nbytes, stats) in zip([*DENSE, ({}, BY_DEFAULT[scope])], answer, strict=True):
            assert same == dense, options
            assert whole == dense, options
            assert stats.bytes_sent == nbytes, options
            assert stats.bytes_dense == 4 * ELEMENTS, options
            assert {unit for unit, factor in stats.factors.items() if factor == 1.0} == dense, options
            compressed = ELEMENTS - sum(SHAPES[name] for name in dense)
            of_the_rest = stats.elements_sent - (ELEMENTS - compressed)
            assert 0 < of_the_rest < 10 if compressed else of_the_rest == 0, options
            if not compressed:
                assert stats.bytes_sent == stats.bytes_dense, options


# ---- controllers -----------------------------------------------------------------------------------------------------------

FACTORS = (1.0, 40.0, 1.5, 1000.0)


@dataclass(frozen=True)
class Changing(Controller):
    """Another factor in every step."""

    factors: tuple[float, ...]

    def start(self) -> int:
        return 0

    def wants(self, state: int, step: int) -> Wanted:
        return Wanted()

    def decide(self, state: int, step: int) -> Decision:
        assert step == state
        return Decision(self.factors[state % len(self.factors)])

    def observe(self, state: int, observation: Any) -> int:
        assert observation.step == state + 1
        return state + 1


def under_control(scope: str, compressor: Any, exchange: str) -> Any:
    module, memory = model().double(), Memory()
    compression = building(scope, compressor, exchange=exchange, controller=Changing(FACTORS), monitor=memory, exclude="0.bias")(
        module
    )
    optimizer = optimizer_for(module, compression)
    gradients, received = torch.zeros(ELEMENTS, dtype=torch.float64), torch.zeros(ELEMENTS, dtype=torch.float64)
    factors, sent, counts = [], [], []
    for inputs, targets in batches(len(FACTORS) + 1, hvd.rank()):
        optimizer.zero_grad()
        with Counted() as counted:
            loss_of(module, inputs, targets).backward()
            optimizer.synchronize()
        received += flat_gradient(module)
        copy = model().double()
        copy.load_state_dict(module.state_dict())
        loss_of(copy, inputs, targets).backward()
        gradients += flat_gradient(copy)
        with optimizer.skip_synchronize():
            optimizer.step()
        factors.append(compression.stats().factors)
        sent.append(compression.stats().bytes_sent)
        counts.append(counted.nbytes)
    kept = residuals_in_order(scope, residuals(compression.state_dict()))
    missing = hvd.allreduce(gradients - kept, name="missing") - received
    return flat(module), float(missing.abs().max() / gradients.abs().max()), factors, memory.records, sent, counts


def residuals_in_order(scope: str, saved: dict[str, torch.Tensor]) -> torch.Tensor:
    """One vector in the order of the parameters, with zeros for 0.bias, which is never compressed."""
    order = {"layer-wise": [n for n in SHAPES if n != "0.bias"], "entire-model": ["model"], "bucketed": sorted(saved)[::-1]}
    kept = torch.cat([saved[name] for name in order[scope]])
    return torch.cat([kept[:1200], kept.new_zeros(60), kept[1200:]])


CONTROLLED = [(TopK(7), "gather"), (RandomK(7), "reduce"), (RandomK(7), "gather")]


@pytest.mark.parametrize(("compressor", "exchange"), CONTROLLED, ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_controller_may_change_the_factor_in_every_step(ranks: Any, scope: str, compressor: Any, exchange: str) -> None:
    answers = ranks(2).run(under_control, scope, compressor, exchange)
    parameters = [answer[0] for answer in answers]
    assert torch.equal(*parameters)
    for _, missing, factors, records, sent, counts in answers:
        assert missing <= 1e-13
        assert [after - before for before, after in zip([0, *sent], sent, strict=False)] == counts
        for step, (factor, seen) in enumerate(zip([*FACTORS, FACTORS[0]], factors, strict=True)):
            heard = {r.unit: r for r in records if r.step == step}
            assert seen == {unit: r.factor for unit, r in heard.items()}
            assert heard.pop("0.bias").factor == 1.0
            for r in heard.values():
                exact = r.elements / factor
                assert abs(r.kept - exact) <= 0.5 or (exact < 0.5 and r.kept == 1)
        assert len(records) == (len(FACTORS) + 1) * len(factors[0])


# ---- reset -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("compressor", "exchange"), CONTROLLED[:2], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_after_reset_all_is_as_if_just_built(ranks: Any, scope: str, compressor: Any, exchange: str) -> None:
    def on_rank() -> Any:
        module = model()
        compression = building(scope, compressor, exchange=exchange, controller=Changing((5.0, 50.0)))(module)
        optimizer = distributed(torch.optim.SGD(module.parameters(), lr=0.05), module, compression)
        built = (compression.stats(), compression.state_dict())
        ends, totals, states = [], [], []
        for _ in range(2):
            module.load_state_dict(model().state_dict())
            with Counted() as counted:
                train(module, optimizer, STEPS)
            ends.append(flat(module))
            totals.append((compression.stats(), counted.nbytes))
            states.append(compression.state_dict())
            compression.reset()
            assert (compression.stats(), compression.state_dict()) == built
        return ends, totals, states

    for ends, totals, states in ranks(2).run(on_rank):
        assert torch.equal(*ends), "something of the first run was left"
        for stats, nbytes in totals:
            assert stats.steps == STEPS
            assert stats.bytes_sent == nbytes
        first, second = (
            dataclasses.replace(stats, seconds={}, bytes_sent=0) for stats, _ in totals
        )  # ranks are known by the second run, so its first tokens are smaller
        assert first == second
        first_state, second_state = states
        first_kept, second_kept = residuals(first_state), residuals(second_state)
        assert first_kept.keys() == second_kept.keys()
        assert first_kept, "nothing was kept back"
        for unit, residual in first_kept.items():
            assert torch.equal(residual, second_kept[unit])
        assert (first_state["steps"], first_state["control"]) == (second_state["steps"], second_state["control"])
