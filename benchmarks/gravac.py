"""GraVAC against dense, fp16, fixed factors and Accordion: quality, what is sent, time, and time to dense quality.

    python benchmarks/gravac.py --task fashion --link 100mbit [--ranks 2] [--seeds 2] [--only dense gravac] [--json]

All runs of a seed share weights and batches, and take turns in the same ranks. A folder (``--out``) gets the results, with
curves, as JSON; the GraVAC run's log of the first seed; and a plot. Links other than none need root, see ``link.py``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

from gravac_plot import draw
from gravac_rank import RUNS
from link import LINKS, environment, hosts
from rich.console import Console
from rich.table import Table
from tasks import TASKS

QUICK = {"fashion": 600, "kjv": 120}
"""Steps."""
EVALUATIONS = {False: 9, True: 4}
"""Of each run, by whether it is quick; in short runs, one in ten steps at most."""


def goal(task: str, dense: float) -> float:
    """The quality that counts as dense quality: 0.5 points of accuracy less, or 2 % of perplexity more."""
    return dense - 0.5 if TASKS[task].better > 0 else 1.02 * dense


def seconds_to(task: str, target: float, curve: list[list[float]]) -> float | None:
    """Training time until an evaluation first found the target reached; None if none did."""
    better = TASKS[task].better
    return next((seconds for _, seconds, quality in curve if better * quality >= better * target), None)


def mean(found: list[Any]) -> Any:
    """Element by element, over seeds; None where one of them is."""
    first = found[0]
    if any(value is None for value in found):
        return None
    if isinstance(first, dict):
        return {key: mean([value.get(key, 0) for value in found]) for key in {key: None for value in found for key in value}}
    if isinstance(first, list):
        return [mean(list(values)) for values in zip(*found, strict=True)]
    return first if all(value == first for value in found) else fmean(found)


def train(args: argparse.Namespace, mpirun: list[str], seed: int, log: Path) -> dict[str, Any]:
    """All runs of a seed, in one launch."""
    options = args.gravac if seed else {**args.gravac, "log": str(log.absolute())}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        program = [sys.executable, str(Path(__file__).absolute().with_name("gravac_rank.py")), "--task", args.task]
        program += ["--seed", str(seed), "--steps", str(args.steps), "--evaluations", str(args.evaluations)]
        program += ["--gravac", json.dumps(options), "--results", str(file), *([] if args.json else ["--verbose"])]
        command = [*mpirun, *program, "--only", *args.only]
        run = subprocess.run(command, env=environment(), stdout=sys.stderr, check=False)
        if run.returncode or not file.exists():
            raise SystemExit(f"error: the ranks ended with status {run.returncode}")
        found: dict[str, Any] = json.loads(file.read_text())
    if "dense" in found["runs"]:
        target = goal(args.task, found["runs"]["dense"]["quality"])
        for results in found["runs"].values():
            results["seconds_to_dense_quality"] = seconds_to(args.task, target, results["curve"])
    else:
        for results in found["runs"].values():
            results["seconds_to_dense_quality"] = None
    return found


def table(found: dict[str, Any]) -> Table:
    """For people."""
    shown = Table(title=f"{found['task']}, {found['ranks']} ranks, link {found['link']}, {found['steps']} steps")
    for column in (
        "run",
        TASKS[found["task"]].measure,
        "x fewer floats",
        "x fewer bytes",
        "seconds",
        "ms a step",
        "to dense quality",
    ):
        shown.add_column(column, justify="left" if column == "run" else "right")
    floats = found["steps"] * found["parameters"]
    for name, run in found["runs"].items():
        until = run["seconds_to_dense_quality"]
        shown.add_row(
            name,
            f"{run['quality']:.2f}",
            f"{floats / run['floats_sent']:.1f}",
            f"{4 * floats / run['bytes_sent']:.1f}",
            f"{run['seconds']:.1f}",
            f"{1000 * run['median_step']:.1f}",
            "-" if until is None else f"{until:.1f} s",
        )
    return shown


def parse_arguments() -> argparse.Namespace:
    """With defaults that depend on others filled in."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--link", choices=LINKS, default="none")
    parser.add_argument("--seeds", type=int, help="runs of each, with means taken (default: 2)")
    parser.add_argument("--steps", type=int, help="of each run (default: the task's)")
    parser.add_argument("--quick", action="store_true", help="one seed and fewer steps, unless they are given")
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), metavar="RUN", help=", ".join(RUNS))
    parser.add_argument("--gravac", type=json.loads, default={}, help="options of GraVAC, such as '{\"every\": 5}'")
    parser.add_argument("--epsilon", type=float, help="of GraVAC")
    parser.add_argument("--out", type=Path, default=Path("runs/gravac"), help="folder (default: runs/gravac)")
    parser.add_argument("--json", action="store_true", help="print nothing but one line of JSON")
    args = parser.parse_args()
    args.seeds = args.seeds or (1 if args.quick else 2)
    args.steps = args.steps or (QUICK if args.quick else {name: task.steps for name, task in TASKS.items()})[args.task]
    args.evaluations = max(1, min(EVALUATIONS[args.quick], args.steps // 10))
    if args.epsilon is not None:
        args.gravac["epsilon"] = args.epsilon
    return args


def main() -> None:
    """Train, write, draw and print."""
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    name = f"{args.task}_{args.link}"
    log = args.out / f"{name}_gravac.jsonl"
    log.unlink(missing_ok=True)  # logs are appended to
    with hosts(args.link, args.ranks) as mpirun:
        trained = mean([train(args, mpirun, seed, log) for seed in range(args.seeds)])
    settings = {key: getattr(args, key) for key in ("task", "link", "ranks", "steps", "seeds", "gravac")}
    found = {**settings, **trained}
    (args.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, TASKS[args.task].measure, log if log.exists() else None, args.out / f"{name}.png")
    if args.json:
        runs = {title: {key: run[key] for key in run if key not in {"curve", "branches"}} for title, run in found["runs"].items()}
        print(json.dumps({**found, "runs": runs}))
    else:
        Console().print(table(found))


if __name__ == "__main__":
    main()
