"""Search for good settings of one dataset by validation accuracy, on split seeds that are never reported.

    python -m benchmarks tune --dataset Photo --data ROOT --seconds 400 --out tune-Photo.jsonl

Split seeds start at 100; the test part is never computed. Each line of the log is one trial: its settings, the
validation accuracy of each split, and seconds. The best epoch of many is partly luck, and on small graphs luck would
win. So each half of the validation nodes is judged at the epoch that is best on the other half. After each split a
trial continues only if it is among the better half so far.

Every other trial keeps the best settings so far, except for three that are drawn at random: in so many dimensions small
steps find more than wide ones. Optuna's TPE proposes the others. An earlier log is continued.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import optuna

import vcr_graphormer as vcr
from benchmarks.common import load_graph, new_parser, random_splits
from benchmarks.records import with_defaults
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.tokens.kinds import Kind
from vcr_graphormer.training.devices import find_device

FIRST_SEED = 100
# The settings that the search varies.
NAMES = (
    *(
        "hops",
        "self_loops",
        "clusters",
        "structure_tokens",
        "content_tokens",
        "link_tokens",
        "nearest_tokens",
        "restart",
    ),
    *(
        "hidden_channels",
        "layers",
        "neighbour_dropout",
        "own_dropout",
        "dropout",
        "attention_dropout",
        "readout",
        "kind_embedding",
    ),
    *("rank_embedding", "rich_tokens", "label_hops", "label_embedding", "rich_labels", "adjacency_rows"),
    *("feature_dropout", "embedding_dropout", "token_dropout"),
    *("epochs", "batch_size", "learning_rate", "weight_decay", "label_smoothing"),
    "average",
)
SCORE = "crossed"  # the name in the log of the score that `crossed_score` computes


def propose(trial: optuna.Trial, graph: vcr.Graph) -> vcr.Config:
    """Return one point of the search space, which is the same for every dataset: always the full method.

    All four components are there, at least one encoder layer, the gate, and no node twice in a list.
    """
    nodes = graph.num_nodes
    tokens = vcr.TokenConfig(
        hops=trial.suggest_int("hops", 1, 7 if graph.num_features < 5000 else 4),
        self_loops=trial.suggest_categorical("self_loops", [False, True]),
        clusters=trial.suggest_categorical("clusters", [10, 20, 50] if nodes > 1000 else [10]),
        structure_tokens=trial.suggest_categorical("structure_tokens", [1, 4, 8, 16]),
        content_tokens=trial.suggest_categorical("content_tokens", [1, 4, 8, 16]),
        link_tokens=trial.suggest_categorical("link_tokens", [0, 8]),
        nearest_tokens=trial.suggest_categorical("nearest_tokens", [0, 8]),
        restart=trial.suggest_categorical("restart", [0.05, 0.15, 0.5]),
    )
    model = vcr.ModelConfig(
        hidden_channels=trial.suggest_categorical("hidden_channels", [64, 128, 256, 512]),
        heads=8,
        layers=trial.suggest_int("layers", 1, 2),
        combine="gated",
        neighbour_dropout=trial.suggest_float("neighbour_dropout", 0.0, 0.9),
        own_dropout=trial.suggest_float("own_dropout", 0.0, 0.9),
        dropout=trial.suggest_float("dropout", 0.0, 0.7, step=0.1),
        attention_dropout=trial.suggest_float("attention_dropout", 0.0, 0.5, step=0.1),
        readout=trial.suggest_categorical("readout", ["attention", "mean", "target"]),
        kind_embedding=trial.suggest_categorical("kind_embedding", [False, True]),
        rank_embedding=trial.suggest_categorical("rank_embedding", [False, True]),
        rich_tokens=min(trial.suggest_int("rich_tokens", 0, 2), tokens.hops),
        label_hops=min(trial.suggest_int("label_hops", 0, 2), tokens.hops),
        label_embedding=trial.suggest_categorical("label_embedding", [False, True]),
        rich_labels=trial.suggest_categorical("rich_labels", [False, True]),
        adjacency_rows=trial.suggest_categorical("adjacency_rows", [False, True]),
        feature_dropout=trial.suggest_float("feature_dropout", 0.0, 0.8, step=0.1),
        embedding_dropout=trial.suggest_float("embedding_dropout", 0.0, 0.7, step=0.1),
        token_dropout=trial.suggest_float("token_dropout", 0.0, 0.5, step=0.1),
    )
    sizes = [size for size in (32, 64, 250, 500, 1000, 2000) if nodes / 40 <= size <= max(64, nodes // 2)]
    training = vcr.TrainConfig(
        epochs=trial.suggest_int("epochs", 20, 240, step=20),
        batch_size=trial.suggest_categorical("batch_size", sizes),
        learning_rate=trial.suggest_float("learning_rate", 3e-4, 1e-2, log=True),
        final_learning_rate=0.0,
        schedule="cosine",
        warmup_steps=20,
        weight_decay=trial.suggest_float("weight_decay", 1e-6, 1.0, log=True),
        label_smoothing=trial.suggest_float("label_smoothing", 0.0, 0.2, step=0.1),
        average=trial.suggest_categorical("average", [0.0, 0.9, 0.99]),
        patience=60,
        checkpoint_every=0,
    )
    return vcr.Config(tokens=tokens, model=model, training=training)


def guesses(current: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the first trials: settings that are known to be good, with the gate and with other neighbours."""
    base = current | {name: current[name] or 8 for name in ("structure_tokens", "content_tokens")}
    base |= {
        "hops": max(1, current["hops"]),
        "layers": max(1, current["layers"]),
        "neighbour_dropout": 0.5,
        "own_dropout": 0.0,
    }
    base |= {"link_tokens": 0, "nearest_tokens": 0}
    open_wide = {"neighbour_dropout": 0.0, "label_embedding": True, "rank_embedding": True}
    retrieving = {"nearest_tokens": 8, "label_embedding": True, "neighbour_dropout": 0.25}
    changes: list[dict[str, Any]] = [
        {},
        retrieving,
        open_wide | {"link_tokens": 8},
        {"readout": "attention", "neighbour_dropout": 0.25},
        {"nearest_tokens": 8, "link_tokens": 8, "label_embedding": True},
        open_wide | {"link_tokens": 8, "nearest_tokens": 8},
        {"neighbour_dropout": 0.33, "own_dropout": 0.33},
        {"neighbour_dropout": 0.33, "own_dropout": 0.33, "nearest_tokens": 8, "label_embedding": True},
    ]
    return [base | change for change in changes]


