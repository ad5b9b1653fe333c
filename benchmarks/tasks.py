"""What the benchmarks train: a CNN on Fashion-MNIST and a word LSTM on the King James Bible, small enough for two cores."""

import collections
import itertools
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import fashion_mnist
import king_james

Batch = tuple[torch.Tensor, torch.Tensor]


class Task(ABC):
    """A model, its data and its settings; plain SGD, because what waits in a residual overshoots under momentum.

    Attributes:
        lr: learning rate.
        clip: largest norm of the averaged gradient, or None.
        steps: of a full run.
        window: of a controller, in steps.
        measure: the quality's name.
        better: 1 if more of it is better, -1 if less.
    """

    lr: float
    clip: float | None
    steps: int
    window: int
    measure: str
    better: int

    @abstractmethod
    def build(self) -> nn.Module:
        """The model, initialised from torch's random state."""

    @abstractmethod
    def batches(self, seed: int) -> Iterator[Batch]:
        """Endless batches of this rank."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """The mean loss of a batch."""

    def step(self, model: nn.Module, optimizer: Any, batch: Batch) -> None:
        """Train on one batch under Horovod's ``optimizer``."""
        optimizer.zero_grad()
        self.loss(model, batch).backward()
        optimizer.synchronize()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip)
        with optimizer.skip_synchronize():
            optimizer.step()

    @abstractmethod
    def quality(self, model: nn.Module) -> float:
        """On data that is not trained on, each rank testing its share."""


class Fashion(Task):
    """843,658 parameters, 32 images a rank; accuracy in per cent."""

    lr, clip, steps, window, measure, better = 0.1, None, 900, 50, "accuracy", 1

    def __init__(self) -> None:
        self.train, self.test = (self._load(part) for part in ("train", "t10k"))

    @staticmethod
    def _load(part: str) -> Batch:
        images, labels = fashion_mnist.load(part)
        pixels = torch.from_numpy(images.copy()).unsqueeze(1).float().div_(255).sub_(0.286).div_(0.353)
        return pixels, torch.from_numpy(labels.copy()).long()

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 5 * 5, 512), nn.ReLU(), nn.Linear(512, 10),
        )  # fmt: skip

    def batches(self, seed: int) -> Iterator[Batch]:
        images, labels = self.train
        size = 32 * hvd.size()
        for epoch in itertools.count():
            order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1000 * seed + epoch))
            for start in range(32 * hvd.rank(), len(order) // size * size, size):
                chosen = order[start : start + 32]
                yield images[chosen], labels[chosen]

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def quality(self, model: nn.Module) -> float:
        images, labels = (tensor[hvd.rank() :: hvd.size()] for tensor in self.test)
        pieces = zip(images.split(500), labels.split(500), strict=True)
        with torch.no_grad():
            correct = sum(int((model(x).argmax(1) == y).sum()) for x, y in pieces)
        right, all_ = hvd.allreduce(torch.tensor([correct, len(labels)]), op=hvd.Sum, name="accuracy").tolist()
        return 100.0 * right / all_


class Language(nn.Module):
    """Embedding, two LSTM layers, softmax over the vocabulary."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.output = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores f32[batch, length, words] of what follows each of ``tokens`` i64[batch, length]."""
        return self.output(self.lstm(self.embedding(tokens))[0])


class KingJames(Task):
    """5,474,219 parameters, 16 pieces of 20 words a rank; perplexity."""

    lr, clip, steps, window, measure, better = 4.0, 5.0, 400, 25, "perplexity", -1
    length, rows, width, thinned = 20, 16, 256, 4

    def __init__(self) -> None:
        verses = king_james.verses()
        counts = collections.Counter(itertools.chain.from_iterable(verses))
        known = {word: number for number, word in enumerate(["<rare>", *(w for w, n in counts.most_common() if n > 1)])}
        self.words = len(known)
        parts: dict[bool, list[int]] = {True: [], False: []}
        for number, verse in enumerate(verses):  # every twentieth hundred of verses is tested on
            parts[number // 100 % 20 == 19].extend(known.get(word, 0) for word in verse)
        self.train, self.test = (torch.from_numpy(np.array(parts[tested])) for tested in (False, True))

    def build(self) -> nn.Module:
        return Language(self.words, self.width)

    def batches(self, seed: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(1000 * seed + hvd.rank())
        within = torch.arange(self.length + 1)
        while True:
            starts = torch.randint(len(self.train) - self.length - 1, (self.rows, 1), generator=generator)
            pieces = self.train[starts + within]
            yield pieces[:, :-1], pieces[:, 1:]

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def quality(self, model: nn.Module) -> float:
        pieces = self.test[: len(self.test) // 101 * 101].view(-1, 101)[:: self.thinned][hvd.rank() :: hvd.size()]
        with torch.no_grad():
            losses = [self.loss(model, (rows[:, :-1], rows[:, 1:])).item() * len(rows) for rows in pieces.split(16)]
        total, count = hvd.allreduce(torch.tensor([sum(losses), len(pieces)]), op=hvd.Sum, name="perplexity").tolist()
        return float(np.exp(total / count))


TASKS: dict[str, type[Task]] = {"fashion": Fashion, "kjv": KingJames}
