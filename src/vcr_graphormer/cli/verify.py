"""The command `verify`, which compares files with the checksums that were written with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import StoreError
from .options import FAILED
from .output import say, say_error


def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN|STORE|GRAPH", help="A run, token lists, a saved graph, or the runs of seeds.")
    ],
) -> None:
    """Compare every file of a run, of token lists or of a graph with its checksum."""
    from ..base.checksums import saved_problems, without_checksum
    from ..base.folders import MANIFEST

    if (folder / MANIFEST).is_file():
        sentences = saved_problems(folder)
        _show(folder, sentences, [] if sentences else without_checksum(folder))
        return
    runs = _runs(folder)
    if not runs:
        raise StoreError(f"{folder} is neither a run nor token lists nor a saved graph: nothing in it has a checksum")
    compared = [_compare(run) for run in runs]
    sentences = [sentence for found, _ in compared for sentence in found]
    _show(folder, sentences, [file for _, files in compared for file in files])


def _runs(folder: Path) -> list[Path]:
    """Return the run in a folder, or those of several seeds."""
    from ..runs.run import RUN_FILE

    return [file.parent for file in (folder / RUN_FILE, *sorted(folder.glob(f"*/{RUN_FILE}"))) if file.is_file()]


def _compare(folder: Path) -> tuple[list[str], list[Path]]:
    """Return a sentence for each file of a run that is not as it was written, and the files without a checksum."""
    from ..base.checksums import problems, unrecorded
    from ..runs.run import Run

    try:
        run = Run.open(folder, "cpu")
        saved = [folder / str(run.about["graph"]), run.tokens_folder] if run.has_graph else []
        sentences = problems(folder, saved)
        return sentences, [] if sentences else unrecorded(folder, saved)
    except StoreError as error:
        # It does not even open. Say so, and what else is wrong.
        return [str(error), *(sentence for sentence in problems(folder, []) if sentence != str(error))], []


def _show(folder: Path, sentences: list[str], unknown: list[Path]) -> None:
    for sentence in sentences:
        say_error(sentence)
    if sentences:
        raise typer.Exit(FAILED)
    for file in unknown:
        say(f"{file} has no checksum: not compared")
    files = "1 file that has" if len(unknown) == 1 else f"{len(unknown)} files that have"
    say(f"{folder}: every file is as it was written" + (f", apart from {files} no checksum" if unknown else ""))
