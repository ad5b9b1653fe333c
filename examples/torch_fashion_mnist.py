"""Trains a CNN on Fashion-MNIST with Horovod and compressed gradients.

    horovodrun -np 2 python examples/torch_fashion_mnist.py --scope entire-model --compressor topk --factor 100
    horovodrun -np 2 python examples/torch_fashion_mnist.py --dense

Lines marked with (*) are all that compression adds to a Horovod script.
"""

import argparse
import sys
import time
from pathlib import Path

import fashion_mnist
import horovod.torch as hvd
import settings
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

import hvd_adaptive  # (*)
import hvd_adaptive.torch as hva  # (*)
from hvd_adaptive.progress import shown


def parse_arguments() -> argparse.Namespace:
    parser = settings.parser(__doc__, hva.SCOPES)
    parser.add_argument("--checkpoint", type=Path, help="folder to save to after each epoch")
    parser.add_argument("--resume", action="store_true", help="continue from --checkpoint if it holds one")
    return parser.parse_args()


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 5 * 5, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def build_compression(args: argparse.Namespace, model: nn.Module) -> hva.TorchCompression:  # (*)
    return hva.compression(
        args.scope, model.named_parameters(), settings.compressor(args), exchange=args.exchange, seed=args.seed
    )


def load_data(args: argparse.Namespace, part: str) -> TensorDataset:
    images, labels = fashion_mnist.load(part, args.data)
    pixels = torch.from_numpy(images[: args.limit].copy()).unsqueeze(1).float().div_(255).sub_(0.286).div_(0.353)
    return TensorDataset(pixels, torch.from_numpy(labels[: args.limit].copy()).long())


def accuracy(model: nn.Module, dataset: TensorDataset) -> float:
    """Over the whole data set, each rank testing its share."""
    images, labels = (tensor[hvd.rank() :: hvd.size()] for tensor in dataset.tensors)
    model.eval()
    with torch.no_grad():
        correct = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(500), labels.split(500), strict=True))
    model.train()
    total = hvd.allreduce(torch.tensor([correct, len(labels)]), op=hvd.Sum, name="accuracy")
    return float(total[0] / total[1])


class Checkpoint:
    """Model and optimizer are the same on every rank and saved by rank 0; the compression's state is each rank's own.

    Folders may be shared by all ranks or local to each host: what rank 0 loads is broadcast.
    """

    def __init__(
        self, folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, compression: hva.TorchCompression | None
    ):
        self.parts = {"model": model, "optimizer": optimizer}
        self.shared_file = folder / "shared.pt"
        self.own_file = folder / f"compression.rank{hvd.rank()}.pt"
        self.compression = compression

    def save(self, epoch: int) -> None:
        self.shared_file.parent.mkdir(parents=True, exist_ok=True)
        if self.compression is not None:
            self.write({"epoch": epoch, "compression": self.compression.state_dict()}, self.own_file)  # (*)
        if hvd.rank() == 0:
            self.write({"epoch": epoch, **{name: part.state_dict() for name, part in self.parts.items()}}, self.shared_file)
        hvd.barrier()

    def load(self) -> int:
        """Returns the number of epochs done."""
        epoch = 0
        if hvd.rank() == 0 and self.shared_file.exists():
            shared = torch.load(self.shared_file, weights_only=True)
            for name, part in self.parts.items():
                part.load_state_dict(shared[name])
            epoch = int(shared["epoch"])
        epoch = hvd.broadcast_object(epoch, root_rank=0, name="epoch")
        if epoch and self.compression is not None:
            own = torch.load(self.own_file, weights_only=True) if self.own_file.exists() else {"epoch": None}
            epochs = hvd.allgather_object(own["epoch"], name="epochs")
            if epochs != [epoch] * hvd.size():
                sys.exit(f"error: the model is of epoch {epoch}, the compression states of ranks 0, 1, ... are of {epochs}")
            self.compression.load_state_dict(own["compression"])  # (*)
        return epoch

    @staticmethod
    def write(state: object, file: Path) -> None:
        temporary = file.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(file)


def train(args: argparse.Namespace) -> None:
    hvd.init()
    torch.manual_seed(args.seed)
    model = build_model()
    inner = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=settings.momentum(args))
    compression = None if args.dense else build_compression(args, model)  # (*)
    optimizer = hvd.DistributedOptimizer(
        inner,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.none if compression is None else compression,  # (*)
    )
    checkpoint = Checkpoint(args.checkpoint, model, optimizer, compression) if args.checkpoint else None
    first_epoch = checkpoint.load() if checkpoint and args.resume else 0
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    dataset, test = load_data(args, "train"), load_data(args, "t10k")
    sampler = DistributedSampler(dataset, hvd.size(), hvd.rank(), seed=args.seed, drop_last=True)
    loader = DataLoader(dataset, batch_size=None, sampler=BatchSampler(sampler, args.batch_size, drop_last=True))
    settings.steps_of(len(dataset), hvd.size(), args)
    steps, seconds, quality = 0, 0.0, accuracy(model, test) if first_epoch >= args.epochs else 0.0
    for epoch in range(first_epoch, args.epochs):
        sampler.set_epoch(epoch)
        start = time.perf_counter()
        for images, labels in shown(loader, len(loader), f"epoch {epoch + 1}/{args.epochs}", show=hvd.rank() == 0):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        steps, seconds = steps + len(loader), seconds + time.perf_counter() - start
        quality = accuracy(model, test)
        if checkpoint:
            checkpoint.save(epoch + 1)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{args.epochs}: loss {loss.item():.3f} on rank 0, test accuracy {quality:.2%}", flush=True)

    bytes_dense = steps * sum(p.nbytes for p in model.parameters()) if hvd.size() > 1 else 0
    stats = None if compression is None else compression.stats()  # (*)
    if hvd.rank() == 0:
        settings.finish(args, quality, steps / seconds if steps else 0.0, bytes_dense, hvd.size(), stats)
    hvd.shutdown()


if __name__ == "__main__":
    try:
        train(parse_arguments())
    except hvd_adaptive.HvdAdaptiveError as error:
        sys.exit(f"error: {error}")
