"""A rank that saves each step, or goes on from what was saved.

Usage, under a launcher: saving.py FOLDER trains without end; saving.py FOLDER DONE LAST goes on after DONE steps, to LAST.
"""

import logging
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError
from rank_results import digest, write
from training import building, flat, model, optimizer_for, train

from hvd_adaptive import TopK


def main(folder: Path, done: int | None = None, last: int = 1_000_000) -> None:
    hvd.init()
    log = folder / f"rank{hvd.rank()}.log"  # if the launcher's host is gone, nobody passes on what a rank says
    logging.basicConfig(format="%(message)s", handlers=[logging.StreamHandler(), logging.FileHandler(log)])
    torch.set_num_threads(1)
    module = model()
    compression = building("entire-model", TopK(10))(module)
    optimizer = optimizer_for(module, compression)
    parts = {"model": module, "optimizer": optimizer, "compression": compression}
    if done:
        saved = torch.load(_file(folder, done), weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    for step in range(done or 0, last):
        try:
            train(module, optimizer, 1, first=step)
        except HorovodInternalError:
            logging.exception("step %d was the last", step)
            raise
        if done is None:
            file = _file(folder, step + 1)
            torch.save({name: part.state_dict() for name, part in parts.items()}, file.with_suffix(".tmp"))
            file.with_suffix(".tmp").replace(file)
            time.sleep(0.05)
    write(folder, hvd, {"end": {"digest": digest(flat(module)), "losses": []}})
    hvd.shutdown()


def _file(folder: Path, done: int) -> Path:
    return folder / f"step{done}.rank{hvd.rank()}.pt"


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
