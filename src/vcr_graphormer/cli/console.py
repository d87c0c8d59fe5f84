"""How long work shows itself: bars on a terminal, plain lines in a log, one closing table."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..base.machine import format_bytes

if TYPE_CHECKING:
    from ..explain.explanation import Explanation
    from ..runs.predictions import Predictions
    from ..runs.run import Run


class StageProgress:
    """A `progress(stage, done, total)` callback: a bar per stage on a terminal, a line per finished stage elsewhere."""

    def __init__(self) -> None:
        self.on_terminal = sys.stderr.isatty()
        self.tasks: dict[str, TaskID] = {}
        columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bars = Progress(*columns, console=Console(stderr=True), disable=not self.on_terminal)

    def __enter__(self) -> StageProgress:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of a stage are finished."""
        if stage not in self.tasks:
            self.tasks[stage] = self.bars.add_task(stage, total=total)
        self.bars.update(self.tasks[stage], completed=done)
        if done == total and not self.on_terminal:
            sys.stderr.write(f"{stage}: done\n")
            sys.stderr.flush()


def print_stages(file: Path) -> None:
    """The closing table: time, edge visits and peak memory of each stage."""
    if not file.is_file():
        return
    table = Table(title="what it cost")
    table.add_column("stage")
    for title in ("seconds", "edge visits", "peak memory"):
        table.add_column(title, justify="right")
    for stage, row in json.loads(file.read_text()).items():
        visits = f"{int(row['visits']):,}" if row["visits"] else ""
        table.add_row(stage, f"{row['seconds']:.2f}", visits, format_bytes(row["peak_bytes"]))
    Console().print(table)


class EpochProgress:
    """An `on_epoch(row)` callback: a bar with loss and validation metric on a terminal, a line now and then elsewhere.

    It draws among the bars of `stages`, since a terminal has room for one live display only.
    """

    def __init__(self, epochs: int, stages: StageProgress) -> None:
        self.epochs, self.stages = epochs, stages
        self.task: TaskID | None = None

    def __call__(self, row: dict[str, float]) -> None:
        """Show a finished epoch."""
        epoch = int(row["epoch"])
        text = f"loss {row['loss']:.4f}  val {row['val']:.4f} (best at {int(row['best_epoch'])})"
        if self.stages.on_terminal:
            if self.task is None or epoch == 1:
                self.task = self.stages.bars.add_task("training", total=self.epochs)
            self.stages.bars.update(self.task, completed=epoch, description=f"training  {text}")
        elif epoch == 1 or epoch % max(1, self.epochs // 10) == 0:
            sys.stderr.write(f"epoch {epoch}: {text}\n")
            sys.stderr.flush()


def print_history(run: Run) -> None:
    """The closing table of a run."""
    metrics = run.metrics
    table = Table(
        title=f"{metrics['dataset']}: {metrics['metric']}, best epoch {metrics['best_epoch']} of {metrics['epochs']}"
    )
    for title in ("", "train", "val", "test"):
        table.add_column(title, justify="right" if title else "left")
    for name in metrics["scores"]["test"]:
        table.add_row(name, *(_number(metrics["scores"][part][name]) for part in ("train", "val", "test")))
    Console().print(table)
    spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in metrics["timings"].items())
    text = f"{metrics['parameters']:,} parameters on {metrics['device']}; {spent}"
    Console(width=None if sys.stdout.isatty() else 120).print(text, highlight=False)


def _number(value: float | None) -> str:
    return "none" if value is None or math.isnan(value) else f"{value:.4f}"


def print_scores(scores: dict[str, dict[str, float]]) -> None:
    """Metrics by part."""
    table = Table("metric", *scores)
    for name in next(iter(scores.values())):
        table.add_row(name, *(_number(scores[part][name]) for part in scores))
    Console().print(table)


def print_summary(summary: dict[str, Any]) -> None:
    """Mean and deviation over seeds."""
    table = Table("part", "mean", "std", "seeds", title=escape(f"{summary['dataset']}: {summary['metric']}"))
    for part in ("train", "val", "test"):
        row = summary[part]
        table.add_row(part, f"{row['mean']:.4f}", f"{row['std']:.4f}", str(len(row["values"])))
    Console().print(table)


