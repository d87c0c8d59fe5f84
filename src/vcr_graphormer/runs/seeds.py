"""`train_seeds`: train with several seeds and summarize the results."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ..base.checks import AUTO
from ..base.files import replace_file, write_json
from ..base.folders import MANIFEST
from ..data.datasets import data_paths, load_labelled, with_absolute_paths
from ..data.graph import Graph
from ..data.split import PARTS
from ..errors import ConfigError, StoreError
from ..training.processes import Processes
from .baselines import QUICK, check_choice
from .config import Config, load_run_config, to_toml
from .launch import SEEDS_FILE, Watched, check_outside, check_unseen, make_room, resume, train
from .run import RUN_FILE, Run


def train_seeds(
    config: Config,
    seeds: int,
    out: str | Path,
    device: str = "auto",
    force: bool = False,
    on_run: Callable[[int, Run], None] | None = None,
    baselines: str = QUICK,
    **watched: Unpack[Watched],
) -> dict[str, Any]:
    """Train with split and training seeds 0 … seeds - 1; write mean and standard deviation to `summary.json`.

    Called again with the same folder and settings, it continues. `on_run` is called with each seed and its run. The
    summary has the means of the `baselines` (none, quick or all, as in `train`), too.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}; it must be 1 or more")
    if Processes.join().size > 1:
        raise ConfigError("several seeds are trained one after another in one process, not under torchrun")
    check_choice(baselines)
    check_unseen(config)
    config = replace(config, data=with_absolute_paths(config.data))
    folder = Path(out)
    settings_file = folder / SEEDS_FILE
    if not settings_file.is_file() or force:
        check_outside(folder, data_paths(config.data))
        load_labelled(config.data)  # before anything is written or replaced
        make_room(folder, force)
        with replace_file(settings_file) as temporary:
            temporary.write_text(to_toml(config), encoding="utf-8")
    elif _settings(settings_file) != config:
        raise StoreError(f"{folder} holds runs with other settings: choose another folder, or replace them (--force)")
    results, compared = [], []
    for seed in range(seeds):
        run = _train_seed(config, seed, folder=folder, device=device, baselines=baselines, watched=watched)
        if on_run is not None:
            on_run(seed, run)
        results.append(run.metrics)
        compared.append({row["name"]: row for row in run.baselines if row.get("test") is not None})
    first = results[0]
    summary: dict[str, Any] = {"dataset": first["dataset"], "metric": first["metric"], "seeds": list(range(seeds))}
    for part in PARTS:
        summary[part] = _mean([metrics[part] for metrics in results])
    summary["baselines"] = [
        {"name": name, **{part: _mean([rows[name][part] for rows in compared]) for part in ("val", "test")}}
        for name in compared[0]
        if all(name in rows for rows in compared)
    ]
    write_json(folder / "summary.json", summary)
    return summary


def _settings(file: Path) -> Config:
    """Return the settings of a folder of runs; earlier versions wrote paths as they were given."""
    config = load_run_config(file)
    return replace(config, data=with_absolute_paths(config.data))


def _mean(values: list[float]) -> dict[str, Any]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": deviation, "values": values}


def _train_seed(config: Config, seed: int, *, folder: Path, device: str, baselines: str, watched: Watched) -> Run:
    """Return the run of one seed: open, continue or train it. All seeds use one saved graph."""
    run_folder = folder / f"seed-{seed}"
    if (run_folder / RUN_FILE).is_file():
        return resume(run_folder, device, baselines=baselines, **watched)
    published = config.data.split == "published"
    data = config.data if published else replace(config.data, seed=seed)
    if data.directed == AUTO and (folder / "graph" / MANIFEST).is_file():
        data = replace(data, directed=Graph.open(folder / "graph").directed)  # as the first seed has decided
    settings = replace(config, data=data, training=replace(config.training, seed=seed))
    graph, split = load_labelled(data)
    saved = graph.folder or folder / "graph"
    if not (saved / MANIFEST).is_file():
        graph.save(saved)
    elif Graph.open(saved).fingerprint != graph.fingerprint:
        raise StoreError(f"the data of {folder} has changed since its first run: choose another folder, or --force")
    if run_folder.is_dir():
        shutil.rmtree(run_folder)  # killed before `run.json` was written
    return train(Graph.open(saved), split, settings, run_folder, device=device, baselines=baselines, **watched)
