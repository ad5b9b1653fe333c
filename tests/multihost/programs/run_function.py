"""Trains through ``horovod.run()``, by which Python itself launches the ranks.

Usage: run_function.py HOSTS mpi|gloo OUTPUT
"""

import json
import socket
import sys
from pathlib import Path

import horovod
import horovod.torch as hvd
from rank_results import digest
from training import building, trained

from hvd_adaptive import TopK

HOSTS, CONTROLLER, OUTPUT = sys.argv[1:]


def train(scope: str) -> dict[str, object]:
    """Sent to every rank."""
    hvd.init()
    parameters, compression = trained(building(scope, TopK(10)), 5)
    steps = compression.stats().steps
    return {"host": socket.gethostname(), "mpi": bool(hvd.mpi_enabled()), "steps": steps, "digest": digest(parameters)}


if __name__ == "__main__":
    size = len(HOSTS.split(","))
    found = horovod.run(train, ("bucketed",), num_proc=size, hosts=HOSTS, **{f"use_{CONTROLLER}": True})
    Path(OUTPUT).write_text(json.dumps(found))
