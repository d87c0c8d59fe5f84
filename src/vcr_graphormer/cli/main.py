"""The command `vcr-graphormer`. Heavy imports happen inside commands, so that `--help` answers at once."""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Annotated, Any

import typer

from .. import __version__
from ..errors import ProcessError, VCRError
from .data import datasets, settings
from .demo import demo
from .explain import explain, report
from .options import say_error, with_groups
from .run import embed, evaluate, predict
from .train import tokenize, train

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: rich would print <bool> behind every flag
    help="Node predictions on large graphs with a mini-batch graph transformer (VCR-Graphormer, ICLR 2024).",
    epilog="Start with: vcr-graphormer demo",
)
for command in (demo, train, tokenize, evaluate, predict, embed, explain, report, datasets, settings):
    app.command()(with_groups(command))


def main() -> None:
    """Run the command; errors we raise on purpose become one line, not a traceback."""
    warnings.showwarning = _show_warning
    try:
        app(prog_name="vcr-graphormer")
    except VCRError as error:
        _tell(error)
        sys.exit(1)
    except KeyboardInterrupt:
        say_error("stopped")
        sys.exit(130)


def _tell(error: VCRError) -> None:
    """Print one line. Of several processes under torchrun, the first speaks for those that only follow it."""
    rank = int(os.environ.get("RANK", "0")) if "TORCHELASTIC_RUN_ID" in os.environ else 0
    if rank == 0:
        say_error(str(error))
    elif not isinstance(error, ProcessError):
        say_error(f"process {rank}: {error}")
    else:
        time.sleep(1)  # were this process the first to end, torchrun would end rank 0 before it has spoken


def _show_warning(message: Warning | str, *place: Any, **options: Any) -> None:
    typer.secho("warning: ", fg="yellow", bold=True, nl=False, err=True)
    typer.echo(str(message), err=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vcr-graphormer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass
