"""Show progress and results: bars on a terminal, plain lines in a log, tables at the end."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from ..base.jobs import Stages
from ..base.machine import format_bytes
from ..base.progress import Bars, describe_epoch
from ..base.text import printable
from .output import has_log, is_quiet, log, say_progress

if TYPE_CHECKING:
    from ..explain.explanation import Explanation
    from ..report.leaderboard import Leaderboard
    from ..runs.predictions import Predictions
    from ..runs.run import Run
    from ..runs.tuning import Tuning, TuningState

LOG_WIDTH = 120  # columns of a table in a log or a pipe, which has no width of its own
EXPLANATION_WIDTH = 140  # the same for explanations, whose tables have eight columns
LINES_IN_A_LOG = 10  # about so many epochs are reported in a log
LISTED_CLASSES = 3  # most probable classes shown per node
LISTED_SCORES = 20  # classes with the lowest F1 in a table of scores
LISTED_TRIALS = 20  # best trials of a search


def show(content: RenderableType, log_width: int = LOG_WIDTH) -> None:
    """Print a table or a text as wide as the terminal, or of `log_width` columns if there is none; log it too."""
    if has_log():
        text = io.StringIO()
        Console(file=text, width=log_width, color_system=None).print(content, highlight=False)
        log(text.getvalue().rstrip("\n"))
    if not is_quiet():
        width = None if sys.stdout.isatty() else log_width
        Console(width=width).print(content, highlight=not isinstance(content, str))


def cell(text: object) -> str:
    """Return a text from data, such as a name, as a table shows it: neither markup nor control characters work."""
    return escape(printable(text))


class StageProgress:
    """A `progress(stage, done, total)` callback: one bar per stage on a terminal, one line per stage in a log."""

    def __init__(self) -> None:
        self.bars = Bars() if sys.stderr.isatty() and not is_quiet() else None

    def __enter__(self) -> StageProgress:
        if self.bars is not None:
            self.bars.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bars is not None:
            self.bars.__exit__(kind, error, trace)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` parts of a stage are finished."""
        if self.bars is not None:
            self.bars(stage, done, total)
        if done == total:
            say_progress(f"{stage}: done")