def print_explanation(found: Explanation) -> None:
    """A node's prediction and its tokens."""
    from ..data.tasks import TASKS

    name = f" ({found.name})" if found.name is not None else ""
    value = found.outputs[found.explained]
    what = f"value {value:.5g}" if TASKS[found.task].gives_values else f"{found.explained} with probability {value:.4f}"
    truth = "unknown" if found.label is None else found.label
    title = escape(f"node {found.node}{name}: {what}; its label: {truth}")
    columns = ("token", "node", "score", "hops away", "training label", "attention", "readout", "effect")
    table = Table(title=title, caption="effect: what the token adds to the value above; hidden, it is lower by that")
    for column in columns:
        table.add_column(column, justify="left" if column in ("token", "training label") else "right")
    for token in found.tokens:
        if token.super_node is not None:
            node = f"super node {token.super_node}"
        elif token.node is None:
            node = ""
        else:
            node = str(token.node) if token.name is None else f"{token.node} {escape(token.name)}"
        table.add_row(
            f"hop {token.hop}" if token.hop is not None else token.kind,
            node,
            f"{token.score:.4f}",
            "" if token.distance is None else str(token.distance),
            escape(token.label or ""),
            "none" if token.attention is None else f"{token.attention:.4f}",
            f"{token.readout:.4f}",
            f"{token.effect:+.4f}",
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def print_rewiring(moved: dict[str, dict[str, Any]]) -> None:
    """What the super nodes do to the PageRank of an explained node."""

    def names(rows: list[dict[str, Any]], sign: str) -> str:
        return ", ".join(f"{row['name'] or row['node']} ({sign}{row['amount']:.4f})" for row in rows) or "none"

    for kind, row in moved.items():
        text = (
            f"{kind} connections move {row['moved']:.3f} of its PageRank, {row['to_supers']:.3f} of it to super nodes\n"
            f"  brightened: {names(row['brightened'], '+')}\n  faded: {names(row['faded'], '-')}\n"
            f"  scores of its {kind} tokens: estimated to within {row['largest_error']:.1e} of the exact ones"
        )
        Console(width=None if sys.stdout.isatty() else 140).print(escape(text), highlight=False)


def print_kinds(summary: dict[str, Any]) -> None:
    """Effect and attention of the kinds of tokens in a whole run."""
    table = Table("kind", "tokens", "attention", "effect of one", title=f"{summary['nodes']:,} nodes")
    for row in summary["kinds"]:
        attention = "none" if row["attention"] is None else f"{row['attention']:.3f}"
        table.add_row(row["kind"], f"{row['tokens']:.1f}", attention, f"{row['effect']:.4f}")
    Console().print(table)
    kinds = [row["kind"] for row in summary["kinds"]]
    for by, rows in summary["effects"].items():
        table = Table(by, "nodes", *kinds, title=f"mean absolute effect of one token (share of attention), by {by}")
        for row in rows:
            table.add_row(escape(row["name"]), f"{row['count']:,}", *(_effect(row, kind) for kind in kinds))
        Console(width=None if sys.stdout.isatty() else 120).print(table)


def _effect(row: dict[str, Any], kind: str) -> str:
    if kind not in row:
        return ""
    return f"{row[kind]:.4f}" + (f" ({row['attention'][kind]:.2f})" if row["attention"] else "")


def print_predictions(found: Predictions, rows: int = 20) -> None:
    """The first predictions as a table: the decision and the three largest probabilities."""
    from ..data.tasks import TASKS

    table = Table("node", "prediction", "probabilities" if not TASKS[found.task].gives_values else "")
    given = found.class_names or tuple(str(number) for number in range(found.probabilities.shape[1]))
    classes = [escape(label) for label in given]
    for row in range(min(rows, len(found))):
        name = escape(str(found.nodes[row] if found.names is None else found.names[row]))
        chances = found.probabilities[row]
        if TASKS[found.task].gives_values:
            table.add_row(name, ", ".join(f"{value:.5g}" for value in chances))
            continue
        best = chances.argsort()[::-1][:3]
        decided = [int(found.labels[row])] if TASKS[found.task].has_classes else found.labels[row].nonzero()[0]
        shown = ", ".join(classes[label] for label in decided) or "none"
        table.add_row(name, shown, ", ".join(f"{classes[label]} {chances[label]:.3f}" for label in best))
    Console().print(table)
    if len(found) > rows:
        Console().print(f"… and {len(found) - rows:,} more: write them all with --out FILE.csv or FILE.npz")
