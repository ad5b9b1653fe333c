"""One rank of ``step_time.py``."""

import argparse
import json
import math
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from link import LOOPBACK, address
from namespaces import DEVICE
from shapes import SHAPES
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

import hvd_adaptive.torch as hva
from hvd_adaptive import GraVAC, TopK

BYTES_PER_SECOND = {"none": math.inf, "1gbit": 125e6, "100mbit": 12.5e6}
SIGMA = 1.29
"""Of the logarithm of gradients' magnitudes: the top 1 % of such holds 60 % of the energy."""
SHIFTS = 2**20
"""Places at which the signs of a step may start among those drawn."""

Step = Callable[[list[torch.Tensor]], None]
Build = Callable[[list[torch.Tensor], float], tuple[Step, Any]]
"""From the parameters' memory and the factor to a step, and its compression."""


class _Model(torch.nn.Module):
    """Parameters whose gradients are what ``forward`` is given."""

    def __init__(self, storage: list[torch.Tensor]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(tensor) for tensor in storage)

    def forward(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        # The gradient of sum(p * g) is g: backward does little besides handing gradients over.
        return sum(((p * g).sum() for p, g in zip(self.weights, gradients, strict=True)), torch.zeros(()))


def _step(model: torch.nn.Module, optimizer: Any) -> Step:
    def step(gradients: list[torch.Tensor]) -> None:
        optimizer.zero_grad()
        model(gradients).backward()
        optimizer.step()

    return step


def _horovod(prefix: str, compress: Callable[[Any, float], Any]) -> Build:
    def build(storage: list[torch.Tensor], factor: float) -> tuple[Step, Any]:
        model = _Model(storage)
        named = [(f"{prefix}.{name}", parameter) for name, parameter in model.named_parameters()]
        compression = compress(named, factor)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        return _step(model, hvd.DistributedOptimizer(optimizer, named_parameters=named, compression=compression)), compression

    return build


def _ours(scope: str) -> Build:
    return _horovod(scope, lambda named, factor: hva.compression(scope, named, TopK(factor)))


def _gravac(named: Any, factor: float) -> Any:
    controller = GraVAC(min_factor=10, max_factor=max(10.0, factor), policy="geometric")  # 10, 20, 40, 80, 100
    return hva.EntireModel(named, TopK(10), controller=controller)


def _ddp(*, half: bool) -> Build:
    def build(storage: list[torch.Tensor], _factor: float) -> tuple[Step, Any]:
        if not torch.distributed.is_initialized():
            _join()
        model = torch.nn.parallel.DistributedDataParallel(_Model(storage))
        if half:
            model.register_comm_hook(None, fp16_compress_hook)
        return _step(model, torch.optim.SGD(model.parameters(), lr=0.0)), None

    return build


def _join() -> None:
    """Horovod's ranks, for ``torch.distributed``."""
    if address() != LOOPBACK:
        os.environ["GLOO_SOCKET_IFNAME"] = DEVICE  # hosts here have no name that Gloo could look up
    with socket.socket() as free:
        free.bind((address(), 0))
        place = hvd.broadcast_object(free.getsockname(), root_rank=0, name="meeting place")
    torch.distributed.init_process_group("gloo", f"tcp://{place[0]}:{place[1]}", rank=hvd.rank(), world_size=hvd.size())


def _alone(storage: list[torch.Tensor], _factor: float) -> tuple[Step, Any]:
    model = _Model(storage)
    return _step(model, torch.optim.SGD(model.parameters(), lr=0.0)), None


CONTESTANTS: dict[str, Build] = {
    "stock": _horovod("stock", lambda _named, _factor: hvd.Compression.none),
    "stock_fp16": _horovod("stock_fp16", lambda _named, _factor: hvd.Compression.fp16),
    "ddp": _ddp(half=False),
    "ddp_fp16": _ddp(half=True),
    "entire_model_topk": _ours("entire-model"),
    "layer_wise_topk": _ours("layer-wise"),
    "bucketed_topk": _ours("bucketed"),
    "gravac": _horovod("gravac", _gravac),
}


def heavy_tailed(shapes: list[tuple[int, ...]], generator: torch.Generator) -> Iterator[list[torch.Tensor]]:
    """Gradients of one step after the other, f32, in the same memory.

    Magnitudes are log-normal and stay, signs are new in every step: most of a batch's gradient is noise, whose size differs from
    parameter to parameter much more than from step to step. Gradients that came again would pile up in a residual as none do.
    """
    sizes = [math.prod(shape) for shape in shapes]
    magnitudes = torch.exp(SIGMA * torch.randn(sum(sizes), generator=generator))
    signs = torch.sign(torch.randn(sum(sizes) + SHIFTS, generator=generator))
    flat = torch.empty_like(magnitudes)
    gradients = [part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)]
    while True:
        start = int(torch.randint(SHIFTS, (), generator=generator))
        torch.mul(magnitudes, signs[start : start + sum(sizes)], out=flat)
        yield gradients


