"""VCR-Graphormer: mini-batch graph transformers via virtual connections (ICLR 2024)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `vcr-graphormer --help` stays fast.
_HOMES = {
    "ConfigError": "errors",
    "Connections": "connections",
    "Graph": "graph",
    "GraphError": "errors",
    "Ranker": "pagerank",
    "Ranking": "pagerank",
    "Split": "split",
    "StoreError": "errors",
    "TokenConfig": "store",
    "TokenStore": "store",
    "VCRError": "errors",
    "content_connections": "connections",
    "digits": "builtin",
    "exact_pagerank": "walks",
    "feature_connections": "connections",
    "generate": "builtin",
    "hop_features": "hops",
    "load_dataset": "datasets",
    "load_splits": "datasets",
    "paper_split": "datasets",
    "rank": "pagerank",
    "structure_connections": "connections",
    "tokenize": "tokens",
}

if TYPE_CHECKING:
    from .builtin import digits, generate
    from .connections import Connections, content_connections, feature_connections, structure_connections
    from .datasets import load_dataset, load_splits, paper_split
    from .errors import ConfigError, GraphError, StoreError, VCRError
    from .graph import Graph
    from .hops import hop_features
    from .pagerank import Ranker, Ranking, rank
    from .split import Split
    from .store import TokenConfig, TokenStore
    from .tokens import tokenize
    from .walks import exact_pagerank

__all__ = [
    "ConfigError",
    "Connections",
    "Graph",
    "GraphError",
    "Ranker",
    "Ranking",
    "Split",
    "StoreError",
    "TokenConfig",
    "TokenStore",
    "VCRError",
    "__version__",
    "content_connections",
    "digits",
    "exact_pagerank",
    "feature_connections",
    "generate",
    "hop_features",
    "load_dataset",
    "load_splits",
    "paper_split",
    "rank",
    "structure_connections",
    "tokenize",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
