"""Each extension switched on alone, from the paper's model, by validation accuracy on split seeds 100 and up.

python benchmarks/extensions.py --data ROOT --graphs Photo PubMed Squirrel Actor [--device cuda]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import print_table, write_result
from training import load

import vcr_graphormer as vcr
from vcr_graphormer.inputs import find_device
from vcr_graphormer.trials import Workbench

PAPER = vcr.Config(
    tokens=vcr.TokenConfig(hops=3, clusters=10, structure_tokens=8, content_tokens=8),
    model=vcr.ModelConfig(hidden_channels=128),
    training=vcr.TrainConfig(epochs=60, batch_size=500, warmup_steps=30, patience=60, checkpoint_every=0),
)
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
    "super tokens": {"tokens": {"super_tokens": "mean"}},
    "average of weights": {"training": {"average": 0.99}},
    "label smoothing 0.1": {"training": {"label_smoothing": 0.1}},
}


def main() -> None:
    """Train every switch on every graph and write results/extensions.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--graphs", nargs="+", default=["Photo", "PubMed", "Squirrel", "Actor"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/extensions.json"))
    arguments = parser.parse_args()
    rows = []
    for name in arguments.graphs:
        graph = load(name, arguments.data)
        bench = Workbench(graph, find_device(arguments.device))
        splits = [vcr.Split.random(graph.labels, 0.6, 0.2, 100 + seed) for seed in range(arguments.seeds)]
        for switch, changes in SWITCHES.items():
            sections: Any = {key: replace(getattr(PAPER, key), **change) for key, change in changes.items()}
            config = replace(PAPER, **sections)
            trials = [
                bench.train(split, replace(config, training=replace(config.training, seed=seed)), test=False)
                for seed, split in enumerate(splits)
            ]
            values = [100 * trial.val for trial in trials]
            row = {"graph": name, "switch": switch, "val": float(np.mean(values)), "std": float(np.std(values, ddof=1))}
            rows.append(row | {"values": values, "seconds": sum(trial.seconds for trial in trials)})
        print_table([{key: value for key, value in row.items() if key != "values"} for row in rows])
    write_result(arguments.out, {"seeds": [100 + seed for seed in range(arguments.seeds)], "rows": rows})


if __name__ == "__main__":
    main()
