"""Time and memory of the whole pipeline on generated graphs of Amazon2M's shape, from METIS to training steps.

    python -m benchmarks scale --sizes 0.01 0.1 1          size 1 takes half an hour on two cores
    python -m benchmarks scale --sizes 1 --threads 16 --device cuda --partitioner kaminpar --steps 0

At size 1 the graph has 2.45 million nodes, 61.9 million edges, 100 features and 47 classes; the settings are the
authors' for Amazon2M. Token lists and training have a process of their own for each size, so that their peak memory is
their own. Training steps are measured with the files cold (dropped from the page cache) and warm, and on batches that
are in memory already: the ratio shows what reading costs. Writes results/scale.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.common import (
    in_a_process,
    markdown_table,
    new_parser,
    print_table,
    random_splits,
    read_rows,
    variant_config,
    write_result,
)
from benchmarks.speed.steps import make_trainer
from vcr_graphormer.base.machine import peak_memory
from vcr_graphormer.ranking.pagerank import METIS_PER_ARC, PARTITION_PER_NODE, THREAD_PER_NODE, VECTORS_PER_NODE

NODES, EDGES, FEATURES, CLASSES = 2_449_029, 61_859_140, 100, 47
RANKINGS = ("structure vectors", "structure ranking", "content vectors", "content ranking")


def make_graph(size: float, folder: Path, seed: int = 0) -> None:
    """Generate and save the graph: communities of about 1,000 nodes, four of five edges inside them."""
    nodes, edges = round(NODES * size), round(EDGES * size)
    communities = max(CLASSES, nodes // 1000)
    graph = vcr.generate(
        nodes, edges, classes=CLASSES, communities=communities, features=FEATURES, homophily=0.8, seed=seed
    )
    graph.save(folder, overwrite=True)


def measure(
    size: float, folder: Path, threads: int | None, device: str = "auto", partitioner: str | None = None
) -> dict[str, Any]:
    """Return seconds and peak memory of every stage before training.

    "Writing" are the seconds in which a stage only waited for checksums and the disk; they are part of its seconds.
    """
    start = time.perf_counter()
    graph = vcr.Graph.open(folder / "graph")
    [split] = random_splits(graph, [0])
    tokens = variant_config("Amazon2M", "paper").tokens
    tokens = replace(tokens, partitioner=partitioner or tokens.partitioner)
    before = {"nodes": graph.num_nodes, "edges": graph.num_edges, "open": time.perf_counter() - start}
    store = vcr.tokenize(
        graph, split.train, tokens, folder / "tokens", threads, progress=_print_progress, device=device
    )
    row: dict[str, Any] = {"size": size, **before, "before training": time.perf_counter() - start}
    stages = json.loads((store.path / "stages.json").read_text())
    row |= {name: stage["seconds"] for name, stage in stages.items()}
    row["writing"] = sum(stage.get("writing", 0.0) for stage in stages.values())
    row["not in a stage"] = row["before training"] - row["open"] - sum(stage["seconds"] for stage in stages.values())
    row["both rankings"] = sum(stages[name]["seconds"] for name in RANKINGS)
    row["visits per node"] = sum(stages[name]["visits"] for name in RANKINGS) / graph.num_nodes
    row["peak gigabytes"] = max(stage["peak_bytes"] for stage in stages.values()) / 1e9
    row["peak gigabytes by stage"] = {name: stage["peak_bytes"] / 1e9 for name, stage in stages.items()}
    row["store gigabytes"] = store.num_bytes / 1e9
    return row


def train(folder: Path, steps: int) -> dict[str, Any]:
    """Return milliseconds of a step on batches from the store, cold and warm, and on batches in memory."""
    forget(folder)
    graph, store = vcr.Graph.open(folder / "graph"), vcr.TokenStore.open(folder / "tokens")
    config = variant_config("Amazon2M", "paper")
    [split] = random_splits(graph, [0])
    inputs = vcr.make_inputs(graph, store, config.model, split.train, torch.device("cpu"), streamed=True)
    trainer, labels = make_trainer(graph, split, config, inputs), np.asarray(graph.labels)
    order = np.random.default_rng(0).permutation(split.train)
    size = min(config.training.batch_size, len(order) // 3)  # three batches at least
    steps = min(steps, (len(order) // size - 1) // 2)
    parts = [torch.from_numpy(order[i * size : (i + 1) * size]) for i in range(1 + 2 * steps)]
    first, reading, cold = slice(0, 1), slice(1, 1 + steps), slice(1 + steps, 1 + 2 * steps)

    def run(chosen: slice, batches: Iterator[Any]) -> float:
        begin = time.perf_counter()
        for part, batch in zip(parts[chosen], batches, strict=True):
            trainer.advance(part, torch.from_numpy(labels[part.numpy()]), batch)
        return 1000 * (time.perf_counter() - begin) / len(parts[chosen])

    def streamed(chosen: slice) -> Iterator[Any]:
        return inputs.batches(torch.cat(parts[chosen]), size)

    run(first, streamed(first))  # warm up
    begin = time.perf_counter()
    for part in parts[reading]:
        inputs.batch(part)
    row = {"read ms, files cold": 1000 * (time.perf_counter() - begin) / steps}
    row["step ms, files cold"] = run(cold, streamed(cold))
    row["step ms, files warm"] = run(cold, streamed(cold))
    row["step ms, nothing to read"] = run(cold, iter([inputs.batch(part) for part in parts[cold]]))
    row["training peak gigabytes"] = peak_memory() / 1e9
    return row


def forget(folder: Path) -> None:
    """Drop the files from the page cache; no process may have them mapped."""
    for file in folder.glob("*/*.npy"):
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _print_progress(stage: str, done: int, total: int) -> None:
    if done == total or done % max(1, total // 4) == 0:
        print(f"  {time.strftime('%H:%M:%S')} {stage} {done}/{total}", flush=True)


MEASURED = {
    "nodes": "nodes",
    "edges": "edges",
    "METIS, s": ("structure connections", "coarse clusters"),
    "vectors, s": ("structure vectors", "content vectors"),
    "both rankings with their vectors, s": "both rankings",
    "hops, s": "hop features",
    "everything before training, s": "before training",
    "peak memory, GB": "peak gigabytes",
    "store on disk, GB": "store gigabytes",
    "training step, files cold, s": "step ms, files cold",
    "training step, nothing to read, s": "step ms, nothing to read",
    "reading a batch, files cold, s": "read ms, files cold",
    "peak memory of training, GB": "training peak gigabytes",
}


def measured_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows of results/scale.json as Markdown, one column per size."""
    lines = []
    for name, keys in MEASURED.items():
        values = [sum(row[key] for key in ((keys,) if isinstance(keys, str) else keys)) for row in rows]
        if " ms" in str(keys):
            values = [value / 1000 for value in values]
        lines.append([name, *map(_number, values)])
    return markdown_table(["", *(f"size {row['size']:g}" for row in rows)], lines)


