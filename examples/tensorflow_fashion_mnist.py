"""Trains a CNN on Fashion-MNIST with a loop of TensorFlow's, Horovod and compressed gradients.

    horovodrun -np 2 python examples/tensorflow_fashion_mnist.py --scope entire-model --compressor topk --factor 100
    horovodrun -np 2 python examples/tensorflow_fashion_mnist.py --dense

Lines marked with (*) are all that compression adds to a Horovod script.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, which is talkative

import horovod.tensorflow as hvd
import keras
import keras_models
import numpy as np
import settings
import tensorflow as tf

import hvd_adaptive  # (*)
import hvd_adaptive.tensorflow as hva  # (*)
from hvd_adaptive.progress import shown


def build_step(model: keras.Model, optimizer: keras.optimizers.Optimizer, compression: Any) -> Callable[..., tf.Tensor]:
    """One step of training; returns the loss."""
    variables = [variable.value for variable in model.trainable_variables]  # TensorFlow's, which Horovod knows
    criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = criterion(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(
            tape,
            compression=hvd.Compression.none if compression is None else compression,  # (*)
            groups=1,  # (*)
        )
        optimizer.apply(tape.gradient(loss, variables), model.trainable_variables)
        return loss

    return step


def train(args: argparse.Namespace) -> None:
    keras_models.start(args)
    images, labels = keras_models.load_data(args, "train")
    test = keras_models.load_data(args, "t10k")
    steps = settings.steps_of(len(images), hvd.size(), args)
    model = keras_models.build_model()
    optimizer = keras.optimizers.SGD(args.lr * hvd.size(), settings.momentum(args))
    optimizer.build(model.trainable_variables)
    compression = None
    if not args.dense:
        compression = hva.compression(  # (*)
            args.scope, model.trainable_variables, settings.compressor(args), exchange=args.exchange, seed=args.seed
        )
    step = build_step(model, optimizer, compression)
    hvd.broadcast_variables([one.value for one in (*model.weights, *optimizer.variables)], root_rank=0)

    seconds, quality = 0.0, 0.0
    for epoch in range(args.epochs):
        order = np.random.default_rng([args.seed, epoch]).permutation(len(images))[hvd.rank() :: hvd.size()]
        batches = order[: steps * args.batch_size].reshape(steps, args.batch_size)
        start = time.perf_counter()
        for batch in shown(batches, steps, f"epoch {epoch + 1}/{args.epochs}", show=hvd.rank() == 0):
            loss = step(tf.constant(images[batch]), tf.constant(labels[batch]))
        seconds += time.perf_counter() - start
        quality = keras_models.accuracy(model, test)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}/{args.epochs}: loss {loss:.3f} on rank 0, test accuracy {quality:.2%}", flush=True)

    steps *= args.epochs
    bytes_dense = steps * keras_models.bytes_of(model) if hvd.size() > 1 else 0
    stats = None if compression is None else compression.stats()  # (*)
    if hvd.rank() == 0:
        settings.finish(args, quality, steps / seconds, bytes_dense, hvd.size(), stats)
    hvd.shutdown()


if __name__ == "__main__":
    try:
        train(settings.parser(__doc__, hva.SCOPES).parse_args())
    except hvd_adaptive.HvdAdaptiveError as error:
        sys.exit(f"error: {error}")
