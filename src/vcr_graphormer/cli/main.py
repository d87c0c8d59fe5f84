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
from .options import INTERRUPTED, with_groups
from .output import say, say_error, say_warning
from .run import embed, evaluate, export, predict, runs
from .train import tokenize, train, update
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
LONG = (train, tune, tokenize, update, predict, embed, report)  # commands with --quiet and --log-file
for command in (
    demo,
    train,
    tune,
    tokenize,
    update,
    evaluate,
    predict,
    embed,
    explain,
    report,
    export,
    runs,
    datasets,
    settings,
):
    app.command()(with_groups(command, long=command in LONG))


def main() -> None:
    """Run the command line; print errors of this package without a traceback."""
    warnings.showwarning = _show_warning
    try:
        app(prog_name="vcr-graphormer")
    except VCRError as error:
        _print_error(error)
        sys.exit(error.exit_status)
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
    say_warning(message)


def _print_version(asked: bool) -> None:
    if asked:
        say(f"vcr-graphormer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
