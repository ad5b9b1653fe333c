"""What is not legal is refused by an error of this package that says what was given and what to do, and ranks can go on."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from launcher import ENVIRONMENT
from torch import nn

import hvd_adaptive
import hvd_adaptive.torch as hva
from hvd_adaptive import (
    ConfigError,
    Controller,
    Decision,
    Fixed,
    Half,
    HvdAdaptiveError,
    Identity,
    RandomK,
    Residual,
    TopK,
    UnsupportedError,
)

SCOPES = list(hva.SCOPES)
BUILT_IN = {ConfigError: ValueError, UnsupportedError: NotImplementedError}
GOOD = TopK(2)
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]


def network(seed: int = 1) -> nn.Sequential:
    """Parameters named as in :data:`NAMES`; the same on every rank."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).double()


def inputs_of(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * hvd.rank() + step)
    return torch.randn(4, 6, dtype=torch.float64, generator=generator)


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def refusal(action: Callable[[], object]) -> Exception | None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the tests tell which ones are right
        return error
    return None


def assert_refused(answers: list[Exception | None], kind: type[HvdAdaptiveError], *words: str) -> None:
    """Every rank was refused for the same reason, in words."""
    for error in answers:
        assert isinstance(error, kind), repr(error)
        assert isinstance(error, HvdAdaptiveError)
        assert isinstance(error, BUILT_IN[kind])
        assert [word for word in words if word not in str(error)] == [], error
    assert len({str(error) for error in answers}) == 1


# ---- the constructor -------------------------------------------------------------------------------------------------------


def used_up(named: Iterator[Any]) -> Iterator[Any]:
    list(named)
    return named


def frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


@dataclass(frozen=True)
class Deciding(Controller):
    """A controller that decides for one factor, legal or not."""

    factor: Any

    def decide(self, state: None, step: int) -> Decision:
        return Decision(self.factor)


@dataclass(frozen=True)
class Bad:
    """One thing to get wrong about a compression object of a good network, and what the message must hold."""

    named: Callable[[nn.Module], Any] = lambda module: module.named_parameters()
    compressor: Any = GOOD
    options: dict[str, Any] | None = None
    words: tuple[str, ...] = ()
    error: type[HvdAdaptiveError] = ConfigError

    def build(self, scope: str) -> object:
        return hva.compression(scope, self.named(network()), self.compressor, **(self.options or {}))


WHICH_PARAMETERS = "pass model.named_parameters(), the same as to DistributedOptimizer"

