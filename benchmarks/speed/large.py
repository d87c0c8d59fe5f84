"""Time and memory from an empty folder to predictions for all nodes, at up to ten times Amazon2M's size.

    python -m benchmarks large --nodes 10000000        40 minutes on two cores by extrapolation

Graphs have 25 edges per node, 100 features, 47 classes and communities of about 1,000 nodes, as `python -m benchmarks
scale`. Settings are the authors' for Amazon2M, but with 3 hops instead of 10, so that ten million nodes need no more
than 20 GB on disk, and with a partitioner whose memory does not grow with the edges. Training steps have the authors'
model of width 512, whose predictions for all nodes would take hours on a CPU. So all nodes are predicted by a small
model (width 64, readout target), trained for 200 streamed steps.

Each stage has a process of its own and leaves a file: the same command goes on after an interruption. A finished stage
is printed at once, and the row of results/large.json grows with it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.common import (
    in_a_process,
    markdown_table,
    new_parser,
    random_splits,
    read_rows,
    this_command,
    variant_config,
    write_result,
)
from benchmarks.speed.communities import Communities, write_communities
from benchmarks.speed.growth import slope
from benchmarks.speed.scale import CLASSES, FEATURES
from benchmarks.speed.scale import train as measure_steps
from benchmarks.speed.steps import make_trainer
from vcr_graphormer.base.files import read_json, write_json
from vcr_graphormer.base.machine import default_threads, peak_memory, reset_peak_memory
from vcr_graphormer.ranking.connections import PARTITIONERS
from vcr_graphormer.training.devices import torch_threads
from vcr_graphormer.training.inference import compute

EDGES_PER_NODE, COMMUNITY = 25, 1000
SMALL: dict[str, Any] = {"hidden_channels": 64, "readout": "target"}
STEPS = 200  # of the small model
AT_ONCE = 1 << 18  # nodes whose logits are in memory while all are predicted
SECONDS_BETWEEN_LOOKS = 0.1
STATUS = Path("/proc/self/status")


def token_config(hops: int, neighbours: tuple[int, int], partitioner: str) -> vcr.TokenConfig:
    """Return the authors' settings for Amazon2M, apart from these."""
    structure, content = neighbours
    config = variant_config("Amazon2M", "paper").tokens
    return replace(config, hops=hops, structure_tokens=structure, content_tokens=content, partitioner=partitioner)


