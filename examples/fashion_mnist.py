"""Loads Fashion-MNIST from Debian's package ``dataset-fashion-mnist``."""

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

FOLDER = Path("/usr/share/datasets/fashion-mnist")


def load(part: str, folder: Path = FOLDER) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Images ``u8[n, 28, 28]`` and labels ``u8[n]`` of the part ``"train"`` (60,000) or ``"t10k"`` (10,000)."""
    if not folder.is_dir():
        raise SystemExit(f"error: no data in {folder}; install it with: apt-get install dataset-fashion-mnist, or pass --data")
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images, labels
