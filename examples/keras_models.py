"""The CNN, the data and the settings of the TensorFlow and Keras examples."""

import argparse
import os

import fashion_mnist
import horovod.tensorflow as hvd
import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

Arrays = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def start(args: argparse.Namespace) -> None:
    """Join Horovod, with as many threads as the environment allows and the GPU of this rank."""
    hvd.init()
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))  # ranks share the cores of a machine
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(2)  # a step waits in one for what runs in the other
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    keras.utils.set_random_seed(args.seed)


def build_model() -> keras.Model:
    layers = keras.layers
    return keras.Sequential([
        keras.Input((28, 28, 1)),
        layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(2),
        layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(2),
        layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10),
    ])  # fmt: skip


def load_data(args: argparse.Namespace, part: str) -> Arrays:
    """Images f32[n, 28, 28, 1] of mean 0 and deviation 1, and labels i64[n]."""
    images, labels = fashion_mnist.load(part, args.data)
    pixels = (images[: args.limit, :, :, None].astype(np.float32) / 255 - 0.286) / 0.353
    return pixels, labels[: args.limit].astype(np.int64)


def bytes_of(model: keras.Model) -> int:
    """Of all gradients."""
    return sum(variable.value.dtype.size * int(np.prod(variable.shape)) for variable in model.trainable_variables)


def accuracy(model: keras.Model, test: Arrays) -> float:
    """Over the whole data set, each rank testing its share."""
    images, labels = (array[hvd.rank() :: hvd.size()] for array in test)
    found = model.predict_on_batch if len(images) <= 500 else lambda x: model.predict(x, batch_size=500, verbose=0)
    correct = int((found(images).argmax(1) == labels).sum())
    total = hvd.allreduce(tf.constant([correct, len(labels)], tf.int64), op=hvd.Sum, name="accuracy")
    return float(total[0] / total[1])
