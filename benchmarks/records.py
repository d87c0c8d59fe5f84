"""Result files of accuracy, one per dataset, protocol and variant, and the function that fills them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common import this_command, variant_config
from vcr_graphormer.base.checks import AUTO, REMOVED
from vcr_graphormer.base.files import read_json, write_json
from vcr_graphormer.data.datasets import load_dataset, load_splits, paper_split, with_directions
from vcr_graphormer.data.graph import Graph
from vcr_graphormer.data.split import Split
from vcr_graphormer.errors import ConfigError, StoreError
from vcr_graphormer.runs.adapt import adapt
from vcr_graphormer.runs.config import BEFORE, Config
from vcr_graphormer.runs.run import versions
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.devices import find_device

PROTOCOLS = {
    "A": "the paper's splits: random 60/20/20 by seed",
    "B": "the published fixed split by seed of the weights",
}
OnRun = Callable[[dict[str, Any], dict[str, Any]], None]


@dataclass(frozen=True)
class Plan:
    """The runs to make: variants of one dataset, each with the same seeds, under one protocol."""

    dataset: str
    variants: list[str]
    seeds: list[int]
    protocol: str = "A"


def choose_split(dataset: str, graph: Graph, protocol: str, seed: int, root: str | Path) -> Split:
    """Return the split of a run.

    Protocol A: the paper's random split of that seed. Protocol B: the published split; where there are several, seed
    after seed takes the next.
    """
    if protocol == "A":
        return paper_split(dataset, graph.labels, seed, root)
    if protocol != "B":
        raise ConfigError(f"protocol is {protocol!r}; it must be A ({PROTOCOLS['A']}) or B ({PROTOCOLS['B']})")
    splits = load_splits(dataset, root)
    if not splits:
        raise ConfigError(f"{dataset} has no published split for protocol B")
    return splits[seed % len(splits)]


def result_file(folder: Path, dataset: str, protocol: str, variant: str) -> Path:
    """Return the path of the file with the runs of one dataset, protocol and variant."""
    return folder / f"{dataset}-{protocol}-{variant}.json"


def with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of an older result with the options that are newer than it, as it did without them.

    Settings that were removed are left out where the result did what all code does now.
    """
    default = _settings(Config())
    before = {name: {**default[name], **BEFORE.get(name, {})} for name in default}
    return settings | {
        name: before[name] | without_kept(name, settings[name]) for name in before.keys() & settings.keys()
    }


def without_kept(section: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return settings of a section without those that were removed, if they have the value that is left."""
    kept = REMOVED.get(section, {})
    return {name: value for name, value in values.items() if not (name in kept and value == kept[name])}


class Record:
    """The file of one dataset, protocol and variant: its runs by seed, written after each one."""

    def __init__(self, folder: Path, about: dict[str, str], settings: dict[str, Any], force: bool = False) -> None:
        """`about`: dataset, protocol, variant and metric. `force`: drop the runs of an earlier file."""
        self.file = result_file(folder, about["dataset"], about["protocol"], about["variant"])
        self.content: dict[str, Any] = {**about, "config": settings}
        runs: list[dict[str, Any]] = []
        earlier: dict[str, Any] = {}
        if self.file.is_file() and not force:
            earlier = read_json(self.file)
            if with_defaults(earlier.get("config", {})) != with_defaults(settings):
                raise StoreError(f"{self.file} was made with other settings: choose another folder, or --force")
            runs = earlier["runs"]
        made_by = earlier if runs else {"command": this_command(), "versions": versions()}
        self.content |= {"command": made_by["command"], "versions": made_by["versions"], "runs": runs}

    @classmethod
    def of_baseline(cls, folder: Path, dataset: str, variant: str, settings: dict[str, Any]) -> Record:
        """Open the file of a baseline under protocol A; runs with other settings, from an older search, are dropped."""
        about = {"dataset": dataset, "protocol": "A", "variant": variant, "metric": "accuracy"}
        file = result_file(folder, dataset, "A", variant)
        outdated = file.is_file() and read_json(file)["config"] != settings
        return cls(folder, about, settings, force=outdated)

    def missing(self, seeds: list[int]) -> list[int]:
        """Return the seeds that have no run yet."""
        done = {run["seed"] for run in self.content["runs"]}
        return [seed for seed in seeds if seed not in done]

    def add(self, seed: int, val: float, test: float, seconds: float, **more: Any) -> dict[str, Any]:
        """Add one run, write the file and return the run."""
        run = {"seed": seed, "val": val, "test": test, "seconds": round(seconds, 2), **more}
        # A run that was added later, by other versions than the first one, names its own.
        if (now := versions()) != self.content["versions"]:
            run["versions"] = now
        self.content["runs"] = sorted([*self.content["runs"], run], key=lambda row: int(row["seed"]))
        write_json(self.file, self.content)
        return run

    @property
    def tests(self) -> list[float]:
        """The test metric of every run."""
        return [run["test"] for run in self.content["runs"]]


def measure_accuracy(
    plan: Plan,
    folder: Path,
    *,
    root: str | Path = "data",
    device: str = "auto",
    force: bool = False,
    on_run: OnRun | None = None,
) -> list[Path]:
    """Make the runs of a plan that have no result yet, and return the result files.

    All runs share one graph, its rankings and its hops. After an interruption the next call continues with the first
    missing seed. `on_run` is called after each run with the content of its file and the run.
    """
    benches: dict[bool, Workbench] = {}

    def bench_of(directed: bool) -> Workbench:
        if directed not in benches:
            benches[directed] = Workbench(load_dataset(plan.dataset, root, directed), find_device(device))
        return benches[directed]

    files = []
    for variant in plan.variants:
        config = variant_config(plan.dataset, variant)
        graph = bench_of(config.data.directed not in (False, AUTO)).graph
        first = choose_split(plan.dataset, graph, plan.protocol, plan.seeds[0], root)
        metric = adapt(config, graph, first).config.training.metric
        about = {"dataset": graph.name, "protocol": plan.protocol, "variant": variant, "metric": metric}
        record = Record(folder, about, _settings(config), force)
        files.append(record.file)
        for seed in record.missing(plan.seeds):
            split, directed = choose_split(plan.dataset, graph, plan.protocol, seed, root), graph.directed
            if config.data.directed == AUTO:
                directed = with_directions(replace(config.data, root=str(root)), graph, split) is not None
            bench = bench_of(directed)
            trial = bench.train(split, replace(config, training=replace(config.training, seed=seed)))
            details: dict[str, Any] = {"epochs": trial.epochs, "best_epoch": trial.best_epoch}
            details |= {"device": str(bench.device), "directed": bench.graph.directed}
            run = record.add(seed, trial.val, trial.test, trial.seconds, **details)
            if on_run is not None:
                on_run(record.content, run)
    return files


def _settings(config: Config) -> dict[str, Any]:
    """Return all settings that a result depends on, but for the seed, which varies by run."""
    sections = {name: asdict(getattr(config, name)) for name in ("tokens", "model", "training")}
    sections["data"] = {"directed": config.data.directed, "scale": config.data.scale}
    del sections["training"]["seed"]
    return sections
