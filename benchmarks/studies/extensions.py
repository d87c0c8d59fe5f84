"""Validation accuracy with each extension switched on alone, from a small model without extensions.

    python -m benchmarks extensions --data ROOT --device cuda --graphs Photo PubMed Squirrel Actor

Split seeds 100 to 102, which are never reported. Only rows that results/extensions.json does not have yet are trained;
the file is written after each row.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import (
    load_graph,
    new_parser,
    print_table,
    random_splits,
    read_rows,
    this_command,
    write_result,
)
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device

GRAPHS = ("Photo", "PubMed", "Squirrel", "Actor")
SEEDS = [100, 101, 102]
# The form of the paper's model, but not the authors' settings: small and short, since many trainings are compared.
_SHORT = {"epochs": 60, "warmup_steps": 30, "patience": 60, "checkpoint_every": 0}
BASE = vcr.load_config(options={"training": _SHORT}, variant="paper")
SWITCHES: dict[str, dict[str, Any]] = {
    "the paper's model": {},
    "kind embedding": {"model": {"kind_embedding": True}},
    "rich tokens": {"model": {"rich_tokens": 2}},
    "label hops": {"model": {"label_hops": 2}},
    "label embedding": {"model": {"label_embedding": True}},
    "adjacency rows": {"model": {"adjacency_rows": True}},
    "feature dropout 0.5": {"model": {"feature_dropout": 0.5}},
    "embedding dropout 0.5": {"model": {"embedding_dropout": 0.5}},
    "token dropout 0.2": {"model": {"token_dropout": 0.2}},
    "average of weights": {"training": {"average": 0.99}},
    "label smoothing 0.1": {"training": {"label_smoothing": 0.1}},
}
REMOVED = ("super tokens",)  # measured before it was removed from the code; its rows stay


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    return new_parser(__doc__, device=True, graphs=GRAPHS, out="results/extensions.json")


def main() -> None:
    """Train every switch on every graph that is not in the file yet."""
    arguments = make_parser().parse_args()
    rows = read_rows(arguments.out)
    for name in arguments.graphs:
        bench = Workbench(load_graph(name, arguments.data), find_device(arguments.device))
        splits = random_splits(bench.graph, SEEDS)
        done = {row["switch"] for row in rows if row["graph"] == name}
        for switch in SWITCHES.keys() - done:
            row = {"graph": name, "switch": switch, **judge(bench, splits, SWITCHES[switch])}
            rows.append({**row, "command": this_command(), "device": arguments.device})
            rows.sort(key=lambda row: (GRAPHS.index(row["graph"]), [*SWITCHES, *REMOVED].index(row["switch"])))
            write_result(arguments.out, {"seeds": SEEDS, "rows": rows})
    print_table([{key: row[key] for key in ("graph", "switch", "val", "std", "seconds")} for row in rows])


def judge(bench: Workbench, splits: list[vcr.Split], changes: dict[str, Any]) -> dict[str, Any]:
    """Return the validation accuracy on the splits with some settings changed."""
    sections: Any = {key: replace(getattr(BASE, key), **change) for key, change in changes.items()}
    config = replace(BASE, **sections)
    trials = [
        bench.train(split, replace(config, training=replace(config.training, seed=seed)), test=False)
        for seed, split in enumerate(splits)
    ]
    values = [round(100 * trial.val, 3) for trial in trials]
    seconds = round(sum(trial.seconds for trial in trials), 1)
    return {"val": float(np.mean(values)), "std": float(np.std(values, ddof=1)), "values": values, "seconds": seconds}
