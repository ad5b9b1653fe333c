"""How the exchanges of top-k would do on more ranks than there are here, by a model, and how near that is on those there are.

    python benchmarks/scaling.py [--elements 25557032] [--factor 100] [--latency 50e-6] [--bandwidth 125e6] [--plot FILE] [--json]
    python benchmarks/scaling.py --measure 2 4 --link 100mbit

The model is that of ``exchange="auto"``, ``hvd_adaptive/exchange/cost.py``; what a host takes for an element is measured on this
one. ``--measure`` trains one parameter on so many hosts of this machine, see ``link.py``, under each exchange; where ranks share
cores, their work is taken to be done in turn.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from link import LINKS, environment, hosts
from rich.console import Console
from rich.table import Table

from hvd_adaptive import Network, TopK
from hvd_adaptive.exchange.cost import Host, costs
from hvd_adaptive.ops.torch_ops import TorchOps

RANKS = [2**power for power in range(1, 13)]
BYTES_PER_SECOND = {"1gbit": 125e6, "100mbit": 12.5e6}
MEASURED_ELEMENTS = 2_500_000


def measured_host(elements: int, factor: float) -> Host:
    """What this machine takes for an element; medians of five."""
    ops, kept = TorchOps(), max(1, round(elements / factor))
    x = torch.randn(elements, generator=torch.Generator().manual_seed(0))
    positions = ops.top_positions(x, kept)
    values = ops.take(x, positions)

    def median(action: Callable[[], Any]) -> float:
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            action()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)

    return Host(
        select=median(lambda: ops.top_positions(x, kept)) / elements,
        zeros=median(lambda: ops.zeros(elements, "float32", like=x)) / elements,
        touch=median(lambda: ops.scatter_add(x, positions, values)) / kept,
    )


def modelled(args: argparse.Namespace, host: Host, ranks: list[int], network: Network) -> list[dict[str, Any]]:
    """Seconds and bytes of each exchange, by number of ranks."""
    rows = []
    for number in ranks:
        found = costs(TopK(args.factor), args.elements, number, host=host)
        seconds = {name: cost.seconds(network) for name, cost in found.items()}
        carried = {name: cost.carried for name, cost in found.items()}
        best = min(seconds, key=seconds.__getitem__)
        rows.append({"ranks": number, "seconds": seconds, "carried": carried, "best": best})
    return rows


def shown(rows: list[dict[str, Any]], title: str) -> Table:
    """Milliseconds, the least of each row told."""
    names = list(rows[0]["seconds"])
    table = Table("ranks", *(f"{name} ms" for name in names), "least", title=title)
    for row in rows:
        table.add_row(str(row["ranks"]), *(f"{1000 * row['seconds'][name]:.1f}" for name in names), row["best"])
    return table


def turns(rows: list[dict[str, Any]]) -> list[str]:
    """From how many ranks on each exchange takes less than gather, whose traffic grows with them."""
    said = []
    for name in ("shared-support", "two-sided", "dense"):
        first = next((row["ranks"] for row in rows if row["seconds"][name] < row["seconds"]["gather"]), None)
        said.append(f"{name} takes less than gather " + ("nowhere" if first is None else f"from {first} ranks on"))
    return said


def plot(rows: list[dict[str, Any]], target: Path) -> None:
    """Seconds over ranks."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - slow to import, for one option

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name in rows[0]["seconds"]:
        axes.plot([row["ranks"] for row in rows], [row["seconds"][name] for row in rows], marker=".", label=name)
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="seconds a step, modelled")
    axes.legend()
    figure.savefig(target, dpi=120)


def measured(args: argparse.Namespace, number: int) -> dict[str, float]:
    """Seconds of each exchange on ``number`` real ranks.

    Raises:
        SystemExit: if they failed.
    """
    with tempfile.TemporaryDirectory() as folder, hosts(args.link, number) as mpirun:
        file = Path(folder) / "results.json"
        program = [sys.executable, str(Path(__file__).absolute().with_name("scaling_rank.py")), "--out", str(file)]
        program += ["--elements", str(args.elements), "--factor", str(args.factor)]
        launched = subprocess.run([*mpirun, *program], env=environment(), stdout=sys.stderr, check=False)
        if launched.returncode:
            raise SystemExit(launched.returncode)
        found: dict[str, float] = json.loads(file.read_text())
        return found


def compared(args: argparse.Namespace, host: Host, network: Network) -> list[dict[str, Any]]:
    """The model beside what was measured."""
    rows = []
    for number in args.measure:
        shared = max(1.0, number / len(os.sched_getaffinity(0)))
        busy = Host(host.select * shared, host.zeros * shared, host.touch * shared)
        (row,) = modelled(args, busy, [number], network)
        rows.append({"ranks": number, "modelled": row["seconds"], "measured": measured(args, number)})
    return rows


def main() -> int:
    """Model, or measure, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, help="of the gradient (default: ResNet-50's, or 2.5 million to measure)")
    parser.add_argument("--factor", type=float, default=100.0)
    parser.add_argument("--latency", type=float, default=50e-6, help="seconds of a message of no length")
    parser.add_argument("--bandwidth", type=float, default=125e6, help="bytes per second of each rank's link")
    parser.add_argument("--measure", type=int, nargs="+", metavar="RANKS")
    parser.add_argument("--link", choices=[name for name in LINKS if name in BYTES_PER_SECOND], default="100mbit")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    args = parser.parse_args()
    args.elements = args.elements or (MEASURED_ELEMENTS if args.measure else 25_557_032)
    torch.set_num_threads(1)
    host = measured_host(args.elements, args.factor)
    if args.measure:
        rows = compared(args, host, Network(args.latency, BYTES_PER_SECOND[args.link]))
        print(json.dumps({"link": args.link, "elements": args.elements, "factor": args.factor, "rows": rows}))
        return 0
    rows = modelled(args, host, RANKS, Network(args.latency, args.bandwidth))
    if args.plot is not None:
        plot(rows, args.plot)
    if not args.json:
        console = Console(width=120)
        console.print(shown(rows, f"{args.elements} elements, factor {args.factor:g}, {args.bandwidth:g} bytes/s"))
        console.print(*turns(rows), sep="\n")
    print(json.dumps({"elements": args.elements, "factor": args.factor, "rows": rows, "turns": turns(rows)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
