"""A line that says how far a long task is."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO, TypeVar

T = TypeVar("T")

_SECONDS = 0.2
_WIDTH = 30
_TERMINAL = Path("/dev/tty")
"""Launchers cut a rank's own output into tagged lines, where a line cannot be drawn anew."""


@contextlib.contextmanager
def terminal(show: bool) -> Iterator[TextIO | None]:
    """The terminal itself; None without one, or unless it is to be shown."""
    with contextlib.ExitStack() as stack:
        file = None
        if show:
            with contextlib.suppress(OSError):
                file = stack.enter_context(_TERMINAL.open("w", encoding="utf-8"))
        yield file


def shown(items: Iterable[T], total: int, title: str, file: TextIO | None) -> Iterator[T]:
    """The items, with a bar drawn on ``file`` a few times a second; the bar is wiped away at the end."""
    if file is None:
        yield from items
        return
    begun = drawn = time.monotonic()
    try:
        for done, item in enumerate(items):
            now = time.monotonic()
            if now - drawn >= _SECONDS:
                drawn = now
                file.write("\r" + _line(title, done, total, now - begun))
                file.flush()
            yield item
    finally:
        file.write("\r\033[K")
        file.flush()


def _line(title: str, done: int, total: int, seconds: float) -> str:
    full = _WIDTH * done // total
    left = f", {seconds / done * (total - done):.0f} s left" if done else ""
    return f"{title} [{'=' * full}{' ' * (_WIDTH - full)}] {done:,} of {total:,}{left}\033[K"