class EpochProgress:
    """An `on_epoch(row)` callback that shows loss and validation metric: a bar on a terminal, some lines in a log.

    Its bar is one of the bars of `stages`, since a terminal can have only one live display.
    """

    epochs = 1

    def __init__(self, stages: StageProgress) -> None:
        self.stages = stages

    def __call__(self, row: dict[str, float]) -> None:
        """Show a finished epoch."""
        epoch = int(row["epoch"])
        if self.stages.bars is not None:
            self.stages.bars.show_epoch(row, self.epochs)
        if epoch == 1 or epoch % max(1, self.epochs // LINES_IN_A_LOG) == 0:
            say_progress(f"epoch {epoch}: {describe_epoch(row)}")


class TuningProgress:
    """A `progress` callback of `tune`: a bar with the best score on a terminal, one line per trial in a log."""

    def __init__(self) -> None:
        self.stages = StageProgress()
        self.reported: int | None = None

    def __enter__(self) -> TuningProgress:
        self.stages.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stages.__exit__(kind, error, trace)

    def __call__(self, state: TuningState) -> None:
        """Show an epoch or a finished trial."""
        tuning, entries = state.tuning, state.tuning.entries
        if self.stages.bars is not None:
            self.stages.bars.show("search", state.epoch, state.epochs, text=str(state))
        lines = []
        if self.reported is None:
            self.reported = len(entries)
            lines = [f"{name} is skipped: {reason}" for name, reason in tuning.skipped.items()]
            lines += [f"{len(entries)} trials are done already"] if entries else []
        for entry in entries[self.reported :]:
            score = "none" if entry.score is None else f"{entry.score:.4f}"
            lines.append(
                f"trial {entry.number}: {entry.recipe}, {entry.epochs} epochs: {score} in {entry.seconds:.1f} s"
            )
        self.reported = len(entries)
        for line in lines:
            say_progress(line)


def print_stages(file: Path) -> None:
    """Print time, edges touched and peak memory of each stage."""
    rows = Stages(file).rows
    if not rows:
        return
    caption = "edges touched: how many edges the stage read, repeats included"
    table = Table(title="time and memory of each stage", caption=caption)
    table.add_column("stage")
    for title in ("seconds", "edges touched", "peak memory"):
        table.add_column(title, justify="right")
    for stage, row in rows.items():
        visits = f"{int(row['visits']):,}" if row["visits"] else ""
        table.add_row(cell(stage), f"{row['seconds']:.2f}", visits, format_bytes(row["peak_bytes"]))
    show(table)


def print_leaderboard(tuning: Tuning, rows: int = LISTED_TRIALS) -> None:
    """Print the best trials of a search, and how their settings differ from their recipe."""
    order = "lower is better" if tuning.lower else "higher is better"
    table = Table(title=cell(f"validation {tuning.metric} of {len(tuning.entries)} trials, {order}"))
    for title in ("rank", "recipe", "score", "epochs", "seconds", "changed in the recipe"):
        table.add_column(title, justify="right" if title in ("rank", "score", "epochs", "seconds") else "left")
    for rank, entry in enumerate(tuning.ranked[:rows], start=1):
        changes = ", ".join(f"{name}={value}" for name, value in tuning.changes(entry).items())
        score = _number(entry.score)
        table.add_row(
            str(rank),
            cell(entry.recipe),
            score,
            str(entry.epochs),
            f"{entry.seconds:.1f}",
            cell(entry.error or changes),
        )
    show(table)
    for name, reason in tuning.skipped.items():
        show(cell(f"{name} is skipped: {reason}"))


def print_history(run: Run) -> None:
    """Print the metrics of a run, its size and its times."""
    metrics = run.metrics
    table = Table(
        title=cell(
            f"{metrics['dataset']}: {metrics['metric']}, best epoch {metrics['best_epoch']} of {metrics['epochs']}"
        )
    )
    for title in ("", "train", "val", "test"):
        table.add_column(title, justify="right" if title else "left")
    for name in metrics["scores"]["test"]:
        table.add_row(cell(name), *(_number(metrics["scores"][part][name]) for part in ("train", "val", "test")))
    show(table)
    print_classes(metrics.get("classes", {}).get("test", ()))
    print_threshold(run)
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in metrics["timings"].items())
    show(cell(f"{metrics['parameters']:,} parameters on {metrics['device']}; {times}"))
    if run.gate is not None and run.store.layout.num_neighbours:
        text = f"the gate for the whole list is open by {abs(run.gate):.2f} of 1 (0.50 at the start)"
        show(text)


def print_classes(rows: Sequence[Mapping[str, Any]], part: str = "test") -> None:
    """Print precision, recall and F1 of each class or label; of many, those with the lowest F1."""
    if not rows:
        return
    shown = rows
    title = f"each class, {part} nodes"
    if len(rows) > LISTED_SCORES:
        shown = sorted(rows, key=lambda row: math.inf if row["f1"] is None else row["f1"])[:LISTED_SCORES]
        title = f"the {LISTED_SCORES} of {len(rows)} classes with the lowest F1, {part} nodes"
    table = Table(title=title)
    for name in ("class", "nodes", "precision", "recall", "F1"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for row in shown:
        scores = (_number(row[name]) for name in ("precision", "recall", "f1"))
        table.add_row(cell(row["name"]), f"{row['nodes']:,}", *scores)
    show(table)


def print_threshold(run: Run) -> None:
    """Print which probability decides between two classes, unless it is one half."""
    if run.threshold is None:
        return
    name, value = run.class_names[run.threshold.column], run.threshold.value
    setting = run.config.training.threshold
    aim = "largest expected F1" if setting == "f1" else f"expected {setting}"
    chosen = f" ({aim}, by the validation nodes)" if isinstance(setting, str) else ""
    text = f"{name} is predicted from a probability of {value:.4g} on{chosen}"
    show(cell(text))


def print_baselines(run: Run) -> None:
    """Print our result beside those of the baselines, and a sentence if one of them is at least as good."""
    from ..runs.baselines import comparison

    metrics, rows = run.metrics, run.baselines
    if not rows:
        return
    table = Table(title=cell(f"{metrics['metric']} beside plain baselines"))
    for title in ("", "val", "test", "seconds"):
        table.add_column(title, justify="right" if title else "left")
    ours = (_number(metrics["val"]), _number(metrics["test"]), f"{sum(metrics['timings'].values()):.1f}")
    table.add_row("ours", *ours)
    for row in rows:
        if "val" in row:
            table.add_row(cell(row["name"]), _number(row["val"]), _number(row["test"]), f"{row['seconds']:.1f}")
    show(table)
    for row in rows:
        if "note" in row:
            show(cell(f"{row['name']}: {row['note']}"))
    sentence = comparison(metrics["metric"], metrics["val"], rows, metrics.get("test"))
    if sentence is not None:
        show(cell(sentence))


def _number(value: float | None) -> str:
    return "none" if value is None or math.isnan(value) else f"{value:.4f}"


def print_scores(scores: Mapping[str, Mapping[str, float | None]]) -> None:
    """Print the metrics of each part of the split."""
    table = Table("metric", *scores)
    for name in next(iter(scores.values())):
        table.add_row(name, *(_number(scores[part][name]) for part in scores))
    show(table)


def print_summary(summary: dict[str, Any]) -> None:
    """Print mean and standard deviation over seeds."""
    table = Table("part", "mean", "deviation", "seeds", title=cell(f"{summary['dataset']}: {summary['metric']}"))
    for part in ("train", "val", "test"):
        row = summary[part]
        table.add_row(part, f"{row['mean']:.4f}", f"{row['std']:.4f}", str(len(row["values"])))
    for baseline in summary["baselines"]:
        for part in ("val", "test"):
            row = baseline[part]
            name = f"{part} of {baseline['name']}"
            table.add_row(name, f"{row['mean']:.4f}", f"{row['std']:.4f}", str(len(row["values"])))
    show(table)


def print_explanation(explanation: Explanation) -> None:
    """Print the prediction of a node, and one row per token."""
    from ..explain.explanation import CAPTION, COLUMNS

    table = Table(title=cell(explanation.title()), caption=CAPTION)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("token", "training label") else "right")
    for row in explanation.rows():
        table.add_row(*map(cell, row))
    show(table, EXPLANATION_WIDTH)
    show(cell(explanation.without_neighbours_in_words()), EXPLANATION_WIDTH)
    for kind, effect in explanation.kind_effects.items():
        name = {"hop": "all hops", "neighbours": "all neighbours"}.get(kind, f"all neighbours in {kind} places")
        show(f"  effect of {name} together: {effect:+.4f}", EXPLANATION_WIDTH)


def print_neighbours(row: dict[str, Any]) -> None:
    """Print what the neighbours add to a run: `report.numbers.neighbours` in words."""
    if row["median_effect"] is None:
        show("The lists have no neighbours.")
        return
    sentences = [] if row["gate"] is None else [f"The gate is open by {abs(row['gate']):.2f} of 1 (0.50 at the start)."]
    sentences.append(f"Half of all single neighbours have an effect below {row['median_effect']:.2g}, up or down.")
    if "whole" in row and not math.isnan(row["whole"]):
        metric, hidden = str(row["metric"]).replace("_", " "), row["without"]["neighbours"]
        sentences.append(f"With all neighbours hidden, {metric} goes from {row['whole']:.4f} to {hidden:.4f}")
        if "changed" in row:
            sentences[-1] += (
                f"; {row['changed']:,} of {row['nodes']:,} predictions change: {row['became_wrong']:,} become wrong, "
                f"{row['became_right']:,} become right, {row['stayed_wrong']:,} stay wrong"
            )
        sentences[-1] += " (on test nodes)."
    show(" ".join(sentences))


