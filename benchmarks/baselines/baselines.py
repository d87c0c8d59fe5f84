"""Many baselines and our own method under one rule: the same splits, trials and score; each is searched, then run.

    python -m benchmarks baselines --data ROOT --device cuda --graphs Photo Texas --methods GCN LINKX

For each graph and method, 20 settings are drawn at random and judged by crossed validation scores, on split seeds from
100 on. Texas has 40 trials, because its validation parts are tiny. A trial goes on to the next split only if it is
among the better half so far. The best settings are then run on seeds 0 to 9, and test nodes are read for the first
time. Rows with seconds and peak memory are appended to results/baselines/GRAPH.jsonl. Only what is missing is trained.
Several processes can run the same command: each takes a graph and method that no other works on. `--stage check`
measures each baseline on the split of a published number instead, into results/baselines/check.jsonl.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.baselines.bench import Bench, Measured
from benchmarks.baselines.journal import RUN, TRIAL, append, best_settings, claimed, read, runs_of, trials_of
from benchmarks.baselines.published import CHECKS, Check
from benchmarks.baselines.spaces import METHODS, Method, peak_memory
from benchmarks.common import FILTERED, GRAPHS, load_graph, new_parser, random_splits
from benchmarks.records import choose_split
from vcr_graphormer.errors import VCRError
from vcr_graphormer.training.devices import find_device

ALL_GRAPHS = (*GRAPHS, "Cora", "CiteSeer", "Minesweeper", "Tolokers", FILTERED)
BY_AUC = ("Minesweeper", "Tolokers")  # two unbalanced classes: judged by ROC-AUC on ten published masks
# Splits of a search, where two are not enough: validation parts of 37, 542 and 665 nodes.
SPLITS = {"Texas": 10, "Cora": 4, "CiteSeer": 4}
MORE_TRIALS = {"Texas": 2}  # times as many
CHECKED_SPLITS = {"Texas": 5, "Squirrel": 2}  # published splits whose validation nodes judge a check; elsewhere one
CHECK_FILE = "check.jsonl"
FIRST_SEED = 100  # of the splits that judge; those below are reported


@dataclass(frozen=True)
class Job:
    """A graph and a method with what is measured: where rows go, which splits judge, which splits are reported.

    `trials` are the settings to be tried.
    """

    file: Path
    graph: str
    method: str
    judging: Sequence[vcr.Split]
    reported: Sequence[tuple[int, vcr.Split]]
    trials: Sequence[dict[str, Any]]


def make_job(
    bench: Bench, name: str, method: str, *, folder: Path, root: str, seeds: int, trials: int, checked: Check | None
) -> Job:
    """Return the job of the comparison; with `checked`, that of a published number."""
    points = METHODS[method].draw(method, trials * MORE_TRIALS.get(name, 1), bench.directed)
    protocol = "A" if name not in BY_AUC and checked is None else "B"
    reported = [(seed, choose_split(name, bench.graph, protocol, seed, root)) for seed in range(seeds)]
    if checked is not None:
        judging = [split for _, split in reported[: CHECKED_SPLITS.get(name, 1)]]
        points += [{**METHODS[method].fixed, **checked.settings}] if checked.settings else []
        return Job(folder / CHECK_FILE, name, method, judging, reported, points)
    judging = random_splits(bench.graph, range(FIRST_SEED, FIRST_SEED + SPLITS.get(name, 2)))
    return Job(folder / f"{name}.jsonl", name, method, judging, reported, points)


def search(job: Job, bench: Bench, end: float) -> dict[str, Any] | None:
    """Judge the trials that are missing, and return the best settings; None if time is over or all failed."""
    if len(job.trials) == 1:
        return job.trials[0]
    method, rows = METHODS[job.method], [row for row in read(job.file) if row["graph"] == job.graph]
    done = trials_of(rows, job.method)
    for number, settings in enumerate(job.trials):
        if any(row["settings"] == settings for row in done):
            continue
        if time.monotonic() > end:
            return None
        start, values, error = time.perf_counter(), list[float](), {}
        try:
            for value in _scores(method, bench, settings, job.judging):
                values.append(value)
                # Split by split, so that a cut does not depend on how many were trained together.
                others = [np.mean(row["val"][: len(values)]) for row in done if len(row["val"]) >= len(values)]
                if np.mean(values) < np.median([*others, np.mean(values)]):
                    break
        except (VCRError, RuntimeError) as problem:  # out of memory is a RuntimeError
            values, error = [], {"error": _short(problem)}
        row = {"graph": job.graph, "method": job.method, "stage": TRIAL, "trial": number, "val": values}
        row |= {**_cost(start, bench), **error, "settings": settings}
        append(job.file, row)
        done.append(row)
    return best_settings([row for row in done if row["settings"] in job.trials], len(job.judging))


def run(job: Job, bench: Bench, settings: dict[str, Any], end: float) -> None:
    """Measure the seeds that have no run with these settings yet."""
    runs = runs_of([row for row in read(job.file) if row["graph"] == job.graph], job.method)
    done = {seed for seed, row in runs.items() if row["settings"] == settings}
    method, missing = METHODS[job.method], [(split, seed) for seed, split in job.reported if seed not in done]
    # The first one alone: its seconds and memory are those of one training.
    for group in (*_groups(missing[:1], 1), *_groups(missing[1:], method.at_once(bench))):
        if time.monotonic() > end:
            return
        start, seeds = time.perf_counter(), [seed for _, seed in group]
        try:
            measured = _train(method, bench, settings, group, test=True)
        except (
            VCRError,
            RuntimeError,
        ) as problem:  # out of memory: another process may have had it, so the next call tries again
            print(f"{job.graph} {job.method} seeds {seeds}: {_short(problem)}", flush=True)
            return
        cost = _cost(start, bench, len(group))
        for seed, one in zip(seeds, measured, strict=True):
            row = {"graph": job.graph, "method": job.method, "stage": RUN, "seed": seed, "val": one.val}
            row |= {"test": one.test, "epochs": one.epochs, "best_epoch": one.best_epoch, **cost}
            row |= {"device": _device(bench.device), "torch": torch.__version__, "settings": settings}
            append(job.file, row)
            print(f"{job.graph} {job.method} seed {seed}: {100 * (one.test or 0):.2f} ({row['seconds']} s)", flush=True)


def _scores(method: Method, bench: Bench, settings: dict[str, Any], splits: Sequence[vcr.Split]) -> Iterator[float]:
    """Yield the score of each split; the next group is trained when its first score is asked for."""
    for group in _groups([(split, 0) for split in splits], method.at_once(bench)):
        yield from (round(one.score, 6) for one in _train(method, bench, settings, group, test=False))


def _train(
    method: Method, bench: Bench, settings: dict[str, Any], group: Sequence[tuple[vcr.Split, int]], *, test: bool
) -> list[Measured]:
    """Train a group together, or one after the other if memory does not hold all."""
    try:
        return method.run(bench, settings, group, test=test)
    except RuntimeError as problem:
        if len(group) == 1:
            raise
        _short(problem)  # frees memory
    return [one for pair in group for one in method.run(bench, settings, [pair], test=test)]


def _groups(pairs: Sequence[tuple[vcr.Split, int]], size: int) -> Iterator[Sequence[tuple[vcr.Split, int]]]:
    yield from (pairs[start : start + size] for start in range(0, len(pairs), size))


def _cost(start: float, bench: Bench, together: int = 1) -> dict[str, Any]:
    """Return seconds for each of so many trainings, and the peak memory of all."""
    cost: dict[str, Any] = {"seconds": round((time.perf_counter() - start) / together, 3)}
    return {**cost, "memory": peak_memory(bench.device), **({"together": together} if together > 1 else {})}


def _device(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} cores"


def _short(problem: Exception) -> str:
    """Free memory and return the text of a problem; end the process if the GPU itself failed: it answers no more."""
    text = " ".join(str(problem).split())[:200]
    if "CUDA error" in text or "captur" in text:
        raise problem
    torch.cuda.empty_cache()
    return text


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=ALL_GRAPHS, out="results/baselines")
    names = ", ".join(METHODS)
    parser.add_argument("--methods", "--models", nargs="+", choices=list(METHODS), metavar="NAME", help=f"of {names}")
    parser.add_argument("--stage", choices=("measure", "check"), default="measure", help="check: published numbers")
    parser.add_argument("--trials", type=int, default=20, help="of a search")
    parser.add_argument("--seeds", type=int, default=10, help="run seeds 0 to SEEDS-1")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no training after this time")
    parser.add_argument("--eager", nargs="*", metavar="NAME", help="methods not to record as CUDA graphs; none: all")
    return parser


def main() -> None:
    """Take graphs and methods that nobody works on, and measure what is missing."""
    arguments = make_parser().parse_args()
    warnings.filterwarnings("ignore", "Sparse")  # torch calls its CSR matrices a prototype
    torch.set_float32_matmul_precision("high")
    end, methods = time.monotonic() + 60 * arguments.minutes, arguments.methods or list(METHODS)
    eager = () if arguments.eager is None else arguments.eager or methods
    for name in arguments.graphs:
        bench = None
        for method in methods:
            checked = CHECKS.get(method) if arguments.stage == "check" else None
            if arguments.stage == "check" and (checked is None or checked.graph != name):
                continue
            file = arguments.out / (f"{name}.jsonl" if checked is None else CHECK_FILE)
            with claimed(file, method) as mine:
                if not mine or time.monotonic() > end:
                    continue
                if bench is None:
                    bench = open_bench(name, arguments.data, arguments.device)
                bench.record = method not in eager
                how: dict[str, Any] = {"folder": arguments.out, "root": arguments.data, "checked": checked}
                job = make_job(bench, name, method, seeds=arguments.seeds, trials=arguments.trials, **how)
                try:
                    settings = search(job, bench, end)
                    if settings is not None:
                        run(job, bench, settings, end)
                except RuntimeError as problem:
                    if "captur" not in str(problem) or not bench.record:
                        raise
                    print(f"{name} {method} cannot be recorded: {problem}", flush=True)
                    start_again([*eager, method], (end - time.monotonic()) / 60)


def start_again(eager: Sequence[str], minutes: float) -> NoReturn:
    """Replace this process by one that does not record these methods: after a failed recording torch is unusable."""
    words = [
        *sys.argv[1:],
        "--minutes",
        f"{minutes:.2f}",
        "--eager",
        *eager,
    ]  # of an option given twice the last counts
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks", "baselines", *words])


def open_bench(name: str, root: str, device: str) -> Bench:
    """Load a graph with and without directions."""
    graph, directed = load_graph(name, root), load_graph(name, root, directed=True)
    return Bench(graph, directed, find_device(device), "roc_auc" if name in BY_AUC else "accuracy")
