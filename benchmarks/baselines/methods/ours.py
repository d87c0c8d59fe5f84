"""Our own method under the rule of the baselines, and NAGphormer (Chen et al. 2023): the same with hops alone."""

from __future__ import annotations

from typing import Any

import vcr_graphormer as vcr
from benchmarks.baselines.bench import Bench, Measured
from benchmarks.baselines.network import Settings
from vcr_graphormer.data.agreement import keeps_directions
from vcr_graphormer.runs.recipes import changed

SECTIONS = ("tokens", "model", "training")
# As the released NAGphormer: hops of the node, an encoder, attention over the hops as readout; no labels as inputs.
HOPS_ONLY: dict[str, dict[str, Any]] = {
    "tokens": {"structure_tokens": 0, "content_tokens": 0, "link_tokens": 0, "nearest_tokens": 0},
    "model": {
        **{"combine": "joint", "readout": "attention", "rich_tokens": 0, "label_hops": 0, "embedding_dropout": 0.0},
        **{"label_embedding": False, "rich_labels": False, "kind_embedding": False, "rank_embedding": False},
        **{"neighbour_dropout": 0.0, "own_dropout": 0.0, "token_dropout": 0.0, "own_hops": False},
    },
}


def make_config(settings: Settings, seed: int) -> vcr.Config:
    """Return the settings of a run; names are those of our configuration, with the section before a dot."""
    config = changed(vcr.Config(), HOPS_ONLY) if settings["hops_only"] else vcr.Config()
    tables: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        if section in tables:
            tables[section][key] = value
    tables["training"] |= {"seed": seed, "checkpoint_every": 0}
    tables["model"].setdefault("members", 1)  # one network, as all other methods
    return changed(config, tables)


def run_ours(bench: Bench, settings: Settings, split: vcr.Split, seed: int, *, test: bool) -> Measured:
    """Train by our own trainer; without `test` the crossed score of validation nodes is computed, as for baselines."""
    links = settings.get("links", "both")
    if links == "auto":  # as `load_data` decides
        links = "out" if keeps_directions(bench.arcs, bench.graph, split.train) else "both"
    workbench = bench.workbench_of(links)
    config = changed(make_config(settings, seed), {"training": {"metric": bench.metric}})
    if test:
        trial = workbench.train(split, config)
        return Measured(trial.val, trial.val, trial.test, trial.epochs, trial.best_epoch)
    judged = workbench.judge(split, config, crossed_below=float("inf"))
    return Measured(judged.score, judged.trial.val, None, judged.trial.epochs, judged.trial.best_epoch)
