"""VCR-Graphormer: mini-batch graph transformers via virtual connections (ICLR 2024)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `vcr-graphormer --help` stays fast.
_HOMES = {
    "ConfigError": "errors",
    "Graph": "graph",
    "GraphError": "errors",
    "Split": "split",
    "StoreError": "errors",
    "VCRError": "errors",
    "digits": "builtin",
    "generate": "builtin",
    "load_dataset": "datasets",
    "load_splits": "datasets",
    "paper_split": "datasets",
}

if TYPE_CHECKING:
    from .builtin import digits, generate
    from .datasets import load_dataset, load_splits, paper_split
    from .errors import ConfigError, GraphError, StoreError, VCRError
    from .graph import Graph
    from .split import Split

__all__ = [
    "ConfigError",
    "Graph",
    "GraphError",
    "Split",
    "StoreError",
    "VCRError",
    "__version__",
    "digits",
    "generate",
    "load_dataset",
    "load_splits",
    "paper_split",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
