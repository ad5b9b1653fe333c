"""What the plugin itself costs: a step with LayerWise(Identity()) against a step of stock Horovod.

    python benchmarks/overhead.py [--ranks 2] [--steps 30] [--json]

Synthetic gradients in the 161 shapes of ResNet-50 (25.6 M elements), over loopback. Both optimizers live in the same ranks and
take turns step by step, so that a noisy machine is noisy for both. The last line is JSON, ``{"ratio": ...}``, of the medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from shapes import SHAPES

import hvd_adaptive.torch as hva
from hvd_adaptive import Identity


def build(compressed: bool) -> tuple[list[Any], Any]:
    """Parameters and their optimizer."""
    prefix = "ours" if compressed else "stock"
    named = [(f"{prefix}.{number}", torch.nn.Parameter(torch.zeros(shape))) for number, shape in enumerate(SHAPES["resnet50"])]
    parameters = [parameter for _, parameter in named]
    options = {"compression": hva.LayerWise(named, Identity())} if compressed else {}
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), named_parameters=named, **options)
    return parameters, optimizer


def timed_step(parameters: list[Any], optimizer: Any, gradients: list[torch.Tensor]) -> float:
    """Seconds of backward, exchange and update, after all ranks have met."""
    hvd.barrier()
    start = time.perf_counter()
    optimizer.zero_grad()
    # The gradient of sum(p * g) is g: backward does little besides handing gradients over, as the plugin sees them.
    sum((p * g).sum() for p, g in zip(parameters, gradients, strict=True)).backward()
    optimizer.step()
    return time.perf_counter() - start


def measure(steps: int) -> None:
    """Run by every rank."""
    hvd.init()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(hvd.rank())
    gradients = [torch.randn(shape, generator=generator) for shape in SHAPES["resnet50"]]
    contestants = {"stock": build(compressed=False), "ours": build(compressed=True)}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for step in range(steps + 3):
        order = list(contestants) if step % 2 else list(contestants)[::-1]
        for name in order:
            taken = timed_step(*contestants[name], gradients)
            if step >= 3:
                seconds[name].append(taken)
    if hvd.rank() == 0:
        medians = {name: statistics.median(taken) for name, taken in seconds.items()}
        print(f"{hvd.size()} ranks, {steps} steps each, median seconds: stock {medians['stock']:.4f}, ours {medians['ours']:.4f}")
        print(json.dumps({"ratio": round(medians["ours"] / medians["stock"], 4)}), flush=True)
    hvd.shutdown()


def main() -> int:
    """Launch the ranks, or be one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="print nothing but the last line")
    parser.add_argument("--be-a-rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.be_a_rank:
        measure(args.steps)
        return 0
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(args.ranks), sys.executable, str(Path(__file__))]
    run = subprocess.run(
        [*command, "--be-a-rank", "--steps", str(args.steps)], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    print(run.stdout.splitlines()[-1] if args.json and run.stdout else run.stdout, end="\n" if args.json else "")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
