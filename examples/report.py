"""What the examples show: a progress bar while they train, a table at the end."""

import contextlib
import io
from pathlib import Path
from types import TracebackType
from typing import Any

from rich import progress
from rich.console import Console
from rich.table import Table


class Progress:
    """A progress bar on the terminal itself, because launchers cut a rank's output into tagged lines; none without a terminal.

    Args:
        title: stands before the bar.
        steps: how often :meth:`advance` will be called.
        show: False for the ranks that keep quiet.
    """

    def __init__(self, title: str, steps: int, *, show: bool) -> None:
        self._stack = contextlib.ExitStack()
        self._title, self._steps, self._show = title, steps, show
        self._bar: progress.Progress | None = None

    def __enter__(self) -> "Progress":
        if self._show:
            with contextlib.suppress(OSError):  # no terminal
                terminal = self._stack.enter_context(Path("/dev/tty").open("w", encoding="utf-8"))
                columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn())
                bar = progress.Progress(*columns, progress.TimeRemainingColumn(), console=Console(file=terminal), transient=True)
                self._bar = self._stack.enter_context(bar)
                self._task = bar.add_task(self._title, total=self._steps)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def advance(self) -> None:
        """One step is done."""
        if self._bar is not None:
            self._bar.advance(self._task)


def print_table(results: dict[str, Any]) -> None:
    """The figures of a run, in the units a reader wants."""
    sent, dense = results["bytes_sent"], results["bytes_dense"]
    table = Table("figure", "value", title=f"Fashion-MNIST on {results['ranks']} ranks, factor {results['factor']:g}")
    table.add_row("test accuracy", f"{results['test_accuracy']:.2%}")
    table.add_row("steps/s", f"{results['steps_per_second']:.1f}")
    table.add_row("bytes sent per rank", f"{sent / 1e6:,.2f} MB")
    table.add_row("bytes of a dense run", f"{dense / 1e6:,.2f} MB" + (f" ({dense / sent:.1f} times as many)" if sent else ""))
    _show(table, 90)


def print_columns(title: str, columns: dict[str, dict[str, str]]) -> None:
    """Figures of several runs side by side, a column for each; empty where a run has no such figure."""
    table = Table("figure", title=title)
    for name in columns:
        table.add_column(name, justify="right")
    for figure in dict.fromkeys(figure for column in columns.values() for figure in column):
        table.add_row(figure, *(column.get(figure, "") for column in columns.values()))
    _show(table, 110)


def _show(table: Table, width: int) -> None:
    text = Console(file=io.StringIO(), width=width)
    text.print(table)
    print(text.file.getvalue(), flush=True)  # in one piece, so that the lines of no other rank come between
