"""Search for good settings by validation accuracy, on split seeds that are never reported (100 and up).

    python benchmarks/tune.py --dataset Photo --data ROOT --seconds 400 --out tune-Photo.jsonl

Each line of the log is one trial: its settings, the validation accuracy of each split, seconds. The test part is never
computed. optuna's TPE proposes; after the first split a trial goes on only if it is among the better half so far.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from training import load

import vcr_graphormer as vcr
from vcr_graphormer.inputs import find_device
from vcr_graphormer.trials import Workbench

FIRST_SEED = 100


def propose(trial: optuna.Trial, graph: vcr.Graph) -> vcr.Config:
    """One point of the search space, the same space for every dataset."""
    nodes = graph.num_nodes
    tokens = vcr.TokenConfig(
        hops=trial.suggest_int("hops", 1, 7 if graph.num_features < 5000 else 4),
        clusters=trial.suggest_categorical("clusters", [10, 20, 50] if nodes > 1000 else [10]),
        structure_tokens=trial.suggest_categorical("structure_tokens", [0, 4, 8, 16]),
        content_tokens=trial.suggest_categorical("content_tokens", [0, 4, 8, 16]),
    )
    model = vcr.ModelConfig(
        hidden_channels=trial.suggest_categorical("hidden_channels", [64, 128, 256, 512]),
        heads=8,
        layers=trial.suggest_int("layers", 1, 2),
        dropout=trial.suggest_float("dropout", 0.0, 0.7, step=0.1),
        attention_dropout=trial.suggest_float("attention_dropout", 0.0, 0.5, step=0.1),
        readout=trial.suggest_categorical("readout", ["attention", "mean", "target"]),
        kind_embedding=trial.suggest_categorical("kind_embedding", [False, True]),
        rich_tokens=trial.suggest_int("rich_tokens", 0, min(2, tokens.hops)),
        label_hops=trial.suggest_int("label_hops", 0, min(2, tokens.hops)),
        label_embedding=trial.suggest_categorical("label_embedding", [False, True]),
        adjacency_rows=trial.suggest_categorical("adjacency_rows", [False, True]),
        feature_dropout=trial.suggest_float("feature_dropout", 0.0, 0.8, step=0.1),
        token_dropout=trial.suggest_float("token_dropout", 0.0, 0.5, step=0.1),
    )
    sizes = [size for size in (32, 64, 250, 500, 1000, 2000) if nodes / 40 <= size <= max(64, nodes // 2)]
    training = vcr.TrainConfig(
        epochs=trial.suggest_categorical("epochs", [60, 120, 240]),
        batch_size=trial.suggest_categorical("batch_size", sizes),
        learning_rate=trial.suggest_float("learning_rate", 3e-4, 1e-2, log=True),
        final_learning_rate=0.0,
        schedule="cosine",
        warmup_steps=20,
        weight_decay=trial.suggest_float("weight_decay", 1e-6, 1e-1, log=True),
        label_smoothing=trial.suggest_categorical("label_smoothing", [0.0, 0.1]),
        average=trial.suggest_categorical("average", [0.0, 0.99]),
        patience=60,
        checkpoint_every=0,
    )
    return vcr.Config(tokens=tokens, model=model, training=training)


def guesses(graph: vcr.Graph) -> list[dict[str, Any]]:
    """Where the search starts: what the first probes on other splits found to matter, and two departures from it."""
    base: dict[str, Any] = {"hops": 3, "clusters": 10, "structure_tokens": 8, "content_tokens": 8, "layers": 1}
    base |= {"hidden_channels": 256, "dropout": 0.3, "attention_dropout": 0.1, "readout": "attention"}
    base |= {"kind_embedding": True, "rich_tokens": 2, "label_hops": 2, "label_embedding": False}
    base |= {"adjacency_rows": False, "feature_dropout": 0.5, "token_dropout": 0.0, "epochs": 120}
    base |= {
        "batch_size": (1000 if graph.num_nodes > 20_000 else 500) if graph.num_nodes > 1000 else 64,
        "learning_rate": 1e-3,
        "weight_decay": 1e-4,
    }
    base |= {"label_smoothing": 0.0, "average": 0.99}
    linked = base | {"adjacency_rows": True, "label_embedding": True, "token_dropout": 0.2}
    plain = base | {"rich_tokens": 0, "label_hops": 0, "feature_dropout": 0.2, "hidden_channels": 128}
    return [base, linked, plain]


def best_so_far(log: Path, count: int = 3) -> list[dict[str, Any]]:
    """The best whole trials of an earlier search in the same log, to start from."""
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
    whole = sorted((row for row in rows if row.get("whole")), key=lambda row: -float(np.mean(row["val"])))
    names = set(guesses(vcr.digits())[0])
    settings = [{**row["config"]["tokens"], **row["config"]["model"], **row["config"]["training"]} for row in whole]
    return [{name: values[name] for name in sorted(names)} for values in settings[:count]]


def main() -> None:
    """Search until the time is out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--data", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--directed", action="store_true", help="keep the direction of edges")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    graph = load(arguments.dataset, arguments.data, arguments.directed)
    bench = Workbench(graph, find_device(arguments.device))
    splits = [vcr.Split.random(graph.labels, 0.6, 0.2, FIRST_SEED + number) for number in range(arguments.splits)]
    end = time.monotonic() + arguments.seconds
    firsts: list[float] = []

    def log(row: dict[str, Any]) -> None:
        with arguments.out.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def judge(config: vcr.Config) -> float:
        start, values = time.monotonic(), []
        for number, split in enumerate(splits):
            trial = bench.train(split, config, test=False)
            values.append(trial.val)
            if number == 0:
                firsts.append(trial.val)
                if trial.val < np.median(firsts) or time.monotonic() > end:
                    break
        seconds = round(time.monotonic() - start, 2)
        whole = len(values) == len(splits)
        log(
            {
                "dataset": arguments.dataset,
                "directed": graph.directed,
                "val": values,
                "whole": whole,
                "seconds": seconds,
                "config": asdict(config),
            }
        )
        # A trial that was cut short is not judged better than its first split less a little.
        return float(np.mean(values)) - (0.0 if whole else 0.003)

    def objective(trial: optuna.Trial) -> float:
        try:
            return judge(propose(trial, graph))
        except (vcr.VCRError, RuntimeError) as error:
            log({"dataset": arguments.dataset, "error": str(error)[:300], "params": trial.params})
            raise optuna.TrialPruned from error

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=arguments.seed, n_startup_trials=12, multivariate=True, group=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for guess in [*best_so_far(arguments.out), *guesses(graph)]:
        study.enqueue_trial(guess, skip_if_exists=True)
    study.optimize(objective, timeout=max(0.0, end - time.monotonic()))
    print(f"{arguments.dataset}: {len(study.trials)} trials, best {study.best_value:.4f}")
    print(json.dumps(study.best_params))


if __name__ == "__main__":
    main()
