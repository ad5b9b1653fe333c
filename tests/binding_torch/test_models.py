"""Models and gradients out of the ordinary: what is frozen, unused, shared, tiny, of another dtype or layout, or not finite."""

import copy
from collections.abc import Callable
from typing import Any

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from torch import nn
from training import (
    attempt_soon,
    batches,
    building,
    distributed,
    exchanges_of,
    flat,
    loss_of,
    model,
    optimizer_for,
    residuals,
    train,
)

import hvd_adaptive.torch as hva
from hvd_adaptive import AgreementError, BFloat16, ConfigError, Half, Identity, RandomK, TopK

FACTOR_1 = [(TopK(1), "gather"), (Identity(), "reduce"), (RandomK(1), "reduce")]
FACTOR_10 = [TopK(10), RandomK(10)]
STEPS = 3
SCOPES = list(hva.SCOPES)

Make = Callable[[], nn.Module]


def inputs_of(step: int, *shape: int) -> torch.Tensor:
    """Inputs f64 that differ by rank and step."""
    generator = torch.Generator().manual_seed(1000 * hvd.rank() + step)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def fit(module: nn.Module, optimizer: Any, steps: int = STEPS) -> None:
    """Trains a module of six inputs to give small outputs."""
    for step in range(steps):
        optimizer.zero_grad()
        module(inputs_of(step, 4, 6)).square().sum().backward()
        optimizer.step()


def sgd(module: nn.Module, compression: Any, **options: Any) -> Any:
    return distributed(torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9), module, compression, **options)


def differences(scope: str, make: Make, run: Callable[[nn.Module, Any], Any], **options: Any) -> dict[str, float]:
    """How far a float64 model ends from where stock Horovod brings it, relative to its largest parameter, by method."""

    def end(compress: Any) -> torch.Tensor:
        module = make().double()
        run(module, compress)
        return flat(module)

    stock = end(None)
    assert (stock - flat(make().double())).abs().max() > 1e-3, "nothing was learned, so nothing is compared"
    found = {}
    for compressor, exchange in FACTOR_1:
        ours = end(building(scope, compressor, exchange=exchange, **options))
        found[f"{compressor} {exchange}"] = float((stock - ours).abs().max() / stock.abs().max())
    return found


def plainly(module: nn.Module, compress: Any) -> None:
    fit(module, sgd(module, None if compress is None else compress(module)))


def assert_equal_to_stock(answers: list[dict[str, float]]) -> None:
    assert [{case: d for case, d in answer.items() if d > 1e-12} for answer in answers] == [{}] * len(answers)


def on_identical_ranks(answers: list[Any]) -> bool:
    first, *others = answers
    return all(torch.equal(first, other) for other in others)


