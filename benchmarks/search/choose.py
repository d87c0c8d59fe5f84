"""Choose a preset from the log of a search: judge the best trials again on other splits, write the winner as TOML.

    python -m benchmarks choose --dataset Photo --data ROOT --logs tune.jsonl --out src/vcr_graphormer/runs/presets

The best of many trials is partly luck. So the best few are judged once more by the same score, on split seeds from 200
on, and the mean over all splits decides. The new scores are appended to the first log.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import load_graph, new_parser, random_splits
from benchmarks.records import without_kept
from benchmarks.search.tune import SCORE, crossed_score
from vcr_graphormer.runs.config import BEFORE
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device

FIRST_SEED = 200  # not a seed of the search, which starts at 100
# Settings that no preset has: they depend on the machine, or the search does not vary them.
LEFT_OUT = {
    *("partitioner", "tolerance", "score_type", "seed", "micro_batch"),
    *("decay_steps", "gradient_clip", "metric", "precision", "compile", "checkpoint_every"),
}


def read_log(files: list[Path], dataset: str, splits: int) -> list[dict[str, Any]]:
    """Return the trials of a dataset that were judged on at least so many splits, best first, equal settings once."""
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    # Rows that this script appended have no settings.
    rows = [row for row in rows if row["dataset"] == dataset and row.get("score") == SCORE and "config" in row]
    rows = [row for row in rows if len(row["val"]) >= splits]
    # Compared as configurations: a row has what it did without the settings that are newer than it.
    unique = {(row["directed"], rebuild(row["config"])): row for row in rows}
    return sorted(unique.values(), key=lambda row: -float(np.mean(row["val"])))


def rebuild(config: dict[str, Any]) -> vcr.Config:
    """Return the configuration of a row of the log."""
    kinds = {"tokens": vcr.TokenConfig, "model": vcr.ModelConfig, "training": vcr.TrainConfig}
    sections: dict[str, Any] = {
        name: kind(**{**BEFORE.get(name, {}), **without_kept(name, config[name])}) for name, kind in kinds.items()
    }
    return vcr.Config(**sections)


def to_toml(config: vcr.Config, directed: bool, comment: str) -> str:
    """Return the text of a preset."""
    sections: dict[str, dict[str, Any]] = {"data": {"directed": directed}}
    for name in ("tokens", "model", "training"):
        values = asdict(getattr(config, name))
        sections[name] = {key: value for key, value in values.items() if key not in LEFT_OUT}
    if config.training.metric != "auto":
        sections["training"]["metric"] = config.training.metric
    parts = [
        "\n".join([f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())])
        for name, values in sections.items()
    ]
    return f"# {comment}\n" + "\n\n".join(parts) + "\n"


def _value(value: Any) -> str:
    return json.dumps(float(f"{value:.3g}") if isinstance(value, float) else value)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--logs", type=Path, nargs="+", required=True)
    parser.add_argument("--best", type=int, default=3, help="how many trials to judge again")
    parser.add_argument("--least-splits", type=int, default=2, help="on how many a trial must have been judged")
    parser.add_argument("--splits", type=int, default=2, help="new splits")
    parser.add_argument("--out", type=Path, required=True, help="folder of the presets")
    return parser


def main() -> None:
    """Read the logs, judge the best trials again and write the preset."""
    parser = make_parser()
    arguments = parser.parse_args()
    rows = read_log(arguments.logs, arguments.dataset, arguments.least_splits)
    if not rows:
        parser.error(f"no trial of {arguments.dataset} was judged on {arguments.least_splits} splits")
    benches: dict[bool, Workbench] = {}
    for row in rows[: arguments.best]:
        directed, config = row["directed"], rebuild(row["config"])
        if directed not in benches:
            graph = load_graph(arguments.dataset, arguments.data, directed)
            benches[directed] = Workbench(graph, find_device(arguments.device))
        bench = benches[directed]
        splits = random_splits(bench.graph, range(FIRST_SEED, FIRST_SEED + arguments.splits))
        again = [crossed_score(bench, split, config) for split in splits]
        row["mean"] = float(np.mean([*row["val"], *again]))
        with arguments.logs[0].open("a") as file:
            file.write(json.dumps({"dataset": arguments.dataset, "again": again, "first": row["val"]}) + "\n")
        print(f"{arguments.dataset}: {100 * np.mean(row['val']):.2f}, again {100 * np.mean(again):.2f}")
    winner = max(rows[: arguments.best], key=lambda row: row["mean"])
    count = len(winner["val"]) + arguments.splits
    comment = (
        f"{arguments.dataset}: the best of {len(rows)} whole trials by validation accuracy on {count} splits "
        f"({100 * winner['mean']:.2f}; docs/log.md)."
    )
    text = to_toml(rebuild(winner["config"]), winner["directed"], comment)
    (arguments.out / f"{arguments.dataset}.toml").write_text(text)
    print(text)
