"""What each rank of ``gravac.py`` does: all runs of one seed, taking turns.

Runs alternate in slices, so that a noisy machine is noisy for all; qualities are taken between slices. What a controller is told
of a slice's first step includes the others' slices, for its meter counts from the end of a step to the end of the next. It has to
bear that, as it has to bear a user's evaluations.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from tasks import TASKS, Task

import hvd_adaptive.torch as hva
from hvd_adaptive import Accordion, GraVAC, TopK

SLICE = 25
"""Steps."""

Build = Callable[[list[Any], Task, dict[str, Any]], Any]


def _top_k(factor: float) -> Build:
    return lambda named, _task, _options: hva.EntireModel(named, TopK(factor))


def _accordion(named: list[Any], task: Task, _: dict[str, Any]) -> Any:
    return hva.EntireModel(named, TopK(10), controller=Accordion(low=10, high=1000, window=task.window))


def _gravac(named: list[Any], task: Task, options: dict[str, Any]) -> Any:
    options = {**options}
    log = options.pop("log", None)
    return hva.EntireModel(named, TopK(10), controller=GraVAC(**{"window": task.window, **options}), log=log)


RUNS: dict[str, Build] = {
    "dense": lambda *_: hvd.Compression.none,
    "fp16": lambda *_: hvd.Compression.fp16,
    "topk_10": _top_k(10),
    "topk_100": _top_k(100),
    "topk_1000": _top_k(1000),
    "accordion": _accordion,
    "gravac": _gravac,
}
"""What builds ``compression=`` from parameters, the task and GraVAC's options."""
FLOAT_BYTES = {"dense": 4, "fp16": 2}
"""Of those without statistics, which send every element in every step."""


class Run:
    """One model in training.

    Args:
        name: of :data:`RUNS`.
        task: to train.
        seed: of the initial weights and the batches, so that all runs share them.
        options: of GraVAC, and its ``log``.
    """

    def __init__(self, name: str, task: Task, seed: int, options: dict[str, Any]) -> None:
        torch.manual_seed(seed)
        self.name, self.task, self.model, self.batches = name, task, task.build(), task.batches(seed)
        # Horovod tells tensors apart by their names, so parameters of all runs need different ones.
        named = [(f"{name}.{parameter}", value) for parameter, value in self.model.named_parameters()]
        self.parameters = [value for _, value in named]
        self.compression = RUNS[name](named, task, options)
        sgd = torch.optim.SGD(self.parameters, lr=task.lr)
        self.optimizer = hvd.DistributedOptimizer(sgd, named_parameters=named, compression=self.compression)
        self.seconds: list[float] = []
        self.curve: list[tuple[int, float, float]] = []

    def step(self) -> None:
        """Train on one batch, and take the time."""
        start = time.perf_counter()
        self.task.step(self.model, self.optimizer, next(self.batches))
        self.seconds.append(time.perf_counter() - start)

    def evaluate(self) -> None:
        """Add a point to the curve: steps, seconds of training, quality."""
        self.model.eval()
        self.curve.append((len(self.seconds), sum(self.seconds), self.task.quality(self.model)))
        self.model.train()

    def results(self) -> dict[str, Any]:
        """What came of it."""
        if self.name in FLOAT_BYTES:
            floats = len(self.seconds) * sum(parameter.numel() for parameter in self.parameters)
            sent = {"floats_sent": floats, "bytes_sent": floats * FLOAT_BYTES[self.name]}
        else:
            stats = self.compression.stats()
            sent = {"floats_sent": stats.elements_sent, "bytes_sent": stats.bytes_sent, "branches": stats.branches}
        times = {"seconds": sum(self.seconds), "median_step": statistics.median(self.seconds)}
        return {"quality": self.curve[-1][2], **sent, **times, "curve": self.curve}


def take_turns(runs: list[Run], steps: int, points: set[int], verbose: bool) -> None:
    """Train all of them to the end."""
    for start in range(0, steps, SLICE):
        for run in runs:
            hvd.barrier()
            taken = range(start + 1, min(start + SLICE, steps) + 1)
            for _ in taken:
                run.step()
            if points.intersection(taken):
                run.evaluate()
        if verbose and hvd.rank() == 0:
            said = ", ".join(f"{run.name} {run.curve[-1][2]:.2f}" for run in runs if run.curve)
            print(f"{min(start + SLICE, steps)} of {steps} steps: {said}", file=sys.stderr, flush=True)


def main() -> None:
    """Be one rank; rank 0 writes the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--evaluations", type=int, required=True)
    parser.add_argument("--only", nargs="+", choices=RUNS, required=True)
    parser.add_argument("--gravac", type=json.loads, default={}, help="GraVAC's options, JSON")
    parser.add_argument("--results", type=Path, required=True, help="file for rank 0 to write")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    task = TASKS[args.task]()
    runs = [Run(name, task, args.seed, args.gravac) for name in args.only]
    points = {round(args.steps * (number + 1) / args.evaluations) for number in range(args.evaluations)}
    take_turns(runs, args.steps, points, args.verbose)
    if hvd.rank() == 0:
        parameters = sum(parameter.numel() for parameter in runs[0].parameters)
        args.results.write_text(json.dumps({"parameters": parameters, "runs": {run.name: run.results() for run in runs}}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
