"""What every method costs and keeps, by scope.

    python benchmarks/methods.py [--ranks 2] [--scale 1] [--only TopK QSGD] [--json]

Gradients in the 161 shapes of ResNet-50 (25.6 M elements): a part that all ranks share and noise of their own, heavy-tailed, with
a deviation that falls with each tensor's fan-in. All ranks live in one process on one core, and take their turns in the exchange
that is the method's default. For each method and scope: the relative error of the mean over ranks in a first step, bytes that
rank 0 hands to collectives for each element, and rank 0's seconds until its first collective (encode) and after it (decode).
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from shapes import SHAPES

from hvd_adaptive import granularity, prng
from hvd_adaptive.compress import USUAL, Compressor
from hvd_adaptive.exchange import Round, Rounds, Situation, choose
from hvd_adaptive.granularity import Parameter, Unit
from hvd_adaptive.ops.torch_ops import TorchOps

SCOPES: dict[str, Callable[[Sequence[Parameter]], tuple[Unit, ...]]] = {
    "layer-wise": granularity.layer_wise,
    "bucketed": partial(granularity.bucketed, bucket_bytes=25 << 20),
    "entire-model": granularity.entire_model,
}
OPS = TorchOps()


def gradients(ranks: int, scale: int) -> tuple[list[Parameter], list[torch.Tensor]]:
    """The parameters, and each rank's gradient as one vector; every ``scale``-th tensor only."""
    shapes = SHAPES["resnet50"][::scale]
    parameters = [Parameter(f"p{number}", shape, "float32") for number, shape in enumerate(shapes)]
    generator = torch.Generator().manual_seed(0)

    def draw() -> torch.Tensor:
        parts = []
        for p in parameters:
            fan_in = p.size / p.shape[0] if len(p.shape) > 1 else p.size
            normal = torch.randn(p.size, generator=generator)
            parts.append(normal * normal.abs() * 0.01 / fan_in**0.5)
        return torch.cat(parts)

    shared = draw()
    return parameters, [shared + draw() for _ in range(ranks)]


def combined(rounds: list[Round], rank: int) -> torch.Tensor:
    """What the collective brings ``rank``."""
    arrays, kind = [one.array for one in rounds], rounds[0].kind
    if kind == "gather":
        return torch.cat(arrays)
    if kind == "alltoall":
        return torch.cat([one.array.split(list(one.splits))[rank] for one in rounds])
    stacked = torch.stack(arrays)
    return {"mean": stacked.mean, "sum": partial(stacked.sum, dtype=arrays[0].dtype), "max": stacked.amax}[kind](0)


def run(method: Compressor, unit: Unit, vectors: list[torch.Tensor], number: int) -> tuple[torch.Tensor, int, float, float]:
    """The mean, rank 0's bytes, and rank 0's seconds before and after its first collective."""
    exchange, key = choose(method, "auto"), prng.derive(prng.root(0), number)

    def start(rank: int) -> Rounds:
        draw = prng.Draw(key, prng.derive(key, rank + 1))
        return exchange.rounds(method, vectors[rank], Situation(OPS, rank, len(vectors), 0, draw, unit.shape, {}))

    generators = [start(rank) for rank in range(len(vectors))]
    seconds, sent = [], 0
    begin = time.perf_counter()
    asked = [next(generators[0])]
    seconds.append(time.perf_counter() - begin)
    asked += [next(generator) for generator in generators[1:]]
    while True:
        sent += OPS.nbytes(asked[0].array)
        brought = [combined(asked, rank) for rank in range(len(vectors))]
        begin = time.perf_counter()
        try:
            asked = [generators[0].send(brought[0])]
        except StopIteration as end:
            seconds.append(time.perf_counter() - begin)
            return end.value.mean, sent, seconds[0], sum(seconds[1:])
        seconds.append(time.perf_counter() - begin)
        asked += [generator.send(one) for generator, one in zip(generators[1:], brought[1:], strict=True)]


def once(
    method: Compressor, units: dict[int, Unit], vectors: list[torch.Tensor], dense: torch.Tensor
) -> tuple[float, int, float, float]:
    """One step: the squared error of its mean, rank 0's bytes, its seconds before and after each unit's first collective."""
    difference, sent, encode, decode = 0.0, 0, 0.0, 0.0
    for start, unit in units.items():
        part = slice(start, start + unit.size)
        mean, handed, before, after = run(method, unit, [vector[part] for vector in vectors], start)
        difference += float((mean - dense[part]).square().sum())
        sent, encode, decode = sent + handed, encode + before, decode + after
    return difference, sent, encode, decode


def measure(method: Compressor, scope: str, parameters: list[Parameter], vectors: list[torch.Tensor]) -> dict[str, Any]:
    """One line of the table; seconds are medians of three steps, after one in which memory is handed out that then serves on."""
    starts = dict(zip([p.name for p in parameters], accumulate((p.size for p in parameters), initial=0), strict=False))
    units = {starts[unit.slots[0].parameter.name]: unit for unit in SCOPES[scope](parameters)}
    dense = torch.stack(vectors).mean(0)
    steps = [once(method, units, vectors, dense) for _ in range(4)][1:]
    difference, sent, *_ = steps[0]
    return {
        "method": repr(method),
        "scope": scope,
        "exchange": method.exchanges[0],
        "ranks": len(vectors),
        "elements": len(dense),
        "relative_error": round((difference / float(dense.square().sum())) ** 0.5, 5),
        "bytes_per_element": round(sent / len(dense), 5),
        "encode_seconds": round(statistics.median(step[2] for step in steps), 4),
        "decode_seconds": round(statistics.median(step[3] for step in steps), 4),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--scale", type=int, default=1, help="take every so many-th tensor only")
    parser.add_argument("--only", nargs="*", default=[""], help="methods, by how their names begin")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    args = parser.parse_args()
    torch.set_num_threads(1)
    parameters, vectors = gradients(args.ranks, args.scale)
    table = Table("method", "scope", "relative error", "bytes/element", "encode s", "decode s")
    for method in USUAL:
        for scope in SCOPES if repr(method).startswith(tuple(args.only)) else ():
            line = measure(method, scope, parameters, vectors)
            if args.json:
                print(json.dumps(line), flush=True)
            kept = ("method", "scope", "relative_error", "bytes_per_element", "encode_seconds", "decode_seconds")
            table.add_row(*(str(line[name]) for name in kept))
    if not args.json:
        Console(width=130).print(table)


if __name__ == "__main__":
    main()
