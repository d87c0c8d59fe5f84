"""Print lines and write them to a log file. All commands print through here, so names cannot steer the terminal."""

from __future__ import annotations

import errno
import io
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from ..base.text import printable
from ..errors import StoreError, VCRError


class _Outlet(io.FileIO):
    """An open file whose reader may go away, or whose disk may be full: work goes on, and `lost` keeps what failed."""

    lost: OSError | None = None

    def write(self, data: Any) -> int:
        """Write what can be written, and take the rest as written."""
        try:
            return super().write(data)
        except OSError as error:
            self.lost = error
            return len(data)


@contextmanager
def patient_streams(failed: int) -> Iterator[None]:
    """Let a command go on where nobody reads what it prints, so that no result is lost; end it with its exit status.

    Streams that were closed before the start become the null device, for the next file would get their number. If a
    result that was printed is lost, as on a full disk, the exit status is `failed`; a reader that went away is fine.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
    before, outlets = (sys.stdout, sys.stderr), list[_Outlet]()
    # Only real files: tests and notebooks have streams of their own.
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        buffer = getattr(stream, "buffer", None)
        raw = getattr(buffer, "raw", buffer)  # without PYTHONUNBUFFERED there is a buffer before it
        if stream is None or type(raw) is io.FileIO:
            outlet = _Outlet(number if stream is None else stream.fileno(), "wb", closefd=False)
            whole = io.TextIOWrapper(
                io.BufferedWriter(outlet),
                encoding=getattr(stream, "encoding", "utf-8"),
                errors="backslashreplace",  # names of files may be no UTF-8
                line_buffering=name == "stderr" or outlet.isatty() or raw is buffer,
            )
            setattr(sys, name, whole)
            outlets.append(outlet)
    status: Any = 0
    try:
        yield
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.stdout.flush()
        lost = next((outlet.lost for outlet in outlets[:1] if outlet.lost is not None), None)
        if lost is not None and lost.errno != errno.EPIPE and not status:
            say_error(f"standard output: {lost.strerror or lost}")
            status = failed
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
    raise SystemExit(status)


@dataclass
class _Now:
    """What the running command was asked for. A process runs one command at a time."""

    quiet: bool = False
    log: TextIO | None = None


_now = _Now()


@dataclass(frozen=True)
class Output:
    """The options that say how much a long command prints, and where."""

    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False
    log_file: Annotated[
        Path | None,
        typer.Option("--log-file", metavar="FILE", help="Append all messages to FILE, as plain lines with the time."),
    ] = None

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Make the functions of this file obey the options while a command runs."""
        try:
            _now.log = None if self.log_file is None else _open_log(self.log_file)
            _now.quiet = self.quiet
            yield
        except VCRError as error:  # `main` prints it, after the log is closed
            log(f"error: {error}")
            raise
        finally:
            if _now.log is not None:
                _now.log.close()
            _now.quiet, _now.log = False, None


def _open_log(file: Path) -> TextIO:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("a", encoding="utf-8", buffering=1)  # line by line, so that others can follow it
    except OSError as error:
        raise StoreError(f"cannot write the log file {file}: {error.strerror or error}") from error


def is_quiet() -> bool:
    """Return whether the command prints errors only."""
    return _now.quiet


def log(text: str) -> None:
    """Write lines to the log file, if there is one, each with the time."""
    if _now.log is not None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        _now.log.writelines(f"{now} {printable(line)}".rstrip() + "\n" for line in text.split("\n"))


def has_log() -> bool:
    """Return whether there is a log file."""
    return _now.log is not None


def say(text: object, err: bool = False) -> None:
    """Print a text that may have several lines, unless the command is quiet; log it."""
    safe = printable(text, keep="\n")
    log(safe)
    if not _now.quiet:
        typer.echo(safe, err=err)


def quoted(path: object) -> str:
    """Return a path as a word of a command that a user may copy into a shell."""
    return shlex.quote(str(path))


def say_progress(text: str) -> None:
    """Log a line about unfinished work; print it on the error stream unless that is a terminal, which shows bars."""
    safe = printable(text)
    log(safe)
    if not _now.quiet and not sys.stderr.isatty():
        typer.echo(safe, err=True)


def say_error(text: object) -> None:
    """Print an error, quiet or not."""
    _say_marked("error", text, colour="red")


def say_warning(text: object) -> None:
    """Print a warning, unless the command is quiet."""
    if _now.quiet:
        log("warning: " + printable(text, keep="\n"))
    else:
        _say_marked("warning", text, colour="yellow")


def _say_marked(word: str, text: object, *, colour: str) -> None:
    safe = printable(text, keep="\n")
    log(f"{word}: {safe}")
    typer.secho(f"{word}: ", fg=colour, bold=True, nl=False, err=True)
    typer.echo(safe, err=True)