class Branches(nn.Module):
    """Rank 0 goes one way, the others another, so each leaves parameters unused."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.a, self.b, self.unused = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (self.a if hvd.rank() == 0 else self.b)(inputs)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("scope", SCOPES)
def test_parameters_unused_on_some_ranks(ranks: Any, size: int, scope: str) -> None:
    assert_equal_to_stock(ranks(size).run(differences, scope, Branches, plainly))


@pytest.mark.parametrize("compressor", FACTOR_10, ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_ranks_stay_identical_with_unused_parameters(ranks: Any, scope: str, compressor: Any) -> None:
    def on_rank() -> torch.Tensor:
        module = Branches().double()
        plainly(module, building(scope, compressor))
        return flat(module)

    assert on_identical_ranks(ranks(3).run(on_rank))


def half_frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    nn.init.constant_(module[0].weight, 0.1)
    nn.init.constant_(module[0].bias, 0.2)
    nn.init.constant_(module[1].weight, 0.3)
    nn.init.constant_(module[1].bias, 0.4)
    return module


def without_first_layer(module: nn.Module, compress: Any) -> None:
    module[0].requires_grad_(False)
    before = flat(module[0])
    plainly(module, compress)
    assert torch.equal(flat(module[0]), before)
    assert module[0].weight.grad is None


def frozen_on_the_way(module: nn.Module, compress: Any) -> None:
    optimizer = sgd(module, None if compress is None else compress(module))
    fit(module, optimizer, 1)
    module[0].requires_grad_(False)
    fit(module, optimizer)
    module[0].requires_grad_(True)
    fit(module, optimizer)


@pytest.mark.parametrize("run", [without_first_layer, frozen_on_the_way])
@pytest.mark.parametrize("scope", SCOPES)
def test_frozen_parameters(ranks: Any, scope: str, run: Any) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, half_frozen, run))


@pytest.mark.parametrize("scope", SCOPES)
def test_parameters_frozen_before_the_optimizer_is_built_are_refused(ranks: Any, scope: str) -> None:
    def on_rank() -> None:
        module = half_frozen().double()
        compression = building(scope, TopK(2))(module)
        module[0].requires_grad_(False)
        fit(module, sgd(module, compression))

    for error in attempt_soon(ranks(2), on_rank):
        assert isinstance(error, ConfigError), error
        assert "no gradient of '0.weight', '0.bias'" in str(error)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("scope", SCOPES)
def test_parameters_frozen_on_one_rank_only_are_refused(ranks: Any, size: int, scope: str) -> None:
    def on_rank() -> None:
        module = half_frozen()
        module[0].weight.requires_grad_(hvd.rank() == 0)
        building(scope, TopK(2))(module)

    answers = attempt_soon(ranks(size), on_rank)
    assert [type(a) for a in answers] == [AgreementError] * size, answers
    assert len({str(a) for a in answers}) == 1
    assert "parameter '0.weight'" in str(answers[0])
    assert "frozen" in str(answers[0])


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        nn.init.eye_(self.first.weight)
        nn.init.constant_(self.first.bias, 0.1)
        self.second.weight = self.first.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(inputs)))


def under_both_names(module: nn.Module, compress: Any) -> None:
    names = list(module.named_parameters(remove_duplicate=False))
    assert len(names) == 3
    options = {} if compress is None else {"compression": hva.compression(compress, names, TopK(1), dense_below=0)}
    inner = torch.optim.SGD(module.parameters(), lr=0.01)
    fit(module, hvd.DistributedOptimizer(inner, named_parameters=names, **options))


@pytest.mark.parametrize("scope", SCOPES)
def test_shared_parameters(ranks: Any, scope: str) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, Tied, plainly))


@pytest.mark.parametrize("scope", SCOPES)
def test_shared_parameters_given_under_both_names(ranks: Any, scope: str) -> None:
    def on_rank() -> float:
        ends = []
        for compress in (None, scope):
            module = Tied().double()
            under_both_names(module, compress)
            ends.append(flat(module))
        return float((ends[0] - ends[1]).abs().max())

    assert max(ranks(2).run(on_rank)) <= 1e-12


class Odd(nn.Module):
    """A parameter without dimensions, one of one element, one of none, and an ordinary one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.shift = nn.Parameter(torch.tensor([0.25]))
        self.nothing = nn.Parameter(torch.empty(0, 4))
        self.weight = nn.Parameter(torch.linspace(-1, 1, 18).view(6, 3))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ self.weight * self.scale + self.shift + self.nothing.sum()


@pytest.mark.parametrize("scope", SCOPES)
def test_tiny_and_empty_parameters(ranks: Any, scope: str) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, Odd, plainly))


@pytest.mark.parametrize("scope", SCOPES)
def test_tiny_and_empty_parameters_keep_shape_and_are_counted(ranks: Any, scope: str) -> None:
    def on_rank() -> Any:
        module = Odd()
        compression = building(scope, TopK(4))(module)
        optimizer = sgd(module, compression)
        module(inputs_of(0, 4, 6).float()).sum().backward()
        optimizer.synchronize()
        return [p.grad.shape == p.shape for p in module.parameters()], compression.stats().elements_dense

    assert ranks(2).run(on_rank) == [([True] * 4, 20)] * 2


