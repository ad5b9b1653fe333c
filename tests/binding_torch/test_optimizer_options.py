"""Every option and way of use of Horovod's optimizer means the same with a compression object that drops nothing."""

from collections.abc import Callable
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from torch import nn
from training import attempt_soon, batches, building, distributed, flat, loss_of, model, optimizer_for, train

import hvd_adaptive.torch as hva
from hvd_adaptive import ConfigError, Identity, RandomK, TopK

FACTOR_1 = [(TopK(1), "gather"), (Identity(), "reduce"), (RandomK(1), "reduce")]
PRECISION = {torch.float32: 1e-6, torch.float64: 1e-12}
STEPS = 3
PASSES = 3

Training = Callable[[nn.Module, Any], Any]

OPTIONS: dict[str, dict[str, Any]] = {
    "average": {"op": hvd.Average},
    "sum": {"op": hvd.Sum},
    "predivide": {"gradient_predivide_factor": 3.0},
    "one group": {"groups": 1},
    "two groups": {"groups": 2},
    "sum in a group": {"op": hvd.Sum, "groups": 1},
    "predivide in groups": {"gradient_predivide_factor": 3.0, "groups": 2},
}
ACCUMULATING: dict[str, dict[str, Any]] = {
    "accumulate": {"backward_passes_per_step": PASSES},
    "accumulate in groups": {"backward_passes_per_step": PASSES, "groups": 2},
}


def plainly(module: nn.Module, optimizer: Any) -> None:
    train(module, optimizer, STEPS)


def differences(scope: str, build: Callable[[nn.Module, Any], Any], run: Training) -> dict[tuple[str, str], float]:
    """How far parameters end from stock Horovod's, in units of what is allowed, for each dtype and method."""
    found = {}
    for dtype, precision in PRECISION.items():

        def end(compress: Any, dtype: torch.dtype = dtype) -> torch.Tensor:
            module = model().to(dtype)
            run(module, build(module, None if compress is None else compress(module)))
            return flat(module)

        stock = end(None)
        assert (stock - flat(model().to(dtype))).abs().max() > 1e-3, "nothing was learned, so nothing is compared"
        for compressor, exchange in FACTOR_1:
            ours = end(building(scope, compressor, exchange=exchange))
            found[str(dtype), f"{compressor} {exchange}"] = float((stock - ours).abs().max() / stock.abs().max() / precision)
    return found


def assert_equal_to_stock(answers: list[dict[tuple[str, str], float]]) -> None:
    assert [{case: d for case, d in answer.items() if d > 1.0} for answer in answers] == [{}] * len(answers)


@pytest.mark.parametrize("scope", list(hva.SCOPES))
@pytest.mark.parametrize("name", list(OPTIONS))
def test_options_mean_what_they_mean_in_stock_horovod(ranks: Any, scope: str, name: str) -> None:
    options = OPTIONS[name]

    def on_rank() -> Any:
        return differences(scope, lambda m, c: optimizer_for(m, c, **options), plainly)

    assert_equal_to_stock(ranks(3).run(on_rank))


@pytest.mark.parametrize("scope", list(hva.SCOPES))
@pytest.mark.parametrize("name", list(ACCUMULATING))
def test_gradients_accumulate_over_backward_passes(ranks: Any, scope: str, name: str) -> None:
    options = ACCUMULATING[name]

    def on_rank() -> Any:
        return differences(scope, lambda m, c: optimizer_for(m, c, **options), lambda m, o: train(m, o, STEPS, passes=PASSES))

    assert_equal_to_stock(ranks(3).run(on_rank))


@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_a_step_may_come_before_all_backward_passes(ranks: Any, scope: str) -> None:
    def on_rank() -> Any:
        return differences(
            scope,
            lambda m, c: optimizer_for(m, c, backward_passes_per_step=PASSES),
            lambda m, o: train(m, o, STEPS, passes=PASSES - 1),
        )

    assert_equal_to_stock(ranks(2).run(on_rank))


def grouped_by_hand(module: nn.Module, compression: Any) -> Any:
    groups = [[module[0].weight, module[4].bias], [module[2].weight, module[2].bias]]
    return optimizer_for(module, compression, groups=groups)


@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_groups_may_be_lists_of_parameters(ranks: Any, scope: str) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, grouped_by_hand, plainly))


def grouped_by_the_old_name(module: nn.Module, compression: Any) -> Any:
    with pytest.warns(DeprecationWarning, match="num_groups"):
        return optimizer_for(module, compression, num_groups=2)


@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_the_deprecated_num_groups_works(ranks: Any, scope: str) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, grouped_by_the_old_name, plainly))


CLIP = 0.1


def train_clipped(module: nn.Module, optimizer: Any) -> None:
    for inputs, targets in batches(STEPS, hvd.rank()):
        optimizer.zero_grad()
        loss_of(module, inputs, targets).backward()
        optimizer.synchronize()
        assert nn.utils.clip_grad_norm_(module.parameters(), CLIP) > CLIP, "nothing was clipped"
        with optimizer.skip_synchronize():
            optimizer.step()


