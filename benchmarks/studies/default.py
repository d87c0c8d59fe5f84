"""Choose the default settings by leaving one graph out: fit on eleven graphs, judge on the twelfth.

    python -m benchmarks default --data ROOT --device cuda

Every candidate is trained on splits of seeds 100 and up, on all twelve graphs. For each graph, the other eleven choose:
the candidate with the best mean rank of validation scores. Only that one is then measured on the graph's test nodes,
seeds 0 to 9 (Minesweeper and Tolokers: their ten masks). The baselines of `train --baselines all` are measured on the
same splits of the four graphs that the tables of accuracy do not have. Rows are appended to candidates.jsonl,
measured.jsonl and baselines.jsonl in results/default; only missing rows are trained. Candidates of the second round,
which came after that choice, and more splits of the first are in later.jsonl. One of them became the default
(docs/log.md says why); `--stage default` measures it on all graphs. Later rules changed it on five graphs, on which
`python -m benchmarks accuracy GRAPH --variant adaptive` measured it again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import load_graph, markdown_table, new_parser, percent, random_splits
from benchmarks.records import choose_split, result_file
from benchmarks.search.tune import crossed_score
from benchmarks.studies.neighbours import BY_AUC, FIRST_SEED, TWELVE
from benchmarks.tables import METHODS, OURS, read_results
from vcr_graphormer.base.files import read_json
from vcr_graphormer.data.agreement import label_agreement
from vcr_graphormer.data.tasks import TASKS
from vcr_graphormer.runs.adapt import ALIKE, adapt, choose_members
from vcr_graphormer.runs.baselines import baseline_names, run_baseline
from vcr_graphormer.runs.recipes import changed
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device

SMALL = ("Texas", "Cora", "CiteSeer")  # few validation nodes: twice the splits
BESIDE = ("Cora", "CiteSeer", "Minesweeper", "Tolokers")  # the tables of accuracy have no baselines of these
DIRECTED = ("Squirrel", "Actor", "Texas")  # their edges have directions
FEW_COLUMNS, MANY_LABELS = 100, 3000  # the rules of `runs/adapt.py` when this was measured
EIGHT = {"structure_tokens": 8, "content_tokens": 8, "link_tokens": 8, "nearest_tokens": 8}
THIRDS = {"neighbour_dropout": 1 / 3, "own_dropout": 1 / 3}  # each path hidden from a third of the nodes
QUARTER = {"neighbour_dropout": 0.25, "own_dropout": 0.0}
Tables = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Candidate:
    """Settings that may become the default: all that differ from graph to graph or from `BASE`, in the open.

    Attributes
    ----------
    tokens, model, training : dict
        What it changes in `BASE`.
    by_graph : bool
        Whether dropout of features and labels around neighbours follow the number of features and training nodes.
    few_columns : float
        Dropout of features where there are few of them.
    by_columns : bool
        Whether neighbours carry the labels around them only where there are few columns.
    by_direction : bool
        Whether hops and PageRank have self-loops where edges have no direction.
    members : bool
        Whether several models predict together where there are few training nodes, by the rule of `choose_members`.
    alike : bool
        Whether the first path reads hops by attention where linked training nodes mostly have the same label.
    epochs : float
        Epochs, as a fraction of those of the others.
    """

    tokens: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    by_graph: bool = True
    few_columns: float = 0.0
    by_columns: bool = False
    by_direction: bool = False
    members: bool = False
    alike: bool = False
    epochs: float = 1.0

    def changes(self, graph: vcr.Graph, train: int) -> Tables:
        """Return what differs from `Config()` on a graph with this number of training nodes."""
        model = {**BASE["model"], **self.model}
        if self.by_graph:
            chosen: dict[str, Any] = {
                "feature_dropout": 0.5,
                "embedding_dropout": 0.3,
                "rich_labels": train >= MANY_LABELS,
            }
            model = {**BASE["model"], **chosen, **self.model}
            if graph.num_features < FEW_COLUMNS:
                model |= {"feature_dropout": self.few_columns, "embedding_dropout": 0.0}
            elif self.by_columns:
                model |= {"rich_labels": False}
        model["members"] = choose_members(train) if self.members else 1
        training = {**BASE["training"], **self.training}
        if self.epochs != 1:
            training["epochs"] = 60 if train <= 1000 else 30
        loops = {"self_loops": True} if self.by_direction and not graph.directed else {}
        return {"tokens": {**BASE["tokens"], **loops, **self.tokens}, "model": model, "training": training}


BASE: Tables = {
    "tokens": {**EIGHT, "self_loops": False},
    "model": {**THIRDS, "readout": "target", "feature_dropout": 0.5, "embedding_dropout": 0.0, "rich_labels": False}
    | {"own_hops": False},
    "training": {"learning_rate": 1e-3},
}
PAGERANK_ONLY = {"link_tokens": 0, "nearest_tokens": 0}
RULES: dict[str, Any] = {"by_columns": True, "by_direction": True}
FOUR = {"structure_tokens": 4, "content_tokens": 4}
CANDIDATES: dict[str, Candidate] = {
    "structure and content": Candidate(PAGERANK_ONLY, {"readout": "attention", **QUARTER}, by_graph=False),
    "thirds": Candidate(PAGERANK_ONLY, {"readout": "attention"}, by_graph=False),
    "all kinds": Candidate(model={"readout": "attention"}, by_graph=False),
    "all kinds, target": Candidate(by_graph=False),
    "by graph": Candidate(),
    "attention": Candidate(model={"readout": "attention"}),
    "width 256": Candidate(model={"hidden_channels": 256}),
    "width 256, embedding dropout 0.5": Candidate(model={"hidden_channels": 256, "embedding_dropout": 0.5}),
    "quarter": Candidate(model=QUARTER),
    "half the epochs": Candidate(epochs=0.5),
    "twice the rate": Candidate(training={"learning_rate": 2e-3}),
    "weight decay 0.1": Candidate(training={"weight_decay": 0.1}),
    "four of PageRank": Candidate(FOUR),
    "self-loops": Candidate({"self_loops": True}),
    "few columns 0.2": Candidate(few_columns=0.2),
    "no labels around": Candidate(model={"rich_labels": False}),
    "four, quarter": Candidate(FOUR, QUARTER),
    "four, quarter, self-loops": Candidate({**FOUR, "self_loops": True}, QUARTER),
    "by columns and direction": Candidate(**RULES),
    "by columns and direction, twice the rate": Candidate(training={"learning_rate": 2e-3}, **RULES),
    "by columns and direction, quarter": Candidate(model=QUARTER, **RULES),
    "members": Candidate({"self_loops": True}, by_columns=True, members=True),
    "members, hops where labels are alike": Candidate({"self_loops": True}, by_columns=True, members=True, alike=True),
}
COMPARED_WITH = "by graph"  # it has all splits of all graphs
DEFAULT = "members, hops where labels are alike"
SECOND_ROUND = tuple(name for name in CANDIDATES if name.startswith(("by columns", "members")))


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; none if there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def mean_ranks(rows: Sequence[dict[str, Any]], graphs: Iterable[str], base: str = COMPARED_WITH) -> dict[str, float]:
    """Return the mean rank of every candidate over some graphs, 1 is best; only candidates that have all graphs.

    On each graph, candidates are ranked by the mean difference to the base, over the splits that both have.

    >>> rows = [{"graph": "a", "candidate": name, "seed": 100, "val": val} for name, val in (("x", 0.8), ("y", 0.9))]
    >>> mean_ranks(rows, ["a"], base="x")
    {'x': 2.0, 'y': 1.0}
    """
    names, scores = list(graphs), dict[tuple[str, str], dict[int, float]]()
    for row in rows:
        scores.setdefault((row["candidate"], row["graph"]), {})[row["seed"]] = row["val"]
    complete = [
        one for one in dict.fromkeys(row["candidate"] for row in rows) if all((one, g) in scores for g in names)
    ]
    ranks: dict[str, list[float]] = {one: [] for one in complete}
    for graph in names:
        gains = np.array([_gain(scores[one, graph], scores[base, graph]) for one in complete])
        for place, one in enumerate(complete):
            ranks[one].append(1 + float((gains > gains[place]).sum()) + 0.5 * float((gains == gains[place]).sum() - 1))
    return {one: float(np.mean(values)) for one, values in ranks.items()}


def _gain(ours: dict[int, float], theirs: dict[int, float]) -> float:
    return float(np.mean([ours[seed] - theirs[seed] for seed in ours.keys() & theirs.keys()]))


def left_out_choices(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the candidate that the other eleven graphs choose, for each of the twelve."""
    choices = {}
    for graph in TWELVE:
        ranks = mean_ranks(rows, [other for other in TWELVE if other != graph])
        choices[graph] = min(ranks, key=lambda name: ranks[name])
    return choices


