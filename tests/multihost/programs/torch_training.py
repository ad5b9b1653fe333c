"""A rank that trains with torch from scratch, once for each case that is named.

Usage: torch_training.py FOLDER CASE..., under a launcher.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import torch
from packed_models import built, packed_losses
from rank_results import Found, digest, write
from sequences import SKEWED, entries, sequences
from torch.utils.data import DataLoader
from training import Compress, batches, building, flat, loss_of, model, optimizer_for

import hvd_adaptive.torch as hva
from hvd_adaptive import GraVAC, PowerSGD, RandomK, TopK

STEPS, EPOCHS = 16, 4
STEERED = GraVAC(min_factor=2, max_factor=100, window=4, every=1, smoothing=1, epsilon=0.5, probe_dense=False)
COMPRESS: dict[str, Compress] = {
    "layer-wise": building("layer-wise", TopK(10)),
    "entire-model": building("entire-model", TopK(10)),
    "bucketed": building("bucketed", TopK(10)),
    "reduce": building("layer-wise", RandomK(4), exchange="reduce"),
    "shared-support": building("entire-model", TopK(10), exchange="shared-support"),
    "two-sided": building("bucketed", TopK(10), exchange="two-sided"),
    "powersgd": building("layer-wise", PowerSGD(2)),
    "gravac": building("entire-model", TopK(10), controller=STEERED),
    "gravac per unit": building("layer-wise", TopK(10), controller=GraVAC(2, 100, window=4, every=1, smoothing=1, per_unit=True)),
}


def trained(compress: Compress) -> Found:
    """On one batch, which differs by rank, again and again."""
    module = model()
    compression = compress(module)
    optimizer = optimizer_for(module, compression)
    ((inputs, targets),) = batches(1, hvd.rank())
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(module, inputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    stats = compression.stats()
    factor = stats.elements_dense / stats.elements_sent
    return {"digest": digest(flat(module)), "losses": losses, "steps": stats.steps, "factor": factor}


def packed() -> Found:
    """On blocks of packed sequences, compressed too."""
    module = built("attention")
    compression = hva.EntireModel(module.named_parameters(), TopK(4))
    inner = torch.optim.SGD(module.parameters(), lr=2.0)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=module.named_parameters(), compression=compression)
    sampler = hva.BLoadSampler(SKEWED, batch_size=1)
    learnable = [(data, (data[:, 0] > 0) + 2 * (data[:, 1] > 0)) for data, _ in sequences(SKEWED, dtype=torch.float64)]
    dataset = hva.BLoadDataset(learnable, SKEWED)
    loader: Any = DataLoader(dataset, batch_sampler=sampler, collate_fn=hva.bload_collate(sampler.block_length))
    losses, seen = [], []
    for epoch in range(EPOCHS):
        total = 0.0
        for step, batch in enumerate(loader):
            optimizer.zero_grad()
            loss = hva.valid_mean(packed_losses(module, batch), batch.valid)
            loss.backward()
            optimizer.step()
            total += loss.item()
            sampler.record_batch(step, 1)
            if epoch == 0:
                seen += entries([batch.blocks])
        losses.append(total)
        sampler.set_epoch(epoch + 1)
    return {"digest": digest(flat(module)), "losses": losses, "steps": compression.stats().steps, "seen": seen}


def main(folder: Path, names: list[str]) -> None:
    hvd.init()
    torch.set_num_threads(1)
    cases: dict[str, Callable[[], Found]] = {"packed": packed}
    cases |= {name: partial(trained, compress) for name, compress in COMPRESS.items()}
    write(folder, hvd, {name: cases[name]() for name in names})
    hvd.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
