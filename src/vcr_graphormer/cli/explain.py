"""The commands `explain` and `report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from .options import Device, RunFolder, check_output
from .output import say

SUMMARY_NODES = 1000  # most nodes that averages are taken over


def explain(
    run: RunFolder,
    node: Annotated[
        str | None,
        typer.Option(metavar="NODE", help=f"Id or name; without it, averages over up to {SUMMARY_NODES:,} nodes."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="Explain this class instead of the predicted one.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the explanation as a page, a .html file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    device: Device = "auto",
) -> None:
    """Show which tokens a prediction depends on. Lists score, distance, attention and effect of each token."""
    from ..report.numbers import describe_rewiring, summarize
    from ..report.page import finite, write_explanation
    from ..runs.run import Run
    from .console import StageProgress, print_explanation, print_kinds, print_rewiring

    check_output(html, (".html",))
    if node is None and (html is not None or output is not None):
        raise ConfigError(
            "--html and --class are for one node: give --node, or use vcr-graphormer report for a page of the whole run"
        )
    opened = Run.open(run, device)
    opened.check_finished()
    if node is None:
        with StageProgress() as progress:
            summary = summarize(opened, SUMMARY_NODES, progress)
        if as_json:
            say(json.dumps(finite(summary), indent=1, allow_nan=False))
        else:
            print_kinds(summary)
        return
    explanation = opened.explain(node, output)
    transfers = describe_rewiring(opened, explanation.node)
    if as_json:
        say(json.dumps(explanation.to_dict() | {"rewiring": transfers}, indent=1, allow_nan=False))
    else:
        print_explanation(explanation)
        print_rewiring(transfers)
    if html is not None:
        say(f"written: {write_explanation(opened, explanation.node, transfers, html, output)}", err=as_json)


def report(
    run: RunFolder,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .html file (default: report.html in the run folder)."),
    ] = None,
    nodes: Annotated[int, typer.Option(metavar="N", help="Largest number of nodes that the page can look up.")] = 2000,
    device: Device = "auto",
) -> None:
    """Write a run as one HTML page. It shows metrics, curves, errors and token lists, and works offline."""
    from ..runs.run import Run
    from .console import StageProgress

    check_output(out, (".html",))
    if nodes < 1:
        raise ConfigError(f"--nodes is {nodes}; it must be 1 or more")
    opened = Run.open(run, device)
    opened.check_finished()
    with StageProgress() as progress:
        file = opened.report(out, nodes, progress)
    say(f"written: {file} ({file.stat().st_size / 1e6:.1f} MB): open it in a browser")
