"""Trains a language model on the verses of the King James Bible, long and short, in four ways side by side.

    horovodrun -np 2 python examples/torch_bload.py
    horovodrun -np 2 python examples/torch_bload.py --model transformer --strategies zero-pad bload --limit 4000

zero-pad   every verse is padded to the longest
sampling   every verse gives exactly as many words as the mean; shorter ones are left out, longer ones cut
mix-pad    as many words as the mean, too, but shorter ones are padded
bload      whole verses, several in a block as long as the longest

A step is as many words of verses in each of them, so that they differ in padding and in what they leave out.
Lines marked with (*) are all that BLoad adds to a Horovod script.
"""

import argparse
import collections
import itertools
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import king_james
import numpy as np
import torch
from report import print_columns
from torch import nn
from torch.utils.data import DataLoader
from verse_models import MODELS

import hvd_adaptive
import hvd_adaptive.torch as hva  # (*)
from hvd_adaptive.progress import shown

STRATEGIES = ("zero-pad", "sampling", "mix-pad", "bload")
HELD_OUT = 20
"""Every so many-th verse is tested on."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lstm", choices=MODELS)
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), choices=STRATEGIES, metavar="NAME")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-words", type=int, default=1024, help="of verses in a step, per rank (default: %(default)s)")
    parser.add_argument("--words", type=int, default=2000, help="that are told apart, the most frequent ones")
    parser.add_argument("--lr", type=float, default=0.003, help="of Adam")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="the first so many verses only")
    parser.add_argument("--compression", action="store_true", help="compress gradients too: Top-k of the entire model, factor 10")
    parser.add_argument("--json", type=Path, help="file to write the results to")
    args = parser.parse_args()
    for name, least in (("epochs", 1), ("batch_words", 1), ("words", 2), ("limit", HELD_OUT)):
        if (given := getattr(args, name)) is not None and given < least:
            sys.exit(f"error: --{name.replace('_', '-')} must be at least {least}, got {given}")
    return args


class Verses:
    """Numbered words; a sample is what is read and what should follow, each as long as the verse."""

    def __init__(self, args: argparse.Namespace) -> None:
        verses = king_james.verses()[: args.limit]
        parts: dict[bool, list[list[str]]] = {True: [], False: []}
        for number, verse in enumerate(verses):
            parts[number % HELD_OUT == HELD_OUT - 1].append(verse)
        counts = collections.Counter(itertools.chain.from_iterable(parts[False]))
        known = {word: number for number, (word, _) in enumerate(counts.most_common(args.words - 1), 1)}  # 0 for all others
        self.words = len(known) + 1
        self.longest = max(map(len, verses))
        self.train, self.test = ([self._sample(verse, known) for verse in parts[tested]] for tested in (False, True))

    @staticmethod
    def _sample(verse: list[str], known: dict[str, int]) -> tuple[torch.Tensor, torch.Tensor]:
        words = torch.tensor([known.get(word, 0) for word in verse])
        return words.roll(1), words  # every verse begins after the <end> of another


@dataclass
class Feed:
    """What one strategy trains on, the same number of steps on every rank."""

    sampler: hva.BLoadSampler
    loader: DataLoader[hva.BLoadBatch]
    deleted: int


def feed(samples: list[Any], seed: int, batch_words: int, strategy: str = "bload") -> Feed:
    lengths = np.array([len(words) for words, _ in samples])
    elements, mean = int(lengths.sum()), round(float(lengths.mean()))
    options: dict[str, Any] = {}
    if strategy == "sampling":
        chosen = np.flatnonzero(lengths >= mean)
        samples, lengths = [samples[index] for index in chosen], lengths[chosen]
    if strategy in {"sampling", "mix-pad"}:
        options = {"block_length": mean, "overlong": "truncate"}
    if strategy != "bload":
        options["max_sequences_per_block"] = 1
    blocks = hvd_adaptive.bload.pack(lengths, **options)
    batch_size = max(1, round(batch_words / float(blocks.filled.mean())))
    sampler = hva.BLoadSampler(lengths, batch_size=batch_size, seed=seed, **options)  # (*)
    dataset = hva.BLoadDataset(samples, lengths)  # (*)
    collate = hva.bload_collate(sampler.block_length)  # (*)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)  # (*)
    return Feed(sampler, loader, elements - int(sampler.blocks.filled.sum()))


def losses(model: nn.Module, batch: hva.BLoadBatch) -> torch.Tensor:
    """f32[b, T], one for each word; those of padding are 0."""
    scores = model(batch).flatten(0, 1)
    return nn.functional.cross_entropy(scores, batch.targets.flatten(), reduction="none").view_as(batch.targets)


def perplexity(model: nn.Module, verses: Verses, args: argparse.Namespace) -> float:
    """Of the verses held out, whole and unpadded by any strategy, each rank testing its share."""
    test = feed(verses.test, args.seed, args.batch_words)
    model.eval()
    with torch.no_grad():
        lost = sum(float(losses(model, batch).sum()) for batch in test.loader)
    model.train()
    lost = float(hvd.allreduce(torch.tensor([lost], dtype=torch.float64), op=hvd.Sum, name="perplexity"))
    return float(np.exp(lost / sum(len(words) for words, _ in verses.test)))


def train_epoch(model: nn.Module, optimizer: Any, train: Feed, title: str) -> float:
    """Returns seconds."""
    totals = train.sampler.filled.sum(1)  # words of all ranks in each step
    start = time.perf_counter()
    batches = shown(train.loader, len(train.loader), title, show=hvd.rank() == 0)
    for batch, total in zip(batches, totals.tolist(), strict=True):
        optimizer.zero_grad()
        loss = hva.valid_mean(losses(model, batch), batch.valid, total=total)  # (*)
        loss.backward()
        optimizer.step()
    return time.perf_counter() - start


def run(args: argparse.Namespace, verses: Verses, strategy: str) -> dict[str, Any]:
    """Train a new model; the figures of it."""
    torch.manual_seed(args.seed)
    model = MODELS[args.model](verses.words, verses.longest)
    compression = hvd.Compression.none
    if args.compression:
        compression = hva.EntireModel(model.named_parameters(), hvd_adaptive.TopK(factor=10), seed=args.seed)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=args.lr), named_parameters=model.named_parameters(), compression=compression
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    train = feed(verses.train, args.seed, args.batch_words, strategy)
    found = figures(train) | {"perplexity_at_start": perplexity(model, verses, args)}
    seconds = 0.0
    for epoch in range(args.epochs):
        seconds += train_epoch(model, optimizer, train, f"{strategy}, epoch {epoch + 1}/{args.epochs}")
        train.sampler.set_epoch(epoch + 1)  # (*)
        quality = perplexity(model, verses, args)
        if hvd.rank() == 0:
            print(f"{strategy}, epoch {epoch + 1}/{args.epochs}: test perplexity {quality:.1f}", flush=True)
    return found | {"epoch_seconds": seconds / args.epochs, "test_perplexity": quality}


def figures(train: Feed) -> dict[str, Any]:
    """Of one epoch, on all ranks together."""
    blocks, added = train.sampler.blocks, train.sampler.split + train.sampler.empty
    return {
        "block_length": blocks.block_length,
        "batch_size": train.sampler.batch_size,
        "steps": len(train.sampler),
        "blocks": len(blocks),
        "blocks_added": added,
        "padding": blocks.padding,
        "padding_packed": blocks.padding - added * blocks.block_length,
        "deleted": train.deleted,
        "processed": len(blocks) * blocks.block_length,
        "lower_bound_ceil": blocks.lower_bound_ceil,
        "lower_bound_l2": blocks.lower_bound_l2,
    }


def column(strategy: str, found: dict[str, Any]) -> dict[str, str]:
    """As a reader wants it."""
    rows = {
        "padding": f"{found['padding_packed']:,}",
        "and for equal steps": f"{found['padding'] - found['padding_packed']:,}",
        "words deleted": f"{found['deleted']:,}",
        "elements processed": f"{found['processed']:,}",
        "steps": f"{found['steps']:,}",
        "seconds an epoch": f"{found['epoch_seconds']:.1f}",
        "test perplexity": f"{found['test_perplexity']:.1f}",
        "blocks": f"{found['blocks'] - found['blocks_added']:,}",
    }
    if strategy == "bload":
        rows |= {"at least (ceil)": f"{found['lower_bound_ceil']:,}", "at least (L2)": f"{found['lower_bound_l2']:,}"}
    return rows


def main(args: argparse.Namespace) -> None:
    hvd.init()
    verses = Verses(args)
    found = {strategy: run(args, verses, strategy) for strategy in dict.fromkeys(args.strategies)}
    if hvd.rank() == 0:
        title = f"{args.model}, {len(verses.train):,} verses, epochs: {args.epochs}, ranks: {hvd.size()}"
        print_columns(title, {strategy: column(strategy, row) for strategy, row in found.items()})
        if args.json:
            results = {"ranks": hvd.size(), "model": args.model, "epochs": args.epochs, "strategies": found}
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(results, indent=2) + "\n")
    hvd.shutdown()


if __name__ == "__main__":
    try:
        main(parse_arguments())
    except hvd_adaptive.HvdAdaptiveError as error:
        sys.exit(f"error: {error}")