def print_rewiring(transfers: dict[str, dict[str, Any]]) -> None:
    """Print how super nodes change the PageRank of an explained node."""

    def names(rows: list[dict[str, Any]], sign: str) -> str:
        return ", ".join(f"{cell(row['name'] or row['node'])} ({sign}{row['amount']:.4f})" for row in rows) or "none"

    for kind, row in transfers.items():
        text = (
            f"{kind} connections move {row['moved']:.3f} of its PageRank, {row['to_supers']:.3f} of it to super nodes\n"
            f"  nodes that gain, or are brightened: {names(row['brightened'], '+')}\n"
            f"  nodes that lose, or are faded: {names(row['faded'], '-')}\n"
            f"  scores of its {kind} tokens differ from exact PageRank by at most {row['largest_error']:.1e}"
        )
        show(text, EXPLANATION_WIDTH)


def print_kinds(summary: dict[str, Any]) -> None:
    """Print effect and attention of each kind of token, as means over many nodes."""
    columns = ("kind of token", "tokens per list", "attention", "effect of one token")
    table = Table(*columns, title=f"means over {summary['nodes']:,} nodes")
    for row in summary["kinds"]:
        attention = "none" if row["attention"] is None else f"{row['attention']:.3f}"
        table.add_row(row["kind"], f"{row['tokens']:.1f}", attention, f"{row['effect']:.4f}")
    show(table)
    kinds = [row["kind"] for row in summary["kinds"]]
    for by, rows in summary["effects"].items():
        table = Table(by, "nodes", *kinds, title=f"mean absolute effect of one token (fraction of attention), by {by}")
        for row in rows:
            table.add_row(cell(row["name"]), f"{row['count']:,}", *(_effect(row, kind) for kind in kinds))
        show(table)
    print_neighbours(summary["neighbours"])


def _effect(row: dict[str, Any], kind: str) -> str:
    if kind not in row:
        return ""
    return f"{row[kind]:.4f}" + (f" ({row['attention'][kind]:.2f})" if row["attention"] else "")


def print_predictions(predictions: Predictions, rows: int = 20) -> None:
    """Print the first predictions, each with the largest probabilities."""
    from ..data.tasks import TASKS

    task = TASKS[predictions.task]
    table = Table("node", "prediction", "probabilities" if not task.gives_values else "")
    names = predictions.class_names or tuple(str(number) for number in range(predictions.probabilities.shape[1]))
    classes = [cell(name) for name in names]
    for row in range(min(rows, len(predictions))):
        node = cell(predictions.nodes[row] if predictions.names is None else predictions.names[row])
        outputs, label = predictions.probabilities[row], predictions.labels[row]
        if task.gives_values:
            table.add_row(node, ", ".join(f"{value:.5g}" for value in outputs))
            continue
        best = outputs.argsort()[::-1][:LISTED_CLASSES]
        columns = [int(label)] if task.has_classes else label.nonzero()[0]
        predicted = ", ".join(classes[column] for column in columns) or "none"
        table.add_row(node, predicted, ", ".join(f"{classes[column]} {outputs[column]:.3f}" for column in best))
    show(table)
    if len(predictions) > rows:
        show(f"… and {len(predictions) - rows:,} more: write them all with --out FILE.csv or FILE.parquet")


def print_runs(board: Leaderboard) -> None:
    """Print the runs of a folder, and the settings in which they differ."""
    if not board.runs:
        show(cell(f"there are no runs in {board.folder}"))
        return
    total = format_bytes(board.disk_bytes)
    caption = f"{total} on disk; a graph that runs share counts in the size of each, but lies on the disk once"
    table = Table(title=cell(f"runs in {board.folder}"), caption=caption)
    for title in ("run", "dataset", "metric", "val", "test", "seconds", "size", "settings that differ"):
        table.add_column(title, justify="right" if title in ("val", "test", "seconds", "size") else "left")
    differences = board.differences()
    for run in board.runs:
        settings = ", ".join(f"{name}={value}" for name, value in differences.get(run.path, {}).items())
        scores = [_number(run.val), _number(run.test)] if run.state == "finished" else [run.state, ""]
        seconds = "" if run.seconds is None else f"{run.seconds:.1f}"
        text = ". ".join(filter(None, (run.problem, settings)))
        names = (board.name(run), run.dataset or "", run.metric or "")
        table.add_row(*map(cell, names), *scores, seconds, format_bytes(run.size), cell(text))
    show(table)