def timed(step: Step, gradients: list[torch.Tensor]) -> float:
    """Seconds of backward, exchange and update, after all ranks have met."""
    hvd.barrier()
    start = time.perf_counter()
    step(gradients)
    return time.perf_counter() - start


def limit(args: argparse.Namespace, backward: float, payload: float, elements: int) -> float:
    """Seconds that a step takes where nothing but memory and wire counts.

    Args:
        args: have the link.
        backward: seconds of a step that exchanges nothing.
        payload: bytes that another rank sends here.
        elements: of the gradient.
    """
    source, target, copies = torch.ones(elements), torch.ones(elements), []
    for _ in range(5):
        start = time.perf_counter()
        target.copy_(source)
        copies.append(time.perf_counter() - start)
    return backward + (hvd.size() - 1) * payload / BYTES_PER_SECOND[args.link] + 3 * statistics.median(copies)


def measure(args: argparse.Namespace) -> dict[str, Any] | None:
    """Medians of all contestants; None but on rank 0."""
    shapes = SHAPES[args.model]
    gradients = heavy_tailed(shapes, torch.Generator().manual_seed(hvd.rank()))
    storage = [torch.zeros(shape) for shape in shapes]  # one for all: the learning rate is 0
    built = {name: CONTESTANTS[name](storage, args.factor) for name in args.only} | {"backward": _alone(storage, args.factor)}
    for name, (step, _) in built.items():
        for _ in range(args.settle if name == "gravac" else 2):
            timed(step, next(gradients))
    seconds: dict[str, list[float]] = {name: [] for name in built}
    sent = {name: compression.stats().bytes_sent for name, (_, compression) in built.items() if hasattr(compression, "stats")}
    for number in range(args.steps):
        for name in list(built) if number % 2 else list(built)[::-1]:
            seconds[name].append(timed(built[name][0], next(gradients)))
    payloads = {name: (built[name][1].stats().bytes_sent - before) / args.steps for name, before in sent.items()}
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    elements = sum(map(math.prod, shapes))
    payload = payloads.get("entire_model_topk", 4 * elements)  # where nothing is compressed, the gradient
    medians["limit"] = limit(args, medians["backward"], payload, elements)
    return {"seconds": medians, "bytes_sent": payloads} if hvd.rank() == 0 else None


def main() -> None:
    """Measure, and leave what was found in a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--link", choices=BYTES_PER_SECOND, required=True)
    parser.add_argument("--model", choices=SHAPES, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--factor", type=float, required=True)
    parser.add_argument("--settle", type=int, required=True)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, required=True)
    args = parser.parse_args()
    os.environ.setdefault("HOROVOD_CACHE_CAPACITY", "8192")  # many names: one for each parameter of each contestant
    hvd.init()
    torch.set_num_threads(1)
    found = measure(args)
    if found is not None:
        args.out.write_text(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
