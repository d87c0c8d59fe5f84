"""What the gate costs: the time of a training step of a gated model against that of a joint one, by turns.

    python -m benchmarks gated --data ROOT --device cuda --graphs PubMed Computer Squirrel

Both have the settings of the variant `reduced`, which are joint; only `model.combine` differs. The ratio is the median
of the ratios of steps taken one after the other, since the machine may be busy.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import (
    load_graph,
    new_parser,
    print_table,
    random_splits,
    read_rows,
    variant_config,
    write_result,
)
from benchmarks.speed.steps import device_name, make_trainer, wait
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device

GRAPHS = ("PubMed", "Computer", "Squirrel")
WARM_UP = 4  # the trainer records a step on a GPU at its fourth call


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=GRAPHS)
    parser.add_argument("--repeats", type=int, default=60, help="pairs of steps")
    parser.add_argument("--out", type=Path, default=Path("results/gated.json"))
    return parser


def main() -> None:
    """Measure every graph and replace its row in the file."""
    arguments = make_parser().parse_args()
    device = find_device(arguments.device)
    rows = read_rows(arguments.out)
    for name in arguments.graphs:
        config = variant_config(name, "reduced")
        bench = Workbench(load_graph(name, arguments.data, config.data.directed), device)
        split = random_splits(bench.graph, [0])[0]
        nodes = torch.from_numpy(split.train[: config.training.batch_size]).to(device)
        trainers = []
        for combine in ("joint", "gated"):
            own = replace(config, model=replace(config.model, combine=combine))
            trainers.append(make_trainer(bench.graph, split, own, bench.inputs(split, own.tokens, own.model)))
        labels = trainers[0].labels[: len(nodes)]
        times = np.empty((arguments.repeats, 2))
        for number in range(WARM_UP + arguments.repeats):
            for column, trainer in enumerate(trainers):
                start = time.perf_counter()
                trainer.advance(nodes, labels)
                wait(device)
                if number >= WARM_UP:
                    times[number - WARM_UP, column] = 1000 * (time.perf_counter() - start)
        joint, gated = np.median(times, axis=0)
        row = {"graph": name, "device": device_name(device), "tokens": trainers[0].inputs.num_tokens}
        row |= {"joint_ms": round(float(joint), 3), "gated_ms": round(float(gated), 3)}
        row |= {"ratio": round(float(np.median(times[:, 1] / times[:, 0])), 3)}
        rows = [old for old in rows if (old["graph"], old["device"]) != (name, row["device"])] + [row]
        write_result(arguments.out, {"rows": rows})
    print_table(rows)
