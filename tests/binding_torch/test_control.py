"""Controllers on real ranks: ranks stay alike, dense is stock Horovod, and whatever the factors nothing is lost."""

from typing import Any

import horovod.torch as hvd
import pytest
import torch
from steering_runs import Poison, decided, factors, gravac, started, steered
from training import batches, flat, flat_gradient, loss_of, model, optimizer_for, residuals, train, trained

import hvd_adaptive.torch as hva
from hvd_adaptive import DGC, Accordion, Budget, Fixed, RandomK, RedSync, Residual, Schedule, TopK, WarmUp
from hvd_adaptive.prng import derive, root

SCOPES = list(hva.SCOPES)
STEPS = 52


def scattered(step: int) -> float:
    """A factor for a step, often 1, and several steps in a row dense."""
    if step % 20 in (10, 11, 12):
        return 1.0
    return [1.0, 1.0, 1.5, 7.0, 40.0, 5000.0][derive(root(3), step).low % 6]


CONTROLLERS: dict[str, Any] = {
    "gravac": gravac(),
    "gravac probing": gravac(probe_dense=True, window=5),
    "gravac probing, per unit, exact": gravac(probe_dense=True, window=5, per_unit=True, agreement="exact"),
    "gravac exact": gravac(agreement="exact"),
    "gravac exact, always": gravac(agreement="exact", every=1, smoothing=1.0),
    "gravac per unit": gravac(per_unit=True),
    "gravac per unit, exact": gravac(per_unit=True, agreement="exact", every=3),
    "gravac raw": gravac(gain="raw"),
    "gravac norm, geometric": gravac(gain="norm", policy="geometric", omega=0.05),
    "gravac one candidate": gravac(look_ahead=False),
    "gravac pseudocode": gravac(look_ahead=False, reading="pseudocode", omega=0.05),
    "gravac pseudocode, exact": gravac(look_ahead=False, reading="pseudocode", agreement="exact", per_unit=True),
    "gravac far": gravac(epsilon=0.9, min_factor=8),
    "accordion": Accordion(low=2, high=50, threshold=0.05, window=6, every=2),
    "accordion dense": Accordion(low=1, high=50, threshold=0.05, window=6, every=2, per_unit=False),
    "budget": Budget(3000, every=5),
    "budget that is loose": Budget(10**6, every=5),
    "warm-up": WarmUp(64, 40, first=1),
    "schedule": Schedule(scattered),
    "fixed": Fixed(20),
}
METHODS: list[tuple[Any, str]] = [
    (TopK(20), "gather"),
    (TopK(20), "shared-support"),
    (TopK(20), "two-sided"),
    (RandomK(20), "reduce"),
    (RandomK(20, unbiased=True), "reduce"),
    (RandomK(20), "two-sided"),
    (DGC(20), "gather"),
    (DGC(20, clip=1.0, nesterov=True), "two-sided"),
    (RedSync(20), "gather"),
    (RedSync(20), "shared-support"),
]


@pytest.mark.parametrize("name", list(CONTROLLERS))
def test_ranks_stay_bit_identical_and_decide_alike(ranks: Any, name: str) -> None:
    number = list(CONTROLLERS).index(name)
    size = 2 + number % 2
    scope, (compressor, exchange) = SCOPES[(number + size) % 3], METHODS[(3 * number + 4 * size) % len(METHODS)]

    def on_rank() -> Any:
        options = {"exclude": "0.bias"} if exchange == "reduce" else {}
        end, records, compression = steered(scope, compressor, CONTROLLERS[name], STEPS, exchange=exchange, **options)
        assert compression.stats().steps == STEPS
        assert len(records) == STEPS * len(compression.stats().factors)
        sent = [] if isinstance(compressor, (DGC, RedSync)) else factors(records)  # whose count is each rank's own
        return end, (decided(records), sent, compression.state_dict()["control"])

    (end, found), *others = ranks(size).run(on_rank)
    assert bool(end.isfinite().all())
    for same_end, same in others:
        assert torch.equal(end, same_end)
        assert found == same