class Empty(nn.Module):
    """Nothing but a parameter without elements."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.empty(0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.nothing.sum()


@pytest.mark.parametrize("scope", SCOPES)
def test_a_model_without_elements(ranks: Any, scope: str) -> None:
    def on_rank() -> int:
        module = Empty().double()
        plainly(module, building(scope, TopK(4)))
        return flat(module).numel()

    assert ranks(2).run(on_rank) == [0, 0]


def images(dtype: torch.dtype) -> nn.Module:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3, bias=False)).to(dtype)
    for parameter in module.parameters():
        with torch.no_grad():
            parameter.copy_(torch.linspace(-0.1, 0.1, parameter.numel()).view(parameter.shape))
    return module.to(memory_format=torch.channels_last)


def images_loss(module: nn.Module) -> torch.Tensor:
    dtype = next(module.parameters()).dtype
    return module(inputs_of(0, 2, 3, 8, 8).to(dtype).contiguous(memory_format=torch.channels_last)).square().sum()


@pytest.mark.parametrize(("compressor", "exchange"), FACTOR_1, ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_channels_last(ranks: Any, scope: str, compressor: Any, exchange: str) -> None:
    def on_rank() -> None:
        module = images(torch.float32)
        optimizer = sgd(module, building(scope, compressor, exchange=exchange)(module))
        images_loss(module).backward()
        layouts = [p.grad.stride() for p in module.parameters()]
        assert not module[0].weight.grad.is_contiguous(), "an ordinary layout tests nothing"

        plain = images(torch.float32)
        images_loss(plain).backward()
        means = [hvd.allreduce(p.grad.contiguous(), name=f"mean {i}") for i, p in enumerate(plain.parameters())]
        optimizer.synchronize()
        for parameter, layout, mean in zip(module.parameters(), layouts, means, strict=True):
            assert parameter.grad.stride() == layout
            assert (parameter.grad - mean).abs().max() <= 1e-6 * mean.abs().max()
        with optimizer.skip_synchronize():
            optimizer.step()

    ranks(2).run(on_rank)


def test_stock_horovod_takes_no_channels_last(ranks: Any) -> None:
    def on_rank() -> None:
        module = images(torch.float32)
        optimizer = sgd(module, None)
        images_loss(module).backward()
        optimizer.step()

    for error in ranks(2).attempt(on_rank):
        assert isinstance(error, ValueError)
        assert "contiguous" in str(error)


def synchronized_gradients(module: nn.Module, compression: Any) -> list[tuple[torch.Tensor, np.ndarray]]:
    """What each parameter's gradient became, and the float64 mean of all ranks' local ones."""
    twin = copy.deepcopy(module)  # without Horovod, which may reduce gradients in place as soon as they are there
    optimizer = sgd(module, compression)
    for net in (twin, module):
        net(inputs_of(0, 4, 6)).square().sum().backward()
    optimizer.synchronize()
    means = [hvd.allreduce(p.grad.double(), name=f"local {i}").numpy() for i, p in enumerate(twin.parameters())]
    return [(p.grad, mean) for p, mean in zip(module.parameters(), means, strict=True)]


class Mixed(nn.Module):
    """Three layers, each in its own dtype."""

    def __init__(self, *dtypes: torch.dtype) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in dtypes)
        for layer, dtype in zip(self.layers, dtypes, strict=True):
            layer.to(dtype)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = torch.tanh(layer(inputs.to(layer.weight.dtype)))
        return inputs.float()


ROUNDING = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Half a step between neighbours, relative: what the sum of two may be off when rounded once."""
SMALLEST = {torch.float64: 0.0, torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}

