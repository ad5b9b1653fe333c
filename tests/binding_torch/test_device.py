"""The torch binding where parameters are on a device, on real Horovod ranks.

The device is the tests' own, whose memory is the host's: Horovod is handed that, as NCCL would be handed a GPU's.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import pytest
import torch
from training import model

import hvd_adaptive.torch as hva
from hvd_adaptive import QSGD, Accordion, Fixed, GraVAC, Identity, Memory, PowerSGD, RandomK, SignSGD, TopK
from hvd_adaptive.torch.collective import HorovodCollective

RANKS, STEPS = 2, 3
CASES = {
    "top-k": (TopK(10), {}),
    "top-k, shared support": (TopK(10), {"exchange": "shared-support"}),
    "random-k": (RandomK(10), {}),
    "random-k, unbiased": (RandomK(10, unbiased=True), {}),
    "signs": (SignSGD(scaled=True), {}),
    "levels": (QSGD(7, bucket=64), {"exchange": "reduce"}),
    "low rank": (PowerSGD(2), {}),
    "dense with feedback": (Identity(), {"feedback": True}),
    "top-k beside dense ones": (TopK(10), {"exclude": "*.bias"}),
    "top-k, steered": (TopK(10), {"controller": Fixed(20)}),
}


FAKE = Path(__file__).parents[1] / "support" / "fake_device.py"


def device() -> Any:
    """The module of the device, which a rank reads for itself: what it registers with torch cannot travel there."""
    if "fake_device" not in sys.modules:
        spec = importlib.util.spec_from_file_location("fake_device", FAKE)
        assert spec is not None and spec.loader is not None
        sys.modules["fake_device"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["fake_device"])
    return sys.modules["fake_device"]


class DeviceCollective(HorovodCollective):
    """Hands Horovod the memory that a tensor of the device lies in."""

    def start(self, kind: Any, x: Any, name: str, splits: tuple[int, ...] = ()) -> Any:
        there = isinstance(x, device().FakeTensor)
        return there, super().start(kind, x.lies_in.contiguous() if there else x, name, splits)

    def wait(self, handle: Any) -> Any:
        there, started = handle
        brought = super().wait(started)
        return device().FakeTensor(brought) if there else brought


def there(scope: str) -> Any:
    """The class of the scope, for parameters on the device."""

    def join(_: Any, process_set: hvd.ProcessSet) -> DeviceCollective:
        return DeviceCollective(process_set)

    return type("OnDevice", (hva.SCOPES[scope],), {"_join": join})


def gradients_of(rank: int, step: int, bad: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * rank + step)
    found = [torch.randn(p.shape, generator=generator) for p in model().parameters()]
    if bad and (rank, step) == (1, 1):
        found[2].view(-1)[7] = float("inf")
    return found


def steps(on_it: bool, scope: str, compressor: Any, options: dict[str, Any], count: int = STEPS, bad: bool = False) -> Any:
    """What Horovod's optimizer does, with its own allreduce.

    Returns:
        by step the gradients to use, what is held back, what waited in ``compress`` until all was sent, what in ``decompress``;
        and the records.
    """
    fake = device()
    waits, FakeTensor = fake.waits, fake.FakeTensor
    place = fake.on_device if on_it else torch.clone
    named = {name: torch.nn.Parameter(place(p.detach())) for name, p in model().named_parameters()}
    monitor, found = Memory(), []
    build = there(scope) if on_it else hva.SCOPES[scope]
    compression = build(named.items(), compressor, **({"dense_below": 0, "monitor": monitor} | options))
    for step in range(count):
        for parameter, gradient in zip(named.values(), gradients_of(hvd.rank(), step, bad), strict=True):
            parameter.grad = place(gradient)
        under_way = []
        with waits() as launching:
            for name in reversed(named):
                sent, context = compression.compress(named[name].grad)
                lies_in = sent.lies_in if on_it else sent
                under_way.append((hvd.allreduce_async_(lies_in, name=f"test.{name}"), context))
        with waits() as ending:
            used = []
            for handle, context in under_way:
                averaged = hvd.synchronize(handle)
                used.append(compression.decompress(FakeTensor(averaged) if on_it else averaged, context))
        assert all(isinstance(one, FakeTensor) == on_it for one in used)
        memory = compression.state_dict()["memory"]
        held = {(unit, name): vector.cpu() for unit, vectors in memory.items() for name, vector in vectors.items()}
        found.append(([one.cpu().clone() for one in used], held, launching, ending))
    return found, [(r.step, r.unit, r.kept, r.finite) for r in monitor.records]


@pytest.mark.parametrize("scope", hva.SCOPES)
def test_a_step_on_a_device_is_that_of_a_host_and_waits_for_nothing_while_it_is_sent(ranks: Any, scope: str) -> None:
    """At its end twice: for a token, and to learn whether all was finite; in the first step once more for each parameter."""

    def on_rank() -> Any:
        return {name: (steps(True, scope, *case), steps(False, scope, *case)) for name, case in CASES.items()}

    for by_case in ranks(RANKS).run(on_rank):
        for name, ((on_it, records), (on_host, records_there)) in by_case.items():
            assert sorted(records) == sorted(records_there), name
            for number, (one, other) in enumerate(zip(on_it, on_host, strict=True)):
                used, held, launching, ending = one
                assert launching == [], name
                most = 2 + (len(used) if number == 0 else 0) + (len(used) if "shared" in name else 0)
                assert len(ending) <= most, (name, ending)
                torch.testing.assert_close(used, other[0], rtol=1e-5, atol=1e-5, msg=name)  # sums in another order
                torch.testing.assert_close(held, other[1], rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize("scope", hva.SCOPES)
def test_a_step_that_is_not_finite_leaves_what_is_held_back(ranks: Any, scope: str) -> None:
    """Of every unit on every rank, also where the gradient was finite and was sent."""

    def on_rank() -> Any:
        return {name: steps(True, scope, *case, count=2, bad=True) for name, case in CASES.items()}

    for by_case in ranks(RANKS).run(on_rank):
        for name, (((_, before, _, _), (used, after, launching, _)), records) in by_case.items():
            assert set(before) == set(after)
            for which, vector in before.items():
                torch.testing.assert_close(after[which], vector, rtol=0, atol=2e-6)  # ulps of what was added and taken again
            assert not all(bool(gradient.isfinite().all()) for gradient in used), name
            assert launching == []
            assert {step for step, _, _, finite in records if not finite} == {1}


@pytest.mark.parametrize(
    ("controller", "most"), [(Accordion(10, 100, every=2), 2), (GraVAC(max_factor=100, probe_dense=False), 4)]
)
def test_a_step_in_which_a_controller_measures_waits_a_few_times_a_unit(ranks: Any, controller: Any, most: int) -> None:
    """For its norm, whether it was finite, what each factor would keep; and then ranks may send different numbers of elements."""

    def on_rank() -> Any:
        return steps(True, "entire-model", TopK(10), {"controller": controller}, count=6)

    for found, _ in ranks(RANKS).run(on_rank):
        waited = [len(launching) for _, _, launching, _ in found]
        assert set(waited) <= {0, most}
        assert most in waited