@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_gradients_may_be_clipped_after_synchronize(ranks: Any, scope: str) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, optimizer_for, train_clipped))


def train_refused_zero_grad(module: nn.Module, optimizer: Any) -> None:
    """Accumulates over two passes; drops the first pass of step 1, which Horovod's own ``zero_grad`` refuses."""
    for step in range(STEPS):
        optimizer.zero_grad()
        for number, (inputs, targets) in enumerate(batches(2, hvd.rank(), first=2 * step)):
            loss_of(module, inputs, targets).backward()
            if (step, number) == (1, 0):
                with pytest.raises(AssertionError, match="zero_grad"):
                    optimizer.zero_grad()
                module.zero_grad()
        optimizer.step()


@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_training_goes_on_after_a_refused_zero_grad(ranks: Any, scope: str) -> None:
    answers = ranks(2).run(
        differences, scope, lambda m, c: optimizer_for(m, c, backward_passes_per_step=2), train_refused_zero_grad
    )
    assert_equal_to_stock(answers)


def train_synchronized_twice(module: nn.Module, optimizer: Any) -> None:
    for inputs, targets in batches(STEPS, hvd.rank()):
        optimizer.zero_grad()
        loss_of(module, inputs, targets).backward()
        optimizer.synchronize()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()


def train_with_needless_synchronize(module: nn.Module, optimizer: Any) -> None:
    for inputs, targets in batches(STEPS, hvd.rank()):
        optimizer.zero_grad()
        loss_of(module, inputs, targets).backward()
        optimizer.synchronize()
        with pytest.warns(UserWarning, match="skip_synchronize"):
            optimizer.step()


@pytest.mark.parametrize("run", [train_synchronized_twice, train_with_needless_synchronize])
@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_synchronizing_twice_equals_stock_horovod(ranks: Any, scope: str, run: Training) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, optimizer_for, run))
    summing = ranks(2).run(differences, scope, lambda m, c: optimizer_for(m, c, op=hvd.Sum), run)  # the second doubles it
    assert_equal_to_stock(summing)


@pytest.mark.parametrize("scope", list(hva.SCOPES))
@pytest.mark.parametrize("compressor", [TopK(20), RandomK(20)], ids=str)
def test_ranks_stay_identical_if_synchronized_twice(ranks: Any, scope: str, compressor: Any) -> None:
    def on_rank() -> Any:
        module = model()
        train_synchronized_twice(module, optimizer_for(module, building(scope, compressor)(module)))
        return flat(module)

    first, *others = ranks(2).run(on_rank)
    assert all(torch.equal(first, other) for other in others)


def with_two_learning_rates(module: nn.Module, compression: Any) -> Any:
    groups = [{"params": module[0].parameters(), "lr": 0.5}, {"params": [*module[2].parameters(), *module[4].parameters()]}]
    return distributed(torch.optim.SGD(groups, lr=0.01, momentum=0.9), module, compression)


def with_adam(module: nn.Module, compression: Any) -> Any:
    # With the usual eps, Adam blows rounding of gradients near zero up to whole updates.
    return distributed(torch.optim.Adam(module.parameters(), lr=0.01, eps=1e-2), module, compression)


@pytest.mark.parametrize("build", [with_two_learning_rates, with_adam])
@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_other_optimizers_and_parameter_groups(ranks: Any, scope: str, build: Any) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, build, plainly))


def train_with_closure(module: nn.Module, optimizer: Any) -> None:
    for inputs, targets in batches(STEPS, hvd.rank()):
        optimizer.zero_grad()
        loss_of(module, inputs, targets).backward()
        assert optimizer.step(lambda: 7.0) == 7.0


@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_step_takes_a_closure_as_in_stock_horovod(ranks: Any, scope: str) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, optimizer_for, train_with_closure))


def train_with_changing_passes(module: nn.Module, optimizer: Any) -> None:
    train(module, optimizer, 2)
    optimizer.set_backward_passes_per_step(2)
    train(module, optimizer, 2, first=2, passes=2)


@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_backward_passes_per_step_may_change(ranks: Any, scope: str) -> None:
    assert_equal_to_stock(ranks(2).run(differences, scope, optimizer_for, train_with_changing_passes))


@pytest.mark.parametrize("op", ["Min", "Max", "Product"])
@pytest.mark.parametrize("scope", list(hva.SCOPES))
def test_other_operations_are_refused(ranks: Any, scope: str, op: str) -> None:
    def on_rank() -> None:
        module = model()
        train(module, optimizer_for(module, building(scope, TopK(2))(module), op=getattr(hvd, op)), 1)

    for error in attempt_soon(ranks(2), on_rank):
        assert isinstance(error, ConfigError), error
        assert "does not average or sum" in str(error)
        assert "op=hvd.Average or op=hvd.Sum" in str(error)
