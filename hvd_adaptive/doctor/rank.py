"""What each rank of the trial runs: a few compressed steps; rank 0 writes what all found to the file that is named.

python -m hvd_adaptive.doctor.rank FILE
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from hvd_adaptive.doctor.trial import STEPS

_FACTOR = 10.0


def report() -> dict[str, Any]:
    """Take the steps, together with all other ranks."""
    import horovod.torch as hvd  # noqa: PLC0415 - only the trial's own processes load a framework
    import torch  # noqa: PLC0415

    import hvd_adaptive.torch as hva  # noqa: PLC0415
    from hvd_adaptive import TopK  # noqa: PLC0415

    hvd.init()
    if hvd.size() == 1:
        os.environ["HOROVOD_ELASTIC"] = "1"  # by which Horovod's optimizer calls compression on a single rank as well
    torch.set_num_threads(1)
    numbers = torch.Generator().manual_seed(hvd.rank())  # unlike data on each rank, and parameters too until they are broadcast
    model = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1, generator=numbers)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    compression = hva.EntireModel(model.named_parameters(), TopK(factor=_FACTOR))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters(), compression=compression)
    start = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(16, 256, generator=numbers)).square().mean().backward()
        optimizer.step()
    seconds = (time.perf_counter() - start) / STEPS
    parameters = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    stats = compression.stats()
    found = {
        "ranks": hvd.size(),
        "digests": hvd.allgather_object(hashlib.sha256(parameters).hexdigest()),
        "finite": all(bool(parameter.isfinite().all()) for parameter in model.parameters()),
        "steps": stats.steps,
        "factor": stats.elements_dense / stats.elements_sent if stats.elements_sent else 1.0,
        "seconds": seconds,
        "gpus": torch.cuda.device_count(),
        "built": {
            "MPI": bool(hvd.mpi_built()),
            "Gloo": bool(hvd.gloo_built()),
            "NCCL": bool(hvd.nccl_built()),
        },
        "used": "MPI" if hvd.mpi_enabled() else "Gloo",
        "leads": hvd.rank() == 0,
    }
    hvd.shutdown()
    return found


def main() -> None:
    """Report to the file, on one rank."""
    found = report()
    if found.pop("leads"):
        Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