DTYPES = [
    (torch.bfloat16, torch.bfloat16, torch.bfloat16),
    (torch.float16, torch.float16, torch.float16),
    (torch.float32, torch.bfloat16, torch.float16),
    (torch.float64, torch.bfloat16, torch.float32),
]


@pytest.mark.parametrize("dtypes", DTYPES, ids=lambda dtypes: "-".join(str(d).removeprefix("torch.") for d in dtypes))
@pytest.mark.parametrize("scope", SCOPES)
def test_gradients_of_other_dtypes(ranks: Any, scope: str, dtypes: tuple[torch.dtype, ...]) -> None:
    def on_rank() -> list[Any]:
        found = []
        for compressor, exchange in FACTOR_1:
            module = Mixed(*dtypes)
            compression = building(scope, compressor, exchange=exchange)(module)
            found.append([(g.dtype, g.double().numpy(), mean) for g, mean in synchronized_gradients(module, compression)])
        return found

    for method in ranks(2).run(on_rank)[0]:
        assert [dtype for dtype, _, _ in method] == [d for d in dtypes for _ in range(2)]
        for dtype, gradient, mean in method:
            assert np.abs(mean).max() > 0
            assert np.all(np.abs(gradient - mean) <= 1.01 * ROUNDING[dtype] * np.abs(mean) + SMALLEST[dtype])


@pytest.mark.parametrize("scope", SCOPES)
def test_bfloat16_gradients_are_the_float32_mean_rounded(ranks: Any, scope: str) -> None:
    def on_rank() -> None:
        for compressor, exchange in FACTOR_1:
            module = Mixed(torch.bfloat16, torch.bfloat16)
            for gradient, mean in synchronized_gradients(module, building(scope, compressor, exchange=exchange)(module)):
                assert torch.equal(gradient, torch.from_numpy(mean).bfloat16()), compressor  # two ranks: the mean is exact

    ranks(2).run(on_rank)


def test_stock_horovod_takes_no_bfloat16(ranks: Any) -> None:
    def on_rank() -> None:
        module = Mixed(torch.bfloat16)
        synchronized_gradients(module, None)

    for error in ranks(2).attempt(on_rank):
        assert isinstance(error, ValueError)
        assert "not supported" in str(error)


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("compressor", [TopK(7), RandomK(7), Half(), BFloat16(), Identity()], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_every_method_takes_every_dtype(ranks: Any, scope: str, compressor: Any, feedback: bool) -> None:
    """36 and 6 elements in a layer, so that factor 7 keeps 5 and 1: payloads of an odd number of bytes."""

    def on_rank() -> list[torch.Tensor]:
        ends = []
        for dtypes in DTYPES:
            for exchange in exchanges_of(compressor):
                module = Mixed(*dtypes)
                compression = building(scope, compressor, exchange=exchange, feedback=feedback)(module)
                fit(module, sgd(module, compression), 2)
                assert [p.grad.dtype for p in module.parameters()] == [d for d in dtypes for _ in range(2)]
                ends += [p.detach() for p in module.parameters()]
        return ends

    first, second = ranks(2).run(on_rank)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.isfinite(a).all() for a in first)


@pytest.mark.parametrize("scope", SCOPES)
def test_float64_gradients_are_kept_back_in_float64(ranks: Any, scope: str) -> None:
    def on_rank() -> float:
        module = model().double()
        compression = building(scope, TopK(50), exchange="gather")(module)
        optimizer = optimizer_for(module, compression)
        total, received = 0.0, 0.0
        for inputs, targets in batches(4, hvd.rank()):
            optimizer.zero_grad()
            loss_of(module, inputs, targets).backward()
            total += sum(p.grad.sum() for p in module.parameters())
            optimizer.synchronize()
            received += sum(p.grad.sum() for p in module.parameters())
            with optimizer.skip_synchronize():
                optimizer.step()
        kept_back = residuals(compression.state_dict()).values()
        assert all(r.dtype == torch.float64 for r in kept_back)
        kept = sum(r.sum() for r in kept_back)
        assert kept.abs() > 1e-3
        return float(hvd.allreduce((total - kept).view(1), name="balance") - received)

    assert max(map(abs, ranks(2).run(on_rank))) <= 1e-12