CONSTRUCTORS: dict[str, Bad] = {
    "a module": Bad(lambda m: m, words=("is a module", WHICH_PARAMETERS)),
    "parameters without names": Bad(lambda m: m.parameters(), words=("(name, parameter) pairs", "Parameter", WHICH_PARAMETERS)),
    "a dict": Bad(lambda m: dict(m.named_parameters()), words=("(name, parameter) pairs", "str", WHICH_PARAMETERS)),
    "names only": Bad(lambda _: NAMES, words=("(name, parameter) pairs", "str", WHICH_PARAMETERS)),
    "nothing": Bad(lambda _: None, words=("None", WHICH_PARAMETERS)),
    "one parameter": Bad(lambda m: m[0].weight, words=("(name, parameter) pairs", WHICH_PARAMETERS)),
    "empty": Bad(lambda _: [], words=("named_parameters is empty", WHICH_PARAMETERS)),
    "a generator read before": Bad(
        lambda m: used_up(m.named_parameters()), words=("is empty", "can be read only once", WHICH_PARAMETERS)
    ),
    "one name twice": Bad(
        lambda m: [("layer", m[0].weight), ("other", m[0].bias), ("layer", m[2].weight)],
        words=("'layer'", "two parameters", "must be unique"),
    ),
    "an empty name": Bad(lambda m: [("", m[0].weight)], words=("not empty", "got ''", WHICH_PARAMETERS)),
    "a number for a name": Bad(lambda m: [(7, m[0].weight)], words=("needs a name", "got 7", WHICH_PARAMETERS)),
    "all frozen": Bad(lambda m: frozen(m).named_parameters(), words=("every parameter is frozen", "requires_grad=False")),
    "tensors of a state dict": Bad(lambda m: m.state_dict().items(), words=("every parameter is frozen", "requires_grad=False")),
    "a complex parameter": Bad(
        lambda m: [*m.named_parameters(), ("phase", nn.Parameter(torch.zeros(3, dtype=torch.complex64)))],
        words=("'phase'", "complex64", "float16", "bfloat16", "float32", "float64", "Leave it out"),
        error=UnsupportedError,
    ),
    "a sparse parameter": Bad(
        lambda m: [*m.named_parameters(), ("rare", nn.Parameter(torch.eye(3).to_sparse()))],
        words=("'rare'", "sparse", "Leave it out"),
        error=UnsupportedError,
    ),
    "a compressor's class": Bad(compressor=TopK, words=("compressor must be an instance", "TopK(factor=100)", repr(TopK))),
    "a compressor's name": Bad(compressor="topk", words=("compressor must be an instance", "TopK(factor=100)", "got 'topk'")),
    "no compressor": Bad(compressor=None, words=("compressor must be an instance", "TopK(factor=100)", "got None")),
    "Horovod's compressor": Bad(
        compressor=hvd.Compression.fp16, words=("compressor must be an instance", "TopK(factor=100)", "FP16Compressor")
    ),
    "an exchange that does not exist": Bad(
        options={"exchange": "broadcast"}, words=("unknown exchange 'broadcast'", "auto", "reduce", "gather")
    ),
    "an exchange that TopK cannot use": Bad(
        options={"exchange": "reduce"}, words=("TopK(factor=2.0)", "exchange='reduce'", "legal are auto, gather")
    ),
    "an exchange that BFloat16 cannot use": Bad(
        compressor=hvd_adaptive.BFloat16(),
        options={"exchange": "reduce"},
        words=("BFloat16()", "exchange='reduce'", "legal are auto, gather"),
    ),
    "dense below nothing": Bad(options={"dense_below": -1}, words=("dense_below must be an integer >= 0", "got -1")),
    "dense below a fraction": Bad(options={"dense_below": 0.5}, words=("dense_below must be an integer >= 0", "got 0.5")),
    "a pattern that matches nothing": Bad(options={"exclude": ["*.bias", "*.gamma"]}, words=("'*.gamma'", *NAMES)),
    "a pattern that is none": Bad(options={"exclude": [1]}, words=("exclude must hold name patterns", "'*.bias'", "1")),
    "a number to exclude": Bad(options={"exclude": 1}, words=("exclude must hold name patterns", "'*.bias'", "1")),
    "None to exclude": Bad(options={"exclude": None}, words=("exclude must hold name patterns", "'*.bias'", "None")),
    "a seed of letters": Bad(options={"seed": "x"}, words=("seed must be an integer", "got 'x'")),
    "feedback by name": Bad(options={"feedback": "yes"}, words=("None, True, False", "Residual()", "got 'yes'")),
    "a feedback's class": Bad(options={"feedback": Residual}, words=("None, True, False", "Residual()", repr(Residual))),
    "a controller's class": Bad(options={"controller": Fixed}, words=("controller must be one instance", "Fixed(", repr(Fixed))),
    "a controller's name": Bad(options={"controller": "fixed"}, words=("controller must be one instance", "got 'fixed'")),
    "a controller and no factor": Bad(
        compressor=Half(), options={"controller": Fixed(10)}, words=("Half() has no factor", "controller", "TopK(factor=100)")
    ),
    "a process set's ranks": Bad(options={"process_set": [0]}, words=("process_set", "[0]", "hvd.add_process_set()")),
    "no process set": Bad(options={"process_set": None}, words=("process_set", "None", "hvd.add_process_set()")),
    "a monitor's path": Bad(options={"monitor": "log.jsonl"}, words=("monitor", "JsonLines(", "got 'log.jsonl'")),
    "a monitor's class": Bad(
        options={"monitor": hvd_adaptive.Memory}, words=("monitor", "JsonLines(", repr(hvd_adaptive.Memory))
    ),
}