def settings_of(candidate: Candidate, graph: vcr.Graph, split: vcr.Split, seed: int) -> vcr.Config:
    """Return the settings of a candidate for one graph and split, without checkpoints."""
    changes = candidate.changes(graph, len(split.train))
    if candidate.alike:
        changes["model"]["own_hops"] = label_agreement(graph, split.train) > ALIKE
    config = changed(changed(vcr.Config(), changes), {"training": {"seed": seed, "checkpoint_every": 0}})
    return adapt(config, graph, split).config


def best_baselines(beside: Sequence[dict[str, Any]], folder: Path) -> dict[str, tuple[str, float]]:
    """Return the baseline with the best mean on test nodes of each graph, and that mean in percent.

    Parameters
    ----------
    beside
        Rows of baselines.jsonl.
    folder
        Result files of the tables of accuracy.
    """
    means: dict[str, dict[str, float]] = {graph: {} for graph in TWELVE}
    for row in read_results(folder):
        if row["protocol"] == "A" and row["variant"] not in OURS and row["dataset"] in means:
            means[row["dataset"]][METHODS[row["variant"]]] = row["mean"]
    for graph, name in dict.fromkeys((row["graph"], row["name"]) for row in beside):
        tests = [row["test"] for row in beside if (row["graph"], row["name"]) == (graph, name)]
        means[graph][name] = 100 * float(np.mean(tests))
    return {graph: max(rows.items(), key=lambda item: item[1]) for graph, rows in means.items() if rows}


