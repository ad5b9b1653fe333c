"""The ranks of a process set, which exchange bytes over Horovod."""

import functools
from collections.abc import Callable
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from hvd_adaptive.collective import Kind
from hvd_adaptive.errors import ConfigError


class Ranks:
    """A collective of the core that can gather bytes ``u8[n]``, and nothing else.

    Args:
        process_set: a Horovod process set this rank is in.
        owner: begins messages.

    Attributes:
        ranks: numbers of the members, in their order.
        rank: this rank's place among them.
        size: how many they are.
        number: Horovod's of the process set.

    Raises:
        ConfigError: if Horovod is not initialised or does not know the process set, or this rank is not in it.
    """

    def __init__(self, process_set: Any, owner: str) -> None:
        if not hvd.is_initialized():
            raise ConfigError("Horovod is not initialised; call hvd.init() first")
        if not isinstance(process_set, hvd.ProcessSet):
            raise ConfigError(f"process_set must be one from hvd.add_process_set(), got {process_set!r}")
        if process_set.process_set_id is None:
            raise ConfigError(f"{process_set} is not known to Horovod; pass it to hvd.init() or hvd.add_process_set() first")
        self.ranks = [int(rank) for rank in process_set.ranks or range(hvd.size())]
        if not process_set.included():
            raise ConfigError(
                f"{owner}: rank {hvd.rank()} is not in its process set, which holds ranks {self.ranks}; call it on those only"
            )
        self._process_set = process_set
        self.number = int(process_set.process_set_id)
        self.rank, self.size = int(process_set.rank()), len(self.ranks)

    def start(self, kind: Kind, x: NDArray[np.uint8], name: str, splits: tuple[int, ...] = ()) -> NDArray[np.uint8]:
        """Gather at once."""
        return self.gather(x, name)

    def wait(self, handle: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return handle

    def gather(self, own: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
        """All ranks' bytes, one after the other in their order."""
        gathered: NDArray[np.uint8] = _gathering(name, self._process_set)(tf.constant(own)).numpy()
        return gathered


@functools.cache
def _gathering(name: str, process_set: Any) -> Callable[[Any], Any]:
    """An allgather that has a name.

    A function, because eager calls have no name of their own, so that one from tf.data's threads and one from the main thread
    would be taken for each other.
    """
    return tf.function(  # type: ignore[no-any-return]  # TensorFlow is untyped
        lambda own: hvd.allgather(own, name=name, ignore_name_scope=True, process_set=process_set),
        input_signature=[tf.TensorSpec([None], tf.uint8)],
        autograph=False,
    )
