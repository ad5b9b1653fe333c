"""A rank of the torch example on Fashion-MNIST, which also writes down with what parameters this rank ended.

Usage: example_ranks.py FOLDER OPTION..., under a launcher.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import horovod.torch as hvd
from rank_results import digest, write
from training import flat

sys.path.append(str(Path(__file__).parents[3] / "examples"))
FOLDER, *OPTIONS = sys.argv[1:]
example: Any = importlib.import_module("torch_fashion_mnist")


class Checkpoint(example.Checkpoint):  # type: ignore[misc]  # a program's, found only where it runs
    """Also tells of the parameters of every rank, where the example saves rank 0's."""

    def save(self, epoch: int) -> None:
        super().save(epoch)
        write(Path(FOLDER), hvd, {"end": {"digest": digest(flat(self.parts["model"])), "losses": []}})


if __name__ == "__main__":
    example.Checkpoint = Checkpoint
    sys.argv[1:] = [*OPTIONS, "--checkpoint", f"{FOLDER}/saved", "--json", f"{FOLDER}/results.json"]
    example.train(example.parse_arguments())
