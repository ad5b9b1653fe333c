"""Trains a CNN on Fashion-MNIST with GraVAC: the compression factor is steered while training, the same on all ranks.

    horovodrun -np 2 python examples/torch_gravac.py
    horovodrun -np 2 python examples/torch_gravac.py --epsilon 0.7 --probe-dense

Plain SGD without momentum is intended: what waits in a residual would overshoot with it. On one machine compression does
not pay, so with ``--probe-dense``, GraVAC's default, the run soon goes dense and says so; here it is off, to see factors change.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import fashion_mnist
import horovod.torch as hvd
import torch
from report import print_table
from torch import nn
from torch_fashion_mnist import accuracy, build_model, load_data

import hvd_adaptive
import hvd_adaptive.torch as hva
from hvd_adaptive import GraVAC
from hvd_adaptive.control.gravac import EPSILON
from hvd_adaptive.progress import shown


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compressor", default="topk", choices=["topk", "randomk", "dgc", "redsync"], help="method")
    parser.add_argument("--scope", default="entire-model", choices=hva.SCOPES, help="what is compressed together")
    parser.add_argument("--min-factor", type=float, default=10.0)
    parser.add_argument("--max-factor", type=float, default=1000.0)
    parser.add_argument("--epsilon", type=float, default=EPSILON, help="the least gain that will do (default: %(default)s)")
    parser.add_argument("--window", type=int, default=50, help="steps between changes of the range of factors")
    parser.add_argument("--policy", default="exponential", choices=["exponential", "geometric"])
    parser.add_argument("--per-unit", action="store_true", help="decide for each unit of the scope by itself")
    parser.add_argument("--one-by-one", action="store_true", help="try one factor a window, as in the paper")
    parser.add_argument("--probe-dense", action="store_true", help="go dense while compression does not pay")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64, help="per rank")
    parser.add_argument("--lr", type=float, default=0.1, help="per rank; it is multiplied with the number of ranks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="train and test on the first so many images only")
    parser.add_argument("--data", type=Path, default=fashion_mnist.FOLDER, help="folder of the data set")
    parser.add_argument("--history", type=Path, help="file to append a line of JSON to for each step, from rank 0")
    parser.add_argument("--json", type=Path, help="file to write the results to")
    return parser.parse_args()


def build_compression(args: argparse.Namespace, model: nn.Module, monitor: hvd_adaptive.Memory) -> hva.TorchCompression:
    controller = GraVAC(
        min_factor=args.min_factor,
        max_factor=args.max_factor,
        epsilon=args.epsilon,
        window=args.window,
        policy=args.policy,
        per_unit=args.per_unit,
        look_ahead=not args.one_by_one,
        probe_dense=args.probe_dense,
    )
    options = {"momentum": 0.0} if args.compressor == "dgc" else {}
    compressor = hvd_adaptive.compressor(args.compressor, factor=args.min_factor, **options)
    return hva.compression(
        args.scope, model.named_parameters(), compressor, controller=controller, seed=args.seed, log=args.history, monitor=monitor
    )


def train(args: argparse.Namespace) -> None:
    hvd.init()
    torch.manual_seed(args.seed)
    model, monitor = build_model(), hvd_adaptive.Memory()
    compression = build_compression(args, model, monitor)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size()),
        named_parameters=model.named_parameters(),
        compression=compression,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    dataset, test = load_data(args, "train"), load_data(args, "t10k")
    images, labels = dataset.tensors
    whole = args.batch_size * hvd.size()
    steps = len(labels) // whole
    if args.epochs < 1:
        sys.exit(f"error: --epochs must be at least 1, got {args.epochs}")
    if not steps:
        sys.exit(f"error: {len(labels)} images are less than one batch of {args.batch_size} for each of {hvd.size()} ranks")
    seconds = 0.0
    for epoch in range(args.epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(args.seed + epoch))
        own = order[: steps * whole].view(steps, hvd.size(), args.batch_size)[:, hvd.rank()]
        start = time.perf_counter()
        for chosen in shown(own, steps, f"epoch {epoch + 1}/{args.epochs}", show=hvd.rank() == 0):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
        seconds += time.perf_counter() - start
        quality = accuracy(model, test)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{args.epochs}: test accuracy {quality:.2%}; {factors_used(monitor)}", flush=True)
    if hvd.rank() == 0:
        report(args, compression.stats(), quality, args.epochs * steps / seconds)
    hvd.shutdown()


def factors_used(monitor: hvd_adaptive.Memory) -> str:
    """How often each factor was used since the last call."""
    counts = Counter(round(record.factor) for record in monitor.records if record.branch)
    monitor.records.clear()
    return "steps at factor " + ", ".join(f"{factor}: {count}" for factor, count in sorted(counts.items()))


def report(args: argparse.Namespace, stats: hvd_adaptive.Stats, quality: float, steps_per_second: float) -> None:
    results: dict[str, Any] = {
        "test_accuracy": round(quality, 4),
        "steps_per_second": round(steps_per_second, 2),
        "bytes_sent": stats.bytes_sent,
        "bytes_dense": stats.bytes_dense,
        "ranks": stats.ranks,
        "factor": round(stats.elements_dense / stats.elements_sent, 1) if stats.elements_sent else 1.0,
        "branches": stats.branches,
        "gains": stats.gains,
    }
    print_table(results)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    try:
        train(parse_arguments())
    except hvd_adaptive.HvdAdaptiveError as error:
        sys.exit(f"error: {error}")
