"""Logistic regression and gradient boosting on [X, PX, P²X]: the baselines that `train --baselines quick` runs.

They choose from a grid of their own, on the validation nodes of the run. They need no GPU.
"""

from __future__ import annotations

import vcr_graphormer as vcr
from benchmarks.baselines.bench import Bench, Measured
from benchmarks.baselines.network import Settings
from vcr_graphormer.runs.baselines import run_baseline
from vcr_graphormer.training.config import TrainConfig


def run_on_hops(bench: Bench, settings: Settings, split: vcr.Split, seed: int, *, test: bool) -> Measured:
    """Return what the baseline of this name measured; the grid is judged once, so the score is that of validation."""
    training = TrainConfig(seed=seed)
    row = run_baseline(settings["name"], bench.graph, split, metric=bench.metric, training=training)
    return Measured(row["val"], row["val"], row["test"] if test else None)
