"""VCR-Graphormer: mini-batch graph transformers via virtual connections (ICLR 2024)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
# Where each public name lives. They are imported on first use, so that `vcr-graphormer --help` stays fast.
_HOMES = {
    "LinkRanker": "ranking.links",
    "Transfer": "explain.rewiring",
    "TokenLists": "tokens.lists",
    "Attributions": "explain.attributions",
    "GraphSummary": "data.summary",
    "Explanation": "explain.explanation",
    "DataConfig": "data.datasets",
    "Batch": "model.batches",
    "ClusterError": "errors",
    "DaskError": "errors",
    "Config": "runs.config",
    "ConfigError": "errors",
    "Connections": "ranking.connections",
    "Graph": "data.graph",
    "GraphError": "errors",
    "Inputs": "model.batches",
    "Kind": "tokens.kinds",
    "Layout": "tokens.layout",
    "ModelConfig": "model.config",
    "Predictions": "runs.predictions",
    "Ranker": "ranking.pagerank",
    "Ranking": "ranking.ranker",
    "ProcessError": "errors",
    "RanksError": "errors",
    "Run": "runs.run",
    "Split": "data.split",
    "StoreError": "errors",
    "TokenConfig": "tokens.config",
    "TokenStore": "tokens.store",
    "TrainConfig": "training.config",
    "TrainingError": "errors",
    "VCRError": "errors",
    "VCRGraphormer": "model.transformer",
    "content_connections": "ranking.connections",
    "digits": "data.generated",
    "exact_pagerank": "ranking.exact",
    "feature_connections": "ranking.connections",
    "generate": "data.generated",
    "hop_features": "tokens.hops",
    "load_config": "runs.config",
    "load_dataset": "data.datasets",
    "load_splits": "data.datasets",
    "paper_split": "data.datasets",
    "make_inputs": "model.inputs",
    "rank": "ranking.pagerank",
    "resume": "runs.launch",
    "structure_connections": "ranking.connections",
    "tokenize": "tokens.build",
    "train": "runs.launch",
    "train_seeds": "runs.seeds",
    "write_report": "report.page",
}

if TYPE_CHECKING:
    from .data.datasets import DataConfig, load_dataset, load_splits, paper_split
    from .data.generated import digits, generate
    from .data.graph import Graph
    from .data.split import Split
    from .data.summary import GraphSummary
    from .errors import (
        ClusterError,
        ConfigError,
        DaskError,
        GraphError,
        ProcessError,
        RanksError,
        StoreError,
        TrainingError,
        VCRError,
    )
    from .explain.attributions import Attributions
    from .explain.explanation import Explanation
    from .explain.rewiring import Transfer
    from .model.batches import Batch, Inputs
    from .model.config import ModelConfig
    from .model.inputs import make_inputs
    from .model.transformer import VCRGraphormer
    from .ranking.connections import Connections, content_connections, feature_connections, structure_connections
    from .ranking.exact import exact_pagerank
    from .ranking.links import LinkRanker
    from .ranking.pagerank import Ranker, rank
    from .ranking.ranker import Ranking
    from .report.page import write_report
    from .runs.config import Config, load_config
    from .runs.launch import resume, train
    from .runs.predictions import Predictions
    from .runs.run import Run
    from .runs.seeds import train_seeds
    from .tokens.build import tokenize
    from .tokens.config import TokenConfig
    from .tokens.hops import hop_features
    from .tokens.kinds import Kind
    from .tokens.layout import Layout
    from .tokens.lists import TokenLists
    from .tokens.store import TokenStore
    from .training.config import TrainConfig

__all__ = [
    "Attributions",
    "Batch",
    "ClusterError",
    "Config",
    "ConfigError",
    "Connections",
    "DaskError",
    "DataConfig",
    "Explanation",
    "Graph",
    "GraphError",
    "GraphSummary",
    "Inputs",
    "Kind",
    "Layout",
    "LinkRanker",
    "ModelConfig",
    "Predictions",
    "ProcessError",
    "Ranker",
    "Ranking",
    "RanksError",
    "Run",
    "Split",
    "StoreError",
    "TokenConfig",
    "TokenLists",
    "TokenStore",
    "TrainConfig",
    "TrainingError",
    "Transfer",
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
    "train_seeds",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
