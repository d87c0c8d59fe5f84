"""Time of a step and of inference by readout: with `target`, the last layer computes nothing but the target.

    python -m benchmarks readouts --data ROOT --graphs digits PubMed

The model is the default one, with the settings that it has for each graph; only the readout differs. "target, every
token" computes the last layer whole, as before. The reference is the plain dense implementation of `training`, with the
same lists and width, without gate and embeddings. All of them take turns in one process.

Ratios are those of processor time, that of all threads together. Other work on the machine hardly changes it, if
threads wait passively (OMP_WAIT_POLICY=PASSIVE). On a GPU they are those of the clock. Writes results/readouts.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vcr_graphormer as vcr
from benchmarks.common import load_graph, new_parser, print_table, random_splits, write_result
from benchmarks.speed.dense_reference import DenseReference
from benchmarks.speed.steps import device_name, make_trainer, rounded, wait
from vcr_graphormer.model.readouts import target
from vcr_graphormer.runs.adapt import adapt
from vcr_graphormer.training.devices import find_device
from vcr_graphormer.training.inference import compute

WARM_UP = 6  # calls: on a GPU the trainer records a step at its fourth
EVERY_TOKEN = "target, every token"


def target_of_whole_lists(tokens: Tensor, shown: Tensor, score: torch.nn.Module | None) -> Tensor:
    """Return the weights of the readout `target`; by another name, so that every token is computed."""
    return target(tokens, shown, score)


def make_works(
    graph: vcr.Graph, split: vcr.Split, config: vcr.Config, lists: Any, device: torch.device
) -> dict[str, Callable[[], Any]]:
    """Return what is timed, by readout: a step of the optimizer and inference of one batch."""
    size = min(config.training.batch_size, len(split.train))
    nodes, labels = torch.from_numpy(split.train[:size]).to(device), np.asarray(graph.labels)[split.train[:size]]
    targets = torch.from_numpy(labels).to(device)
    works: dict[str, Callable[[], Any]] = {}
    for name in ("attention", EVERY_TOKEN, "target"):
        model = replace(config.model, readout=name.split(",")[0], members=1)
        inputs = vcr.make_inputs(graph, lists, model, split.train, device)
        trainer = make_trainer(graph, split, replace(config, model=model), inputs)
        assert isinstance(trainer.model, vcr.VCRGraphormer)  # one of the members of the default
        if name == EVERY_TOKEN:
            for path in (trainer.model, trainer.model.own):
                if path is not None:
                    path.make_weights = target_of_whole_lists
        works[f"{name}, step"] = partial(trainer.advance, nodes, targets)
        works[f"{name}, inference"] = partial(compute, trainer.model, inputs, split.train[:size], size)
    bare = vcr.ModelConfig(
        **{**_BARE, "hidden_channels": config.model.hidden_channels, "dropout": config.model.dropout}
    )
    inputs = vcr.make_inputs(graph, lists, bare, split.train, device)
    trainer = make_trainer(graph, split, replace(config, model=bare), inputs)
    assert isinstance(trainer.model, vcr.VCRGraphormer)
    reference = DenseReference(trainer.model, inputs).train()
    optimizer = torch.optim.AdamW(trainer.model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(reference(nodes), targets))
        optimizer.step()

    return {**works, "dense reference, step": step}


_BARE: dict[str, Any] = {
    **{"combine": "joint", "kind_embedding": False, "rank_embedding": False, "label_embedding": False},
    **{"rich_tokens": 0, "label_hops": 0, "rich_labels": False, "readout": "attention", "feature_dropout": 0.0},
    **{"embedding_dropout": 0.0, "token_dropout": 0.0, "neighbour_dropout": 0.0, "own_dropout": 0.0},
    **{"members": 1, "own_hops": False},
}


def measure(name: str, root: str, device: torch.device, repeats: int) -> dict[str, Any]:
    """Return one row: milliseconds of every step and inference, and ratios of steps."""
    graph = load_graph(name, root)
    [split] = random_splits(graph, [0])
    adapted = adapt(vcr.Config(), graph, split)
    lists = vcr.make_lists(adapted.graph, split.train, adapted.config.tokens)
    works = make_works(adapted.graph, split, adapted.config, lists, device)
    times: dict[str, list[tuple[float, float]]] = {work: [] for work in works}
    for number in range(WARM_UP + repeats):
        for work, call in works.items():
            begin = time.perf_counter(), time.process_time()
            call()
            wait(device)
            if number >= WARM_UP:
                times[work].append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    counted = 0 if device.type == "cuda" else 1
    medians = {f"{work} ms": 1000 * float(np.median([row[counted] for row in rows])) for work, rows in times.items()}
    clock = {
        f"{work} ms by the clock": 1000 * float(np.median([row[0] for row in rows])) for work, rows in times.items()
    }
    steps = {work: medians[f"{work}, step ms"] for work in ("attention", EVERY_TOKEN, "target", "dense reference")}
    return {
        "graph": name,
        "batch": min(adapted.config.training.batch_size, len(split.train)),
        "tokens": lists.num_tokens,
        **medians,
        **{f"{work} / target": steps[work] / steps["target"] for work in steps if work != "target"},
        **(clock if counted else {}),
    }


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(
        __doc__, device=True, graphs=("digits", "PubMed"), more_graphs=True, out="results/readouts.json"
    )
    parser.add_argument("--repeats", type=int, default=30, help="timed calls of each; the median counts")
    return parser


def main() -> None:
    """Measure every graph and write the rows."""
    arguments = make_parser().parse_args()
    device, rows = find_device(arguments.device), []
    for name in arguments.graphs:
        rows.append(measure(name, arguments.data, device, arguments.repeats))
        print_table(rows[-1:])
    threads = None if device.type == "cuda" else torch.get_num_threads()
    content = {"device": device_name(device), "threads": threads, "rows": [rounded(row) for row in rows]}
    write_result(Path(arguments.out), content)
