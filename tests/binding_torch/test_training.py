"""Every method trains a network on Fashion-MNIST to nearly the accuracy that stock Horovod reaches in the same epoch."""

import gzip
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import numpy as np
import pytest
import torch
from torch import nn
from training import distributed

import hvd_adaptive.torch as hva
from hvd_adaptive import (
    DGC,
    QSGD,
    AdaptiveThreshold,
    BFloat16,
    EFSign,
    Half,
    NaturalCompression,
    OneBit,
    PowerSGD,
    RandomK,
    RedSync,
    SignSGD,
    TernGrad,
    Threshold,
    TopK,
    TwoSided,
)
from hvd_adaptive.compress import NAMES, Compressor, Identity

DATA = Path("/usr/share/datasets/fashion-mnist")
BATCH = 64
POINTS = 1.5

MOMENTUM = {"lr": 0.05, "momentum": 0.9}
PLAIN = {"lr": 0.2, "momentum": 0.0}
"""Of a step as long, for error feedback: what waits while momentum carries on would overshoot when it is sent."""
SIGNS = {"lr": 0.1, "momentum": 0.0}

RUNS: list[tuple[Compressor, dict[str, Any]]] = [
    (Identity(), MOMENTUM | {"exchange": "gather"}),
    (Half(), MOMENTUM),
    (BFloat16(), MOMENTUM),
    (TopK(100), PLAIN),
    (TopK(100), PLAIN | {"scope": "entire-model"}),
    (TopK(100), PLAIN | {"exchange": "shared-support"}),
    (TopK(100), PLAIN | {"exchange": "two-sided"}),
    (RandomK(10), PLAIN),
    (RandomK(2, unbiased=True), MOMENTUM),
    (Threshold(0.01), PLAIN),
    (AdaptiveThreshold(), PLAIN),
    (TernGrad(clip=2.5), MOMENTUM),
    (TernGrad(clip=2.5), MOMENTUM | {"exchange": "reduce"}),
    (QSGD(7, bucket=512), MOMENTUM),
    (QSGD(127), MOMENTUM | {"exchange": "reduce"}),
    (QSGD(15, norm="max", bucket=512), MOMENTUM | {"exchange": TwoSided(QSGD(15, norm="max", bucket=512))}),
    (SignSGD(), {"lr": 0.0005, "momentum": 0.9}),
    (SignSGD(), {"lr": 0.0005, "momentum": 0.9, "exchange": "reduce"}),
    (SignSGD(scaled=True), SIGNS),
    (SignSGD(scaled=True), SIGNS | {"exchange": "reduce"}),
    (NaturalCompression(), MOMENTUM),
    (DGC(100), MOMENTUM | {"momentum": 0.0}),
    (RedSync(100), PLAIN),
    (PowerSGD(4), MOMENTUM),
    (OneBit(), SIGNS),
    (EFSign(), SIGNS),
]


def test_every_method_is_trained_with() -> None:
    assert {type(method) for method, _ in RUNS} == set(NAMES.values())


def data(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images f32[n, 784] and labels i64[n]."""
    with gzip.open(DATA / f"{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(DATA / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return torch.from_numpy(images.copy()).float().div_(255).sub_(0.286).div_(0.353), torch.from_numpy(labels.copy()).long()


def accuracy(
    file: Path, method: Compressor | None, lr: float, momentum: float, exchange: Any = "auto", scope: str = "layer-wise"
) -> float:
    """On the test images, in per cent, after one epoch from scratch; None is stock Horovod."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    compression = None if method is None else hva.compression(scope, network.named_parameters(), method, exchange=exchange)
    optimizer = distributed(torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum), network, compression)
    (images, labels), test = torch.load(file)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[hvd.rank() :: hvd.size()]
    for chosen in order.split(BATCH):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    with torch.no_grad():
        return 100 * float((network(test[0]).argmax(1) == test[1]).float().mean())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the decoded images."""
    path = tmp_path_factory.mktemp("fashion-mnist") / "data.pt"
    torch.save((data("train"), data("t10k")), path)
    return path


@pytest.fixture(scope="module")
def dense(ranks: Any, file: Path) -> float:
    return float(ranks(2).run(accuracy, file, None, *MOMENTUM.values())[0])


@pytest.mark.parametrize(("method", "settings"), RUNS, ids=str)
def test_accuracy_is_that_of_a_dense_run(
    ranks: Any, file: Path, dense: float, method: Compressor, settings: dict[str, Any]
) -> None:
    first, second = ranks(2).run(lambda: accuracy(file, method, **settings))
    assert first == second
    assert first >= dense - POINTS
