"""Prepare features before tokens are made: what the training nodes teach is kept with a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..base.files import read_json, write_json
from ..errors import ConfigError, GraphError, StoreError
from .datasets import SCALES, DataConfig
from .graph import Graph

PREPARATION_FILE = "preparation.json"
_VERSION = 1
# Columns are standardized if the largest is so many times as large as a small one (the 10 % quantile), or as 1. The
# largest of such ratios are 25 for digits, 66 for bags of words (Physics), 4 for Tolokers (docs/log.md, "scale").
MOST_DIFFERENT = 100.0
_SMALL = 0.1
# Without features, nodes are told apart by their degrees.
MADE = "degree"


@dataclass(frozen=True, eq=False)
class Preparation:
    """How to make the features that the model reads from those of the data. The empty one changes nothing.

    Attributes
    ----------
    made : str or None
        Features made from the structure for a graph without any, as in `Graph.with_features`.
    mean, deviation : float64 [d] or None
        Of each column over the training nodes; columns are standardized by them. A column that does not vary, whose
        deviation is 0, becomes 0.
    """

    made: str | None = None
    mean: NDArray[np.float64] | None = None
    deviation: NDArray[np.float64] | None = None

    @classmethod
    def learn(cls, graph: Graph, train: NDArray[np.int64], config: DataConfig) -> Preparation:
        """Decide what the features of a graph need; only rows of training nodes are read.

        Parameters
        ----------
        config
            `features` and `scale` say what may be done; `auto` decides by the data.
        """
        if config.scale not in SCALES:
            raise ConfigError(f"data.scale is {config.scale!r}; it must be {' or '.join(SCALES)}")
        if graph.features is None:
            return cls() if config.features == "given" else cls(MADE if config.features == "auto" else config.features)
        if config.scale == "none" or (config.scale == "auto" and sp.issparse(graph.features)):
            return cls()
        if sp.issparse(graph.features):
            raise ConfigError("data.scale is 'standard', but sparse features would become dense: set it to none")
        rows = np.asarray(graph.features)[train].astype(np.float64)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        deviation[deviation <= np.finfo(np.float32).eps * np.abs(mean)] = 0.0  # rounding of a constant column
        if config.scale == "auto" and spread(mean, deviation) <= MOST_DIFFERENT:
            return cls()
        return cls(mean=mean, deviation=deviation)

    @property
    def empty(self) -> bool:
        """Return whether nothing is changed."""
        return self.made is None and self.mean is None

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with the features that the model reads; the same graph if nothing is to be changed."""
        if self.made is not None and graph.features is None:
            return graph.with_features(cast(Literal["identity", "degree"], self.made))
        if self.mean is None or self.deviation is None:
            return graph
        if graph.num_features != len(self.mean) or sp.issparse(graph.features):
            raise GraphError(
                f"the graph has {graph.num_features} features, but {len(self.mean)} dense ones were standardized in "
                f"training"
            )
        values = np.asarray(graph.features, dtype=np.float64)
        varies = self.deviation > 0
        scaled = (values - self.mean) / np.where(varies, self.deviation, 1.0)
        scaled[:, ~varies] = 0.0
        return replace(graph, features=scaled.astype(np.float32))

    def save(self, folder: Path) -> None:
        """Write `preparation.json`, unless there is nothing to be done."""
        if not self.empty:
            write_json(folder / PREPARATION_FILE, {"version": _VERSION, **self.to_dict()})

    def to_dict(self) -> dict[str, Any]:
        """Return `made` and, as `scale`, mean and deviation of each column; None for what is not done."""
        arrays = {"mean": self.mean, "deviation": self.deviation}
        lists = {name: None if array is None else array.tolist() for name, array in arrays.items()}
        return {"made": self.made, "scale": lists}

    @classmethod
    def open(cls, folder: Path) -> Preparation:
        """Read the `preparation.json` of a run; the empty one where there is none."""
        file = folder / PREPARATION_FILE
        if not file.is_file():
            return cls()
        about = read_json(file)
        if about.get("version") != _VERSION or not {"made", "scale"} <= about.keys():
            raise StoreError(f"{file} has another format: open the run with the version of the package that made it")
        return cls(about["made"], *(_array(about["scale"].get(name)) for name in ("mean", "deviation")))


def _array(values: Any) -> Array | None:
    return None if values is None else np.asarray(values, dtype=np.float64)


def spread(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> float:
    """Return how many times as large as a small column the largest one is; 0 if no column varies.

    A column is as large as its deviation or its mean, whichever is larger. Weights start for inputs of about 1, so a
    small column is at most 1.

    >>> spread(np.array([0.0, 5e5]), np.array([1.0, 3e5]))
    500000.0
    """
    varies = deviation > 0
    if not varies.any():
        return 0.0
    small = min(1.0, float(np.quantile(deviation[varies], _SMALL, method="lower")))
    return float(np.maximum(deviation, np.abs(mean))[varies].max() / small)
