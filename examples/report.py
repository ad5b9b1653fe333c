"""What the examples show at the end: a table."""

import io
from typing import Any

from rich.console import Console
from rich.table import Table


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
