"""Time and memory of training steps and inference against the plain dense reference implementation.

    python -m benchmarks training --data ROOT --device cuda --graphs CS Physics PubMed Computer
    python -m benchmarks training --table        print the table of the documentation

Both sides have the same weights, run on the same device in the same process, and take whole optimizer steps with the
authors' settings. Their logits in float32 without dropout are compared too. ROOT holds the published raw files, or
graphs that `Graph.save` wrote under their names. On a GPU whole epochs are timed, too, with validation. Writes
results/training-DEVICE.json, whose rows of other graphs stay.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vcr_graphormer as vcr
from benchmarks.common import (
    load_graph,
    new_parser,
    print_table,
    random_splits,
    read_rows,
    variant_config,
    write_result,
)
from benchmarks.speed.dense_reference import DenseReference
from benchmarks.speed.steps import (
    device_name,
    make_trainer,
    median_ms,
    peak_gigabytes,
    precision_name,
    reset_peak,
    rounded,
)
from vcr_graphormer.training.devices import choose_precision, find_device
from vcr_graphormer.training.inference import compute


def settings(name: str, compiled: bool) -> vcr.Config:
    """Return the authors' settings, but with gradients clipped at norm 1, as in the reference implementation.

    The presets clip nothing. The clipped step is what results/training-*.json measured; it costs both sides the same.
    """
    config = variant_config(name, "paper")
    return replace(config, training=replace(config.training, gradient_clip=1.0, compile=compiled))


def measure(name: str, root: str, tokens: str, device: torch.device, repeats: int, compiled: bool) -> dict[str, Any]:
    """Return one row: our step and inference, those of the reference, and the largest difference of their logits."""
    config, graph = settings(name, compiled), load_graph(name, root)
    [split] = random_splits(graph, [0])
    store = vcr.tokenize(graph, split.train, config.tokens, Path(tokens) / name)
    precision = choose_precision("auto", device)
    inputs = vcr.make_inputs(graph, store, config.model, split.train, device, precision)
    exact = vcr.make_inputs(graph, store, config.model, split.train, device, torch.float32)
    trainer = make_trainer(graph, split, config, inputs)
    model, batch = trainer.model, split.train[: config.training.batch_size]
    assert isinstance(model, vcr.VCRGraphormer)  # the reference is one model
    nodes = torch.from_numpy(batch).to(device)
    targets = torch.from_numpy(np.asarray(graph.labels)[batch]).to(device)
    row: dict[str, Any] = {
        "graph": name,
        "device": device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads",
        "precision": precision_name(precision),
        "compiled": compiled,
    }
    reset_peak(device)
    row["step_ms"] = median_ms(lambda: trainer.advance(nodes, targets), device, repeats)
    row["inference_ms"] = median_ms(
        lambda: compute(trainer.low_precision(model), inputs, batch, trainer.micro_batch), device, repeats
    )
    if device.type == "cuda":
        row["epoch_ms"] = median_ms(trainer._run_epoch, device, 20)
    row["inputs_gb"] = inputs.num_bytes / 1e9
    row["peak_gb"] = peak_gigabytes(device)
    return row | measure_reference(model, exact, nodes, targets, row, repeats)


def measure_reference(
    model: vcr.VCRGraphormer, inputs: vcr.Inputs, nodes: Tensor, targets: Tensor, row: dict[str, Any], repeats: int
) -> dict[str, Any]:
    """Return the row with the same numbers of the reference (float32, on a GPU bfloat16 too) and the ratios."""
    device = inputs.device
    row = dict(row)
    reference = DenseReference(model, inputs)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=1e-5)

    def step(low_precision: bool) -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=low_precision):
            loss = torch.nn.functional.cross_entropy(reference(nodes).float(), targets)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    few = max(3, repeats // 3)
    reference.train()
    row["reference_step_ms"] = median_ms(lambda: step(False), device, few)
    if device.type == "cuda":
        row["reference_bfloat16_step_ms"] = median_ms(lambda: step(True), device, few)
        row["same_precision_ratio"] = row["reference_bfloat16_step_ms"] / row["step_ms"]
    reference.eval()
    with torch.no_grad():
        row["reference_inference_ms"] = median_ms(lambda: reference(nodes), device, few)
        ours = compute(model, inputs, nodes.cpu().numpy(), len(nodes))
        row["largest_difference"] = float(np.abs(ours - reference(nodes).cpu().numpy()).max())
    assert row["largest_difference"] < 1e-5, "the logits of the reference differ from ours"
    row["reference_peak_gb"] = peak_gigabytes(device)
    row["step_ratio"] = row["reference_step_ms"] / row["step_ms"]
    row["inference_ratio"] = row["reference_inference_ms"] / row["inference_ms"]
    return row


def replace_rows(earlier: list[dict[str, Any]], measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the earlier rows with those of measured graphs replaced where they stood; new graphs come last."""
    names = list(dict.fromkeys(row["graph"] for row in (*earlier, *measured)))
    now = {row["graph"] for row in measured}
    return [row for name in names for row in (measured if name in now else earlier) if row["graph"] == name]


def readme_table(folder: Path = Path("results")) -> str:
    """Return the rows of the documentation's table, from the result files alone."""
    on_cpu, on_gpu = (read_rows(folder / f"training-{device}.json") for device in ("cpu", "cuda"))
    lines = []
    for cpu in on_cpu:
        plain, compiled = (
            next(row for row in on_gpu if row["graph"] == cpu["graph"] and row["compiled"] == flag)
            for flag in (False, True)
        )
        cells = [cpu["graph"], f"{cpu['step_ms'] / 1000:.1f} s", f"{cpu['step_ratio']:.1f}"]
        cells.append(f"{cpu['peak_gb']:.1f} / {cpu['reference_peak_gb']:.1f} GB")
        cells.append(f"{plain['step_ms']:.1f} ms ({compiled['step_ms']:.1f})")
        ratios = ("step_ratio", "same_precision_ratio")
        cells += [f"{plain[name]:.1f} ({compiled[name]:.1f})" for name in ratios]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=("CS", "Physics", "PubMed", "Computer"), more_graphs=True)
    parser.add_argument("--repeats", type=int, help="default: 50 on a GPU, 5 on a CPU")
    parser.add_argument("--out", type=Path, help="default: results/training-DEVICE.json")
    parser.add_argument("--table", action="store_true", help="only print the table of the documentation")
    return parser


def main() -> None:
    """Measure every graph and write the rows."""
    arguments = make_parser().parse_args()
    if arguments.table:
        print(readme_table())
        return
    device = find_device(arguments.device)
    on_gpu = device.type == "cuda"
    repeats, rows = arguments.repeats or (50 if on_gpu else 5), []
    with tempfile.TemporaryDirectory() as tokens:
        for name in arguments.graphs:
            for compiled in (False, True) if on_gpu else (False,):
                rows.append(measure(name, arguments.data, tokens, device, repeats, compiled))
                print_table(rows[-1:])
    out = arguments.out or Path(f"results/training-{device.type}.json")
    rows = replace_rows(read_rows(out), rows)
    batch = settings(arguments.graphs[0], compiled=False).training.batch_size  # the same for all graphs
    write_result(out, {"batch": batch, "rows": [rounded(row) for row in rows]})
