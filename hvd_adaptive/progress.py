"""A progress bar on the terminal of whoever launched the ranks."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_TERMINAL = Path("/dev/tty")
"""Launchers cut a rank's own output into tagged lines, where a line cannot be drawn anew."""


def shown(items: Iterable[T], total: int, title: str, *, show: bool) -> Iterator[T]:
    """The items, with a bar that says how many of them are done, if there is a terminal; it is wiped away at the end.

    Args:
        items: to pass on.
        total: their number.
        title: stands before the bar.
        show: False for the ranks that keep quiet.
    """
    with contextlib.ExitStack() as stack:
        if show:
            with contextlib.suppress(OSError):  # no terminal
                items = _drawn(stack, items, total, title)
        yield from items


def _drawn(stack: contextlib.ExitStack, items: Iterable[T], total: int, title: str) -> Iterable[T]:
    from rich import console, progress  # noqa: PLC0415 - one rank in many draws, and the import is slow

    terminal = stack.enter_context(_TERMINAL.open("w", encoding="utf-8"))
    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn())
    bar = progress.Progress(
        *columns, progress.TimeRemainingColumn(), console=console.Console(file=terminal, force_terminal=True), transient=True
    )
    return stack.enter_context(bar).track(items, total=total, description=title)