def scaled_step(module: nn.Module, optimizer: Any, scaler: Any, step: int, *, spoil: float | None = None) -> None:
    ((inputs, targets),) = batches(1, hvd.rank(), first=step)
    optimizer.zero_grad()
    loss = loss_of(module, inputs, targets)
    if spoil is not None and hvd.rank() == 1:
        loss = loss * spoil
    scaler.scale(loss).backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()


def scaler_for_tests() -> Any:
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)


@pytest.mark.parametrize("scope", SCOPES)
def test_gradient_scaling_equals_stock_horovod(ranks: Any, scope: str) -> None:
    def run(module: nn.Module, compress: Any) -> None:
        optimizer, scaler = optimizer_for(module, None if compress is None else compress(module)), scaler_for_tests()
        for step in range(4):
            scaled_step(module, optimizer, scaler, step, spoil=float("inf") if step == 2 else None)
        assert scaler.get_scale() == 512.0

    assert_equal_to_stock(ranks(2).run(differences, scope, model, run))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("compressor", [TopK(10), RandomK(10)], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_an_infinite_gradient_on_one_rank_is_skipped_by_all(ranks: Any, size: int, scope: str, compressor: Any) -> None:
    def on_rank() -> Any:
        module = model()
        compression = building(scope, compressor)(module)
        optimizer, scaler = optimizer_for(module, compression), scaler_for_tests()
        seen = []
        for step in range(5):
            scaled_step(module, optimizer, scaler, step, spoil=float("inf") if step == 2 else None)
            stats = compression.stats()
            kept = residuals(compression.state_dict())
            seen.append((flat(module), kept, scaler.get_scale(), stats.steps, stats.nonfinite_steps))
        return seen

    answers = ranks(size).run(on_rank)
    for seen in answers:
        parameters, kept, scales, steps, nonfinite = zip(*seen, strict=True)
        assert steps == (1, 2, 3, 4, 5)
        assert scales == (1024.0, 1024.0, 512.0, 512.0, 512.0)
        assert nonfinite == (0, 0, 1, 1, 1)
        assert torch.equal(parameters[2], parameters[1])
        assert not torch.equal(parameters[3], parameters[2])
        assert torch.isfinite(parameters[4]).all()
        assert set(kept[1]) == set(kept[2]) != set()
        for name, residual in kept[1].items():
            assert (kept[2][name] - residual).abs().max() <= 1e-6 * residual.abs().max(), name
    assert on_identical_ranks([seen[4][0] for seen in answers])


@pytest.mark.parametrize("compressor", [Half(), Identity(), BFloat16()], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_what_feedback_keeps_of_dense_methods_survives_infinity(ranks: Any, scope: str, compressor: Any) -> None:
    def on_rank() -> Any:
        module = model()
        compression = building(scope, compressor, feedback=True)(module)
        optimizer, scaler = optimizer_for(module, compression), scaler_for_tests()
        seen = []
        for step in range(3):
            scaled_step(module, optimizer, scaler, step, spoil=float("inf") if step == 1 else None)
            seen.append(residuals(compression.state_dict()))
        return seen, compression.stats().nonfinite_steps

    for (before, after, later), nonfinite in ranks(2).run(on_rank):
        assert nonfinite == 1
        for name, residual in before.items():
            rounding = 1e-6 * 1024  # of the scaled gradient, which was added and taken out again
            assert (after[name] - residual).abs().max() <= rounding, name
            assert torch.isfinite(later[name]).all()


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(("compressor", "exchange"), [*FACTOR_1, *((c, "auto") for c in FACTOR_10)], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_gradient_that_is_not_finite_on_one_rank_is_seen_by_all(
    ranks: Any, scope: str, compressor: Any, exchange: str, value: str
) -> None:
    """One element, neither first nor last, of one gradient."""

    def on_rank() -> Any:
        module = model()
        compression = building(scope, compressor, exchange=exchange)(module)
        optimizer = optimizer_for(module, compression)
        if hvd.rank() == 1:
            spoilt = torch.zeros(60, 20)
            spoilt[7, 3] = float(value)
            module[0].weight.register_hook(lambda gradient: gradient + spoilt)
        ((inputs, targets),) = batches(1, hvd.rank())
        loss_of(module, inputs, targets).backward()
        optimizer.synchronize()
        return [p.grad for p in module.parameters()], compression.stats().nonfinite_steps

    for gradients, nonfinite in ranks(2).run(on_rank):
        assert not torch.isfinite(gradients[0][7, 3])
        if scope == "layer-wise":
            assert all(torch.isfinite(g).all() for g in gradients[1:])
        assert nonfinite == 1 or isinstance(compressor, Identity)


@pytest.mark.parametrize("compressor", [Identity(), Half(), BFloat16()], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_steps_of_dense_methods_that_are_not_finite_are_counted(ranks: Any, scope: str, compressor: Any) -> None:
    def on_rank() -> int:
        module = model()
        compression = building(scope, compressor)(module)
        optimizer = optimizer_for(module, compression)
        ((inputs, targets),) = batches(1, hvd.rank())
        (loss_of(module, inputs, targets) * (float("nan") if hvd.rank() == 1 else 1.0)).backward()
        optimizer.step()
        return compression.stats().nonfinite_steps

    untouched = isinstance(compressor, Identity)  # looking would cost stock Horovod's path a pass
    assert ranks(2).run(on_rank) == [0 if untouched else 1] * 2


@pytest.mark.parametrize("compressor", [TopK(10), RandomK(10), Identity()], ids=str)
@pytest.mark.parametrize("scope", SCOPES)
def test_a_lost_run_is_lost_on_every_rank(ranks: Any, scope: str, compressor: Any) -> None:
    def on_rank() -> None:
        module = model()
        optimizer = optimizer_for(module, building(scope, compressor)(module))
        train(module, optimizer, 1)
        ((inputs, targets),) = batches(1, hvd.rank(), first=1)
        optimizer.zero_grad()
        (loss_of(module, inputs, targets) * (float("nan") if hvd.rank() == 1 else 1.0)).backward()
        optimizer.step()
        assert torch.isnan(flat(module)).all()

    ranks(2).run(on_rank)


@pytest.mark.parametrize("scope", SCOPES)
def test_two_networks_in_one_process(ranks: Any, scope: str) -> None:
    """Two networks with equal parameter names, trained against each other, both backward before either step."""

    def on_rank() -> list[float]:
        def end(compressor: Any) -> torch.Tensor:
            maker, judge = model(1).double(), model(2).double()
            optimizers = []
            for name, net in (("maker", maker), ("judge", judge)):
                compression = {} if compressor is None else {"compression": building(scope, compressor)(net)}
                named = [(f"{name}.{n}", p) for n, p in net.named_parameters()]
                inner = torch.optim.SGD(net.parameters(), lr=0.05)
                optimizers.append(hvd.DistributedOptimizer(inner, named_parameters=named, **compression))
            for inputs, targets in batches(STEPS, hvd.rank()):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss_of(judge, inputs, targets).backward()
                judge.requires_grad_(False)
                made = torch.cat([maker(inputs.double())] * 4, dim=1)
                nn.functional.cross_entropy(judge(made), targets).backward()
                judge.requires_grad_(True)
                for optimizer in optimizers:
                    optimizer.step()
            return torch.cat([flat(maker), flat(judge)])

        stock = end(None)
        return [float((end(c) - stock).abs().max()) for c in (TopK(1), Identity(), RandomK(1))]

    for answer in ranks(2).run(on_rank):
        assert max(answer) <= 1e-12
