"""A rank of an elastic run, as docs/multihost.md shows it: trains until told to stop, on the ranks there are.

Usage: elastic_training.py FOLDER, under ``horovodrun --host-discovery-script``. Rank 0 appends a line of JSON for each step to
``steps.jsonl``; the run ends, on all ranks in the same step, once there is a file ``stop``.
"""

import json
import socket
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from rank_results import digest
from training import batches, flat, loss_of, model

import hvd_adaptive.torch as hva
from hvd_adaptive import GraVAC, TopK

FOLDER = Path(sys.argv[1])
STEERED = GraVAC(min_factor=2, max_factor=100, window=4, every=1, smoothing=1, epsilon=0.5, probe_dense=False)

hvd.init()
torch.set_num_threads(1)
module = model()
compression = hva.EntireModel(module.named_parameters(), TopK(10), controller=STEERED)
inner = torch.optim.SGD(module.parameters(), lr=0.05)
optimizer = hvd.DistributedOptimizer(inner, named_parameters=module.named_parameters(), compression=compression)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    if state.saved:
        compression.load_state_dict(state.saved, strict=False)
    since, stop = 0, False
    while not stop:
        inputs, targets = batches(1, hvd.rank())[0]
        optimizer.zero_grad()
        loss = loss_of(module, inputs, targets)
        loss.backward()
        optimizer.step()
        state.step, since = state.step + 1, since + 1
        digests = hvd.allgather_object((socket.gethostname(), digest(flat(module))), name="digests")
        stop = hvd.broadcast_object((FOLDER / "stop").exists(), root_rank=0, name="stop")
        if hvd.rank() == 0:
            found = {"step": state.step, "size": hvd.size(), "loss": loss.item(), "ranks": digests}
            found |= {"since": since, "compressed": compression.state_dict()["steps"]}
            with (FOLDER / "steps.jsonl").open("a") as file:
                file.write(json.dumps(found) + "\n")
        state.saved = compression.state_dict()
        state.commit()
        time.sleep(0.1)


state = hvd.elastic.TorchState(model=module, optimizer=optimizer, step=0, saved=None)
state.register_reset_callbacks([compression.rejoin])
train(state)
