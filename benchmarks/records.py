"""Datasets × variants × seeds → one JSON file each."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.workbench import Trial, Workbench
from vcr_graphormer.base.files import read_json, write_json
from vcr_graphormer.data.datasets import load_dataset, load_splits, paper_split
from vcr_graphormer.data.graph import Graph
from vcr_graphormer.data.metrics import choose_metric
from vcr_graphormer.data.split import Split
from vcr_graphormer.errors import ConfigError, StoreError
from vcr_graphormer.runs.config import Config, load_config
from vcr_graphormer.runs.run import versions
from vcr_graphormer.training.devices import find_device

PROTOCOLS = {
    "A": "the paper's splits: random 60/20/20 by seed",
    "B": "the published fixed split by seed of the weights",
}
OnRun = Callable[[dict[str, Any], dict[str, Any]], None]


def choose_split(dataset: str, graph: Graph, protocol: str, seed: int, root: str | Path) -> Split:
    """Protocol A: the paper's split of that seed. Protocol B: the published one; where there are several, in turn."""
    if protocol == "A":
        return paper_split(dataset, graph.labels, seed, root)
    if protocol != "B":
        raise ConfigError(f"protocol is {protocol!r}; it must be A ({PROTOCOLS['A']}) or B ({PROTOCOLS['B']})")
    splits = load_splits(dataset, root)
    if not splits:
        raise ConfigError(f"{dataset} has no published split for protocol B")
    return splits[seed % len(splits)]


def result_file(folder: Path, dataset: str, protocol: str, variant: str) -> Path:
    """Where the runs of one dataset, protocol and variant are kept."""
    return folder / f"{dataset}-{protocol}-{variant}.json"


def this_command() -> str:
    """How this process was called; where data and results lie is left to the reader."""
    words = list(sys.argv)
    if words[0].endswith(".py"):
        words[0] = f"python -m benchmarks {Path(words[0]).stem}"
    for option, name in (("--data", "ROOT"), ("--folder", "FOLDER")):
        if option in words[:-1]:
            words[words.index(option) + 1] = name
    for place in ("--out", "--logs"):
        if place in words[:-1]:
            del words[words.index(place) : words.index(place) + 2]
    return " ".join([words[0], shlex.join(words[1:])]).strip()


def with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of an older result, completed: an option younger than the result had its default."""
    default = _settings(Config())
    return settings | {name: default[name] | settings[name] for name in default.keys() & settings.keys()}


class Record:
    """The file of one dataset, protocol and variant: its runs by seed, written after each one."""

    def __init__(self, folder: Path, about: dict[str, str], settings: dict[str, Any], force: bool = False) -> None:
        """`about`: dataset, protocol, variant and metric."""
        self.file = result_file(folder, about["dataset"], about["protocol"], about["variant"])
        self.content: dict[str, Any] = {**about, "config": settings}
        runs: list[dict[str, Any]] = []
        found: dict[str, Any] = {}
        if self.file.is_file() and not force:
            found = read_json(self.file)
            if with_defaults(found.get("config", {})) != with_defaults(settings):
                raise StoreError(f"{self.file} was made with other settings: choose another folder, or --force")
            runs = found["runs"]
        made = found if runs else {"command": this_command(), "versions": versions()}
        self.content |= {"command": made["command"], "versions": made["versions"], "runs": runs}

    def missing(self, seeds: list[int]) -> list[int]:
        """Seeds that are not there yet."""
        done = {run["seed"] for run in self.content["runs"]}
        return [seed for seed in seeds if seed not in done]

    def add(self, seed: int, val: float, test: float, seconds: float, **more: Any) -> dict[str, Any]:
        """Keep one run."""
        run = {"seed": seed, "val": val, "test": test, "seconds": round(seconds, 2), **more}
        # Runs added later, by other versions than the first ones, say so themselves.
        if (now := versions()) != self.content["versions"]:
            run["versions"] = now
        self.content["runs"] = sorted([*self.content["runs"], run], key=lambda row: int(row["seed"]))
        write_json(self.file, self.content)
        return run


def measure_accuracy(
    dataset: str,
    variants: list[str],
    seeds: list[int],
    folder: Path,
    root: str | Path = "data",
    protocol: str = "A",
    device: str = "auto",
    force: bool = False,
    on_run: OnRun | None = None,
) -> list[Path]:
    """Run what is missing for one dataset; graph, rankings and hops are shared by all runs.

    Interrupted, it goes on with the first missing seed.
    """
    benches: dict[bool, Workbench] = {}
    files = []
    for variant in variants:
        config = variant_config(dataset, variant)
        directed = config.data.directed
        if directed not in benches:
            benches[directed] = Workbench(load_dataset(dataset, root, directed), find_device(device))
        bench = benches[directed]
        graph = bench.graph
        metric = choose_metric(config.training.metric, graph.task)
        about = {"dataset": graph.name, "protocol": protocol, "variant": variant, "metric": metric}
        record = Record(folder, about, _settings(config), force)
        files.append(record.file)
        for seed in record.missing(seeds):
            split = choose_split(dataset, graph, protocol, seed, root)
            trial: Trial = bench.train(split, replace(config, training=replace(config.training, seed=seed)))
            about_run = {"epochs": trial.epochs, "best_epoch": trial.best_epoch, "device": str(bench.device)}
            run = record.add(seed, trial.val, trial.test, trial.seconds, **about_run)
            if on_run is not None:
                on_run(record.content, run)
    return files


def variant_config(dataset: str, variant: str) -> Config:
    """The settings of a dataset's variant, without checkpoints."""
    return load_config(
        options={"data": {"dataset": dataset}}, overrides=["training.checkpoint_every=0"], variant=variant
    )


def _settings(config: Config) -> dict[str, Any]:
    """What a result depends on: direction of edges, tokens, model and training; the seed varies by run."""
    sections = {name: asdict(getattr(config, name)) for name in ("tokens", "model", "training")}
    sections["data"] = {"directed": config.data.directed}
    del sections["training"]["seed"]
    return sections
