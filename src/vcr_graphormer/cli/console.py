"""Show progress and results: bars on a terminal, plain lines in a log, tables at the end."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
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
    from ..runs.tuning import Tuning, TuningState

LOG_WIDTH = 120  # columns of a table in a log or a pipe, which has no width of its own
EXPLANATION_WIDTH = 140  # the same for explanations, whose tables have eight columns
LINES_IN_A_LOG = 10  # about so many epochs are reported in a log
LISTED_CLASSES = 3  # most probable classes shown per node
LISTED_TRIALS = 20  # best trials of a search


def make_console(log_width: int = LOG_WIDTH) -> Console:
    """Return a console as wide as the terminal, or of `log_width` columns if there is none."""
    return Console(width=None if sys.stdout.isatty() else log_width)


class StageProgress:
    """A `progress(stage, done, total)` callback: one bar per stage on a terminal, one line per stage in a log."""

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
    """Print time, edges touched and peak memory of each stage."""
    from ..base.jobs import Stages

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
        table.add_row(stage, f"{row['seconds']:.2f}", visits, format_bytes(row["peak_bytes"]))
    Console().print(table)


class EpochProgress:
    """An `on_epoch(row)` callback that shows loss and validation metric: a bar on a terminal, some lines in a log.

    Its bar is one of the bars of `stages`, since a terminal can have only one live display.
    """

    epochs = 1

    def __init__(self, stages: StageProgress) -> None:
        self.stages = stages
        self.task: TaskID | None = None

    def __call__(self, row: dict[str, float]) -> None:
        """Show a finished epoch."""
        epoch = int(row["epoch"])
        text = f"loss {row['loss']:.4f}  val {row['val']:.4f} (best at {int(row['best_epoch'])})"
        if self.stages.on_terminal:
            if self.task is None or epoch == 1:
                self.task = self.stages.bars.add_task("training", total=self.epochs)
            self.stages.bars.update(self.task, completed=epoch, description=f"training  {text}")
        elif epoch == 1 or epoch % max(1, self.epochs // LINES_IN_A_LOG) == 0:
            sys.stderr.write(f"epoch {epoch}: {text}\n")
            sys.stderr.flush()


class TuningProgress:
    """A `progress` callback of `tune`: a bar with the best score on a terminal, one line per trial in a log."""

    def __init__(self) -> None:
        self.stages = StageProgress()
        self.task: TaskID | None = None
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
        best = tuning.best(1)
        if self.stages.on_terminal:
            if self.task is None:
                self.task = self.stages.bars.add_task("", total=None)
            text = f"best {best[0].score:.4f} ({best[0].recipe})  " if best else ""
            left = f"{max(0.0, state.seconds_left) / 60:.1f} min left" if state.seconds_left else ""
            description = f"{state.doing}  {text}{left}"
            self.stages.bars.update(self.task, completed=state.epoch, total=state.epochs, description=description)
            return
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
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()


def print_leaderboard(tuning: Tuning, rows: int = LISTED_TRIALS) -> None:
    """Print the best trials of a search, and how their settings differ from their recipe."""
    order = "lower is better" if tuning.lower else "higher is better"
    table = Table(title=f"validation {tuning.metric} of {len(tuning.entries)} trials, {order}")
    for title in ("rank", "recipe", "score", "epochs", "seconds", "changed in the recipe"):
        table.add_column(title, justify="right" if title in ("rank", "score", "epochs", "seconds") else "left")
    for rank, entry in enumerate(tuning.ranked[:rows], start=1):
        changes = ", ".join(f"{name}={value}" for name, value in tuning.changes(entry).items())
        score = _number(entry.score)
        table.add_row(
            str(rank), entry.recipe, score, str(entry.epochs), f"{entry.seconds:.1f}", escape(entry.error or changes)
        )
    make_console().print(table)
    for name, reason in tuning.skipped.items():
        make_console().print(escape(f"{name} is skipped: {reason}"), highlight=False)


def print_history(run: Run) -> None:
    """Print the metrics of a run, its size and its times."""
    metrics = run.metrics
    table = Table(
        title=f"{metrics['dataset']}: {metrics['metric']}, best epoch {metrics['best_epoch']} of {metrics['epochs']}"
    )
    for title in ("", "train", "val", "test"):
        table.add_column(title, justify="right" if title else "left")
    for name in metrics["scores"]["test"]:
        table.add_row(name, *(_number(metrics["scores"][part][name]) for part in ("train", "val", "test")))
    Console().print(table)
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in metrics["timings"].items())
    text = f"{metrics['parameters']:,} parameters on {metrics['device']}; {times}"
    make_console().print(text, highlight=False)
    if run.gate is not None and run.store.layout.num_neighbours:
        text = f"the gate for the whole list is open by {abs(run.gate):.2f} of 1 (0.50 at the start)"
        make_console().print(text, highlight=False)


def print_baselines(run: Run) -> None:
    """Print our result beside those of the baselines, and a sentence if one of them is at least as good."""
    from ..runs.baselines import comparison

    metrics, rows = run.metrics, run.baselines
    if not rows:
        return
    table = Table(title=f"{metrics['metric']} beside plain baselines")
    for title in ("", "val", "test", "seconds"):
        table.add_column(title, justify="right" if title else "left")
    ours = (_number(metrics["val"]), _number(metrics["test"]), f"{sum(metrics['timings'].values()):.1f}")
    table.add_row("ours", *ours)
    for row in rows:
        if "val" in row:
            table.add_row(row["name"], _number(row["val"]), _number(row["test"]), f"{row['seconds']:.1f}")
    console = make_console()
    console.print(table)
    for row in rows:
        if "note" in row:
            console.print(escape(f"{row['name']}: {row['note']}"), highlight=False)
    sentence = comparison(metrics["metric"], metrics["val"], rows)
    if sentence is not None:
        console.print(escape(sentence), highlight=False)


def _number(value: float | None) -> str:
    return "none" if value is None or math.isnan(value) else f"{value:.4f}"


def print_scores(scores: Mapping[str, Mapping[str, float | None]]) -> None:
    """Print the metrics of each part of the split."""
    table = Table("metric", *scores)
    for name in next(iter(scores.values())):
        table.add_row(name, *(_number(scores[part][name]) for part in scores))
    Console().print(table)


def print_summary(summary: dict[str, Any]) -> None:
    """Print mean and standard deviation over seeds."""
    table = Table("part", "mean", "deviation", "seeds", title=escape(f"{summary['dataset']}: {summary['metric']}"))
    for part in ("train", "val", "test"):
        row = summary[part]
        table.add_row(part, f"{row['mean']:.4f}", f"{row['std']:.4f}", str(len(row["values"])))
    for baseline in summary["baselines"]:
        for part in ("val", "test"):
            row = baseline[part]
            name = f"{part} of {baseline['name']}"
            table.add_row(name, f"{row['mean']:.4f}", f"{row['std']:.4f}", str(len(row["values"])))
    Console().print(table)


def print_explanation(explanation: Explanation) -> None:
    """Print the prediction of a node, and one row per token."""
    from ..data.tasks import TASKS

    name = f" ({explanation.name})" if explanation.name is not None else ""
    value = explanation.outputs[explanation.explained]
    prediction = f"{explanation.explained} with probability {value:.4f}"
    if TASKS[explanation.task].gives_values:
        prediction = f"value {value:.5g}"
    label = "unknown" if explanation.label is None else explanation.label
    title = escape(f"node {explanation.node}{name}: {prediction}; its label: {label}")
    caption = (
        "attention, readout: weight of the token in the encoder and in the final vector. "
        "effect: by how much hiding the token lowers the number above. score: by the first of the kinds named."
    )
    table = Table(title=title, caption=caption)
    for column in ("token", "node", "score", "hops away", "training label", "attention", "readout", "effect"):
        table.add_column(column, justify="left" if column in ("token", "training label") else "right")
    for token in explanation.tokens:
        node = "" if token.node is None else str(token.node)
        if token.name is not None:
            node = f"{token.node} {escape(token.name)}"
        table.add_row(
            f"hop {token.hop}" if token.hop is not None else " + ".join(token.kinds),
            node,
            f"{token.score:.4f}",
            "" if token.distance is None else str(token.distance),
            escape(token.label or ""),
            "none" if token.attention is None else f"{token.attention:.4f}",
            f"{token.readout:.4f}",
            f"{token.effect:+.4f}",
        )
    console = make_console(EXPLANATION_WIDTH)
    console.print(table)
    console.print(escape(_without_neighbours(explanation)), highlight=False)
    for kind, effect in explanation.kind_effects.items():
        name = {"hop": "all hops", "neighbours": "all neighbours"}.get(kind, f"all neighbours in {kind} places")
        console.print(f"  effect of {name} together: {effect:+.4f}", highlight=False)


def _without_neighbours(explanation: Explanation) -> str:
    """Say what the prediction of a node would be without its neighbours."""
    from ..data.tasks import TASKS

    outputs, without, explained = explanation.outputs, explanation.without_neighbours, explanation.explained
    if not without:
        return "Its list has no neighbours."
    before, after = outputs[explained], without[explained]
    if TASKS[explanation.task].gives_values:
        return f"Without its neighbours the model would say {after:.5g} instead of {before:.5g}."
    predicted, instead = max(outputs, key=outputs.__getitem__), max(without, key=without.__getitem__)
    if explained != predicted or not TASKS[explanation.task].has_classes:
        return f"Without its neighbours the probability of {explained} would be {after:.3f} instead of {before:.3f}."
    if instead == predicted:
        return (
            f"Without its neighbours the model would still say {predicted}, with {after:.3f} instead of {before:.3f}."
        )
    return (
        f"Without its neighbours the model would say {instead} ({without[instead]:.3f}) "
        f"instead of {predicted} ({before:.3f})."
    )


def print_neighbours(row: dict[str, Any]) -> None:
    """Print what the neighbours add to a run: `report.numbers.neighbours` in words."""
    if row["median_effect"] is None:
        make_console().print("The lists have no neighbours.")
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
    make_console().print(" ".join(sentences), highlight=False)


def print_rewiring(transfers: dict[str, dict[str, Any]]) -> None:
    """Print how super nodes change the PageRank of an explained node."""

    def names(rows: list[dict[str, Any]], sign: str) -> str:
        return ", ".join(f"{row['name'] or row['node']} ({sign}{row['amount']:.4f})" for row in rows) or "none"

    for kind, row in transfers.items():
        text = (
            f"{kind} connections move {row['moved']:.3f} of its PageRank, {row['to_supers']:.3f} of it to super nodes\n"
            f"  nodes that gain, or are brightened: {names(row['brightened'], '+')}\n"
            f"  nodes that lose, or are faded: {names(row['faded'], '-')}\n"
            f"  scores of its {kind} tokens differ from exact PageRank by at most {row['largest_error']:.1e}"
        )
        make_console(EXPLANATION_WIDTH).print(escape(text), highlight=False)


def print_kinds(summary: dict[str, Any]) -> None:
    """Print effect and attention of each kind of token, as means over many nodes."""
    columns = ("kind of token", "tokens per list", "attention", "effect of one token")
    table = Table(*columns, title=f"means over {summary['nodes']:,} nodes")
    for row in summary["kinds"]:
        attention = "none" if row["attention"] is None else f"{row['attention']:.3f}"
        table.add_row(row["kind"], f"{row['tokens']:.1f}", attention, f"{row['effect']:.4f}")
    Console().print(table)
    kinds = [row["kind"] for row in summary["kinds"]]
    for by, rows in summary["effects"].items():
        table = Table(by, "nodes", *kinds, title=f"mean absolute effect of one token (fraction of attention), by {by}")
        for row in rows:
            table.add_row(escape(row["name"]), f"{row['count']:,}", *(_effect(row, kind) for kind in kinds))
        make_console().print(table)
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
    classes = [escape(name) for name in names]
    for row in range(min(rows, len(predictions))):
        node = escape(str(predictions.nodes[row] if predictions.names is None else predictions.names[row]))
        outputs, label = predictions.probabilities[row], predictions.labels[row]
        if task.gives_values:
            table.add_row(node, ", ".join(f"{value:.5g}" for value in outputs))
            continue
        best = outputs.argsort()[::-1][:LISTED_CLASSES]
        columns = [int(label)] if task.has_classes else label.nonzero()[0]
        predicted = ", ".join(classes[column] for column in columns) or "none"
        table.add_row(node, predicted, ", ".join(f"{classes[column]} {outputs[column]:.3f}" for column in best))
    Console().print(table)
    if len(predictions) > rows:
        Console().print(f"… and {len(predictions) - rows:,} more: write them all with --out FILE.csv or FILE.npz")
