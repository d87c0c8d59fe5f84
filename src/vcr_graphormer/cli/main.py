"""The command `vcr-graphormer`. Commands import torch and numba only when they run, so that `--help` is fast."""

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
from .options import INTERRUPTED, say_error, with_groups
from .run import embed, evaluate, export, predict
from .serve import serve
from .train import tokenize, train
from .tune import tune

SECONDS_TO_PRINT = 1

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text: rich would print <bool> behind every flag
    help="Predict labels of nodes in large graphs with a graph transformer (VCR-Graphormer, ICLR 2024).",
    epilog="Start with: vcr-graphormer demo",
)
COMMANDS = (demo, train, tune, tokenize, evaluate, predict, embed, explain, report, export, serve, datasets, settings)
for command in COMMANDS:
    app.command()(with_groups(command))


def main() -> None:
    """Run the command line; print errors of this package as one line, without a traceback."""
    warnings.showwarning = _show_warning
    try:
        app(prog_name="vcr-graphormer")
    except VCRError as error:
        _print_error(error)
        sys.exit(1)
    except KeyboardInterrupt:
        say_error("stopped")
        sys.exit(INTERRUPTED)


def _print_error(error: VCRError) -> None:
    """Print one line. Under torchrun, processes that stop only because another one failed print nothing."""
    process = int(os.environ.get("RANK", "0")) if "TORCHELASTIC_RUN_ID" in os.environ else 0
    if process == 0:
        say_error(str(error))
    elif not isinstance(error, ProcessError):
        say_error(f"process {process}: {error}")
    else:
        # If this process ended first, torchrun would end process 0 before it has printed its error.
        time.sleep(SECONDS_TO_PRINT)


def _show_warning(message: Warning | str, *location: Any, **options: Any) -> None:
    typer.secho("warning: ", fg="yellow", bold=True, nl=False, err=True)
    typer.echo(str(message), err=True)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"vcr-graphormer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
