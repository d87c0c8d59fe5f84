"""Steps per second, device utilisation and memory: inputs on the device, and streamed to it from the files.

    python benchmarks/throughput.py --data ROOT --device cuda [--graphs PubMed Physics Amazon2M] [--size 1]

PubMed and Physics with the authors' settings and real token lists. Amazon2M is its shape: 2.45 million nodes, 100
features, 10 hops, 5 + 5 neighbours, with drawn features and drawn neighbours, for a step's cost depends on shapes only
(drawn neighbours are the worst case for reading). Utilisation is nvidia-smi's, sampled from the first step on; the
six steps that warm up and are recorded before time is taken lower it. Writes results/throughput-DEVICE.json.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.common import print_table, write_result
from benchmarks.scale import CLASSES, FEATURES, NODES
from benchmarks.training import load, peak_gigabytes, replace_floats
from vcr_graphormer.base.folders import write_manifest
from vcr_graphormer.runs.config import load_config
from vcr_graphormer.tokens.store import FORMAT_VERSION, KIND
from vcr_graphormer.training.devices import choose_precision, find_device
from vcr_graphormer.training.trainer import Examples, Trainer


def imitate(size: float, config: vcr.TokenConfig, folder: Path) -> tuple[vcr.Graph, vcr.TokenStore]:
    """A graph and a token store of Amazon2M's shape, drawn at random; edges do not matter for training."""
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
    meta = {"config": {**asdict(config), "content": "labels", "num_features": FEATURES}, "identity": {}}
    write_manifest(tokens, KIND, FORMAT_VERSION, arrays, meta, dict.fromkeys(arrays, "not computed"))
    return vcr.Graph.open(folder / "graph"), vcr.TokenStore.open(tokens)


@contextmanager
def watched(device: torch.device) -> Iterator[dict[str, float]]:
    """What nvidia-smi sees meanwhile: mean utilisation in percent, largest memory in use."""
    found: dict[str, float] = {}
    if device.type != "cuda":
        yield found
        return
    query = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "50"]
    with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as watcher:
        try:
            yield found
        finally:
            watcher.terminate()
            lines = (watcher.stdout.read() if watcher.stdout else "").splitlines()
    rows = [[float(value) for value in line.split(",")] for line in lines if line.count(",") == 1]
    if rows:
        found["utilisation_percent"] = float(np.mean([row[0] for row in rows[1:] or rows]))
        found["memory_in_use_gb"] = max(row[1] for row in rows) * 2**20 / 1e9


def measure(
    graph: vcr.Graph, store: vcr.TokenStore, config: vcr.Config, device: torch.device, streamed: bool, steps: int
) -> dict[str, Any]:
    """One row: full batches of training nodes in random order, after some to warm up."""
    split = vcr.Split.random(graph.labels, 0.6, 0.2, seed=0)
    precision = choose_precision("auto", device)
    inputs = vcr.make_inputs(graph, store, config.model, split.train, device, precision, streamed)
    torch.manual_seed(0)
    structure = int(store.ids("structure").shape[1])
    model = vcr.VCRGraphormer(config.model, graph.num_features, graph.num_classes, store.num_hops, structure).to(device)
    labels = np.asarray(graph.labels)
    train, val = (Examples(part, labels[part]) for part in (split.train, split.val))
    size = min(config.training.batch_size, len(split.train))
    trainer = Trainer(model, inputs, train, val, "classification", replace(config.training, batch_size=size))
    model.train()
    random, warm_up = np.random.default_rng(0), 6
    parts = [torch.from_numpy(random.choice(split.train, size, replace=False)) for _ in range(steps + warm_up)]
    wanted = [torch.from_numpy(labels[part.numpy()]).to(device) for part in parts]
    ready: Iterator[Any] = inputs.batches_of(parts) if streamed else iter([None] * len(parts))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with watched(device) as seen:
        for number, (part, label, batch) in enumerate(zip(parts, wanted, ready, strict=True)):
            if number == warm_up:
                _wait(device)
                start = time.perf_counter()
            trainer.advance(part.to(inputs.home), label, batch)
        _wait(device)
        seconds = time.perf_counter() - start
    row = {"graph": graph.name, "nodes": graph.num_nodes, "tokens": store.num_tokens, "batch": size}
    row |= {"inputs": "streamed" if streamed else "on the device", "precision": str(precision).removeprefix("torch.")}
    row |= {"steps_per_second": steps / seconds, "nodes_per_second": steps * size / seconds, **seen}
    return row | {"inputs_gb": inputs.num_bytes / 1e9, "peak_gb": peak_gigabytes(device)}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as docs/scaling.md prints them."""
    names = ("graph", "inputs", "tokens", "steps / s", "nodes / s", "utilisation, %", "inputs, GB", "peak memory, GB")
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    for row in rows:
        graph = "Amazon2M's shape" if row["graph"] == "generated" else row["graph"]
        cells = [graph, row["inputs"], str(row["tokens"]), f"{row['steps_per_second']:.0f}"]
        cells += [f"{row['nodes_per_second']:,.0f}", f"{row['utilisation_percent']:.0f}"]
        lines.append("| " + " | ".join([*cells, f"{row['inputs_gb']:.1f}", f"{row['peak_gb']:.1f}"]) + " |")
    return "\n".join(lines)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Every graph, on the device and streamed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--graphs", nargs="+", default=["PubMed", "Physics", "Amazon2M"])
    parser.add_argument("--size", type=float, default=1.0, help="of Amazon2M's shape")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device, rows = find_device(arguments.device), []
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.graphs:
            config = load_config(options={"data": {"dataset": name}}, variant="paper")
            if name == "Amazon2M":
                graph, store = imitate(arguments.size, config.tokens, Path(folder))
            else:
                graph = load(name, arguments.data)
                train = vcr.Split.random(graph.labels, 0.6, 0.2, seed=0).train
                store = vcr.tokenize(graph, train, config.tokens, Path(folder) / name)
            for streamed in (False, True):
                rows.append(replace_floats(measure(graph, store, config, device, streamed, arguments.steps)))
                print_table(rows[-1:])
    out = arguments.out or Path(f"results/throughput-{device.type}.json")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    write_result(out, {"device": name, "rows": rows})


if __name__ == "__main__":
    main()
