"""The command `demo`: every step on a small dataset that needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .data import describe
from .options import read_config
from .output import quoted, say
from .train import show_progress

SHOWN = 5  # tokens and wrong images that are printed


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the run and its report.")] = Path("runs/demo"),
) -> None:
    """Run every step on a small dataset. It trains on handwritten digits, without a download, in about a minute."""
    import numpy as np

    from ..data.datasets import load_data
    from ..report.page import write_report
    from ..runs.launch import train as train_run
    from .console import StageProgress, print_baselines, print_history, print_stages

    say("1. load scikit-learn's handwritten digits as a graph of nearest neighbours, and split it")
    config = read_config(None, None)
    graph, split = load_data(config.data)
    assert split is not None  # digits have labels
    describe(graph, split)
    say(
        "2. turn every image into a list of 36 tokens: itself, 3 hops, and 8 neighbours each by structure, content,\n"
        "   links and features. Train a transformer on the lists of the training images"
    )
    mark = out / "demo"  # a file that marks the run of a demo: only such a run is replaced
    has_old_demo = mark.is_file()
    with show_progress() as shown:

        def mark_and_show(stage: str, done: int, total: int) -> None:
            mark.touch()
            shown["progress"](stage, done, total)

        on_start, on_epoch = shown["on_start"], shown["on_epoch"]
        run = train_run(
            graph, split, config, out, force=has_old_demo, progress=mark_and_show, on_start=on_start, on_epoch=on_epoch
        )
    print_stages(run.tokens_folder / "stages.json")
    run.store.verify()
    digits = np.asarray(graph.labels)
    for kind in ("structure", "content", "links", "nearest"):
        tokens = ", ".join(f"{i} (a {digits[i]})" for i in run.store.ids(kind)[0][:SHOWN])
        say(f"   image 0 (a {digits[0]}), {kind} tokens: {tokens}, …")
    say("3. test the model on images that it was not trained on")
    print_history(run)
    print_baselines(run)
    wrong = split.test[run.predict(split.test).labels != digits[split.test]]
    first = ", ".join(map(str, wrong[:SHOWN]))
    say(f"   {len(wrong)} of {len(split.test)} test images wrong, the first: {first}")
    say("4. write the report, a page for the browser")
    with StageProgress() as progress:
        page = write_report(run, progress=progress)
    say(f"test accuracy {run.metrics['test']:.4f}; the run lies in {run.path}, its report in {page}")
    say(f"next: vcr-graphormer evaluate {quoted(run.path)}")
    say(f"      vcr-graphormer predict {quoted(run.path)} --nodes 0,1,2")
    say(f"      vcr-graphormer explain {quoted(run.path)} --node 0")
    say("      vcr-graphormer datasets                  which other datasets there are")
    say("      vcr-graphormer train --dataset PATH      your own edges, features and labels")