BUCKETS = {
    "empty buckets": Bad(options={"bucket_bytes": 0}, words=("bucket_bytes", "positive", "got 0")),
    "buckets in words": Bad(options={"bucket_bytes": "25MB"}, words=("bucket_bytes", "positive", "got '25MB'")),
    "buckets of a fraction": Bad(options={"bucket_bytes": 2.5e7}, words=("bucket_bytes", "positive", "got 25000000.0")),
    "empty buckets of which none is filled": Bad(
        options={"bucket_bytes": 0, "dense_below": 1000}, words=("bucket_bytes", "positive", "got 0")
    ),
}
FACTORIES: dict[str, Callable[[], object]] = {
    "scope": lambda: hva.compression("layerwise", network().named_parameters(), TopK(2)),
    "no scope": lambda: hva.compression(None, network().named_parameters(), TopK(2)),  # type: ignore[arg-type] - a user's mistake
    "method": lambda: hvd_adaptive.compressor("top-k", factor=2),
}


def still_useful(scope: str = "entire-model") -> bool:
    """True if ranks can train together and stay together."""
    module = network()
    compression = hva.compression(scope, module.named_parameters(), TopK(3), dense_below=0)
    train(module, on(module.named_parameters(), module.parameters(), compression))
    mine = flat(module)
    everyones = hvd.allgather(mine.unsqueeze(0), name="everyone's parameters")
    return bool((everyones == mine).all()) and not torch.equal(mine, flat(network()))


def on(named: Any, parameters: Any, compression: Any, **options: Any) -> Any:
    """SGD under Horovod."""
    return hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.1), named_parameters=named, compression=compression, **options
    )


def train(module: nn.Module, *optimizers: Any, steps: int = 2) -> None:
    for step in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        module(inputs_of(step)).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def constructor_refusals() -> dict[str, Exception | None]:
    found = {
        f"{scope} {case}": refusal(lambda b=bad, s=scope: b.build(s)) for case, bad in CONSTRUCTORS.items() for scope in SCOPES
    }
    found |= {case: refusal(lambda b=bad: b.build("bucketed")) for case, bad in BUCKETS.items()}
    return found | {case: refusal(build) for case, build in FACTORIES.items()}


@pytest.fixture(scope="module")
def refused_constructors(ranks: Any) -> list[dict[str, Exception | None]]:
    found: list[dict[str, Exception | None]] = ranks(2).run(constructor_refusals)
    assert ranks(2).run(still_useful) == [True, True]
    return found


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("case", list(CONSTRUCTORS))
def test_constructors_refuse(refused_constructors: Any, case: str, scope: str) -> None:
    bad = CONSTRUCTORS[case]
    assert_refused([found[f"{scope} {case}"] for found in refused_constructors], bad.error, *bad.words)


@pytest.mark.parametrize("case", list(BUCKETS))
def test_buckets_have_a_positive_size(refused_constructors: Any, case: str) -> None:
    assert_refused([found[case] for found in refused_constructors], ConfigError, *BUCKETS[case].words)


def test_unknown_names_are_refused(refused_constructors: Any) -> None:
    for case, words in {
        "scope": ("unknown scope 'layerwise'", "layer-wise", "entire-model", "bucketed"),
        "no scope": ("unknown scope None", "layer-wise", "entire-model", "bucketed"),
        "method": ("unknown compressor 'top-k'", "topk", "randomk", "identity", "half", "bfloat16"),
    }.items():
        assert_refused([found[case] for found in refused_constructors], ConfigError, *words)


def test_frozen_parameters_may_be_of_any_kind(ranks: Any) -> None:
    """As in stock Horovod, which never sees a gradient of them."""

    def on_rank() -> Any:
        kinds = {
            "complex": torch.zeros(3, dtype=torch.complex64),
            "quantised": torch.zeros(3, dtype=torch.int8),
            "mask": torch.zeros(3, dtype=torch.bool),
        }
        found = {}
        for scope in SCOPES:
            module = network()
            for name, tensor in kinds.items():
                module.register_parameter(name, nn.Parameter(tensor, requires_grad=False))

            def use(scope: str = scope, module: nn.Module = module) -> None:
                compression = hva.compression(scope, module.named_parameters(), TopK(2))
                train(module, on(module.named_parameters(), module.parameters(), compression), steps=1)

            found[scope] = refusal(use)
        return found

    assert ranks(2).run(on_rank) == [dict.fromkeys(SCOPES)] * 2


BEFORE_INIT = """
import json
from torch import nn
import hvd_adaptive.torch as hva
from hvd_adaptive import TopK

said = []
for scope in hva.SCOPES:
    try:
        hva.compression(scope, nn.Linear(2, 2).named_parameters(), TopK(2))
    except Exception as error:
        said.append([[c.__name__ for c in type(error).__mro__], str(error)])
    else:
        said.append([[], "nothing"])
print("said " + json.dumps(said))
"""


