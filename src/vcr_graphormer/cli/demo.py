"""The command `demo`: the whole path on embedded real data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .data import describe
from .options import read_config
from .train import show_progress


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for what the demo makes.")] = Path("runs/demo"),
) -> None:
    """Show the whole path on embedded data. Handwritten digits, no download, about a minute."""
    import numpy as np

    from ..data.datasets import load_data
    from ..report.page import write_report
    from ..runs.launch import train as train_run
    from .console import StageProgress, print_history, print_stages

    typer.echo("1. load scikit-learn's handwritten digits as a graph of nearest neighbours, and split it")
    config = read_config(None, ["training.epochs=60", "training.patience=20"])  # this is an easy one
    graph, split = load_data(config.data)
    assert split is not None
    describe(graph, split)
    typer.echo(
        "2. turn every image into a list of 20 tokens: itself, 3 hops, 8 structure- and 8 content-aware neighbours,\n"
        "   and train a transformer on the lists of the training images"
    )
    mark = out / "demo"  # what an earlier demo made may be replaced; other runs are not
    own_run = mark.is_file()
    with show_progress(config.training.epochs) as (progress, on_epoch):

        def note(stage: str, done: int, total: int) -> None:
            mark.touch()
            progress(stage, done, total)

        run = train_run(graph, split, config, out, force=own_run, progress=note, on_epoch=on_epoch)
    print_stages(run.tokens_folder / "stages.json")
    run.store.verify()
    own = np.asarray(graph.labels)
    for kind in ("structure", "content"):
        shown = ", ".join(f"{i} (a {own[i]})" for i in run.store.ids(kind)[0][:5])
        typer.echo(f"   image 0 (a {own[0]}), {kind} tokens: {shown}, …")
    typer.echo("3. read the result, with images the model has never seen")
    print_history(run)
    wrong = split.test[run.predict(split.test).labels != own[split.test]]
    typer.echo(f"   {len(wrong)} of {len(split.test)} test images wrong, the first: {', '.join(map(str, wrong[:5]))}")
    typer.echo("4. write the report, a page to look at")
    with StageProgress() as progress:
        page = write_report(run, progress=progress)
    typer.echo(f"test accuracy {run.metrics['test']:.4f}; the run lies in {run.path}, its report in {page}")
    typer.echo(f"next: vcr-graphormer evaluate {run.path}")
    typer.echo(f"      vcr-graphormer predict {run.path} --nodes 0,1,2")
    typer.echo(f"      vcr-graphormer explain {run.path} --node 0")
    typer.echo("      vcr-graphormer datasets                  what else can be loaded")
    typer.echo("      vcr-graphormer train --dataset PATH      your own edges, features and labels")
