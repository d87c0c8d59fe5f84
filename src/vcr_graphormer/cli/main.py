"""The command `vcr-graphormer`. Commands import torch and numba only when they run, so that `--help` is fast."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from .. import __version__
from ..errors import ProcessError, VCRError
from .data import datasets, settings
from .demo import demo
from .explain import explain, report
from .options import BUG, FAILED, INTERRUPTED, TERMINATED, with_groups
from .output import patient_streams, say, say_error, say_warning
from .run import embed, evaluate, export, predict, runs
from .serve import serve
from .train import tokenize, train
from .tune import tune
from .update import update
from .verify import verify

SECONDS_TO_PRINT = 1
SECONDS_BETWEEN_LOOKS = 0.05  # at whether the command has ended, while waiting for SIGTERM
MOST_LETTERS = 300  # of the message of an unexpected error
_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}

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
    serve,
    runs,
    verify,
    datasets,
    settings,
):
    app.command()(with_groups(command, long=command in LONG))


def wait_passively() -> None:
    """Let the threads of OpenMP sleep while they wait for each other; what the user has set stays.

    Waiting actively takes a core from whoever could work: beside one busy process, a training on two cores is several
    times slower (docs/speed.md). OpenMP reads the environment once, so this has to come before torch is loaded.
    """
    if not _WAITING.keys() & os.environ.keys():
        os.environ.update(_WAITING)


def main() -> None:
    """Run the command line; every error is one line, without a traceback."""
    wait_passively()
    warnings.showwarning = _show_warning
    with patient_streams(FAILED):
        _run()


def _run() -> None:
    """Run the command, and end with its exit status."""
    try:
        with ended_by_sigterm():
            app(prog_name="vcr-graphormer")
    except VCRError as error:
        _print_error(error)
        sys.exit(FAILED)
    except KeyboardInterrupt:
        say_error("stopped")
        sys.exit(INTERRUPTED)
    except MemoryError as error:
        say_error(f"there is not enough memory: {error or 'use a smaller graph, shorter lists or fewer columns'}")
        sys.exit(FAILED)
    except OSError as error:  # a disk that is full, a file that vanished or may not be read
        say_error(f"{error.filename or 'a file'}: {error.strerror or error}")
        sys.exit(FAILED)
    except Exception as error:
        say_error(f"this is a bug: {_in_one_line(error)}; please report it with {_save_traceback()}")
        sys.exit(BUG)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """End the process with one line at SIGTERM, by a thread that waits for it.

    METIS catches this signal and jumps to another place of the program, which crashes if another thread got it. So
    this thread, and those that start later, leave the signal to one that waits. METIS is not interrupted by it.
    Processes of torchrun are left as they are: `training.interrupt` handles the signal there. So is the server, which
    finishes what is under way.
    """
    handled = "TORCHELASTIC_RUN_ID" in os.environ or sys.argv[1:2] == ["serve"]
    if not hasattr(signal, "sigtimedwait") or handled:
        yield
        return
    ended = threading.Event()

    def wait() -> None:
        while not ended.is_set():
            if signal.sigtimedwait({signal.SIGTERM}, SECONDS_BETWEEN_LOOKS) is not None:
                say_error("stopped by SIGTERM; the same command continues what can be continued")
                sys.stderr.flush()
                os._exit(TERMINATED)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    try:
        yield
    finally:
        ended.set()
        waiting.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_one_line(error: Exception) -> str:
    """Return type and message of an error, shortened."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:MOST_LETTERS]


def _save_traceback() -> str:
    """Write the traceback of the present error to the temporary folder and return the name of the file."""
    import tempfile
    import traceback

    text = f"vcr-graphormer {__version__}, Python {sys.version}\n{' '.join(sys.argv)}\n\n{traceback.format_exc()}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="vcr-graphormer-bug-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(text)
    except OSError:  # no temporary folder, or a full one: better a traceback than nothing
        say_error(text)
        return "the traceback above"
    return file.name


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
