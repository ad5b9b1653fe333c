"""A rank that trains with TensorFlow from scratch, by Horovod's tape and by Keras 3's ``fit``.

Usage: tensorflow_training.py FOLDER, under a launcher.
"""

import sys
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from fitted import building, data, fitted, looped, model, weights
from rank_results import Found, digest, write

from hvd_adaptive import TopK


def main(folder: Path) -> None:
    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    build = building("entire-model", TopK(5))
    write(folder, hvd, {"tape": _found(looped(build)[0]), "fit": _found(fitted(build)[0])})
    hvd.shutdown()


def _found(module: Any) -> Found:
    return {"digest": digest(weights(module)), "losses": [_loss(model()), _loss(module)]}


def _loss(module: Any) -> float:
    inputs, targets = data(hvd.rank())
    return float(np.mean((np.asarray(module(tf.constant(inputs))) - targets) ** 2))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
