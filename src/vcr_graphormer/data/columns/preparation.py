"""Prepare features before tokens are made: what the training nodes teach is kept with a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ...base.checks import Array
from ...base.files import read_json, write_json
from ...errors import ConfigError, GraphError, StoreError
from ..datasets import DataConfig, check_preparation
from ..graph import Graph
from .schema import DATE, NUMBER, Schema

PREPARATION_FILE = "preparation.json"
_VERSION = 2  # version 1 knew no missing values
# Columns are standardized if the largest is so many times as large as a small one (the 10 % quantile), or as 1. The
# largest of such ratios are 25 for digits, 66 for bags of words (Physics), 4 for Tolokers (docs/log.md, "scale").
MOST_DIFFERENT = 100.0
_SMALL = 0.1
# Without features, nodes are told apart by their degrees.
MADE = "degree"
# Columns and rows whose float64 values are in memory at once: a fraction of the features, however many there are.
_COLUMNS_AT_ONCE, _ROWS_AT_ONCE = 16, 1 << 13


@dataclass(frozen=True, eq=False)
class Preparation:
    """How to make the features that the model reads from those of the data. The empty one changes nothing.

    Attributes
    ----------
    made : str or None
        Features made from the structure for a graph without any, as in `Graph.with_features`.
    mean, deviation : float64 [d] or None
        Of each column over the training nodes; columns are standardized by them. A column that does not vary, whose
        deviation is 0, becomes 0. Columns that stay as they are have 0 and 1.
    median : float64 [d] or None
        Of each column over the training nodes, for features of a table: it takes the place of missing values.
    indicators : int64 [k]
        Columns in which training nodes have missing values. For each, a column of 0 and 1 is added that says where.
    """

    made: str | None = None
    mean: NDArray[np.float64] | None = None
    deviation: NDArray[np.float64] | None = None
    median: NDArray[np.float64] | None = None
    indicators: NDArray[np.int64] | tuple[()] = ()

    @classmethod
    def learn(cls, graph: Graph, train: NDArray[np.int64], config: DataConfig) -> Preparation:
        """Decide what the features of a graph need; only rows of training nodes are read.

        Arrays are standardized where columns differ strongly. Features of a table, which have a schema, are also rid of
        missing values and of constant columns; of them only numbers and dates are standardized.

        Parameters
        ----------
        config
            `features`, `prepare` and `scale` say what may be done; `auto` decides by the data.
        """
        check_preparation(config)
        if graph.features is None:
            return cls() if config.features == "given" else cls(MADE if config.features == "auto" else config.features)
        if config.prepare == "none":
            return cls()
        table = None if sp.issparse(graph.features) else graph.schema
        if (config.scale == "none" and table is None) or (config.scale == "auto" and sp.issparse(graph.features)):
            return cls()
        if sp.issparse(graph.features):
            raise ConfigError("data.scale is 'standard', but sparse features would become dense: set it to none")
        mean, deviation, median, missing = _statistics(graph.features, train, table=table is not None)
        deviation[deviation <= np.finfo(np.float32).eps * np.abs(mean)] = 0.0  # rounding of a constant column
        differ = config.scale == "auto" and spread(mean, deviation) > MOST_DIFFERENT
        scaled = np.full(len(mean), differ or config.scale == "standard")
        if table is None:
            return cls(mean=mean, deviation=deviation) if scaled.any() else cls()
        scaled &= _measured(table)
        mean[~scaled], deviation[~scaled & (deviation > 0)] = 0.0, 1.0
        return cls(None, mean, deviation, median, np.flatnonzero((missing > 0) & (missing < len(train))))

    @property
    def empty(self) -> bool:
        """Return whether nothing is changed."""
        return self.made is None and self.mean is None

    @property
    def standardizes(self) -> bool:
        """Return whether a column is standardized."""
        if self.mean is None or self.deviation is None or self.median is None:
            return self.mean is not None
        return bool(((self.deviation > 0) & ((self.mean != 0) | (self.deviation != 1))).any())

    @property
    def constant(self) -> NDArray[np.int64]:
        """Return the columns that are constant over the training nodes and become 0."""
        return np.flatnonzero(self.deviation == 0) if self.deviation is not None else np.arange(0)

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with the features that the model reads; the same graph if nothing is to be changed."""
        if self.made is not None and graph.features is None:
            return graph.with_features(cast(Literal["identity", "degree"], self.made))
        if self.median is None:
            graph.check_complete()
        if self.mean is None or self.deviation is None:
            return graph
        features = graph.features
        if not isinstance(features, np.ndarray) or features.shape[1] != len(self.mean):
            raise GraphError(
                f"the graph has {graph.num_features} features, but {len(self.mean)} dense ones were standardized in "
                f"training"
            )
        width, varies = len(self.mean), self.deviation > 0
        divisor = np.where(varies, self.deviation, 1.0)
        prepared = np.zeros((graph.num_nodes, width + len(self.indicators)), dtype=np.float32)
        for start in range(0, graph.num_nodes, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            values = np.asarray(features[rows], dtype=np.float64)
            if self.median is not None:
                missing = np.isnan(values)
                prepared[rows, width:] = missing[:, list(self.indicators)]
                values = np.where(missing, self.median, values)
            prepared[rows, :width] = np.where(varies, (values - self.mean) / divisor, 0.0)
        names = graph.feature_names
        if names is not None:
            names = (*names, *(f"{names[column]}=missing" for column in self.indicators))
        return replace(graph, features=prepared, feature_names=names, schema=None)

    def save(self, folder: Path) -> None:
        """Write `preparation.json`, unless there is nothing to be done."""
        if not self.empty:
            write_json(folder / PREPARATION_FILE, {"version": _VERSION, **self.to_dict()})

    def to_dict(self) -> dict[str, Any]:
        """Return what is done to each column, for JSON; None for what is not done."""
        scale = {"mean": _list(self.mean), "deviation": _list(self.deviation)}
        missing = {"median": _list(self.median), "indicators": [int(column) for column in self.indicators]}
        return {"made": self.made, "scale": scale, "missing": missing}

    @classmethod
    def open(cls, folder: Path) -> Preparation:
        """Read the `preparation.json` of a run; the empty one where there is none."""
        file = folder / PREPARATION_FILE
        if not file.is_file():
            return cls()
        about = read_json(file)
        if about.get("version") not in (1, _VERSION) or not {"made", "scale"} <= about.keys():
            raise StoreError(f"{file} has another format: open the run with the version of the package that made it")
        try:
            scale, missing = about["scale"], about.get("missing", {})
            prepared = cls(
                made=about["made"],
                mean=_array(scale.get("mean")),
                deviation=_array(scale.get("deviation")),
                median=_array(missing.get("median")),
                indicators=np.asarray(missing.get("indicators", ()), dtype=np.int64),
            )
            prepared._check()
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise StoreError(f"{file} is damaged: {error}") from error
        return prepared

    def _check(self) -> None:
        """Raise for numbers that do not belong to the same columns."""
        arrays = [array for array in (self.mean, self.deviation, self.median) if array is not None]
        if any(array.ndim != 1 or len(array) != len(arrays[0]) or not np.isfinite(array).all() for array in arrays):
            raise ValueError("mean, deviation and median must be finite and have one number per column")
        width, columns = len(arrays[0]) if arrays else 0, np.asarray(self.indicators)
        if columns.ndim != 1 or (columns.size and not (0 <= columns.min() <= columns.max() < width)):
            raise ValueError(f"indicators must be columns between 0 and {width - 1}")
        if self.made not in (None, "identity", "degree"):
            raise ValueError(f"made is {self.made!r}")


def _list(array: Array | None) -> list[float] | None:
    return None if array is None else array.tolist()


def _array(values: Any) -> Array | None:
    return None if values is None else np.asarray(values, dtype=np.float64)


def _statistics(features: Array, train: NDArray[np.int64], *, table: bool) -> tuple[Array, Array, Array, Array]:
    """Return mean, deviation, median and number of missing values of each column over the training nodes.

    Missing values, which only a table has, count as the median. It is 0 where all values are missing.
    """
    columns = features.shape[1]
    mean, deviation, median = np.zeros(columns), np.zeros(columns), np.zeros(columns)
    missing = np.zeros(columns, dtype=np.int64)
    # Blocks of nearly equal width: NumPy adds up a single column in another order than several.
    for block in np.array_split(np.arange(columns), -(-columns // _COLUMNS_AT_ONCE)) if columns else ():
        part = slice(int(block[0]), int(block[-1]) + 1)
        rows = np.asarray(features[:, part])[train].astype(np.float64)
        if table:
            unknown = np.isnan(rows)
            missing[part] = unknown.sum(axis=0)
            for column in np.flatnonzero(missing[part] < len(train)):
                median[part][column] = np.median(rows[~unknown[:, column], column])
            np.copyto(rows, median[part], where=unknown)
        mean[part], deviation[part] = rows.mean(axis=0), rows.std(axis=0)
    return mean, deviation, median, missing


def _measured(schema: Schema) -> NDArray[np.bool_]:
    """Return which features of a table are numbers or dates; the others are 0 or 1 and need no scale."""
    return np.array([column.type in (NUMBER, DATE) for column in schema.columns for _ in column.feature_names])


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
