"""The commands `evaluate`, `predict`, `embed` and `export`, which use a finished run, and `runs`, which lists many."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, StoreError
from .options import Device, Nodes, RunFolder, check_output, read_nodes, show_reading
from .output import is_quiet, say, say_warning

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..report.leaderboard import Leaderboard
    from ..runs.run import Run


@dataclass(frozen=True)
class Later:
    """The options about data that has grown since the training."""

    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            metavar="PATH",
            help="Your data as it is now: predict the nodes that the run has not seen. Nodes are matched by name.",
        ),
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="With --dataset: predict all nodes, not only new ones.")] = (
        False
    )
    refresh: Annotated[
        str | None,
        typer.Option(
            metavar="DEPTH",
            help="With --dataset: which token lists to make: new (of new nodes only, fastest), affected (also of old "
            "nodes near a change; the default) or all.",
        ),
    ] = None


def evaluate(
    run: RunFolder,
    part: Annotated[str, typer.Option(metavar="PART", help="The part of the split: train, val, test or all.")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    device: Device = "auto",
) -> None:
    """Compute the metrics of a run again, from its weights."""
    from ..data.split import PARTS
    from ..runs.launch import without_nan
    from ..runs.run import Run
    from .console import StageProgress, print_classes, print_scores, print_threshold

    if part not in (*PARTS, "all"):
        raise ConfigError(f"--part is {part!r}; it must be {', '.join(PARTS)} or all")
    opened = Run.open(run, device)
    opened.check_finished()
    parts = PARTS if part == "all" else (part,)
    with StageProgress() as progress:
        nodes = {name: getattr(opened.split, name) for name in parts}
        predicted = {name: opened.predict(nodes[name], progress).probabilities for name in parts}
    scores = {name: opened.score(predicted[name], nodes[name]) for name in parts}
    classes = {name: opened.score_classes(predicted[name], nodes[name]) for name in parts}
    if as_json:
        rows = {name: {**without_nan(row), "classes": classes[name]} for name, row in scores.items()}
        say(json.dumps(rows, indent=1, allow_nan=False))
        return
    print_scores(scores)
    print_classes(classes[parts[-1]], parts[-1])
    print_threshold(opened)


def predict(
    run: RunFolder,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .csv, .parquet or .npz file; without it, print the first predictions."),
    ] = None,
    nodes: Nodes = None,
    later: Later = Later(),  # noqa: B008 typer reads the fields as options
    device: Device = "auto",
) -> None:
    """Predict the labels of nodes, with probabilities. Prints a table or writes a file.

    The file has one row per node: id, name, part of the split, known label, prediction, and the probability of each
    class. With --dataset, nodes that came since the training are predicted, without training again.
    """
    from ..runs.predictions import TABLE_ENDINGS
    from ..runs.run import Run
    from .console import StageProgress, print_predictions

    if out is None and is_quiet():
        raise ConfigError("--quiet prints no predictions: write them to a file with --out FILE")
    check_output(out, TABLE_ENDINGS)
    opened = Run.open(run, device)
    opened.check_finished()
    wanted: Any = read_nodes(nodes)
    if later.dataset is not None:
        opened, new = _on_later(opened, later)
        wanted = new if wanted is None and not later.everything else wanted
    elif later.everything or later.refresh is not None:
        raise ConfigError("--all and --refresh are for the data of now: give --dataset too")
    with StageProgress() as progress:
        predictions = opened.predict(wanted, progress)
    if out is None:
        print_predictions(predictions)
    else:
        say(f"{len(predictions):,} predictions written to {predictions.save(out)}")


def _on_later(run: Run, later: Later) -> tuple[Run, NDArray[np.int64]]:
    """Return the run on the data of now, and the nodes that it has not seen."""
    import numpy as np

    from ..data.datasets import load_later

    before = run.graph.num_nodes if run.has_graph else 0
    with show_reading() as reading:
        graph = load_later(run.config.data, str(later.dataset), run.schema, **reading)
    now = run.on(graph, refresh=later.refresh or "affected")
    new = np.arange(before, now.graph.num_nodes)
    say(f"{len(new):,} of {now.graph.num_nodes:,} nodes are new since the training")
    return now, new


def embed(
    run: RunFolder,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="A .parquet, .csv or .npz file; .npy for the vectors alone.")
    ],
    nodes: Nodes = None,
    device: Device = "auto",
) -> None:
    """Write the model's vector of each node. Use it for plots, for search or as input of another model.

    The file has one row per node: id, name, part of the split, known label, and the vector.
    """
    from ..runs.predictions import TABLE_ENDINGS
    from ..runs.run import Run
    from .console import StageProgress

    check_output(out, (*TABLE_ENDINGS, ".npy"))
    opened = Run.open(run, device)
    opened.check_finished()
    with StageProgress() as progress:
        vectors = opened.embeddings(read_nodes(nodes), progress)
    say(f"{len(vectors):,} vectors of {vectors.vectors.shape[1]} numbers written to {vectors.save(out)}")


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
    say(f"model written to {file}; its inputs and outputs are described in {describing_file(file)}")


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that holds the runs.")] = Path("runs"),
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help="Order of the list: val, test, seconds, size or run (its name).")
    ] = "val",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete unfinished runs, after showing them and asking you.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="With --prune: also delete finished runs, all but the best N on each graph (by val)."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --prune: delete without asking, for scripts.")] = False,
) -> None:
    """List the runs below a folder, best first. Shows metric, time, size and the settings in which they differ."""
    from ..report.leaderboard import Leaderboard
    from .console import print_runs

    if not prune and (keep is not None or yes):
        raise ConfigError("--keep and --yes say what --prune deletes: give --prune too, or leave them out")
    if prune and as_json:
        raise ConfigError("--json only lists: leave it out with --prune")
    board = Leaderboard.of(folder, sort)
    if prune:
        _prune(board, keep=keep, ask=not yes)
    elif as_json:
        say(json.dumps(board.to_dict(), indent=1, allow_nan=False, default=str))
    else:
        print_runs(board)


def _prune(board: Leaderboard, *, keep: int | None, ask: bool) -> None:
    """List what pruning deletes, ask, and delete it."""
    from ..base.machine import format_bytes
    from ..report.leaderboard import delete, freed_bytes

    chosen = board.to_prune(keep)
    if not chosen:
        say(f"nothing to delete in {board.folder}")
        return
    say(f"to delete in {board.folder}:")
    for run in chosen:
        score = "" if run.val is None else f", {run.metric} {run.val:.4f} on validation nodes"
        say(f"  {board.name(run)}: {run.state}{score}, {format_bytes(run.size)}")
    say(f"{len(chosen)} of {len(board.runs)} runs; this frees {format_bytes(freed_bytes(chosen))}")
    if ask and not typer.confirm("Delete these folders and everything in them?"):
        say("nothing was deleted")
        return
    deleted = 0
    for run in chosen:
        try:
            delete(run)
            deleted += 1
        except StoreError as error:  # a run that is being trained, or one that is not ours to delete
            say_warning(error)
    say(f"{deleted} runs deleted")
