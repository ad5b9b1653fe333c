"""One rank of ``scaling.py --measure``."""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch

import hvd_adaptive.torch as hva
from hvd_adaptive import TopK

STEPS = 10
EXCHANGES = ("dense", "gather", "shared-support", "two-sided")


def optimizer_for(exchange: str, weight: torch.nn.Parameter, factor: float) -> Any:
    """One that changes nothing, under stock Horovod or an exchange."""
    named = [(f"{exchange}.weight", weight)]
    compression: Any = hvd.Compression.none
    if exchange != "dense":
        compression = hva.EntireModel(named, TopK(factor), exchange=exchange)
    return hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.0), named_parameters=named, compression=compression)


def timed(optimizer: Any, weight: torch.nn.Parameter, gradient: torch.Tensor) -> float:
    """Seconds from a gradient that is there to the mean."""
    optimizer.zero_grad()
    hvd.barrier()
    start = time.perf_counter()
    weight.backward(gradient)
    optimizer.synchronize()
    taken = time.perf_counter() - start
    with optimizer.skip_synchronize():
        optimizer.step()
    return taken


def main() -> None:
    """Measure the exchanges in turn; leave the medians in a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--factor", type=float, required=True)
    args = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(hvd.rank())
    gradients = [torch.randn(args.elements, generator=generator) for _ in range(2)]
    storage = torch.zeros(args.elements)
    weights = {exchange: torch.nn.Parameter(storage) for exchange in EXCHANGES}
    optimizers = {exchange: optimizer_for(exchange, weights[exchange], args.factor) for exchange in EXCHANGES}
    seconds: dict[str, list[float]] = {exchange: [] for exchange in EXCHANGES}
    for number in range(2 + STEPS):
        for exchange in EXCHANGES:
            taken = timed(optimizers[exchange], weights[exchange], gradients[number % 2])
            seconds[exchange] += [taken] if number >= 2 else []
    if hvd.rank() == 0:
        args.out.write_text(json.dumps({exchange: statistics.median(taken) for exchange, taken in seconds.items()}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
