"""Work that must not run in the thread that asks for it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def apart(function: Callable[..., T], *args: Any) -> "Future[T]":
    """Call ``function`` in a thread of its own.

    As many as wait for other ranks run at once, whatever a pool's size, and none keeps a failed process from ending, as those of
    an executor would. TensorFlow records tapes by thread, so here it records none.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:  # noqa: BLE001 - raised again for whoever asks for the result, whatever it is
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="hvd_adaptive").start()
    return future
