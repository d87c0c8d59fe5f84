"""The models of PyG that serve as baselines, and the settings that their search varies."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch_geometric.nn.models import LINKX

import vcr_graphormer as vcr
from vcr_graphormer.runs.networks import make_network

MODELS = ("MLP", "GCN", "GraphSAGE", "GAT", "APPNP", "LINKX")
# The neighbours a node reads messages from: all of them, those it points to, or those that point to it.
LINKS = ("both", "out", "in")


def propose(trial: Any, model: str, directed: bool) -> dict[str, Any]:
    """Return one point of the search space of a model; `directed`: the published links have a direction."""
    settings: dict[str, Any] = {
        "hidden": trial.suggest_categorical("hidden", [64, 128] if model == "GAT" else [64, 128, 256, 512]),
        "layers": trial.suggest_int("layers", 1 if model == "LINKX" else 2, 4),
        "dropout": trial.suggest_float("dropout", 0.0, 0.8, step=0.1),
        "learning_rate": trial.suggest_float("learning_rate", 1e-3, 5e-2, log=True),
        "weight_decay": trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True),
    }
    if model not in ("APPNP", "LINKX"):
        settings["norm"] = trial.suggest_categorical("norm", [False, True])
    if model in ("GCN", "GraphSAGE", "GAT"):
        settings["jump"] = trial.suggest_categorical("jump", [False, True])
    if model == "APPNP":
        settings["restart"] = trial.suggest_categorical("restart", [0.1, 0.2, 0.5, 0.9])
    if directed and model != "MLP":
        settings["links"] = trial.suggest_categorical("links", LINKS)
    return settings


def make(model: str, graph: vcr.Graph, settings: dict[str, Any]) -> nn.Module:
    """Return a model with fresh weights. `Bench` adds the self-loops of GAT once."""
    features, classes = graph.num_features, graph.num_classes
    if model == "LINKX":
        linkx: nn.Module = LINKX(
            graph.num_nodes, features, settings["hidden"], classes, settings["layers"], dropout=settings["dropout"]
        )
        return linkx
    return make_network(model, features, classes, settings)
