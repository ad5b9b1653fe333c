"""What the Fashion-MNIST examples of all frameworks share: arguments, the compressor they name, and the results."""

import argparse
import contextlib
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fashion_mnist
from report import print_table

import hvd_adaptive
from hvd_adaptive import Stats


def parser(description: str | None, scopes: Iterable[str]) -> argparse.ArgumentParser:
    """Arguments that every framework's example takes."""
    given = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--compressor", default="topk", choices=hvd_adaptive.compress.NAMES, help="method (default: topk)")
    given.add_argument("--factor", type=float, default=100.0, help="if the method has one (default: 100, which keeps 1 %%)")
    given.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the method, such as levels=7, unbiased=true, norm=max",
    )
    given.add_argument("--scope", default="entire-model", choices=scopes, help="what is compressed together")
    given.add_argument("--exchange", default="auto", help="auto, or one that is legal for the compressor")
    given.add_argument("--dense", action="store_true", help="stock Horovod without compression")
    given.add_argument("--epochs", type=int, default=2)
    given.add_argument("--batch-size", type=int, default=64, help="per rank")
    given.add_argument("--lr", type=float, default=0.02, help="per rank; it is multiplied with the number of ranks")
    given.add_argument("--momentum", type=float, help="of the optimizer (default: 0.9, and 0 for dgc, which brings its own)")
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--limit", type=int, help="train and test on the first so many images only")
    given.add_argument("--data", type=Path, default=fashion_mnist.FOLDER, help="folder of the data set")
    given.add_argument("--json", type=Path, help="file to write the results to")
    return given


def compressor(args: argparse.Namespace) -> hvd_adaptive.compress.Compressor:
    """The method that the arguments name."""
    has_factor = "factor" in inspect.signature(hvd_adaptive.compress.NAMES[args.compressor]).parameters
    options: dict[str, Any] = {"factor": args.factor} if has_factor else {}
    for option in args.option:
        name, _, value = option.partition("=")
        with contextlib.suppress(json.JSONDecodeError):  # what is no number and no boolean stays text
            value = json.loads(value)
        options[name] = value
    return hvd_adaptive.compressor(args.compressor, **options)


def momentum(args: argparse.Namespace) -> float:
    """Of the optimizer."""
    if args.momentum is not None:
        return float(args.momentum)
    return 0.0 if args.compressor == "dgc" and not args.dense else 0.9


def steps_of(images: int, ranks: int, args: argparse.Namespace) -> int:
    """Steps in an epoch, as many on every rank."""
    steps = images // ranks // args.batch_size
    if not steps:
        raise SystemExit(f"error: {images} images are less than one batch of {args.batch_size} for each of {ranks} ranks")
    return int(steps)


def finish(
    args: argparse.Namespace, quality: float, steps_per_second: float, bytes_dense: int, ranks: int, stats: Stats | None
) -> None:
    """Show and write the results, on one rank.

    Args:
        args: of the example.
        quality: test accuracy.
        steps_per_second: of training.
        bytes_dense: that a rank sends in the whole run without compression.
        ranks: how many.
        stats: of the compression object; None for a dense run.
    """
    results = {
        "test_accuracy": round(quality, 4),
        "steps_per_second": round(steps_per_second, 2),
        "bytes_sent": bytes_dense if stats is None else stats.bytes_sent,
        "bytes_dense": bytes_dense,
        "ranks": ranks,
        "factor": round(stats.elements_dense / stats.elements_sent, 1) if stats and stats.elements_sent else 1.0,
    }
    print_table(results)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=2) + "\n")
