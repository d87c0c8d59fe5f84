"""The commands that look inside a run: explain and report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from .options import Device, RunFolder, check_output

SUMMARY_NODES = 1000


def explain(
    run: RunFolder,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="Id or name; without it, averages over many nodes.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="Explain this class instead of the predicted one.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page of this node to a .html file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    device: Device = "auto",
) -> None:
    """Show which tokens a prediction rests on. Lists score, distance, attention, and the effect of hiding the token."""
    from ..report.numbers import describe_rewiring, summarize
    from ..report.page import write_explanation
    from ..runs.run import Run
    from .console import StageProgress, print_explanation, print_kinds, print_rewiring

    check_output(html, (".html",))
    if node is None and (html is not None or output is not None):
        raise ConfigError(
            "--html and --class are for one node: give --node; a page of the whole run: vcr-graphormer report"
        )
    opened = Run.open(run, device)
    opened.check_finished()
    if node is None:
        with StageProgress() as progress:
            summary = summarize(opened, SUMMARY_NODES, progress)
        if as_json:
            typer.echo(json.dumps(summary, indent=1))
        else:
            print_kinds(summary)
        return
    explanation = opened.explain(node, output)
    moved = describe_rewiring(opened, explanation.node)
    if as_json:
        typer.echo(json.dumps(explanation.to_dict() | {"rewiring": moved}, indent=1, allow_nan=False))
    else:
        print_explanation(explanation)
        print_rewiring(moved)
    if html is not None:
        typer.echo(f"written: {write_explanation(opened, explanation.node, moved, html, output)}", err=as_json)


def report(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page (default: report.html in the run folder).")
    ] = None,
    nodes: Annotated[int, typer.Option(metavar="N", help="Most nodes in the token explorer.")] = 2000,
    device: Device = "auto",
) -> None:
    """Write a run as one HTML page. It has numbers, curves, errors and an explorer of tokens, and needs no network."""
    from ..runs.run import Run
    from .console import StageProgress

    check_output(out, (".html",))
    if nodes < 1:
        raise ConfigError(f"--nodes is {nodes}; it must be 1 or more")
    opened = Run.open(run, device)
    opened.check_finished()
    with StageProgress() as progress:
        file = opened.report(out, nodes, progress)
    typer.echo(f"written: {file} ({file.stat().st_size / 1e6:.1f} MB): open it in a browser")
