"""Trains the CNN of the example on Fashion-MNIST with every method, each at its usual setting, against dense.

    python benchmarks/training.py [--ranks 2] [--epochs 2] [--only topk dgc] [--json FILE]

Prints a Markdown table: test accuracy, points below dense, and how many times fewer bytes a rank sent. Results are added to FILE,
and runs that it holds are not repeated.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parent.parent / "examples" / "torch_fashion_mnist.py"

PLAIN = ["--momentum", "0", "--lr", "0.2"]
"""For error feedback: what waits while the optimizer's momentum carries on would overshoot when it is sent."""
SIGNS = ["--momentum", "0", "--lr", "0.1"]

RUNS: dict[str, list[str]] = {
    "dense": ["--dense"],
    "dense, plain": ["--dense", *PLAIN],
    "half": [],
    "bfloat16": [],
    "topk factor=100": PLAIN,
    "topk factor=100, momentum 0.9": [],
    "topk factor=100, shared-support": [*PLAIN, "--exchange", "shared-support"],
    "topk factor=100, two-sided": [*PLAIN, "--exchange", "two-sided"],
    "randomk factor=10": [*PLAIN, "--factor", "10"],
    "randomk factor=2 unbiased": ["--factor", "2", "--option", "unbiased=true", "--lr", "0.01"],
    "threshold value=0.01": [*PLAIN, "--option", "value=0.01"],
    "adaptive-threshold": PLAIN,
    "terngrad clip=2.5": ["--option", "clip=2.5"],
    "qsgd levels=7 bucket=512": ["--option", "levels=7", "--option", "bucket=512"],
    "qsgd levels=127, reduce": ["--option", "levels=127", "--exchange", "reduce"],
    "signsgd": ["--lr", "0.00005"],
    "signsgd scaled": [*SIGNS, "--option", "scaled=true"],
    "natural": [],
    "dgc factor=100": ["--momentum", "0"],
    "redsync factor=100": PLAIN,
    "powersgd rank=4": ["--option", "rank=4"],
    "onebit": SIGNS,
    "efsign": SIGNS,
}
"""The example's arguments by title; the method is the title's first word."""


def run(title: str, ranks: int, scope: str, epochs: int) -> dict[str, Any]:
    """The example's results."""
    method = title.replace(",", " ").split(maxsplit=1)[0]
    arguments = [*RUNS[title], *([] if method == "dense" else ["--compressor", method, "--scope", scope])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), sys.executable]
        command += [str(EXAMPLE), "--epochs", str(epochs), "--json", str(file), *arguments]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        results: dict[str, Any] = json.loads(file.read_text())
    return results


def table(found: dict[str, dict[str, Any]]) -> str:
    """A Markdown table of the results by title and scope."""
    dense = found["dense"]["test_accuracy"]
    lines = ["| method | scope | test accuracy | points below dense | times fewer bytes |", "|---|---|---|---|---|"]
    for name, results in found.items():
        title, _, scope = name.partition(" | ")
        below, fewer = 100 * (dense - results["test_accuracy"]), results["bytes_dense"] / results["bytes_sent"]
        lines.append(f"| {title} | {scope or '-'} | {results['test_accuracy']:.2%} | {below:+.2f} | {fewer:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is not known yet, and print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--scopes", nargs="*", default=["layer-wise", "entire-model"])
    parser.add_argument("--only", nargs="*", help="first words of titles")
    parser.add_argument("--json", type=Path, help="file to add the results to")
    args = parser.parse_args()
    found: dict[str, dict[str, Any]] = json.loads(args.json.read_text()) if args.json and args.json.exists() else {}
    for title in RUNS:
        if args.only and title != "dense" and not title.startswith(tuple(args.only)):
            continue
        for scope in [""] if title.startswith("dense") else args.scopes:
            name = f"{title} | {scope}" if scope else title
            if name not in found:
                found[name] = run(title, args.ranks, scope, args.epochs)
                print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
                if args.json:
                    args.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
