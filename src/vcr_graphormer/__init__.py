"""VCR-Graphormer: mini-batch graph transformers via virtual connections (ICLR 2024)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `vcr-graphormer --help` stays fast.
_HOMES = {
    "Batch": "batches",
    "ClusterError": "errors",
    "Config": "config",
    "ConfigError": "errors",
    "Connections": "connections",
    "Graph": "graph",
    "GraphError": "errors",
    "Inputs": "batches",
    "ModelConfig": "settings",
    "Predictions": "predictions",
    "Ranker": "pagerank",
    "Ranking": "pagerank",
    "RanksError": "errors",
    "Run": "run",
    "Split": "split",
    "StoreError": "errors",
    "TokenConfig": "store",
    "TokenStore": "store",
    "TrainConfig": "settings",
    "TrainingError": "errors",
    "VCRError": "errors",
    "VCRGraphormer": "model",
    "content_connections": "connections",
    "digits": "builtin",
    "exact_pagerank": "walks",
    "feature_connections": "connections",
    "generate": "builtin",
    "hop_features": "hops",
    "load_config": "config",
    "load_dataset": "datasets",
    "load_splits": "datasets",
    "paper_split": "datasets",
    "make_inputs": "inputs",
    "rank": "pagerank",
    "resume": "launch",
    "structure_connections": "connections",
    "tokenize": "tokens",
    "train": "launch",
}

if TYPE_CHECKING:
    from .batches import Batch, Inputs
    from .builtin import digits, generate
    from .config import Config, load_config
    from .connections import Connections, content_connections, feature_connections, structure_connections
    from .datasets import load_dataset, load_splits, paper_split
    from .errors import (
        ClusterError,
        ConfigError,
        GraphError,
        RanksError,
        StoreError,
        TrainingError,
        VCRError,
    )
    from .graph import Graph
    from .hops import hop_features
    from .inputs import make_inputs
    from .launch import resume, train
    from .model import VCRGraphormer
    from .pagerank import Ranker, Ranking, rank
    from .predictions import Predictions
    from .run import Run
    from .settings import ModelConfig, TrainConfig
    from .split import Split
    from .store import TokenConfig, TokenStore
    from .tokens import tokenize
    from .walks import exact_pagerank

__all__ = [
    "Batch",
    "ClusterError",
    "Config",
    "ConfigError",
    "Connections",
    "Graph",
    "GraphError",
    "Inputs",
    "ModelConfig",
    "Predictions",
    "Ranker",
    "Ranking",
    "RanksError",
    "Run",
    "Split",
    "StoreError",
    "TokenConfig",
    "TokenStore",
    "TrainConfig",
    "TrainingError",
    "VCRError",
    "VCRGraphormer",
    "__version__",
    "content_connections",
    "digits",
    "exact_pagerank",
    "feature_connections",
    "generate",
    "hop_features",
    "load_config",
    "load_dataset",
    "load_splits",
    "make_inputs",
    "paper_split",
    "rank",
    "resume",
    "structure_connections",
    "tokenize",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
