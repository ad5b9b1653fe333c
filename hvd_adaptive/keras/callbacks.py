"""Callbacks that Horovod's Keras users know, for Keras 3."""

import math
from numbers import Real
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
from horovod.common.process_sets import ProcessSet

from hvd_adaptive.errors import ConfigError, UnsupportedError
from hvd_adaptive.keras.checks import check_process_set, check_start
from hvd_adaptive.keras.optimizer import Distributed


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """Gives every rank the weights of the model and the variables of the optimizer of one rank, as training begins.

    At that time ``fit`` has built all but models that build themselves while they run; what exists only after the first batch is
    given then. Stock Horovod's waits for that always, and ranks compute the first step's gradients with different weights. The
    states of random layers stay each rank's own.

    Args:
        root_rank: the global rank whose variables all get.
        process_set: ranks that take part.

    Raises:
        ConfigError: if Horovod is not initialised, or ``root_rank`` is no rank of the process set; as training begins, if the
            model's optimizer does not reduce gradients.
        UnsupportedError: without Keras 3 on TensorFlow.
    """

    def __init__(self, root_rank: int = 0, *, process_set: ProcessSet = hvd.global_process_set) -> None:
        super().__init__()
        check_start()
        check_process_set(process_set)
        ranks = list(process_set.ranks or range(hvd.size()))
        if isinstance(root_rank, bool) or root_rank not in ranks:
            raise ConfigError(f"root_rank must be one of the ranks {ranks}, got {root_rank!r}")
        self.root_rank = root_rank
        self.process_set = process_set
        self._given: dict[int, Any] = {}
        self._whole = False

    def on_train_begin(self, logs: Any = None) -> None:
        self._check_reduces()
        self._given, self._whole = {}, False
        self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self._whole:
            self._broadcast()
            self._whole = True

    def _check_reduces(self) -> None:
        """Refuse to begin what ranks would go on with apart; steps written by the user may reduce by themselves."""
        optimizer = self.model.optimizer
        if isinstance(optimizer, Distributed) or type(self.model).train_step is not keras.Model.train_step:
            return
        if self.process_set.included() and self.process_set.size() > 1:
            raise ConfigError(
                f"the model's optimizer, {type(optimizer).__name__}, does not reduce gradients, so ranks would drift apart: "
                "models that were loaded or cloned have a plain optimizer; call "
                "model.compile(hvd_adaptive.keras.DistributedOptimizer(optimizer, compression=...), ...)"
            )

    def _broadcast(self) -> None:
        if not self.process_set.included():
            return
        variables = [*self.model.weights, *(self.model.optimizer.variables if self.model.optimizer else ())]
        new = {id(one.value): one.value for one in variables if id(one.value) not in self._given}
        if new:
            hvd.broadcast_variables(list(new.values()), self.root_rank, process_set=self.process_set)
        self._given |= new  # kept, so that no other variable gets their ids


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """Replaces the figures of each epoch by their means over ranks, for callbacks that come later, the history and the display.

    Args:
        process_set: ranks to average over.

    Raises:
        ConfigError: if Horovod is not initialised; after an epoch, on every rank, if ranks have figures of different names.
        UnsupportedError: without Keras 3 on TensorFlow.
    """

    def __init__(self, *, process_set: ProcessSet = hvd.global_process_set) -> None:
        super().__init__()
        check_start()
        check_process_set(process_set)
        self.process_set = process_set

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is None or not self.process_set.included():
            return
        own = {name: float(value) for name, value in sorted(logs.items()) if isinstance(value, Real)}
        every = hvd.allgather_object(own, name="hvd_adaptive.keras.metrics", process_set=self.process_set)
        differing = sorted({name for one in every for name in one.keys() ^ every[0].keys()})
        if differing:
            raise ConfigError(
                f"some ranks have the figures {differing} after epoch {epoch} and others have not; give every rank the same "
                "metrics, and validation data on all ranks or none"
            )
        with np.errstate(over="ignore", invalid="ignore"):  # infinities of both signs have no mean
            logs.update({name: float(np.mean([one[name] for one in every])) for name in own})


class LearningRateWarmupCallback(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """Raises the learning rate batch by batch from that of one rank to ``initial_lr``, which it has after ``warmup_epochs``.

    Args:
        initial_lr: for all ranks together, usually that of one times ``hvd.size()``.
        warmup_epochs: how long.
        momentum_correction: False; Keras 3 holds momentum as a constant of the compiled step.
        steps_per_epoch: None to learn it from ``fit``.
        verbose: 1 to have rank 0 say when it is done.
        process_set: whose size counts.

    Raises:
        ConfigError: if an argument is not legal, or Horovod is not initialised; as training begins, if the number of steps is not
            known, or the optimizer has a schedule of its own.
        UnsupportedError: for momentum correction, and without Keras 3 on TensorFlow.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = False,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
        *,
        process_set: ProcessSet = hvd.global_process_set,
    ) -> None:
        super().__init__()
        check_start()
        check_process_set(process_set)
        for name, value in (("initial_lr", initial_lr), ("warmup_epochs", warmup_epochs), ("steps_per_epoch", steps_per_epoch)):
            given = value is not None or name != "steps_per_epoch"
            if given and (isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf):
                raise ConfigError(f"{name} must be a finite number > 0, got {value!r}")
        if momentum_correction:
            raise UnsupportedError(
                "momentum_correction=True cannot be done: Keras 3 compiles momentum into the step as a constant; leave it out"
            )
        self.initial_lr = initial_lr
        self.warmup_epochs = warmup_epochs
        self.steps_per_epoch = steps_per_epoch
        self.verbose = verbose
        self.process_set = process_set
        self._epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        self.steps_per_epoch = self.steps_per_epoch or self.params.get("steps")
        if not self.steps_per_epoch:
            raise ConfigError("the number of steps in an epoch is not known; pass steps_per_epoch to LearningRateWarmupCallback")
        inner = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        if not isinstance(inner._learning_rate, keras.Variable):
            raise ConfigError("the optimizer has a learning rate schedule of its own; give it a number, or leave out the warm-up")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        done = self._epoch + (batch + 1) / float(self.steps_per_epoch or 1)
        if self._epoch < self.warmup_epochs:
            size = self.process_set.size()
            part = min(1.0, done / self.warmup_epochs)
            self.model.optimizer.learning_rate = self.initial_lr * (part * (size - 1) + 1) / size

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.verbose and hvd.rank() == 0 and epoch < self.warmup_epochs <= epoch + 1:
            keras.utils.io_utils.print_msg(f"\nEpoch {epoch + 1}: the learning rate has reached {self.initial_lr:g}.")