def table(measured: Sequence[dict[str, Any]], choices: dict[str, str], baselines: dict[str, tuple[str, float]]) -> str:
    """Return the table of the settings that were chosen without each graph, with their test metric there."""
    lines = []
    for graph in TWELVE:
        tests = [row["test"] for row in measured if (row["graph"], row["candidate"]) == (graph, choices[graph])]
        name, best = baselines.get(graph, ("not measured", np.nan))
        cells = [percent(tests) if len(tests) > 1 else "not measured", f"{name} {best:.2f}"]
        lines.append([graph, choices[graph], *cells, f"{100 * np.mean(tests) - best:+.2f}"])
    header = ["graph left out", "chosen by the other eleven", "test metric there, %", "best baseline", "difference"]
    return markdown_table(header, lines)


def tests_of_default(measured: Sequence[dict[str, Any]], folder: Path) -> dict[str, list[float]]:
    """Return the test metrics of the default as it is shipped, by graph.

    They are those of the variant `adaptive` in the result files of accuracy, where these have the graph. Elsewhere they
    are those of the candidate that is the default, which no later rule changed on these graphs.
    """
    tests = {}
    for graph in TWELVE:
        file = result_file(folder, graph, "B" if graph in BY_AUC else "A", "adaptive")
        candidates = [row for row in measured if (row["graph"], row["candidate"]) == (graph, DEFAULT)]
        tests[graph] = [row["test"] for row in (read_json(file)["runs"] if file.is_file() else candidates)]
    return tests


