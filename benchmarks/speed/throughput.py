"""Training steps per second, use of the device and memory, with inputs on the device or streamed to it from files.

    python -m benchmarks throughput --data ROOT --device cuda --graphs PubMed Physics Amazon2M --size 1

All graphs have the authors' settings; PubMed and Physics have real token lists. For Amazon2M (2.45 million nodes, 100
features, 10 hops, 5 + 5 neighbours) features and neighbours are drawn at random: a step's time depends on shapes only,
and random neighbours are the worst case for reading. Steps run for `--seconds`, after the first ones, which warm up and
record. Utilisation is the mean of nvidia-smi's samples in that time. Writes results/throughput-DEVICE.json.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.common import (
    load_graph,
    markdown_table,
    new_parser,
    print_table,
    random_splits,
    variant_config,
    write_result,
)
from benchmarks.speed.scale import CLASSES, FEATURES, NODES
from benchmarks.speed.steps import (
    device_name,
    make_trainer,
    peak_gigabytes,
    precision_name,
    reset_peak,
    rounded,
    wait,
)
from vcr_graphormer.base.folders import write_manifest
from vcr_graphormer.tokens.store import FORMAT_VERSION, KIND
from vcr_graphormer.training.devices import choose_precision, find_device

WARM_UP = 30  # steps: the readers' memory is taken from the system by then, and the step is recorded
BATCHES = 256  # different ones


def imitate(size: float, config: vcr.TokenConfig, folder: Path) -> tuple[vcr.Graph, vcr.TokenStore]:
    """Write and return a random graph and token store of Amazon2M's shape; training steps read no edges."""
    nodes, random = round(NODES * size), np.random.default_rng(0)
    vcr.generate(nodes, 2 * nodes, classes=CLASSES, features=FEATURES).save(folder / "graph")
    tokens = folder / "tokens"
    tokens.mkdir()
    arrays: dict[str, Any] = {}
    for kind, count in (("structure", config.structure_tokens), ("content", config.content_tokens)):
        arrays[f"{kind}_ids"] = random.integers(0, nodes, (nodes, count), dtype=np.int32)
        arrays[f"{kind}_scores"] = random.random((nodes, count), dtype=np.float32)
        arrays[f"{kind}_assignment"] = np.zeros(nodes, dtype=np.int32)
    hop = random.standard_normal((nodes, FEATURES), dtype=np.float32)
    arrays |= {f"hop_{number}": hop for number in range(1, config.hops + 1)}
    for name, array in arrays.items():
        np.save(tokens / f"{name}.npy", array)
    about = replace(config, content="labels", distinct=False).to_dict()  # random nodes may come twice
    meta = {"config": {**about, "num_features": FEATURES}, "identity": {}}
    write_manifest(tokens, KIND, FORMAT_VERSION, arrays, meta, dict.fromkeys(arrays, "not computed"))
    return vcr.Graph.open(folder / "graph"), vcr.TokenStore.open(tokens)


@contextmanager
def watched(device: torch.device) -> Iterator[dict[str, float]]:
    """Fill a dictionary with what nvidia-smi samples meanwhile: mean utilisation in percent, largest memory."""
    sampled: dict[str, float] = {}
    if device.type != "cuda":
        yield sampled
        return
    query = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "50"]
    with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as watcher:
        try:
            yield sampled
        finally:
            watcher.terminate()
            lines = (watcher.stdout.read() if watcher.stdout else "").splitlines()
    rows = [[float(value) for value in line.split(",")] for line in lines if line.count(",") == 1]
    if rows:
        sampled["utilisation_percent"] = float(np.mean([row[0] for row in rows[1:] or rows]))
        sampled["memory_in_use_gb"] = max(row[1] for row in rows) * 2**20 / 1e9


def measure(
    graph: vcr.Graph, store: vcr.TokenStore, config: vcr.Config, device: torch.device, streamed: bool, seconds: float
) -> dict[str, Any]:
    """Return one row: full batches of random training nodes for some seconds, after some steps to warm up."""
    [split] = random_splits(graph, [0])
    precision = choose_precision("auto", device)
    inputs = vcr.make_inputs(graph, store, config.model, split.train, device, precision, streamed)
    size, labels = min(config.training.batch_size, len(split.train)), np.asarray(graph.labels)
    config = replace(config, training=replace(config.training, batch_size=size))
    trainer = make_trainer(graph, split, config, inputs)
    random = np.random.default_rng(0)
    parts = [torch.from_numpy(random.choice(split.train, size, replace=False)) for _ in range(BATCHES)]
    targets = [torch.from_numpy(labels[part.numpy()]).to(device) for part in parts]
    batches: Iterator[Any] = inputs.batches_of(cycle(parts), packed=True) if streamed else repeat(None)
    todo = zip(cycle(parts), cycle(targets), batches, strict=False)

    def advance() -> None:
        part, target, batch = next(todo)
        trainer.advance(part.to(inputs.home), target, batch)

    reset_peak(device)
    for _ in range(WARM_UP):
        advance()
    wait(device)
    with watched(device) as sampled:
        start, steps = time.perf_counter(), 0
        while time.perf_counter() < start + seconds:
            advance()
            steps += 1
        wait(device)
        took = time.perf_counter() - start
    row = {"graph": graph.name, "nodes": graph.num_nodes, "tokens": store.num_tokens, "batch": size}
    row |= {"inputs": "streamed" if streamed else "on the device", "precision": precision_name(precision)}
    row |= {"steps_per_second": steps / took, "nodes_per_second": steps * size / took, "seconds": took, **sampled}
    return row | {"inputs_gb": inputs.num_bytes / 1e9, "peak_gb": peak_gigabytes(device)}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown, for the documentation."""
    header = ("graph", "inputs", "tokens", "steps / s", "nodes / s", "utilisation, %", "inputs, GB", "peak memory, GB")
    lines = []
    for row in rows:
        graph = "Amazon2M's shape" if row["graph"] == "generated" else row["graph"]
        cells = [graph, row["inputs"], str(row["tokens"]), f"{row['steps_per_second']:.0f}"]
        cells += [f"{row['nodes_per_second']:,.0f}", f"{row['utilisation_percent']:.0f}"]
        lines.append([*cells, f"{row['inputs_gb']:.1f}", f"{row['peak_gb']:.1f}"])
    return markdown_table(header, lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=("PubMed", "Physics", "Amazon2M"), more_graphs=True)
    parser.add_argument("--size", type=float, default=1.0, help="fraction of Amazon2M")
    parser.add_argument("--seconds", type=float, default=20.0, help="that steps run after the first ones")
    parser.add_argument("--out", type=Path, help="default: results/throughput-DEVICE.json")
    return parser


def main() -> None:
    """Measure every graph with inputs on the device and streamed."""
    arguments = make_parser().parse_args()
    device, rows = find_device(arguments.device), []
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.graphs:
            config = variant_config(name, "paper")
            if name == "Amazon2M":
                graph, store = imitate(arguments.size, config.tokens, Path(folder))
            else:
                graph = load_graph(name, arguments.data)
                [split] = random_splits(graph, [0])
                store = vcr.tokenize(graph, split.train, config.tokens, Path(folder) / name)
            for streamed in (False, True):
                rows.append(rounded(measure(graph, store, config, device, streamed, arguments.seconds)))
                print_table(rows[-1:])
    out = arguments.out or Path(f"results/throughput-{device.type}.json")
    write_result(out, {"device": device_name(device), "rows": rows})
