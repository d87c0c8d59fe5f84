"""Training steps and inference against the plain dense reference: same weights, same device, same run.

    python benchmarks/training.py --data ROOT [--device cuda] [--graphs CS Physics PubMed Computer]

ROOT holds the published raw files, or graphs saved by `Graph.save` under their names. Both sides take whole optimizer
steps with the paper's settings; before that, their logits are compared in float32 without dropout.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vcr_graphormer as vcr
from benchmarks.common import print_table, write_result
from benchmarks.dense_reference import DenseReference
from vcr_graphormer.training.devices import choose_precision, find_device
from vcr_graphormer.training.inference import compute
from vcr_graphormer.training.trainer import Examples, Trainer

# The authors' settings: hops, clusters, structure, content, hidden, layers.
PAPER = {
    "PubMed": (7, 10, 16, 13, 512, 1),
    "Computer": (3, 10, 11, 16, 512, 1),
    "Photo": (3, 10, 5, 5, 512, 1),
    "CS": (3, 20, 5, 5, 512, 3),
    "Physics": (4, 50, 10, 20, 128, 1),
}
BATCH = 2000


def load(name: str, root: str, directed: bool = False) -> vcr.Graph:
    """By published name, or a graph saved under that name (NAME-directed where the direction is kept)."""
    saved = Path(root) / (f"{name}-directed" if directed else name) / "manifest.json"
    return vcr.Graph.open(saved.parent) if saved.is_file() else vcr.load_dataset(name, root, directed)


def median_ms(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Median time of one call after some to warm up (a GPU's step is recorded at its fourth call)."""
    times = []
    warm_up = 6 if device.type == "cuda" else 2
    for number in range(repeats + warm_up):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if number >= warm_up:
            times.append(1000 * (time.perf_counter() - start))
    return float(np.median(times))


def peak_gigabytes(device: torch.device) -> float:
    """Of the GPU since the last reset, of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def measure(name: str, root: str, tokens: str, device: torch.device, repeats: int, compiled: bool) -> dict[str, Any]:
    """One row: our step and inference, the reference's, and how far their numbers are apart."""
    hops, clusters, structure, content, hidden, layers = PAPER[name]
    graph = load(name, root)
    split = vcr.Split.random(graph.labels, 0.6, 0.2, seed=0)
    settings = vcr.TokenConfig(hops=hops, clusters=clusters, structure_tokens=structure, content_tokens=content)
    store = vcr.tokenize(graph, split.train, settings, Path(tokens) / name)
    model_config = vcr.ModelConfig(hidden_channels=hidden, layers=layers)
    config = vcr.TrainConfig(batch_size=BATCH, warmup_steps=400, decay_steps=1000, compile=compiled)
    precision = choose_precision("auto", device)
    inputs = vcr.make_inputs(graph, store, model_config, split.train, device, precision)
    exact = vcr.make_inputs(graph, store, model_config, split.train, device, torch.float32)
    torch.manual_seed(0)
    model = vcr.VCRGraphormer(model_config, graph.num_features, graph.num_classes, hops, structure).to(device)
    labels = np.asarray(graph.labels)
    train, val = (Examples(part, labels[part]) for part in (split.train, split.val))
    trainer = Trainer(model, inputs, train, val, "classification", config)
    nodes = torch.from_numpy(split.train[:BATCH]).to(device)
    wanted = torch.from_numpy(labels[split.train[:BATCH]]).to(device)
    row: dict[str, Any] = {
        "graph": name,
        "device": _name(device),
        "precision": str(precision).removeprefix("torch."),
        "compiled": compiled,
    }

    def step() -> None:
        trainer.advance(nodes, wanted)

    model.train()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    row["step_ms"] = median_ms(step, device, repeats)
    row["inference_ms"] = median_ms(
        lambda: compute(trainer._low_precision(model), inputs, split.train[:BATCH], trainer.micro_batch),
        device,
        repeats,
    )
    if device.type == "cuda":
        row["epoch_ms"] = median_ms(trainer._run_epoch, device, 20)
    row["inputs_gb"] = inputs.num_bytes / 1e9
    row["peak_gb"] = peak_gigabytes(device)
    return row | measure_reference(model, exact, nodes, wanted, row, repeats)


