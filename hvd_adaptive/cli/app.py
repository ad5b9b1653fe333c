"""All commands."""

from typing import Annotated

import typer

import hvd_adaptive
from hvd_adaptive.cli import doctor

app = typer.Typer(help="Tools beside gradient compression for Horovod.", no_args_is_help=True, add_completion=False)
app.command("doctor")(doctor.command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(hvd_adaptive.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print it and end.")] = False,
) -> None:
    """Tools beside gradient compression for Horovod."""
