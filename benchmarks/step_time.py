"""A whole training step: every scope of ours against stock Horovod and torch's DDP, and against what memory and wire allow.

    python benchmarks/step_time.py [--link 1gbit] [--hosts 2] [--model resnet50] [--json]

One rank on each host; all contestants live in the same ranks and take turns step by step, so that noise hits all alike.
Gradients are synthetic and heavy-tailed: the top 1 % holds about 60 % of the energy, as in real ones; signs are new in each step.
The limit is the backward pass alone, plus what the entire model sends at the link's rate, plus three passes over the gradient at
the speed of a copy. Links other than none need root, see ``link.py``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from link import LINKS, environment, hosts
from rich.console import Console
from rich.table import Table
from shapes import SHAPES
from step_time_rank import CONTESTANTS


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Launch the ranks; what rank 0 found.

    Raises:
        SystemExit: if they failed.
    """
    with tempfile.TemporaryDirectory() as folder, hosts(args.link, args.hosts) as mpirun:
        file = Path(folder) / "results.json"
        program = [sys.executable, str(Path(__file__).absolute().with_name("step_time_rank.py")), "--out", str(file)]
        program += ["--link", args.link, "--model", args.model, "--steps", str(args.steps), "--factor", str(args.factor)]
        program += ["--settle", str(args.settle), "--only", *args.only]
        launched = subprocess.run([*mpirun, *program], env=environment(), stdout=sys.stderr, check=False)
        if launched.returncode:
            raise SystemExit(launched.returncode)
        return json.loads(file.read_text()) | {"link": args.link, "hosts": args.hosts, "model": args.model}


def shown(found: dict[str, Any]) -> Table:
    """The medians, and their ratios to stock Horovod, to its fp16, and to the limit."""
    table = Table(title=f"{found['model']}, {found['hosts']} hosts, link {found['link']}, median step")
    for name in ("run", "ms", "stock /", "stock fp16 /", "/ limit"):
        table.add_column(name, justify="left" if name == "run" else "right")
    seconds = found["seconds"]
    for name, taken in seconds.items():
        others = [f"{seconds[other] / taken:.2f}" if other in seconds else "-" for other in ("stock", "stock_fp16")]
        table.add_row(name, f"{1000 * taken:.1f}", *others, f"{taken / seconds['limit']:.2f}")
    return table


def main() -> int:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", choices=LINKS, default="1gbit")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--model", choices=SHAPES, default="resnet50")
    parser.add_argument("--steps", type=int, default=10, help="timed steps of each contestant")
    parser.add_argument("--factor", type=float, default=100.0, help="of top-k, and the largest of GraVAC")
    parser.add_argument("--settle", type=int, default=20, help="steps of GraVAC before the timed ones")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), metavar="RUN")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    args = parser.parse_args()
    if args.hosts < 2 or args.steps < 1:
        parser.error("--hosts must be 2 or more, --steps 1 or more")
    found = run(args)
    if not args.json:
        Console().print(shown(found))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
