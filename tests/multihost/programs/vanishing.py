"""A rank of a run that loses a host: trains without end and saves each step.

Usage: vanishing.py FOLDER, under horovodrun.
"""

import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from training import building, model, optimizer_for, train

from hvd_adaptive import TopK

folder = Path(sys.argv[1])
hvd.init()
module = model()
compression = building("entire-model", TopK(10))(module)
optimizer = optimizer_for(module, compression)
for step in range(1_000_000):
    train(module, optimizer, 1, first=step)
    file = folder / f"rank{hvd.rank()}.pt"
    torch.save({"step": step, "model": module.state_dict(), "compression": compression.state_dict()}, file.with_suffix(".tmp"))
    file.with_suffix(".tmp").replace(file)
    time.sleep(0.02)
