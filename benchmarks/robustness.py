"""Attack the package: damaged files of every format, and kills at random times; count what it does not survive.

    python -m benchmarks robustness --cases 2000 --kills 20 --minutes 10

A case damages one file of a saved graph, token lists, a ranker, a run or raw tables, and uses what it belongs to. Much
of the damage has checksums that fit, as an attacker would make them. Cases run by batches in processes of their own: a
crash costs a batch and is counted. A kill ends `train` by SIGKILL; the run is then resumed and must end with the same
bytes. Every case and kill follows from its seed. Writes results/robustness.json.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.common import new_parser, print_table, write_result
from vcr_graphormer.base.folders import MANIFEST, _own_checksum, digest
from vcr_graphormer.runs.config import to_toml

BATCH = 100  # cases of one process
SECONDS_PER_BATCH = 300  # then it hangs
VALUES: tuple[Any, ...] = (-1, 0, 1, 2**31, 2**63, -(2**63), 1.5, "x", "", None, [], {}, True, "../x", [[[]]], "9" * 99)
CONFIG = vcr.Config(
    tokens=vcr.TokenConfig(hops=2, clusters=3, structure_tokens=2, content_tokens=2, link_tokens=1),
    model=vcr.ModelConfig(hidden_channels=8, heads=2, layers=1),
    training=vcr.TrainConfig(epochs=4, batch_size=32, warmup_steps=1, checkpoint_every=1),
)


def make_templates(folder: Path) -> None:
    """Write a small sound folder of every format."""
    graph = vcr.generate(150, 600, classes=3, features=6, homophily=0.8, seed=0)
    graph.save(folder / "graph")
    edges = np.stack([np.repeat(np.arange(150), graph.degrees), graph.indices])
    directed = vcr.Graph.from_edges(edges[:, ::2], 150, directed=True)
    directed.save(folder / "directed")
    vcr.Ranker.prepare(graph, threads=1).save(folder / "ranker", graph)
    vcr.LinkRanker.prepare(directed).save(folder / "links", directed)
    vcr.FeatureRanker.prepare(graph).save(folder / "nearest", graph)
    split = vcr.Split.random(graph.labels, seed=0)
    vcr.train(graph, split, CONFIG, folder / "run", device="cpu", threads=1, baselines="none")
    (folder / "own").mkdir()
    table = ["source,target,weight", *(f"{u},{v},{1 + u % 3}" for u, v in edges.T[:300])]
    (folder / "own" / "edges.csv").write_text("\n".join(table) + "\n")
    features, labels = np.asarray(graph.features), np.asarray(graph.labels)
    np.save(folder / "own" / "features.npy", features)
    np.save(folder / "own" / "labels.npy", labels)
    (folder / "archive").mkdir()
    np.savez(folder / "archive" / "graph.npz", edge_index=edges, features=features, labels=labels)
    (folder / "settings").mkdir()
    (folder / "settings" / "settings.toml").write_text(to_toml(CONFIG))


def use_graph(folder: Path) -> None:
    """Open a graph and let every compiled loop read it."""
    graph = vcr.Graph.open(folder / "graph")
    vcr.structure_connections(graph, 4)
    vcr.make_lists(graph, np.arange(30), CONFIG.tokens, threads=1)


def use_run(folder: Path) -> None:
    """Open a run, predict and explain."""
    run = vcr.Run.open(folder / "run", "cpu")
    run.predict([0, 1])
    run.explain(3)


USES: dict[str, Callable[[Path], Any]] = {
    "graph": use_graph,
    "ranker": lambda folder: vcr.Ranker.open(folder / "ranker", vcr.Graph.open(folder / "graph")).rank(k=3, threads=1),
    "links": lambda folder: vcr.LinkRanker.open(folder / "links", vcr.Graph.open(folder / "directed")).rank(k=3),
    "nearest": lambda folder: vcr.FeatureRanker.open(folder / "nearest", vcr.Graph.open(folder / "graph")).rank(k=3),
    "run": use_run,
    "own": lambda folder: vcr.load_dataset(folder / "own").summary(),
    "archive": lambda folder: vcr.load_dataset(folder / "archive" / "graph.npz").summary(),
    "settings": lambda folder: vcr.load_config(folder / "settings" / "settings.toml").model.check(3),
}


def damage(file: Path, dice: random.Random) -> str:
    """Change a file in one of many ways; return which."""
    if file.name == MANIFEST and dice.random() < 0.7:
        manifest = json.loads(file.read_text())
        _replace_value(manifest, dice)
        file.write_text(json.dumps({**manifest, "checksum": _own_checksum(manifest)}))
        return "a value of the manifest"
    if file.suffix == ".npy" and (file.parent / MANIFEST).is_file() and dice.random() < 0.7:
        _replace_entry(file, dice)
        return "an entry of an array"
    content = bytearray(file.read_bytes())
    way = dice.choice(("bits", "cut", "longer", "noise", "empty"))
    if way == "bits" and content:
        for _ in range(dice.choice((1, 1, 1, 8, 100))):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    elif way == "cut":
        del content[dice.randrange(len(content) + 1) :]
    elif way == "longer":
        content += dice.randbytes(dice.choice((1, 8, 4096)))
    elif way == "noise" and content:
        start = dice.randrange(len(content))
        content[start : start + 64] = dice.randbytes(64)
    else:
        content.clear()
    file.write_bytes(content)
    return way


def _replace_value(content: Any, dice: random.Random) -> None:
    """Replace a random value, at any depth, by one that does not belong there."""
    while True:
        key = dice.choice(list(content) if isinstance(content, dict) else range(len(content)))
        value = content[key]
        if not isinstance(value, dict | list) or not value or dice.random() < 0.2:
            content[key] = dice.choice(VALUES)
            return
        content = value


def _replace_entry(file: Path, dice: random.Random) -> None:
    """Replace an entry, the type or the shape of an array, and let its checksums fit."""
    array = np.load(file)
    way = dice.choice(("entry", "entry", "entry", "type", "shape"))
    if way == "entry" and array.size and array.dtype.kind in "iuf":
        values: list[float] = [-1, 0, 1, 149, 150, 2**31 - 1, -(2**31), 10**6, dice.randrange(300)]
        values += [np.nan, np.inf, -1e30, 1e-30] if array.dtype.kind == "f" else []
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array.reshape(-1)[dice.randrange(array.size)] = np.array(dice.choice(values)).astype(array.dtype)
    elif way == "type":
        with np.errstate(all="ignore"), suppress(ValueError):
            array = array.astype(dice.choice((">i4", "<i8", "<f4", ">f8", "|i1", "|S4")))
    elif array.ndim:
        array = dice.choice((array[:-1], np.concatenate([array, array]), array[None], array[:0]))
    np.save(file, array)
    manifest = json.loads((file.parent / MANIFEST).read_text())
    manifest["arrays"][file.stem] = {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "bytes": file.stat().st_size,
        "checksum": digest(array),
    }
    (file.parent / MANIFEST).write_text(json.dumps({**manifest, "checksum": _own_checksum(manifest)}))


def run_batch(templates: Path, first: int, count: int) -> dict[str, Any]:
    """Run some cases in this process; return how often each ended how, and the unexpected errors."""
    counts: collections.Counter[str] = collections.Counter()
    unexpected = []
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        for seed in range(first, first + count):
            dice, folder = random.Random(seed), Path(place) / str(seed)
            print(seed, flush=True, file=sys.stderr)  # the last one is the one that crashed
            shutil.copytree(templates, folder)
            kind = dice.choice(list(USES))
            files = sorted(file for file in (folder / kind).rglob("*") if file.is_file())
            way = damage(dice.choice(files), dice)
            try:
                USES[kind](folder)
                counts["fine"] += 1
            except vcr.VCRError:
                counts["refused"] += 1
            except Exception as error:
                counts["traceback"] += 1
                unexpected.append({"seed": seed, "kind": kind, "way": way, "error": f"{type(error).__name__}: {error}"})
            shutil.rmtree(folder)
    return {"counts": counts, "unexpected": unexpected}


def fuzz(templates: Path, cases: int, end: float, counts: collections.Counter[str]) -> list[dict[str, Any]]:
    """Run batches until all cases are done or the time is over; return what was not survived."""
    bad: list[dict[str, Any]] = []
    for first in range(0, cases, BATCH):
        if time.monotonic() > end:
            break
        command = [sys.executable, "-m", "benchmarks.robustness", "--batch", str(templates), str(first)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_PER_BATCH, check=False)
        except subprocess.TimeoutExpired as error:
            counts["hang"] += 1
            bad.append({"hang": str(error.stderr or b"")[-10:]})
            continue
        if result.returncode:
            counts["crash"] += 1
            bad.append({"crash": result.returncode, "seed": result.stderr.split()[-1:]})
            continue
        answer = json.loads(result.stdout)
        counts.update(answer["counts"])
        bad += answer["unexpected"]
    return bad


def kill(folder: Path, seed: int) -> str:
    """Kill a training at a random time and resume it; return how that ended."""
    command = [sys.executable, "-m", "vcr_graphormer", "train", "--device", "cpu", "--baselines", "none"]
    out, dice = folder / f"killed-{seed}", random.Random(seed)
    begin = [*command, "--config", str(folder / "settings.toml"), "--out", str(out)]
    process = subprocess.Popen(begin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(dice.uniform(0.5, 12))
    hit = process.poll() is None
    process.kill()
    process.wait()
    again = [*command[:-2], "--resume", str(out)] if (out / "config.toml").is_file() else [*begin, "--force"]
    result = subprocess.run(again, capture_output=True, text=True, check=False)
    if result.returncode:
        return f"not resumed: {result.stderr[-200:]}"
    same = (out / "model.safetensors").read_bytes() == (folder / "whole" / "model.safetensors").read_bytes()
    shutil.rmtree(out)
    return ("kill survived" if hit else "kill too late") if same else "other bytes"


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, data=False, out="results/robustness.json")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--batch", nargs=2, metavar=("FOLDER", "FIRST"), help=argparse.SUPPRESS)
    return parser


def main() -> None:
    """Run the cases, then the kills, within the time."""
    arguments = make_parser().parse_args()
    if arguments.batch:
        print(json.dumps(run_batch(Path(arguments.batch[0]), int(arguments.batch[1]), BATCH)))
        return
    start = time.monotonic()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_templates(folder / "templates")
        bad = fuzz(folder / "templates", arguments.cases, start + 60 * arguments.minutes, counts)
        settings = to_toml(CONFIG).replace('dataset = "digits"', f'dataset = "{folder}/templates/graph"')
        (folder / "settings.toml").write_text(settings)
        if arguments.kills:
            graph = vcr.Graph.open(folder / "templates" / "graph")
            split = vcr.Split.random(graph.labels, seed=0)
            vcr.train(graph, split, CONFIG, folder / "whole", device="cpu", baselines="none")
        for seed in range(arguments.kills):
            if time.monotonic() < start + 60 * arguments.minutes:
                counts[kill(folder, seed)] += 1
    print_table([dict(counts)])
    write_result(arguments.out, {"counts": dict(counts), "not survived": bad})


if __name__ == "__main__":
    main()
