"""From the log of a search to a preset: the best trials again on other splits, the winner written as TOML.

    python benchmarks/choose.py --dataset Photo --data ROOT --logs tune-Photo.jsonl --out src/vcr_graphormer/presets

The best of many trials is partly luck, so the best few are judged once more, on split seeds 200 and up, still by
the accuracy of `tune.crossed_accuracy`; the mean over all splits decides. What was seen is appended to the first log.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.training import load
from benchmarks.tune import SCORE, crossed_accuracy
from benchmarks.workbench import Workbench
from vcr_graphormer.training.devices import find_device

FIRST_SEED = 200  # far from those of the search
# Not settings of a preset: the machine's affair, or the command's.
LEFT_OUT = {
    "partitioner",
    "tolerance",
    "content_clusters",
    "leave_own_label_out",
    "score_type",
    "seed",
    "micro_batch",
}
LEFT_OUT |= {"decay_steps", "gradient_clip", "metric", "precision", "compile", "checkpoint_every", "feedforward"}


def read_log(files: list[Path], dataset: str, splits: int) -> list[dict[str, Any]]:
    """Trials of that dataset that were judged on so many splits at least, best first, each settings once."""
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    # Judged again on other splits, settings are not logged again: such rows have no configuration.
    rows = [row for row in rows if row["dataset"] == dataset and row.get("score") == SCORE and "config" in row]
    rows = [row for row in rows if len(row["val"]) >= splits]
    # As a configuration, since one logged before a setting existed had its default.
    unique = {(row["directed"], rebuild(row["config"])): row for row in rows}
    return sorted(unique.values(), key=lambda row: -float(np.mean(row["val"])))


def rebuild(config: dict[str, Any]) -> vcr.Config:
    """A configuration from the sections of a log's row."""
    kinds = {"tokens": vcr.TokenConfig, "model": vcr.ModelConfig, "training": vcr.TrainConfig}
    sections: dict[str, Any] = {name: kind(**config[name]) for name, kind in kinds.items()}
    return vcr.Config(**sections)


def to_toml(config: vcr.Config, directed: bool, comment: str) -> str:
    """The preset as a file."""
    sections: dict[str, dict[str, Any]] = {"data": {"directed": True}} if directed else {}
    for name in ("tokens", "model", "training"):
        values = asdict(getattr(config, name))
        sections[name] = {key: value for key, value in values.items() if key not in LEFT_OUT}
    parts = [
        "\n".join([f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())])
        for name, values in sections.items()
    ]
    return f"# {comment}\n" + "\n\n".join(parts) + "\n"


def _value(value: Any) -> str:
    return json.dumps(float(f"{value:.3g}") if isinstance(value, float) else value)


def main() -> None:
    """Read, judge again, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--logs", type=Path, nargs="+", required=True)
    parser.add_argument("--best", type=int, default=3)
    parser.add_argument("--least-splits", type=int, default=2, help="on how many a trial must have been judged")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = read_log(arguments.logs, arguments.dataset, arguments.least_splits)
    if not rows:
        parser.error(f"no trial of {arguments.dataset} was judged on {arguments.least_splits} splits")
    benches: dict[bool, Workbench] = {}
    for row in rows[: arguments.best]:
        directed, config = row["directed"], rebuild(row["config"])
        if directed not in benches:
            graph = load(arguments.dataset, arguments.data, directed)
            benches[directed] = Workbench(graph, find_device(arguments.device))
        labels = benches[directed].graph.labels
        splits = [vcr.Split.random(labels, 0.6, 0.2, FIRST_SEED + number) for number in range(arguments.splits)]
        again = [crossed_accuracy(benches[directed], split, config) for split in splits]
        row["mean"] = float(np.mean([*row["val"], *again]))
        with arguments.logs[0].open("a") as file:
            file.write(json.dumps({"dataset": arguments.dataset, "again": again, "first": row["val"]}) + "\n")
        print(f"{arguments.dataset}: {100 * np.mean(row['val']):.2f}, again {100 * np.mean(again):.2f}")
    winner = max(rows[: arguments.best], key=lambda row: row["mean"])
    count = len(winner["val"]) + arguments.splits
    comment = (
        f"{arguments.dataset}: the best of {len(rows)} whole trials by validation accuracy on {count} splits "
        f"({100 * winner['mean']:.2f}; LOG.md)."
    )
    text = to_toml(rebuild(winner["config"]), winner["directed"], comment)
    (arguments.out / f"{arguments.dataset}.toml").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
