"""How full BLoad's blocks are, how fast they are packed and in how much memory.

    python benchmarks/packing.py [--json] [--sets uniform kjv] [--sequences 1000000] [--repeats 3]

Beside the policies stand plain padding, two lower bounds, and two slow references that share no code with the package: best fit
decreasing over all sequences one by one, and random fill as published, index bias included (on the first 20,000 sequences).
Speed is that of the fastest of the repeats, on one core; memory is the most that packing allocates besides its input.
"""

import argparse
import json
import random
import time
import tracemalloc
from typing import Any

from packing_sets import SETS, Lengths

from hvd_adaptive.bload import POLICIES, Blocks, pack

SAMPLE = 20_000


def best_fit_decreasing(lengths: list[int], block_length: int) -> int:
    """Number of blocks; bit r of ``rooms`` tells whether any open block has room r."""
    opened, rooms, counts = 0, 0, [0] * (block_length + 1)
    for length in sorted(lengths, reverse=True):
        wide_enough = rooms >> length
        if wide_enough:
            room = length + (wide_enough & -wide_enough).bit_length() - 1
            counts[room] -= 1
            if not counts[room]:
                rooms ^= 1 << room
        else:
            room = block_length
            opened += 1
        counts[room - length] += 1
        rooms |= 1 << (room - length)
    return opened


def published_random_fill(lengths: list[int], block_length: int) -> int:
    """Number of blocks of the authors' program, whose choice among sequences of a length falls on the first twice as often."""
    chooser = random.Random(0)  # noqa: S311
    left: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        left.setdefault(length, []).append(number)
    distinct = sorted(left)
    opened = 0
    while distinct:
        opened, room = opened + 1, block_length
        while distinct and distinct[0] <= room:
            length = chooser.choice([each for each in distinct if each <= room])
            place = chooser.randint(0, len(left[length]))
            left[length].pop(max(place - 1, 0))
            room -= length
            if not left[length]:
                distinct.remove(length)
    return opened


def figures(blocks: int, elements: int, block_length: int) -> dict[str, Any]:
    """What so many blocks of so many elements come to."""
    padding = blocks * block_length - elements
    return {"padding": padding, "padding_percent": round(100 * padding / (blocks * block_length), 4), "blocks": blocks}


def measured(lengths: Lengths, block_length: int | None, policy: str, repeats: int) -> tuple[Blocks, dict[str, Any]]:
    """Blocks of one policy, and its figures."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        blocks = pack(lengths, block_length, policy)
        seconds.append(time.perf_counter() - start)
    tracemalloc.start()
    pack(lengths, block_length, policy)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return blocks, {
        **figures(len(blocks), int(lengths.sum()), blocks.block_length),
        "deleted": blocks.deleted,
        "sequences_per_second": round(len(lengths) / min(seconds)),
        "bytes_per_sequence": round(memory / len(lengths), 2),
    }


def references(lengths: Lengths, block_length: int) -> dict[str, Any]:
    """Figures of the slow ones."""
    whole, sample = lengths.tolist(), lengths[:SAMPLE].tolist()
    start = time.perf_counter()
    decreasing = best_fit_decreasing(whole, block_length)
    middle = time.perf_counter()
    published = published_random_fill(sample, block_length)
    end = time.perf_counter()
    return {
        "global_best_fit_decreasing": {
            **figures(decreasing, sum(whole), block_length),
            "sequences_per_second": round(len(whole) / (middle - start)),
        },
        "published_random_fill": {
            **figures(published, sum(sample), block_length),
            "sequences": len(sample),
            "sequences_per_second": round(len(sample) / (end - middle)),
        },
    }


def measure(name: str, sequences: int, repeats: int) -> dict[str, Any]:
    """All figures of one set."""
    make, block_length = SETS[name]
    lengths = make(sequences)
    policies = {policy: measured(lengths, block_length, policy, repeats) for policy in POLICIES}
    blocks = policies["best_fit"][0]
    padded = len(lengths) * int(lengths.max())
    return {
        "sequences": len(lengths),
        "elements": int(lengths.sum()),
        "block_length": blocks.block_length,
        "zero_pad": blocks.padding_zero_pad,
        "zero_pad_percent": round(100 * blocks.padding_zero_pad / padded, 4),
        "lower_bound_ceil": blocks.lower_bound_ceil,
        "lower_bound_l2": blocks.lower_bound_l2,
        **{policy: found for policy, (_, found) in policies.items()},
        **references(lengths, blocks.block_length),
    }


def show(name: str, found: dict[str, Any]) -> None:
    """A set's figures as a table."""
    print(f"\n{name}: {found['sequences']:,} sequences, {found['elements']:,} elements, blocks of {found['block_length']:,}")
    print(f"  zero padding {found['zero_pad']:,} ({found['zero_pad_percent']} %)")
    print(f"  at least {found['lower_bound_ceil']:,} blocks (ceil), {found['lower_bound_l2']:,} (L2)")
    for policy, row in found.items():
        if isinstance(row, dict):
            memory = f", {row['bytes_per_sequence']} bytes a sequence" if "bytes_per_sequence" in row else ""
            sample = f" of the first {row['sequences']:,} sequences" if "sequences" in row else ""
            print(
                f"  {policy:27}{row['blocks']:>9,} blocks{sample}, padding {row['padding']:,} ({row['padding_percent']} %), "
                f"{row['sequences_per_second']:,} sequences/s{memory}"
            )


def main() -> None:
    """Measure, set by set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="NAME", help=", ".join(SETS))
    parser.add_argument("--sequences", type=int, default=1_000_000, help="of the sets that can be of any size")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    found = {}
    for name in options.sets:
        found[name] = measure(name, options.sequences, options.repeats)
        if not options.json:
            show(name, found[name])
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
