"""Trains a CNN on Fashion-MNIST with Keras 3's ``fit``, Horovod and compressed gradients.

    horovodrun -np 2 python examples/keras_fashion_mnist.py --scope entire-model --compressor topk --factor 100
    horovodrun -np 2 python examples/keras_fashion_mnist.py --dense

Lines marked with (*) are all that Horovod and compression add to a Keras script.
"""

import argparse
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, which is talkative

import horovod.tensorflow as hvd
import keras
import keras_models
import settings

import hvd_adaptive  # (*)
import hvd_adaptive.keras as hvk  # (*)
import hvd_adaptive.tensorflow as hva  # (*)


class Progress(keras.callbacks.Callback):
    """Tests after each epoch, and knows how long the epochs took without that."""

    def __init__(self, test: keras_models.Arrays, epochs: int) -> None:
        super().__init__()
        self.test, self.epochs = test, epochs
        self.seconds, self.quality = 0.0, 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds += time.perf_counter() - self.start
        self.quality = keras_models.accuracy(self.model, self.test)
        if hvd.rank() == 0:
            epochs = f"epoch {epoch + 1}/{self.epochs}"
            print(f"{epochs}: mean loss {logs['loss']:.3f} on all ranks, test accuracy {self.quality:.2%}", flush=True)


def train(args: argparse.Namespace) -> None:
    keras_models.start(args)
    images, labels = keras_models.load_data(args, "train")
    steps = settings.steps_of(len(images), hvd.size(), args)
    own = slice(hvd.rank(), hvd.size() * steps * args.batch_size, hvd.size())  # as many on every rank
    model = keras_models.build_model()
    compression = None
    if not args.dense:
        compression = hva.compression(  # (*)
            args.scope, model.trainable_variables, settings.compressor(args), exchange=args.exchange, seed=args.seed
        )
    inner = keras.optimizers.SGD(args.lr * hvd.size(), settings.momentum(args))
    model.compile(
        hvk.DistributedOptimizer(inner, compression=compression),  # (*)
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,  # (*) XLA cannot compile Horovod's operations
    )
    progress = Progress(keras_models.load_data(args, "t10k"), args.epochs)
    callbacks = [hvk.BroadcastGlobalVariablesCallback(), hvk.MetricAverageCallback(), progress]  # (*)
    model.fit(images[own], labels[own], args.batch_size, args.epochs, verbose=0, callbacks=callbacks)

    steps *= args.epochs
    bytes_dense = steps * keras_models.bytes_of(model) if hvd.size() > 1 else 0
    stats = None if compression is None else compression.stats()  # (*)
    if hvd.rank() == 0:
        settings.finish(args, progress.quality, steps / progress.seconds, bytes_dense, hvd.size(), stats)
    hvd.shutdown()


if __name__ == "__main__":
    try:
        train(settings.parser(__doc__, hva.SCOPES).parse_args())
    except hvd_adaptive.HvdAdaptiveError as error:
        sys.exit(f"error: {error}")