def measure_reference(
    model: vcr.VCRGraphormer, inputs: vcr.Inputs, nodes: Tensor, wanted: Tensor, row: dict[str, Any], repeats: int
) -> dict[str, Any]:
    """The same for the reference, in float32, and on a GPU in bfloat16 too; and the ratios."""
    device = inputs.device
    row = dict(row)
    reference = DenseReference(model, inputs)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=1e-5)

    def plain_step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(reference(nodes), wanted))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def same_precision_step() -> None:
        with torch.autocast(device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(reference(nodes).float(), wanted)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    few = max(3, repeats // 3)
    reference.train()
    row["reference_step_ms"] = median_ms(plain_step, device, few)
    if device.type == "cuda":
        row["reference_bfloat16_step_ms"] = median_ms(same_precision_step, device, few)
        row["same_precision_ratio"] = row["reference_bfloat16_step_ms"] / row["step_ms"]
    reference.eval()
    with torch.no_grad():
        row["reference_inference_ms"] = median_ms(lambda: reference(nodes), device, few)
        ours = compute(model, inputs, nodes.cpu().numpy(), BATCH)
        row["largest_difference"] = float(np.abs(ours - reference(nodes).cpu().numpy()).max())
    assert row["largest_difference"] < 1e-5, "the reference computes something else"
    row["reference_peak_gb"] = peak_gigabytes(device)
    row["step_ratio"] = row["reference_step_ms"] / row["step_ms"]
    row["inference_ratio"] = row["reference_inference_ms"] / row["inference_ms"]
    return row


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"


def readme_table(folder: Path = Path("results")) -> str:
    """The rows of the README's table, from the result files alone."""
    found = {kind: json.loads((folder / f"training-{kind}.json").read_text())["rows"] for kind in ("cpu", "cuda")}
    lines = []
    for cpu in found["cpu"]:
        plain, compiled = (
            next(row for row in found["cuda"] if row["graph"] == cpu["graph"] and row["compiled"] == wanted)
            for wanted in (False, True)
        )
        cells = [cpu["graph"], f"{cpu['step_ms'] / 1000:.1f} s", f"{cpu['step_ratio']:.1f}"]
        cells.append(f"{cpu['peak_gb']:.1f} / {cpu['reference_peak_gb']:.1f} GB")
        cells.append(f"{plain['step_ms']:.1f} ms ({compiled['step_ms']:.1f})")
        ratios = ("step_ratio", "same_precision_ratio")
        cells += [f"{plain[name]:.1f} ({compiled[name]:.1f})" for name in ratios]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and write results/training-DEVICE.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--graphs", nargs="+", default=["CS", "Physics", "PubMed", "Computer"])
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", action="store_true", help="only print the README's table from the result files")
    arguments = parser.parse_args()
    if arguments.table:
        print(readme_table())
        return
    device = find_device(arguments.device)
    repeats = arguments.repeats or (50 if device.type == "cuda" else 5)
    rows = []
    with tempfile.TemporaryDirectory() as tokens:
        for name in arguments.graphs:
            for compiled in (False, True)[: 2 if device.type == "cuda" else 1]:
                rows.append(measure(name, arguments.data, tokens, device, repeats, compiled))
                print_table(rows[-1:])
    out = arguments.out or Path(f"results/training-{device.type}.json")
    write_result(out, {"batch": BATCH, "rows": [replace_floats(row) for row in rows]})


def replace_floats(row: dict[str, Any]) -> dict[str, Any]:
    """Four significant digits are all a timing has."""
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in row.items()}


if __name__ == "__main__":
    main()