def best_so_far(log: Path, dataset: str, directed: bool, names: list[str], count: int = 3) -> list[dict[str, Any]]:
    """Return the settings of the best trials of the full method in the log that were judged on all splits."""
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    # Older rows have the accuracy of the best epoch, which is too high; rows that choose.py added have no settings.
    rows = [row for row in rows if row.get("score") == SCORE and "config" in row]
    mine = [row for row in rows if row["dataset"] == dataset and row["directed"] == directed]
    mine = [row for row in mine if row.get("whole") and row["config"]["model"].get("combine") == "gated"]
    best = sorted(mine, key=lambda row: -float(np.mean(row["val"])))
    return [pick(row["config"], names) for row in best[:count]]


def pick(config: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the settings that the search varies from a whole configuration."""
    whole = with_defaults(config)  # with settings that are newer than the log
    values = {**whole["tokens"], **whole["model"], **whole["training"]}
    return {name: values[name] for name in names}


def crossed_score(bench: Workbench, split: vcr.Split, config: vcr.Config, kinds: Sequence[Kind] = ()) -> float:
    """Train once; return the crossed score, whatever the number of validation nodes."""
    return bench.judge(split, config, crossed_below=math.inf, kinds=kinds).score


class Search:
    """The objective of optuna: trials of one graph until the time is over."""

    def __init__(self, graph: vcr.Graph, bench: Workbench, splits: list[vcr.Split], log: Path, end: float) -> None:
        self.graph, self.bench, self.splits, self.log, self.end = graph, bench, splits, log, end
        self.means: list[list[float]] = [[] for _ in splits]  # of all trials so far, after split 1, 2, …

    def __call__(self, trial: optuna.Trial) -> float:
        """Judge the settings that a trial proposes; settings that cannot be trained are logged and left."""
        try:
            return self.judge(propose(trial, self.graph))
        except (vcr.VCRError, RuntimeError) as error:
            self.write({"error": str(error)[:300], "params": trial.params})
            raise optuna.TrialPruned from error

    def judge(self, config: vcr.Config) -> float:
        """Return the mean accuracy over the splits; poor settings stop after the first few and count a little less."""
        start, values = time.monotonic(), list[float]()
        for split, means in zip(self.splits, self.means, strict=True):
            values.append(crossed_score(self.bench, split, config))
            means.append(float(np.mean(values)))
            if means[-1] < np.median(means) or time.monotonic() > self.end:
                break
        whole = len(values) == len(self.splits)
        seconds = round(time.monotonic() - start, 2)
        self.write({"score": SCORE, "val": values, "whole": whole, "seconds": seconds, "config": asdict(config)})
        return float(np.mean(values)) - (0.0 if whole else 0.003)

    def write(self, row: dict[str, Any]) -> None:
        """Append one line to the log."""
        with self.log.open("a") as file:
            file.write(json.dumps({"dataset": self.graph.name, "directed": self.graph.directed, **row}) + "\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument(
        "--directed", action=argparse.BooleanOptionalAction, help="keep the direction of edges (default: as the preset)"
    )
    parser.add_argument("--seed", type=int, default=0, help="another one for a second process beside the first")
    parser.add_argument("--out", type=Path, required=True, help="the log")
    return parser


def main() -> None:
    """Search until the time is over, then print the best settings."""
    arguments = make_parser().parse_args()
    end = time.monotonic() + arguments.seconds
    preset = vcr.load_config(options={"data": {"dataset": arguments.dataset}})
    directed = preset.data.directed if arguments.directed is None else arguments.directed
    graph = load_graph(arguments.dataset, arguments.data, directed)
    bench = Workbench(graph, find_device(arguments.device))
    splits = random_splits(graph, range(FIRST_SEED, FIRST_SEED + arguments.splits))
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=arguments.seed, n_startup_trials=12, multivariate=True, group=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    names = sorted(NAMES)
    earlier = best_so_far(arguments.out, graph.name, graph.directed, names)
    first = guesses(pick(asdict(preset), names))
    # A process with another seed runs beside the first: it begins at the other end.
    starts = first[::-1] if arguments.seed else [*earlier, *first]
    for settings in starts:
        study.enqueue_trial(settings, skip_if_exists=True)
    search = Search(graph, bench, splits, arguments.out, end)
    study.optimize(search, n_trials=len(starts), timeout=max(1.0, end - time.monotonic()))
    random, wide = np.random.default_rng(arguments.seed), optuna.samplers.RandomSampler(arguments.seed)
    while time.monotonic() < end:
        small_step = len(study.trials) % 2
        if small_step:
            changed = set(random.choice(names, 3, replace=False))
            kept = {name: value for name, value in study.best_params.items() if name not in changed}
            study.enqueue_trial(kept)
        study.sampler = wide if small_step else sampler
        study.optimize(search, n_trials=1)
    print(f"{arguments.dataset}: {len(study.trials)} trials, best {study.best_value:.4f}")
    print(json.dumps(study.best_params))
