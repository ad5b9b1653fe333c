"""Compressed gradients for Keras 3 on TensorFlow, under ``model.fit`` and in loops of one's own.

import horovod.tensorflow as hvd
import hvd_adaptive.keras as hvk
import hvd_adaptive.tensorflow as hva
from hvd_adaptive import TopK

compression = hva.EntireModel(model.trainable_variables, TopK(factor=100))
model.compile(hvk.DistributedOptimizer(optimizer, compression=compression), loss)
model.fit(x, y, callbacks=[hvk.BroadcastGlobalVariablesCallback(), hvk.MetricAverageCallback()])

Under Keras 3 stock Horovod's own DistributedOptimizer never reduces gradients, and ranks drift apart: see docs/decisions/015.
"""

from hvd_adaptive.keras.callbacks import BroadcastGlobalVariablesCallback, LearningRateWarmupCallback, MetricAverageCallback
from hvd_adaptive.keras.optimizer import DistributedOptimizer

__all__ = ["BroadcastGlobalVariablesCallback", "DistributedOptimizer", "LearningRateWarmupCallback", "MetricAverageCallback"]
