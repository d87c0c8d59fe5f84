"""Choose the default settings by leaving one graph out: fit on eleven graphs, judge on the twelfth.

    python -m benchmarks default --data ROOT --device cuda

Every candidate is trained on splits of seeds 100 and up, on all twelve graphs. For each graph, the other eleven choose:
the candidate with the best mean rank of validation scores. Only that one is then measured on the graph's test nodes,
seeds 0 to 9 (Minesweeper and Tolokers: their ten masks). Rows are appended to results/default/candidates.jsonl and
measured.jsonl; only missing rows are trained.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import load_graph, markdown_table, new_parser, percent, random_splits
from benchmarks.records import choose_split
from benchmarks.search.tune import crossed_score
from benchmarks.studies.neighbours import BY_AUC, FIRST_SEED, TWELVE
from vcr_graphormer.runs.adapt import adapt
from vcr_graphormer.runs.recipes import changed
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device

SMALL = ("Texas", "Cora", "CiteSeer")  # few validation nodes: twice the splits
DIRECTED = ("Squirrel", "Actor", "Texas")  # their edges have directions


@dataclass(frozen=True)
class Candidate:
    """Settings that may become the default: what they change in `Config()`, and whether they keep directions."""

    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    directed: bool = True


def _variant(tokens: dict[str, Any] | None = None, directed: bool = True, **more: dict[str, Any]) -> Candidate:
    """Return a candidate near the one with all kinds of neighbours."""
    base = {"link_tokens": 8, "nearest_tokens": 8}
    model = {**THIRDS, **more.get("model", {})}
    return Candidate({"tokens": {**base, **(tokens or {})}, **more, "model": model}, directed)


THIRDS = {"neighbour_dropout": 0.33, "own_dropout": 0.33}  # each path hidden from a third of the nodes
CANDIDATES: dict[str, Candidate] = {
    "structure and content": Candidate(),
    "paths hidden": Candidate({"model": THIRDS}),
    "by features": _variant({"link_tokens": 0}),
    "all kinds": _variant(),
    "labels around": _variant(model={"rich_labels": True}),
    "four of PageRank": _variant({"structure_tokens": 4, "content_tokens": 4}),
    "width 256": _variant(model={"hidden_channels": 256}),
    "two rich tokens": _variant(model={"rich_tokens": 2}),
    "embedding dropout": _variant(model={"embedding_dropout": 0.3}),
    "twice the rate": _variant(training={"learning_rate": 2e-3}),
    "no smoothing": _variant(training={"label_smoothing": 0.0, "weight_decay": 1e-4}),
    "less feature dropout": _variant(model={"feature_dropout": 0.2}),
    "without directions": _variant(directed=False),
    "adjacency rows": _variant(model={"adjacency_rows": True}),
}


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; none if there is no file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def mean_ranks(rows: Sequence[dict[str, Any]], graphs: Iterable[str]) -> dict[str, float]:
    """Return the mean rank of every candidate over some graphs, 1 is best; only candidates that have all graphs.

    >>> rows = [{"graph": "a", "candidate": name, "val": val} for name, val in (("x", 0.8), ("y", 0.9))]
    >>> mean_ranks(rows, ["a"])
    {'x': 2.0, 'y': 1.0}
    """
    names, scores = list(graphs), dict[tuple[str, str], list[float]]()
    for row in rows:
        scores.setdefault((row["candidate"], row["graph"]), []).append(row["val"])
    complete = [
        one for one in dict.fromkeys(row["candidate"] for row in rows) if all((one, g) in scores for g in names)
    ]
    ranks: dict[str, list[float]] = {one: [] for one in complete}
    for graph in names:
        means = np.array([np.mean(scores[one, graph]) for one in complete])
        for place, one in enumerate(complete):
            ranks[one].append(1 + float((means > means[place]).sum()) + 0.5 * float((means == means[place]).sum() - 1))
    return {one: float(np.mean(values)) for one, values in ranks.items()}


def left_out_choices(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the candidate that the other eleven graphs choose, for each of the twelve."""
    choices = {}
    for graph in TWELVE:
        ranks = mean_ranks(rows, [other for other in TWELVE if other != graph])
        choices[graph] = min(ranks, key=lambda name: ranks[name])
    return choices


def settings_of(candidate: Candidate, graph: vcr.Graph, split: vcr.Split, seed: int) -> vcr.Config:
    """Return the settings of a candidate for one graph and split, without checkpoints."""
    config = changed(changed(vcr.Config(), candidate.changes), {"training": {"seed": seed, "checkpoint_every": 0}})
    return adapt(config, graph, split).config


def table(measured: Sequence[dict[str, Any]], choices: dict[str, str]) -> str:
    """Return the table of the settings that were chosen without each graph, with their test metric there."""
    lines = []
    for graph in TWELVE:
        tests = [row["test"] for row in measured if (row["graph"], row["candidate"]) == (graph, choices[graph])]
        lines.append([graph, choices[graph], percent(tests) if len(tests) > 1 else "not measured"])
    return markdown_table(["graph left out", "chosen by the other eleven", "test metric there, %"], lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=TWELVE)
    parser.add_argument("--stage", choices=("judge", "measure", "all"), default="all")
    parser.add_argument("--splits", type=int, default=2, help="twice as many on graphs of few nodes")
    parser.add_argument("--seeds", type=int, default=10, help="of the measurement")
    parser.add_argument("--out", type=Path, default=Path("results/default"))
    return parser


def main() -> None:
    """Judge the candidates, choose without each graph, and measure what was chosen."""
    arguments = make_parser().parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    device = find_device(arguments.device)
    benches: dict[tuple[str, bool], Workbench] = {}

    def bench(name: str, candidate: Candidate) -> Workbench:
        directed = candidate.directed and name in DIRECTED
        if (name, directed) not in benches:
            benches[name, directed] = Workbench(load_graph(name, arguments.data, directed), device)
        return benches[name, directed]

    def add(file: Path, row: dict[str, Any]) -> None:
        with file.open("a") as log:
            log.write(json.dumps(row) + "\n")
        print(row, flush=True)

    judged, measured = arguments.out / "candidates.jsonl", arguments.out / "measured.jsonl"
    if arguments.stage != "measure":
        done = {(row["graph"], row["candidate"], row["seed"]) for row in read_rows(judged)}
        for name in arguments.graphs:
            seeds = range(FIRST_SEED, FIRST_SEED + arguments.splits * (2 if name in SMALL else 1))
            for label, candidate in CANDIDATES.items():
                for seed in seeds:
                    if (name, label, seed) in done:
                        continue
                    here = bench(name, candidate)
                    split = random_splits(here.graph, [seed])[0]
                    score = crossed_score(here, split, settings_of(candidate, here.graph, split, seed))
                    add(judged, {"graph": name, "candidate": label, "seed": seed, "val": round(score, 6)})
    if arguments.stage != "judge":
        choices = left_out_choices(read_rows(judged))
        done = {(row["graph"], row["candidate"], row["seed"]) for row in read_rows(measured)}
        for name in arguments.graphs:
            label = choices[name]
            for seed in range(arguments.seeds):
                if (name, label, seed) in done:
                    continue
                here = bench(name, CANDIDATES[label])
                split = choose_split(name, here.graph, "B" if name in BY_AUC else "A", seed, arguments.data)
                trial = here.train(split, settings_of(CANDIDATES[label], here.graph, split, seed))
                row = {"graph": name, "candidate": label, "seed": seed, "val": trial.val, "test": trial.test}
                add(measured, row | {"seconds": round(trial.seconds, 2)})
        print(table(read_rows(measured), choices))
