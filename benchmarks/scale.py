"""The whole pipeline on a generated graph of Amazon2M's shape: open, METIS, rankings, hops, store, training steps.

    python benchmarks/scale.py --sizes 0.01 0.1 1          results/scale.json; the last takes half an hour on two cores

2.45 million nodes and 61.9 million edges at size 1, 100 features, 47 classes; s̄ = 300, k̄ = k̂ = 5, L = 10, width 512,
batches of 2,000: the authors' settings. Token lists and training have a process of their own for each size, so that
their peak memory is their own. Steps are measured with the files cold (dropped from the page cache) and warm, against
the same steps on batches that lie ready in memory: the ratio says what reading costs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.common import print_table, write_result
from vcr_graphormer.base.machine import peak_memory
from vcr_graphormer.runs.config import load_config
from vcr_graphormer.tokens.resources import METIS_PER_ARC, PARTITION_PER_NODE, THREAD_PER_NODE, VECTORS_PER_NODE
from vcr_graphormer.training.trainer import Examples, Trainer

NODES, EDGES, FEATURES, CLASSES = 2_449_029, 61_859_140, 100, 47
RANKINGS = ("structure vectors", "structure ranking", "content vectors", "content ranking")


def make_graph(size: float, folder: Path, seed: int = 0) -> None:
    """Draw and save the graph: communities of about 1,000 nodes, four of five edges inside."""
    nodes, edges = round(NODES * size), round(EDGES * size)
    graph = vcr.generate(
        nodes,
        edges,
        classes=CLASSES,
        communities=max(CLASSES, nodes // 1000),
        features=FEATURES,
        homophily=0.8,
        seed=seed,
    )
    graph.save(folder, overwrite=True)


def measure(size: float, folder: Path, threads: int | None) -> dict[str, Any]:
    """Seconds and peak memory of every stage before training."""
    start = time.perf_counter()
    graph = vcr.Graph.open(folder / "graph")
    split = vcr.Split.random(graph.labels, 0.6, 0.2, seed=0)
    config = settings()
    before = {"nodes": graph.num_nodes, "edges": graph.num_edges, "open": time.perf_counter() - start}
    store = vcr.tokenize(graph, split.train, config.tokens, folder / "tokens", threads, progress=_say)
    row: dict[str, Any] = {"size": size, **before, "before training": time.perf_counter() - start}
    stages = json.loads((store.path / "stages.json").read_text())
    row |= {name: stage["seconds"] for name, stage in stages.items()}
    row["both rankings"] = sum(stages[name]["seconds"] for name in RANKINGS)
    row["visits per node"] = sum(stages[name]["visits"] for name in RANKINGS) / graph.num_nodes
    row["peak gigabytes"] = max(stage["peak_bytes"] for stage in stages.values()) / 1e9
    row["peak gigabytes by stage"] = {name: stage["peak_bytes"] / 1e9 for name, stage in stages.items()}
    row["store gigabytes"] = store.num_bytes / 1e9
    return row


def settings() -> vcr.Config:
    """The authors' settings for Amazon2M."""
    return load_config(options={"data": {"dataset": "Amazon2M"}}, variant="paper")


def train(folder: Path, steps: int) -> dict[str, Any]:
    """Milliseconds of a step on batches from the store, cold and warm, and on batches at hand."""
    forget(folder)
    graph, store, config = vcr.Graph.open(folder / "graph"), vcr.TokenStore.open(folder / "tokens"), settings()
    split = vcr.Split.random(graph.labels, 0.6, 0.2, seed=0)
    inputs = vcr.make_inputs(graph, store, config.model, split.train, torch.device("cpu"), streamed=True)
    structure = int(store.ids("structure").shape[1])
    torch.manual_seed(0)
    model = vcr.VCRGraphormer(config.model, graph.num_features, graph.num_classes, store.num_hops, structure)
    labels = np.asarray(graph.labels)
    train_part, val_part = (Examples(part, labels[part]) for part in (split.train, split.val))
    trainer = Trainer(model, inputs, train_part, val_part, "classification", config.training)
    model.train()
    size, order = config.training.batch_size, np.random.default_rng(0).permutation(split.train)
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
    """Drop the files from the page cache; nobody may have them mapped."""
    for file in folder.glob("*/*.npy"):
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _say(stage: str, done: int, total: int) -> None:
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
    """The rows of results/scale.json as Markdown, one column per size."""
    lines = ["| | " + " | ".join(f"size {row['size']:g}" for row in rows) + " |", "| --- " * (len(rows) + 1) + "|"]
    for name, keys in MEASURED.items():
        values = [sum(row[key] for key in ((keys,) if isinstance(keys, str) else keys)) for row in rows]
        if " ms" in str(keys):
            values = [value / 1000 for value in values]
        lines.append(f"| {name} | " + " | ".join(_number(value) for value in values) + " |")
    return "\n".join(lines)


def outlook_table(row: dict[str, Any], threads: int = 2) -> str:
    """What 10^6, 10^8 and 10^10 edges of the same kind need: seconds in proportion to edges, bytes by `resources`."""
    lines = ["| edges | " + " | ".join(f"10^{power}" for power in (6, 8, 10)) + " |", "| --- | --- | --- | --- |"]
    table: dict[str, list[str]] = {}
    for power in (6, 8, 10):
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
            table.setdefault(name, []).append(cell)
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in table.items()]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _bytes(value: float) -> str:
    return f"{_number(value / 1e9)} GB" if value < 1e12 else f"{_number(value / 1e12)} TB"


def in_a_process(work: Any, *arguments: Any) -> Any:
    """Run it in a fresh process, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def main() -> None:
    """Run the sizes one after the other; each replaces its row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=(0.01, 0.1, 1.0))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder", type=Path, default=Path("data/scale"), help="for graph and store (15 GB at size 1)")
    parser.add_argument("--keep", action="store_true", help="keep graph and store")
    parser.add_argument("--out", type=Path, default=Path("results/scale.json"))
    parser.add_argument("--tables", action="store_true", help="only print the tables of docs/scaling.md")
    arguments = parser.parse_args()
    if arguments.tables:
        found = json.loads(arguments.out.read_text())["rows"]
        print(measured_table(found), outlook_table(found[-1]), sep="\n\n")
        return
    rows: dict[float, dict[str, Any]] = {}
    if arguments.out.is_file():
        rows = {row["size"]: row for row in json.loads(arguments.out.read_text())["rows"]}
    for size in arguments.sizes:
        folder = arguments.folder / f"{size:g}"
        shutil.rmtree(folder / "tokens", ignore_errors=True)
        if not (folder / "graph" / "manifest.json").is_file():
            print(f"size {size:g}: draw the graph", flush=True)
            in_a_process(make_graph, size, folder / "graph")
        print(f"size {size:g}: measure", flush=True)
        rows[size] = in_a_process(measure, size, folder, arguments.threads)
        rows[size] |= in_a_process(train, folder, arguments.steps)
        if not arguments.keep:
            shutil.rmtree(folder)
        measured = {key: value for key, value in rows[size].items() if not isinstance(value, dict)}
        print_table([{"what": key, "value": value} for key, value in measured.items()])
        write_result(arguments.out, {"rows": [rows[key] for key in sorted(rows)]})


if __name__ == "__main__":
    main()
