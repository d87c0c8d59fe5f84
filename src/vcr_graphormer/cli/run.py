"""The commands that use a finished run: evaluate, predict, embed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from .options import Device, Nodes, RunFolder, check_output, read_nodes


def evaluate(
    run: RunFolder,
    part: Annotated[str, typer.Option(metavar="PART", help="train, val, test, or all.")] = "all",
    device: Device = "auto",
) -> None:
    """Compute every metric of a run again, from its weights."""
    from ..data.split import PARTS
    from ..runs.run import Run
    from .console import StageProgress, print_scores

    if part not in (*PARTS, "all"):
        raise ConfigError(f"--part is {part!r}; it must be {', '.join(PARTS)} or all")
    opened = Run.open(run, device)
    opened.check_finished()
    with StageProgress() as progress:
        scores = {name: opened.evaluate(name, progress) for name in (PARTS if part == "all" else (part,))}
    print_scores(scores)


def predict(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .csv or .npz file; without it, a table is printed.")
    ] = None,
    nodes: Nodes = None,
    device: Device = "auto",
) -> None:
    """Predict nodes. Gives the probability of every class; default: all nodes."""
    from ..runs.run import Run
    from .console import StageProgress, print_predictions

    opened = Run.open(run, device)
    opened.check_finished()
    check_output(out, (".csv", ".npz"))
    with StageProgress() as progress:
        found = opened.predict(read_nodes(nodes), progress)
    if out is None:
        print_predictions(found)
    else:
        typer.echo(f"{len(found):,} predictions written to {found.save(out)}")


def embed(
    run: RunFolder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="A .npy file, one row per node.")],
    nodes: Nodes = None,
    device: Device = "auto",
) -> None:
    """Write the vectors behind the predictions. They serve plots, search or another model."""
    from ..base.files import write_array
    from ..runs.run import Run
    from .console import StageProgress

    opened = Run.open(run, device)
    opened.check_finished()
    check_output(out, (".npy",))
    with StageProgress() as progress:
        vectors = opened.embed(read_nodes(nodes), progress)
    write_array(out, vectors)
    typer.echo(f"{vectors.shape[0]:,} vectors of {vectors.shape[1]} numbers written to {out}")