def default_table(tests_of: dict[str, list[float]], baselines: dict[str, tuple[str, float]]) -> str:
    """Return the table of the default on all graphs, from its test metrics."""
    lines = []
    for graph in TWELVE:
        tests, (name, best) = tests_of[graph], baselines[graph]
        lines.append([graph, percent(tests), f"{name} {best:.2f}", f"{100 * np.mean(tests) - best:+.2f}"])
    return markdown_table(["graph", "default, test metric, %", "best baseline", "difference"], lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=TWELVE)
    parser.add_argument("--stage", choices=("judge", "measure", "default", "baselines", "all"), default="all")
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), help="to judge; default: all")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="first seed of the splits to judge by")
    parser.add_argument("--splits", type=int, default=2, help="twice as many on graphs of few nodes")
    parser.add_argument("--seeds", type=int, default=10, help="of the measurement")
    parser.add_argument("--beside", choices=("quick", "all"), default="all", help="which baselines to measure")
    parser.add_argument("--out", type=Path, default=Path("results/default"))
    return parser


def main() -> None:
    """Judge the candidates, choose without each graph, and measure what was chosen."""
    arguments = make_parser().parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    device = find_device(arguments.device)
    benches: dict[str, Workbench] = {}

    def bench(name: str) -> Workbench:
        if name not in benches:
            benches[name] = Workbench(load_graph(name, arguments.data, name in DIRECTED), device)
        return benches[name]

    def add(file: Path, row: dict[str, Any]) -> None:
        with file.open("a") as log:
            log.write(json.dumps(row) + "\n")
        print(row, flush=True)

    judged, measured = arguments.out / "candidates.jsonl", arguments.out / "measured.jsonl"
    if arguments.stage in ("judge", "all"):
        later = arguments.out / "later.jsonl"
        done = {(row["graph"], row["candidate"], row["seed"]) for row in read_rows(judged) + read_rows(later)}
        for name in arguments.graphs:
            seeds = range(arguments.first, arguments.first + arguments.splits * (2 if name in SMALL else 1))
            for label, candidate in ((label, CANDIDATES[label]) for label in arguments.candidates):
                for seed in seeds:
                    if (name, label, seed) in done:
                        continue
                    here = bench(name)
                    split = random_splits(here.graph, [seed])[0]
                    score = crossed_score(here, split, settings_of(candidate, here.graph, split, seed))
                    row = {"graph": name, "candidate": label, "seed": seed, "val": round(score, 6)}
                    add(later if label in SECOND_ROUND else judged, row)
    choices = left_out_choices(read_rows(judged))
    if arguments.stage in ("measure", "default", "all"):
        done = {(row["graph"], row["candidate"], row["seed"]) for row in read_rows(measured)}
        for name in arguments.graphs:
            label = DEFAULT if arguments.stage == "default" else choices[name]
            for seed in range(arguments.seeds):
                if (name, label, seed) in done:
                    continue
                here = bench(name)
                split = choose_split(name, here.graph, "B" if name in BY_AUC else "A", seed, arguments.data)
                trial = here.train(split, settings_of(CANDIDATES[label], here.graph, split, seed))
                row = {"graph": name, "candidate": label, "seed": seed, "val": trial.val, "test": trial.test}
                add(measured, row | {"seconds": round(trial.seconds, 2)})
    beside = arguments.out / "baselines.jsonl"
    if arguments.stage in ("baselines", "all"):
        done = {(row["graph"], row["name"], row["seed"]) for row in read_rows(beside)}
        for name in (graph for graph in arguments.graphs if graph in BESIDE):
            for seed, baseline in product(
                range(arguments.seeds), baseline_names(TASKS["classification"], arguments.beside)
            ):
                if (name, baseline, seed) in done:
                    continue
                graph = bench(name).graph
                split = choose_split(name, graph, "B" if name in BY_AUC else "A", seed, arguments.data)
                training = adapt(changed(vcr.Config(), {"training": {"seed": seed}}), graph, split).config.training
                row = run_baseline(
                    baseline, graph, split, metric=training.metric, training=training, device=arguments.device
                )
                add(
                    beside,
                    {"graph": name, "seed": seed} | {key: row[key] for key in ("name", "val", "test", "seconds")},
                )
    print(table(read_rows(measured), choices, best_baselines(read_rows(beside), Path("results/accuracy"))))
