"""The commands `evaluate`, `predict`, `embed` and `export`, which use a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from .options import Device, Nodes, RunFolder, check_output, read_nodes


def evaluate(
    run: RunFolder,
    part: Annotated[str, typer.Option(metavar="PART", help="The part of the split: train, val, test or all.")] = "all",
    device: Device = "auto",
) -> None:
    """Compute the metrics of a run again, from its weights."""
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
        Path | None, typer.Option(metavar="FILE", help="A .csv or .npz file; without it, print a table.")
    ] = None,
    nodes: Nodes = None,
    device: Device = "auto",
) -> None:
    """Predict the labels of nodes, with probabilities. Prints a table or writes a file."""
    from ..runs.run import Run
    from .console import StageProgress, print_predictions

    opened = Run.open(run, device)
    opened.check_finished()
    check_output(out, (".csv", ".npz"))
    with StageProgress() as progress:
        predictions = opened.predict(read_nodes(nodes), progress)
    if out is None:
        print_predictions(predictions)
    else:
        typer.echo(f"{len(predictions):,} predictions written to {predictions.save(out)}")


def embed(
    run: RunFolder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="A .npy file, one row per node.")],
    nodes: Nodes = None,
    device: Device = "auto",
) -> None:
    """Write the model's vector of each node. Use it for plots, for search or as input of another model."""
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


def export(
    run: RunFolder,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="onnx, or torch (torch.export); default: by the ending of --out, else onnx.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .onnx or .pt2 file (default: model.onnx or model.pt2 in the run folder)."),
    ] = None,
) -> None:
    """Write the model as one file that runs without this package. A JSON file beside it describes the inputs."""
    from ..model.export import describing_file
    from ..runs.run import Run

    file = Run.open(run, "cpu").export(out, form)
    typer.echo(f"model written to {file}; its inputs and outputs are described in {describing_file(file)}")