def test_horovod_must_be_initialised(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", BEFORE_INIT],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | ENVIRONMENT,
        cwd=tmp_path,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    assert len(said) == 1, done.stderr
    for classes, message in json.loads(said[0].removeprefix("said ")):
        assert classes[0] == "ConfigError"
        assert "ValueError" in classes
        assert "not initialised" in message
        assert "call hvd.init() first" in message


# ---- the use that an optimizer makes of it ---------------------------------------------------------------------------------

METHODS: list[Any] = [TopK(2), RandomK(2), Identity()]
Use = Callable[[nn.Sequential, Callable[[Any], Any]], None]
"""Does something with a network and a function that builds a compression object for named parameters."""


def prefixed(prefix: str, module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Names of their own for each case, so that what one left under way disturbs no other."""
    return [(f"{prefix}.{name}", parameter) for name, parameter in module.named_parameters()]


def with_adasum(module: nn.Sequential, build: Any) -> None:
    named = prefixed("adasum", module)
    train(module, on(named, module.parameters(), build(named), op=hvd.Adasum))


def with_too_many(module: nn.Sequential, build: Any) -> None:
    named = prefixed("many", module)
    train(module, on(named, module[0].parameters(), build(named)))


def with_too_few(module: nn.Sequential, build: Any) -> None:
    named = prefixed("few", module)
    train(module, on(named, module.parameters(), build(named[:2])))


def with_one_too_few(module: nn.Sequential, build: Any) -> None:
    named = prefixed("few", module)
    train(module, on(named, module.parameters(), build(named[1:])))


def with_two_optimizers_of_the_same(module: nn.Sequential, build: Any) -> None:
    named = prefixed("same", module)
    compression = build(named)
    train(module, on(named, module.parameters(), compression), on(named, module.parameters(), compression))


def in_turns(module: nn.Sequential, build: Any) -> None:
    """Two optimizers, one for each layer; each has a backward pass of its own, as in adversarial training."""
    named = prefixed("turns", module)
    compression = build(named)
    for layer in (module[0], module[2]):
        module.requires_grad_(False)
        layer.requires_grad_(True)
        optimizer = on([item for item in named if item[1].requires_grad], layer.parameters(), compression)
        train(module, optimizer, steps=1)


def with_another_model(module: nn.Sequential, build: Any) -> None:
    compression = build(prefixed("replaced", module))
    module = network(seed=2)
    train(module, on(prefixed("replaced", module), module.parameters(), compression))


def with_another_parameter(module: nn.Sequential, build: Any) -> None:
    compression = build(prefixed("swapped", module))
    module[2].weight = nn.Parameter(module[2].weight.detach().clone())
    train(module, on(prefixed("swapped", module), module.parameters(), compression))


def with_another_model_midway(module: nn.Sequential, build: Any) -> None:
    compression = build(prefixed("midway", module))
    train(module, on(prefixed("midway", module), module.parameters(), compression))
    with_another = network(seed=2)
    train(with_another, on(prefixed("midway2", with_another), with_another.parameters(), compression))


OWN_OBJECT = "each optimizer"
USES: dict[str, tuple[Use, type[HvdAdaptiveError], tuple[str, ...]]] = {
    "adasum": (with_adasum, UnsupportedError, ("op=hvd.Adasum", "op=hvd.Average or op=hvd.Sum")),
    "more parameters than the optimizer has": (
        with_too_many,
        ConfigError,
        ("'many.2.weight', 'many.2.bias'", "2 in all", "from the parameters that the optimizer holds", OWN_OBJECT),
    ),
    "fewer parameters than the optimizer has": (
        with_too_few,
        ConfigError,
        ("belongs to no parameter", "the same named_parameters as DistributedOptimizer", OWN_OBJECT),
    ),
    "one parameter too few": (
        with_one_too_few,
        ConfigError,
        ("shape (5, 6)", "the same named_parameters as DistributedOptimizer", OWN_OBJECT),
    ),
    "two optimizers of the same": (with_two_optimizers_of_the_same, ConfigError, ("came twice", OWN_OBJECT)),
    "two optimizers in turns": (in_turns, ConfigError, ("'turns.2.weight'", OWN_OBJECT)),
    "another model": (with_another_model, ConfigError, ("belongs to no parameter", "named_parameters", OWN_OBJECT)),
    "another parameter": (with_another_parameter, ConfigError, ("shape (2, 5)", "named_parameters", OWN_OBJECT)),
    "another model midway": (with_another_model_midway, ConfigError, ("belongs to no parameter", "named_parameters", OWN_OBJECT)),
}


def refusals_in_use(uses: dict[str, Use], methods: list[Any]) -> dict[tuple[str, str, str], tuple[Exception | None, bool]]:
    found = {}
    for case, use in uses.items():
        for scope in SCOPES:
            for method in methods:

                def build(named: Any, scope: str = scope, method: Any = method) -> Any:
                    return hva.compression(scope, named, method, dense_below=0)

                error = refusal(lambda u=use, b=build: u(network(), b))
                found[case, scope, str(method)] = error, still_useful(scope)
    return found


@pytest.fixture(scope="module")
def uses(ranks: Any) -> Any:
    return ranks(2).run(refusals_in_use, {case: use for case, (use, _, _) in USES.items()}, METHODS)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("case", list(USES))
def test_optimizers_it_was_not_built_for_are_refused(uses: Any, case: str, scope: str, method: Any) -> None:
    _, kind, words = USES[case]
    found = [answer[case, scope, str(method)] for answer in uses]
    assert_refused([error for error, _ in found], kind, *words)
    assert all(useful for _, useful in found), "ranks cannot go on"


def train_layers_apart(prefix: str, compression_of: Any, ops: tuple[Any, Any], process_sets: tuple[Any, Any]) -> torch.Tensor:
    """One optimizer for each layer; both step after one backward pass, and share the compression object if there is one."""
    module = network()
    named = prefixed(prefix, module)
    shared = {} if compression_of is None else {"compression": compression_of(named)}
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(layer.parameters(), lr=0.1),
            named_parameters=[(name, p) for name, p in named if any(p is own for own in layer.parameters())],
            op=op,
            process_set=process_set,
            **shared,
        )
        for layer, op, process_set in zip((module[0], module[2]), ops, process_sets, strict=True)
    ]
    train(module, *optimizers)
    return flat(module)


def sharing(scope: str, ops: tuple[Any, Any], process_sets: tuple[Any, Any]) -> dict[str, Any]:
    """By method: the refusal, or how far parameters end from stock Horovod's."""
    stock = train_layers_apart("apart", None, ops, process_sets)
    found: dict[str, Any] = {}
    for method in (TopK(1), RandomK(1), Identity()):

        def build(named: Any, method: Any = method) -> Any:
            return hva.compression(scope, named, method, dense_below=0)

        try:
            ours = train_layers_apart("shared", build, ops, process_sets)
        except HvdAdaptiveError as error:
            found[str(method)] = error
        else:
            found[str(method)] = float((ours - stock).abs().max())
        assert still_useful(scope)
    return found


def assert_refused_or_right(answers: list[dict[str, Any]], *words: str) -> None:
    for method in answers[0]:
        found = [answer[method] for answer in answers]
        if any(isinstance(each, Exception) for each in found):
            assert_refused(found, ConfigError, *words)
        else:
            assert max(found) <= 1e-12, method


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("ops", [("Average", "Average"), ("Average", "Sum"), ("Sum", "Average")], ids="-".join)
def test_two_optimizers_that_share_an_object_are_refused_or_right(ranks: Any, scope: str, ops: tuple[str, str]) -> None:
    def on_rank() -> Any:
        first, second = (getattr(hvd, op) for op in ops)
        return sharing(scope, (first, second), (hvd.global_process_set, hvd.global_process_set))

    assert_refused_or_right(ranks(2).run(on_rank), "op=")


@pytest.mark.parametrize("scope", SCOPES)
def test_two_optimizers_of_different_process_sets_that_share_an_object_are_refused_or_right(ranks: Any, scope: str) -> None:
    """As with experts, whose gradients are averaged among some ranks only."""

    def on_rank() -> Any:
        sets = [hvd.add_process_set([rank]) for rank in range(2)]
        try:
            return sharing(scope, (hvd.Average, hvd.Average), (hvd.global_process_set, sets[hvd.rank()]))
        finally:
            for each in sets:
                hvd.remove_process_set(each)

    assert_refused_or_right(ranks(2).run(on_rank), "process_set=")


def with_a_bad_factor(module: nn.Sequential, scope: str, factor: Any) -> None:
    named = prefixed(f"factor {factor}", module)
    compression = hva.compression(scope, named, TopK(2), controller=Deciding(factor), dense_below=0)
    train(module, on(named, module.parameters(), compression))


@pytest.mark.parametrize(
    ("compression", "words"),
    [
        (TopK(9), ["TopK(factor=9.0)", "compression=EntireModel(parameters, TopK(factor=9.0))"]),
        (hva.EntireModel, ["is the class EntireModel", "build one before training"]),
    ],
    ids=["a method", "a class"],
)
def test_what_is_no_object_is_refused(ranks: Any, compression: Any, words: list[str]) -> None:
    def step() -> None:
        module = network()
        inner = torch.optim.SGD(module.parameters(), lr=0.1)
        hvd.DistributedOptimizer(inner, named_parameters=module.named_parameters(), compression=compression)
        module(inputs_of(0)).sum().backward()

    assert_refused(ranks(2).attempt(step), ConfigError, *words)


@pytest.mark.parametrize("factor", [0.5, 0, float("inf"), float("nan"), None, "2"])
def test_a_factor_that_a_controller_decides_must_be_legal(ranks: Any, factor: Any) -> None:
    def on_rank() -> Any:
        errors = {scope: refusal(lambda s=scope: with_a_bad_factor(network(), s, factor)) for scope in SCOPES}
        return errors, still_useful()

    answers = ranks(2).run(on_rank)
    for scope in SCOPES:
        assert_refused([errors[scope] for errors, _ in answers], ConfigError, "factor", ">= 1", f"got {factor!r}")
    assert all(useful for _, useful in answers)


# ---- sparse gradients ------------------------------------------------------------------------------------------------------


def words_network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Embedding(20, 4, sparse=True), nn.Linear(4, 3)).double()


def train_words(compression_of: Any, sparse_as_dense: bool, prefix: str) -> torch.Tensor:
    module = words_network()
    named = prefixed(prefix, module)
    options = {} if compression_of is None else {"compression": compression_of(named)}
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(module.parameters(), lr=0.1), named_parameters=named, sparse_as_dense=sparse_as_dense, **options
    )
    for step in range(3):
        optimizer.zero_grad()
        module((torch.arange(6) * (hvd.rank() + 2) + step) % 20).square().sum().backward()
        optimizer.step()
    return flat(module)


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_sparse_gradients_are_refused(ranks: Any, sparse_as_dense: bool) -> None:
    def on_rank() -> Any:
        found = {}
        for scope in SCOPES:
            for method in METHODS:

                def build(named: Any, scope: str = scope, method: Any = method) -> Any:
                    return hva.compression(scope, named, method, dense_below=0)

                error = refusal(lambda b=build: train_words(b, sparse_as_dense, "sparse"))
                found[scope, str(method)] = error, still_useful(scope)
        return found

    answers = ranks(2).run(on_rank)
    for case in answers[0]:
        assert_refused(
            [answer[case][0] for answer in answers],
            UnsupportedError,
            "the gradient of 'sparse.0.weight' is sparse",
            "sparse=False",
            "exclude",
        )
        assert all(answer[case][1] for answer in answers)


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_sparse_gradients_that_are_excluded_equal_stock_horovod(ranks: Any, sparse_as_dense: bool) -> None:
    def on_rank() -> Any:
        stock = train_words(None, sparse_as_dense, "stock")
        found = {}
        for scope in SCOPES:
            for method in (TopK(1), RandomK(1), Identity(), TopK(3)):

                def build(named: Any, scope: str = scope, method: Any = method) -> Any:
                    return hva.compression(scope, named, method, dense_below=0, exclude="*.0.weight")

                found[scope, str(method)] = train_words(build, sparse_as_dense, "excluded")
        return stock, flat(words_network()), found

    (stock, before, found), (_, _, others) = ranks(2).run(on_rank)
    embedded = 20 * 4
    assert not torch.equal(stock[:embedded], before[:embedded])
    for case, ours in found.items():
        assert torch.equal(ours, others[case]), case
        if case[1] == str(TopK(3)):
            assert not torch.allclose(ours, stock)
        else:
            assert torch.allclose(ours, stock, rtol=1e-12, atol=1e-14), case