def generate(nodes: int, folder: Path, threads: int) -> dict[str, Any]:
    """Write the graph."""
    communities = max(CLASSES, nodes // COMMUNITY)
    form = Communities(nodes, EDGES_PER_NODE * nodes, CLASSES, communities, FEATURES)
    write_communities(form, folder / "graph", threads)
    return {}


def check(folder: Path) -> dict[str, Any]:
    """Open the graph for the first time, which checks all arcs and features."""
    graph = vcr.Graph.open(folder / "graph")
    size = sum(file.stat().st_size for file in (folder / "graph").iterdir())
    return {"nodes": graph.num_nodes, "edges": graph.num_edges, "graph gigabytes": size / 1e9}


def tokenize(folder: Path, config: vcr.TokenConfig, threads: int) -> dict[str, Any]:
    """Compute all token lists; a part that an earlier process finished is not computed again."""
    graph = vcr.Graph.open(folder / "graph")
    [split] = random_splits(graph, [0])
    begun: dict[str, float] = {}

    def show(stage: str, done: int, total: int) -> None:
        now = time.perf_counter()
        start = begun.setdefault(stage, now)
        if done == total:
            print(f"    {stage}: {now - start:.1f} s", flush=True)

    store = vcr.tokenize(graph, split.train, config, folder / "tokens", threads, progress=show)
    stages = json.loads((store.path / "stages.json").read_text())
    return {
        "stages": stages,
        "peak": max(stage["peak_bytes"] for stage in stages.values()) / 1e9,
        "store gigabytes": store.num_bytes / 1e9,
    }


def predict(folder: Path) -> dict[str, Any]:
    """Train a small model for some streamed steps, then predict the class of every node."""
    graph, store = vcr.Graph.open(folder / "graph"), vcr.TokenStore.open(folder / "tokens")
    [split] = random_splits(graph, [0])
    config = variant_config("Amazon2M", "paper")
    config = replace(config, model=replace(config.model, **SMALL), training=replace(config.training, warmup_steps=10))
    inputs = vcr.make_inputs(graph, store, config.model, split.train, torch.device("cpu"), streamed=True)
    trainer, labels = make_trainer(graph, split, config, inputs), np.asarray(graph.labels)
    size = min(config.training.batch_size, len(split.train))
    drawn = np.random.default_rng(0).choice(split.train, (STEPS, size))
    start, processor = time.perf_counter(), time.process_time()
    parts = list(torch.from_numpy(drawn))
    for part, batch in zip(parts, inputs.batches_of(parts), strict=True):
        trainer.advance(part, torch.from_numpy(labels[part.numpy()]), batch)
    trained, trained_processor = time.perf_counter() - start, time.process_time() - processor
    predicted = np.empty(graph.num_nodes, dtype=np.int16)
    for first in range(0, graph.num_nodes, AT_ONCE):
        nodes = np.arange(first, min(first + AT_ONCE, graph.num_nodes))
        predicted[nodes] = compute(trainer.model, inputs, nodes, trainer.micro_batch).argmax(axis=1)
    np.save(folder / "predicted.npy", predicted)
    return {
        "training seconds": trained,
        "predict seconds": time.perf_counter() - start - trained,
        "predict processor seconds": time.process_time() - processor - trained_processor,
        "test accuracy": float((predicted[split.test] == labels[split.test]).mean()),
    }


def measured(work: Callable[[], dict[str, Any]], threads: int) -> dict[str, Any]:
    """Call a stage with so many threads of torch; return what it returns, with its seconds and peaks of memory.

    The peak counts mapped pages of files, which the system takes back when it needs them. "Own" memory does not.
    """
    reset_peak_memory()
    start, processor = time.perf_counter(), time.process_time()
    with own_memory() as own, torch_threads(threads):
        result = work()
    return {
        "seconds": time.perf_counter() - start,
        "processor seconds": time.process_time() - processor,
        "peak gigabytes": max(peak_memory() / 1e9, result.pop("peak", 0.0)),
        "own gigabytes": own[0] / 1e9,
        **result,
    }


@contextmanager
def own_memory() -> Iterator[list[int]]:
    """Yield a list with the largest memory without mapped files, by looking ten times a second."""
    largest, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            lines = STATUS.read_text().splitlines() if STATUS.is_file() else []
            used = [int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")]
            largest[0] = max(largest[0], *used, 0)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield largest
    finally:
        ended.set()
        thread.join()


def measure(nodes: int, folder: Path, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the row of one size after each stage; stages that left a file are not run again."""
    threads = default_threads(arguments.threads)
    config = token_config(arguments.hops, tuple(arguments.neighbours), arguments.partitioner)
    structure, content = arguments.neighbours
    row: dict[str, Any] = {
        "nodes": nodes,
        "edges": EDGES_PER_NODE * nodes,
        "threads": threads,
        "settings": f"{arguments.hops} hops, {structure} + {content} neighbours, {arguments.partitioner}",
        "command": this_command(),
    }
    stages = {
        "generate": partial(generate, nodes, folder, threads),
        "check": partial(check, folder),
        "tokenize": partial(tokenize, folder, config, threads),
        "predict": partial(predict, folder),
        "steps": partial(measure_steps, folder, arguments.steps),  # drops the files from the page cache
    }
    for name, work in stages.items():
        file = folder / f"{name}.json"
        if not file.is_file():
            write_json(file, in_a_process(measured, work, threads))
        row[name] = read_json(file)
        numbers = {key: value for key, value in row[name].items() if isinstance(value, float)}
        print(f"  {name}: {', '.join(f'{key} {value:,.4g}' for key, value in numbers.items())}", flush=True)
        yield row


# Stages of the table: title, stage of the row, stages of tokenize that are added up.
STAGES: dict[str, tuple[str, ...]] = {
    "generate and save": ("generate",),
    "open for the first time": ("check",),
    "clusters": ("tokenize", "structure connections", "coarse clusters"),
    "vectors": ("tokenize", "structure vectors", "content vectors"),
    "rankings": ("tokenize", "structure ranking", "content ranking"),
    "hops": ("tokenize", "hop features"),
    "predict all nodes": ("predict",),
}
WHOLE = "everything but training"
MAIN = ("generate", "check", "tokenize", "predict")
HEAVY = ("generate", "tokenize", "predict")  # whose memory the table lists
# More lines of the table: title, and what of which stage is added up.
FACTS: tuple[tuple[Any, ...], ...] = (
    ("everything with 200 steps of training, s", *((stage, "seconds") for stage in MAIN)),
    ("tokenize, s", ("tokenize", "seconds")),
    ("predict all nodes, s", ("predict", "predict seconds")),
    ("training step of width 512, ms", ("steps", "step ms, files warm")),
    *((f"peak memory, {stage}, GB", (stage, "peak gigabytes")) for stage in ("generate", "tokenize", "predict")),
    *(
        (f"without mapped files, {stage}, GB", (stage, "own gigabytes"))
        for stage in ("generate", "tokenize", "predict")
    ),
    ("graph on disk, GB", ("check", "graph gigabytes")),
    ("store on disk, GB", ("tokenize", "store gigabytes")),
)
ACCURACY = "test accuracy of the small model"


def processor_seconds(row: dict[str, Any], title: str) -> float:
    """Return the processor time of a stage of the table, or of all; the training steps do not grow with the graph."""
    if title == WHOLE:
        return float(sum(_processor_seconds(row, stage) for stage in MAIN))
    stage, *parts = STAGES[title]
    if not parts:
        return _processor_seconds(row, stage)
    return float(sum(row[stage]["stages"].get(part, {"processor_seconds": 0})["processor_seconds"] for part in parts))


def _processor_seconds(row: dict[str, Any], stage: str) -> float:
    return float(row[stage]["predict processor seconds" if stage == "predict" else "processor seconds"])


def table(rows: list[dict[str, Any]]) -> str:
    """Return the finished rows as Markdown, one column each, with the slopes of those on two threads."""
    rows = [row for row in rows if "steps" in row]
    fitted = [row for row in rows if row["threads"] == 2]
    lines = [["nodes", *(f"{row['nodes']:,}" for row in rows)], ["threads", *(str(row["threads"]) for row in rows)]]
    for title in (*STAGES, WHOLE):
        values = [processor_seconds(row, title) for row in rows]
        points = [{"edges": row["edges"], "seconds": processor_seconds(row, title)} for row in fitted]
        lines.append([f"{title}, processor s", *map(_number, values), _slope(points), _slope(points[-2:])])
    for title, *keys in FACTS:
        values = [sum(row[stage][key] for stage, key in keys) for row in rows]
        lines.append([title, *map(_number, values)])
    lines.append([ACCURACY, *(f"{row['predict']['test accuracy']:.3f}" for row in rows)])
    header = ["edges", *(_power(row["edges"]) for row in rows), "slope", "last slope"]
    return markdown_table(header, [line + ["–"] * (len(header) - len(line)) for line in lines])


def _power(value: float) -> str:
    return f"{value:.1e}".replace("e+0", " · 10^").replace("e+", " · 10^")


def _slope(points: list[dict[str, Any]]) -> str:
    return f"{slope(points, 'edges', 'seconds'):.2f}" if len(points) > 1 else "–"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/large.json")
    parser.add_argument("--nodes", type=int, nargs="+", default=(4_000, 40_000, 400_000, 10_000_000))
    parser.add_argument("--hops", type=int, default=3)
    parser.add_argument("--neighbours", type=int, nargs=2, default=(5, 5), metavar=("STRUCTURE", "CONTENT"))
    parser.add_argument("--partitioner", choices=PARTITIONERS, default="propagation")
    parser.add_argument("--steps", type=int, default=4, help="training steps of the authors' model")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--folder", type=Path, default=Path("data/large"), help="for graph and store (20 GB at 10^7)")
    parser.add_argument("--keep", action="store_true", help="keep graph and store")
    parser.add_argument("--tables", action="store_true", help="only print the table of the documentation")
    return parser


def main() -> None:
    """Run the sizes one after the other; each replaces its row of the result."""
    arguments = make_parser().parse_args()
    rows = {(row["threads"], row["nodes"]): row for row in read_rows(arguments.out)}
    if arguments.tables:
        print(table([rows[key] for key in sorted(rows)]))
        return
    for nodes in arguments.nodes:
        print(f"{nodes:,} nodes, {EDGES_PER_NODE * nodes:,} edges", flush=True)
        folder = arguments.folder / str(nodes)
        folder.mkdir(parents=True, exist_ok=True)
        for row in measure(nodes, folder, arguments):
            rows[row["threads"], nodes] = row
            write_result(arguments.out, {"rows": [rows[key] for key in sorted(rows)]})
        if not arguments.keep:
            shutil.rmtree(folder)
