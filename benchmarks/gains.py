"""Which share of real gradients survives top-k at each factor, layer by layer, while the tasks train without compression.

    python benchmarks/gains.py --task fashion|kjv [--ranks 2] [--steps N] [--json FILE]

Energy kept of the raw gradient, mean over ranks: what GraVAC's epsilon is compared with. Prints a Markdown table of means over
the first tenth of the steps and over the last.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import horovod.torch as hvd
import torch
from link import environment, hosts
from tasks import TASKS

import hvd_adaptive.torch as hva
from hvd_adaptive import Controller, Decision, Memory, Observation, TopK, Wanted

FACTORS = (10.0, 20.0, 40.0, 100.0, 160.0, 320.0, 1000.0)


@dataclass(frozen=True)
class Watch(Controller):
    """Compresses nothing, and measures every few steps."""

    per_unit: bool = True
    every: int = 10

    def start(self) -> dict[float, float]:
        return {}

    def wants(self, state: dict[float, float], step: int) -> Wanted | None:
        return Wanted(FACTORS, "raw") if step % self.every == 0 else None

    def decide(self, state: dict[float, float], step: int) -> Decision:
        return Decision(1.0, "watched", gains=state)

    def observe(self, state: dict[float, float], observation: Observation) -> dict[float, float]:
        return dict(zip(FACTORS, observation.gains, strict=False))


def watch(name: str, steps: int, scope: str, results: Path) -> None:
    """Run by every rank; rank 0 writes gains by step and unit."""
    hvd.init()
    torch.set_num_threads(1)
    task = TASKS[name]()
    torch.manual_seed(0)
    model, memory = task.build(), Memory()
    compression = hva.compression(
        scope, model.named_parameters(), TopK(10), controller=Watch(per_unit=True), dense_below=0, monitor=memory
    )
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=task.lr), named_parameters=model.named_parameters(), compression=compression
    )
    batches = task.batches(0)
    for _ in range(steps):
        task.step(model, optimizer, next(batches))
    if hvd.rank() == 0:
        gains = [(r.step, r.unit, r.elements, [r.gains[f] for f in FACTORS]) for r in memory.records if r.gains]
        results.write_text(json.dumps(gains))
    hvd.shutdown()


def table(gains: list[Any], steps: int) -> str:
    """Markdown: a row for each unit and part of the training."""
    lines = [
        "| layer | elements | steps | " + " | ".join(f"{factor:g}x" for factor in FACTORS) + " |",
        "|" + "---|" * (3 + len(FACTORS)),
    ]
    parts = {"first tenth": range(steps // 10), "last tenth": range(steps - steps // 10, steps)}
    for unit, elements in dict.fromkeys((unit, elements) for _, unit, elements, _ in gains):
        for part, covered in parts.items():
            rows = [row for step, name, _, row in gains if name == unit and step in covered]
            means = [fmean(column) for column in zip(*rows, strict=True)]
            lines.append(f"| {unit} | {elements:,} | {part} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |")
    return "\n".join(lines)


def main() -> None:
    """Launch the ranks, or be one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, help="(default: the task's)")
    parser.add_argument("--json", type=Path, help="file to write all of it to")
    parser.add_argument("--be-a-rank", nargs=2, metavar=("SCOPE", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.steps = args.steps or TASKS[args.task].steps
    if args.be_a_rank:
        watch(args.task, args.steps, args.be_a_rank[0], Path(args.be_a_rank[1]))
        return
    found: list[Any] = []
    for scope in ("layer-wise", "entire-model"):
        with tempfile.TemporaryDirectory() as folder, hosts("none", args.ranks) as mpirun:
            file = Path(folder) / "gains.json"
            program = [sys.executable, __file__, "--task", args.task, "--steps", str(args.steps), "--be-a-rank", scope, str(file)]
            subprocess.run([*mpirun, *program], env=environment(), check=True)
            found += json.loads(file.read_text())
    print(table(found, args.steps))
    if args.json:
        args.json.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
