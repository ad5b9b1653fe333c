"""``hvd-adaptive doctor``."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hvd_adaptive.doctor import Finding, examine

_STYLES = {"ok": "green", "warning": "yellow", "failure": "bold red"}


def command(
    ranks: Annotated[int | None, typer.Option(min=1, help="Start so many by mpirun for the trial, not one without it.")] = None,
    gloo: Annotated[bool, typer.Option("--gloo", help="Start them by horovodrun --gloo instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Look at machine and installation, and take a few compressed steps.

    Ends with 1 if something fails that every run needs. Warnings are of what only some runs need.
    """
    if gloo and ranks is None:
        raise typer.BadParameter("needs ranks to start: --ranks 2 --gloo")
    findings = examine(ranks, gloo=gloo)
    failed = any(finding.status == "failure" for finding in findings)
    if as_json:
        typer.echo(json.dumps({"ok": not failed, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        _print(findings)
    raise typer.Exit(int(failed))


def _print(findings: list[Finding]) -> None:
    table = Table("", "found", "what to do", title="hvd-adaptive doctor")
    for finding in findings:
        style = _STYLES[finding.status]
        table.add_row(
            f"[{style}]{finding.name}[/]", f"[{style}]{finding.status}[/]: {_plain(finding.found)}", _plain(finding.advice)
        )
    Console().print(table)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