def outlook_table(row: dict[str, Any], threads: int = 2) -> str:
    """Return what 10^6, 10^8 and 10^10 edges of the same kind would need, as Markdown.

    Seconds grow in proportion to the edges; bytes follow from the constants in `tokens.resources`.
    """
    powers = (6, 8, 10)
    lines: dict[str, list[str]] = {}
    for power in powers:
        times = 10**power / row["edges"]
        nodes, arcs = times * row["nodes"], 2 * 10**power
        hours = {key: times * row[key] / 3600 for key in (*MEASURED["METIS, s"], "both rankings", "hop features")}
        cells = {
            "nodes": f"{nodes:.1e}".replace("e+0", " · 10^").replace("e+", " · 10^"),
            "graph on disk (edges, features)": _bytes(4 * arcs + nodes * (8 + 4 * FEATURES + 8)),
            "store on disk": _bytes(times * row["store gigabytes"] * 1e9),
            "memory of METIS": _bytes(METIS_PER_ARC * arcs),
            "memory of propagation instead": _bytes(PARTITION_PER_NODE * nodes),
            f"memory of rankings, {threads} threads": _bytes((VECTORS_PER_NODE + THREAD_PER_NODE * threads) * nodes),
            "METIS, hours (one core)": _number(sum(hours[key] for key in MEASURED["METIS, s"])),
            "rankings, core hours": _number(threads * hours["both rankings"]),
            "hops, core hours": _number(threads * hours["hop features"]),
        }
        for name, cell in cells.items():
            lines.setdefault(name, [name]).append(cell)
    return markdown_table(["edges", *(f"10^{power}" for power in powers)], list(lines.values()))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _bytes(value: float) -> str:
    return f"{_number(value / 1e9)} GB" if value < 1e12 else f"{_number(value / 1e12)} TB"


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, device=True, out="results/scale.json")
    parser.add_argument("--sizes", type=float, nargs="+", default=(0.01, 0.1, 1.0), help="fractions of Amazon2M")
    parser.add_argument("--steps", type=int, default=10, help="of training, on the CPU; 0: none is measured")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--partitioner", help="as in tokens.partitioner; default: as in the preset")
    parser.add_argument("--folder", type=Path, default=Path("data/scale"), help="for graph and store (15 GB at size 1)")
    parser.add_argument("--keep", action="store_true", help="keep graph and store")
    parser.add_argument("--tables", action="store_true", help="only print the tables of the documentation")
    return parser


def main() -> None:
    """Run the sizes one after the other; each replaces its row of the result."""
    arguments = make_parser().parse_args()
    earlier = read_rows(arguments.out)
    if arguments.tables:
        print(measured_table(earlier), outlook_table(earlier[-1]), sep="\n\n")
        return
    rows = {row["size"]: row for row in earlier}
    for size in arguments.sizes:
        folder = arguments.folder / f"{size:g}"
        shutil.rmtree(folder / "tokens", ignore_errors=True)
        if not (folder / "graph" / "manifest.json").is_file():
            print(f"size {size:g}: generate the graph", flush=True)
            start = time.perf_counter()
            in_a_process(make_graph, size, folder / "graph")
            print(f"size {size:g}: generated and saved in {time.perf_counter() - start:.0f} s", flush=True)
        print(f"size {size:g}: measure", flush=True)
        how = arguments.threads, arguments.device, arguments.partitioner
        rows[size] = in_a_process(measure, size, folder, *how)
        if arguments.steps:
            rows[size] |= in_a_process(train, folder, arguments.steps)
        if not arguments.keep:
            shutil.rmtree(folder)
        measured = {key: value for key, value in rows[size].items() if not isinstance(value, dict)}
        print_table([{"what": key, "value": value} for key, value in measured.items()])
        write_result(arguments.out, {"rows": [rows[key] for key in sorted(rows)]})
