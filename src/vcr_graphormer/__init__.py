"""VCR-Graphormer: mini-batch graph transformers via virtual connections (ICLR 2024)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

__version__ = "0.2.0"
# The modules of the public names. Each is imported on first use, so that `vcr-graphormer --help` stays fast.
_NAMES = {
    "base.checks": ("AUTO",),
    "data.datasets": ("DataConfig", "load_dataset", "load_splits", "paper_split"),
    "data.generated": ("digits", "generate"),
    "data.graph": ("Graph",),
    "data.metrics": ("PrecisionRecall", "Threshold"),
    "data.columns.preparation": ("Preparation",),
    "data.readers.mapping": ("EdgeTable", "NodeTable"),
    "data.columns.schema": ("Schema",),
    "data.split": ("Split",),
    "data.summary": ("GraphSummary",),
    "data.tasks": ("Target",),
    "explain.attributions": ("Attributions",),
    "explain.explanation": ("Explanation", "Token"),
    "explain.rewiring": ("Transfer",),
    "model.batches": ("Batch", "Inputs"),
    "model.config": ("ModelConfig",),
    "model.inputs": ("make_inputs",),
    "model.members": ("Members", "make_model"),
    "model.transformer": ("Attended", "VCRGraphormer"),
    "ranking.connections": ("Connections", "content_connections", "feature_connections", "structure_connections"),
    "ranking.exact": ("exact_pagerank",),
    "ranking.links": ("LinkRanker",),
    "ranking.nearest": ("FeatureRanker", "HopFeatureRanker"),
    "ranking.pagerank": ("Ranker", "rank"),
    "ranking.ranker": ("NodeRanker", "Ranking"),
    "report.page": ("write_report",),
    "runs.adapt": ("Adapted", "adapt"),
    "runs.config": ("Config", "load_config"),
    "runs.interfaces.estimators": ("VCRClassifier", "VCRRegressor"),
    "runs.launch": ("resume", "train"),
    "runs.predictions": ("Embeddings", "Predictions"),
    "runs.run": ("Run",),
    "runs.seeds": ("train_seeds",),
    "runs.serving.requests": ("NewGraph",),
    "runs.serving.scoring": ("Scorer",),
    "runs.tuning": ("Tuning", "TuningState", "TuningTrial", "tune"),
    "tokens.build": ("tokenize",),
    "tokens.growth": ("update",),
    "tokens.config": ("TokenConfig",),
    "tokens.hops": ("hop_features",),
    "tokens.kinds": ("Kind",),
    "tokens.layout": ("Layout",),
    "tokens.lists": ("TokenLists", "make_lists"),
    "tokens.store": ("TokenStore",),
    "training.config": ("TrainConfig",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

if TYPE_CHECKING:  # type checkers do not see names that are imported on first use
    from .base.checks import AUTO
    from .data.columns.preparation import Preparation
    from .data.columns.schema import Schema
    from .data.datasets import DataConfig, load_dataset, load_splits, paper_split
    from .data.generated import digits, generate
    from .data.graph import Graph
    from .data.metrics import PrecisionRecall, Threshold
    from .data.readers.mapping import EdgeTable, NodeTable
    from .data.split import Split
    from .data.summary import GraphSummary
    from .data.tasks import Target
    from .explain.attributions import Attributions
    from .explain.explanation import Explanation, Token
    from .explain.rewiring import Transfer
    from .model.batches import Batch, Inputs
    from .model.config import ModelConfig
    from .model.inputs import make_inputs
    from .model.members import Members, make_model
    from .model.transformer import Attended, VCRGraphormer
    from .ranking.connections import Connections, content_connections, feature_connections, structure_connections
    from .ranking.exact import exact_pagerank
    from .ranking.links import LinkRanker
    from .ranking.nearest import FeatureRanker, HopFeatureRanker
    from .ranking.pagerank import Ranker, rank
    from .ranking.ranker import NodeRanker, Ranking
    from .report.page import write_report
    from .runs.adapt import Adapted, adapt
    from .runs.config import Config, load_config
    from .runs.interfaces.estimators import VCRClassifier, VCRRegressor
    from .runs.launch import resume, train
    from .runs.predictions import Embeddings, Predictions
    from .runs.run import Run
    from .runs.seeds import train_seeds
    from .runs.serving.requests import NewGraph
    from .runs.serving.scoring import Scorer
    from .runs.tuning import Tuning, TuningState, TuningTrial, tune
    from .tokens.build import tokenize
    from .tokens.config import TokenConfig
    from .tokens.hops import hop_features
    from .tokens.kinds import Kind
    from .tokens.layout import Layout
    from .tokens.lists import TokenLists, make_lists
    from .tokens.store import TokenStore
    from .training.config import TrainConfig

__all__ = [
    "AUTO",
    "Adapted",
    "Attended",
    "Attributions",
    "Batch",
    "ClusterError",
    "Config",
    "ConfigError",
    "Connections",
    "DaskError",
    "DataConfig",
    "EdgeTable",
    "Embeddings",
    "Explanation",
    "FeatureRanker",
    "Graph",
    "GraphError",
    "GraphSummary",
    "HopFeatureRanker",
    "Inputs",
    "Kind",
    "Layout",
    "LinkRanker",
    "Members",
    "ModelConfig",
    "NewGraph",
    "NodeRanker",
    "NodeTable",
    "PrecisionRecall",
    "Predictions",
    "Preparation",
    "ProcessError",
    "Ranker",
    "Ranking",
    "RanksError",
    "Run",
    "Schema",
    "Scorer",
    "Split",
    "StoreError",
    "Target",
    "Threshold",
    "Token",
    "TokenConfig",
    "TokenLists",
    "TokenStore",
    "TrainConfig",
    "TrainingError",
    "Transfer",
    "Tuning",
    "TuningState",
    "TuningTrial",
    "VCRClassifier",
    "VCRError",
    "VCRGraphormer",
    "VCRRegressor",
    "__version__",
    "adapt",
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
    "make_lists",
    "make_model",
    "paper_split",
    "rank",
    "resume",
    "structure_connections",
    "tokenize",
    "train",
    "train_seeds",
    "tune",
    "update",
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