def test_the_controllers_above_do_decide_different_things(ranks: Any) -> None:
    """Else the test before compares nothing."""

    def on_rank() -> Any:
        return {name: {b for _, _, b in steered_branches(name)} for name in ("gravac", "gravac far", "accordion", "schedule")}

    def steered_branches(name: str) -> Any:
        _, records, _ = steered("layer-wise", TopK(20), CONTROLLERS[name], STEPS)
        return [(r.step, r.unit, (r.branch, round(r.factor))) for r in records]

    for found in ranks(2).run(on_rank):
        assert {branch for branch, _ in found["gravac"]} == {"candidate", "minimum"}
        assert {branch for branch, _ in found["gravac far"]} >= {"dense", "minimum"}
        assert {branch for branch, _ in found["accordion"]} == {"critical", "steady"}
        assert len({factor for _, factor in found["schedule"]}) > 3


# ---- dense -----------------------------------------------------------------------------------------------------------------

DENSE: dict[str, Any] = {
    "fixed": Fixed(1),
    "accordion": Accordion(low=1, high=1, every=3, window=6),
    "gravac exact": gravac(epsilon=1.0, min_factor=1000, max_factor=1000, agreement="exact"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sum": {"op": hvd.Sum},
    "predivided": {"gradient_predivide_factor": 2.0},
    "two passes": {"backward_passes_per_step": 2},
    "one group": {"groups": 1},
}


def end_of(compress: Any, dtype: torch.dtype, options: dict[str, Any]) -> torch.Tensor:
    module = model().to(dtype)
    passes = options.get("backward_passes_per_step", 1)
    train(module, optimizer_for(module, compress and compress(module), **options), 6, passes=passes)
    return flat(module)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("name", list(DENSE))
def test_always_dense_is_stock_horovod(ordered_ranks: Any, scope: str, name: str) -> None:
    """Bit for bit; but a sum of three ranks that is measured is three times a mean."""
    size = 2 + (list(SCOPES).index(scope) + list(DENSE).index(name)) % 2

    def on_rank() -> Any:
        found = {}
        for option, horovod in OPTIONS.items():
            for dtype in (torch.float32, torch.float64, torch.float16):
                if dtype is torch.float16 and name != "fixed":
                    continue  # what is measured is reduced in float32, which is better than stock Horovod's float16
                stock = end_of(None, dtype, horovod)
                for compressor in (TopK(20),) if dtype is torch.float64 else (RandomK(20),):
                    ours, _, compression = steered(scope, compressor, DENSE[name], 6, dtype=dtype, horovod=horovod)
                    if "gravac" in name and compression.stats().branches != {"dense": 6 * len(compression.stats().factors)}:
                        found[option, str(dtype), "branches"] = float(compression.stats().branches.get("dense", 0))
                    difference = float((ours.double() - stock.double()).abs().max() / stock.double().abs().max())
                    exact = name == "fixed" or size == 2 or option == "plain"
                    if difference > (0.0 if exact else 1e-6):
                        found[option, str(dtype), str(compressor)] = difference
        return found

    assert ordered_ranks(size).run(on_rank) == [{}] * size


@pytest.mark.parametrize("scope", SCOPES)
def test_dgc_keeps_its_momentum_while_dense(ranks: Any, scope: str) -> None:
    """Which then is SGD's with momentum."""

    def on_rank() -> float:
        ends = []
        for compressor, momentum in ((None, 0.9), (DGC(20, momentum=0.9), 0.0)):
            module = model().double()
            compress = (
                None
                if compressor is None
                else hva.compression(scope, module.named_parameters(), compressor, controller=Fixed(1), dense_below=0)
            )
            inner = torch.optim.SGD(module.parameters(), lr=0.05, momentum=momentum)
            options = {} if compress is None else {"compression": compress}
            train(module, hvd.DistributedOptimizer(inner, named_parameters=module.named_parameters(), **options), 20)
            ends.append(flat(module))
        return float((ends[0] - ends[1]).abs().max())

    assert max(ranks(2).run(on_rank)) < 1e-13


@pytest.mark.parametrize("scope", SCOPES)
def test_channels_last_and_bfloat16_parameters(ranks: Any, scope: str) -> None:
    def on_rank() -> Any:
        torch.manual_seed(3)
        convolution = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        head = torch.nn.Parameter(torch.linspace(-1, 1, 48).to(torch.bfloat16))
        named = [*convolution.named_parameters(), ("head", head)]
        controller = Schedule(lambda step: [50.0, 1.0, 1.0, 7.0, 1.0, 1.0][step % 6])
        compression = hva.compression(scope, named, TopK(20), controller=controller, dense_below=0)
        inner = torch.optim.SGD([p for _, p in named], lr=0.01)
        optimizer = hvd.DistributedOptimizer(inner, named_parameters=named, compression=compression)
        total, received = [torch.zeros_like(p).double() for _, p in named], [torch.zeros_like(p).double() for _, p in named]
        for step in range(12):
            optimizer.zero_grad()
            generator = torch.Generator().manual_seed(100 * hvd.rank() + step)
            images = torch.randn(2, 3, 6, 6, generator=generator).to(memory_format=torch.channels_last)
            (convolution(images).square().mean() + (head.float() - hvd.rank()).square().sum()).backward()
            copy = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
            copy.load_state_dict(convolution.state_dict())
            other = head.detach().clone().requires_grad_()
            (copy(images).square().mean() + (other.float() - hvd.rank()).square().sum()).backward()
            optimizer.synchronize()
            for sums, parameters in ((total, [*copy.parameters(), other]), (received, [p for _, p in named])):
                for held, p in zip(sums, parameters, strict=True):
                    held.add_(p.grad.double())
            assert convolution.weight.grad.is_contiguous(memory_format=torch.channels_last)
            with optimizer.skip_synchronize():
                optimizer.step()
        means = [hvd.allreduce(held.contiguous(), name=f"total{n}") for n, held in enumerate(total)]
        return [float((a - b).abs().max() / a.abs().max()) for a, b in zip(means, received, strict=True)], [
            p.detach().clone() for _, p in named
        ]

    (differences, mine), (_, other) = ranks(2).run(on_rank)
    assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
    assert differences[0] < 1e-5
    assert differences[1] < 1e-5
    assert differences[2] < 0.02


@pytest.mark.parametrize("scope", SCOPES)
def test_within_a_process_set(ranks: Any, scope: str) -> None:
    """Rank 1 trains alone, and asks nobody."""

    def on_rank() -> Any:
        members = hvd.add_process_set([0, 2])
        try:
            found = []
            for controller in (Fixed(1), gravac(epsilon=0.8), gravac(agreement="exact"), Schedule(scattered)):
                ours, _, compression = steered(
                    scope, TopK(20), controller, 24, process_set=members, dtype=torch.float64, horovod={"process_set": members}
                )
                found.append((ours, compression.stats().branches))
            stock, _ = trained(None, 1)
            module = model().double()
            train(module, optimizer_for(module, None, process_set=members), 24)
            return found, flat(module), stock
        finally:
            hvd.remove_process_set(members)

    (first, stock, _), (alone, _, _), (third, _, _) = ranks(3).run(on_rank)
    for (mine, branches), (other, same) in zip(first, third, strict=True):
        assert torch.equal(mine, other)
        assert branches == same != {}
    assert torch.equal(first[0][0], stock)
    assert [branches for _, branches in alone] == [{}] * 4


# ---- nothing is lost -------------------------------------------------------------------------------------------------------


def missing(scope: str, compressor: Any, exchange: str, controller: Any, horovod: dict[str, Any], steps: int) -> list[float]:
    """After each step: how far what ranks were given plus what they hold is from all gradients, relative to the largest."""
    module, compression, optimizer = started(
        scope, compressor, controller, exchange=exchange, feedback=Residual(), dtype=torch.float64, horovod=horovod
    )
    scale = hvd.size() if horovod.get("op") is hvd.Sum else 1
    gradients = received = torch.zeros(flat(module).numel(), dtype=torch.float64)
    found = []
    for inputs, targets in batches(steps, hvd.rank()):
        copy = model().double()
        copy.load_state_dict(module.state_dict())
        loss_of(copy, inputs, targets).backward()
        gradients = gradients + flat_gradient(copy)
        optimizer.zero_grad()
        loss_of(module, inputs, targets).backward()
        optimizer.synchronize()
        received = received + flat_gradient(module) / scale
        with optimizer.skip_synchronize():
            optimizer.step()
        kept = residuals(compression.state_dict())
        order = sorted(kept, reverse=True) if scope == "bucketed" else list(kept)
        held = torch.cat([kept[unit] for unit in order])
        lost = hvd.allreduce(gradients - held, name="missing") - received
        found.append(float(lost.abs().max() / gradients.abs().max()))
    return found


EXCHANGES = [
    (TopK(7), "gather"),
    (TopK(7), "shared-support"),
    (RandomK(7), "reduce"),
    (RandomK(7), "gather"),
    (RedSync(7), "gather"),
    (DGC(7), "gather"),
]


@pytest.mark.parametrize(("size", "compressor", "exchange"), [(2 + n % 2, *one) for n, one in enumerate(EXCHANGES)], ids=str)
def test_nothing_is_lost_whatever_the_factors(ranks: Any, size: int, compressor: Any, exchange: str) -> None:
    """After every step, of which many are dense, and with every kind of agreement."""
    controllers = [Schedule(scattered), gravac(epsilon=0.7, every=2), gravac(epsilon=0.7, agreement="exact", per_unit=True)]

    def on_rank() -> Any:
        options: list[dict[str, Any]] = [{}, {"op": hvd.Sum}, {"groups": 1}]
        return [
            missing(scope, compressor, exchange, controller, horovod, 40 if controller is controllers[0] else 15)
            for n, scope in enumerate(SCOPES)
            for controller, horovod in zip(controllers, options[n:] + options[:n], strict=True)
        ]

    for answer in ranks(size).run(on_rank):
        assert [max(run) < 1e-12 for run in answer] == [True] * 9, [max(run) for run in answer]


# ---- NaN -------------------------------------------------------------------------------------------------------------------

PHASES = {
    "compressed": Fixed(9),
    "first dense": Schedule(lambda step: 1.0 if step in (4, 5) else 9.0),
    "untouched": Fixed(1),
    "measured": gravac(every=1),
    "measured dense": gravac(every=1, epsilon=1.0),
    "exact": gravac(every=1, agreement="exact"),
    "exact, per unit": gravac(every=1, agreement="exact", per_unit=True, epsilon=0.7),
    "accordion": Accordion(low=1, high=9, threshold=0.5, window=3, every=1),
    "trial": gravac(probe_dense=True),
}


@pytest.mark.parametrize("name", list(PHASES))
def test_nan_on_one_rank_reaches_all_and_passes(ranks: Any, name: str) -> None:
    methods = [(TopK(9), "gather"), (TopK(9), "shared-support"), (RandomK(9), "reduce"), (DGC(9), "gather")]

    def on_rank() -> Any:
        found = []
        for scope, (compressor, exchange) in zip([*SCOPES, SCOPES[0]], methods, strict=True):
            module, compression, optimizer = started(scope, compressor, PHASES[name], exchange=exchange)
            poison = Poison(module, hvd.rank() == 1, {4})
            nans, controls = [], []
            for step, (inputs, targets) in enumerate(batches(12, hvd.rank())):
                poison.step = step
                optimizer.zero_grad()
                loss_of(module, inputs, targets).backward()
                optimizer.synchronize()
                gradient = flat_gradient(module)
                nans.append("all" if bool(gradient.isnan().all()) else "none" if bool(gradient.isfinite().all()) else "some")
                if step != 4:
                    with optimizer.skip_synchronize():
                        optimizer.step()
                controls.append(compression.state_dict()["control"])
            found.append((nans, repr(controls), flat(module), compression.stats().nonfinite_steps))
        return found

    first, *others = ranks(3).run(on_rank)
    for other in [first, *others]:
        for (nans, controls, end, count), (_, same_controls, same_end, same_count) in zip(first, other, strict=True):
            assert nans == ["none"] * 4 + ["all"] + ["none"] * 7
            assert controls == same_controls
            assert torch.equal(end, same_end)
            assert count == same_count
