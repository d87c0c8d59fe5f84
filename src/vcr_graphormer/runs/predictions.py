"""`Predictions` and `Embeddings` as arrays and files; and how to find nodes by id or name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array, to_numpy, to_whole_numbers
from ..base.files import replace_file, write_array
from ..base.tables import write_csv, write_parquet
from ..base.text import one_of
from ..data.graph import Graph
from ..data.metrics import Threshold
from ..data.tasks import TASKS
from ..errors import ConfigError, GraphError, StoreError
from ..tokens.lists import TokenLists

TABLE_ENDINGS = (".csv", ".parquet", ".npz")
_MOST_DIGITS = 18  # of a node id: larger numbers are not of int64
_LONGEST = 1000  # digits: Python refuses to read much longer numbers
_MOST_NAMES = 5  # similar names in an error


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """Predictions of some nodes.

    Attributes
    ----------
    nodes : int64 [m]
        Node ids.
    probabilities : float32 [m, c]
        Probability of each class or label; for regression the values.
    labels : [m] or [m, c]
        The most probable class, the labels with probability 0.5 or more, or the values. With a threshold: the class of
        two that it decides for.
    task : str
        The task, as in `Graph`.
    names, class_names
        Names of nodes and classes, if the graph has them.
    threshold : Threshold or None
        The class (`column`) that is predicted where its probability is at least `value`; None: the most probable class.
    parts : str [m] or None
        `train`, `val`, `test`, or an empty text for a node that is in none of them.
    true_labels : [m] or [m, c], or None
        The labels in the graph, as in `Graph.labels`.
    """

    nodes: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    labels: Array
    task: str
    names: NDArray[np.str_] | None = None
    class_names: tuple[str, ...] | None = None
    threshold: Threshold | None = None
    parts: NDArray[np.str_] | None = None
    true_labels: Array | None = None

    def columns(self) -> dict[str, Array]:
        """Return the columns of the table that `save` writes to csv and parquet, by name."""
        task, count = TASKS[self.task], self.probabilities.shape[1]
        classes = _classes(self.class_names, count)
        columns = _about_nodes(self, count)
        if task.has_classes:
            columns["prediction"] = _named(self.labels, classes)
        elif not task.gives_values:
            columns |= {f"prediction_{name}": self.labels[:, place] for place, name in enumerate(classes)}
        word = "value" if task.gives_values else "probability"
        return columns | {f"{word}_{name}": self.probabilities[:, place] for place, name in enumerate(classes)}

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that `save` writes to npz, by name."""
        own = {"nodes": self.nodes, "labels": self.labels, "probabilities": self.probabilities}
        return {**own, **_arrays_about_nodes(self)}

    def save(self, file: str | Path, overwrite: bool = False) -> Path:
        """Write `.csv` or `.parquet` (a row per node) or `.npz` (arrays)."""
        return _save(self, Path(file), overwrite)

    def part(self, rows: slice) -> Predictions:
        """Return some consecutive rows."""
        names = None if self.names is None else self.names[rows]
        outputs, labels = self.probabilities[rows], self.labels[rows]
        return replace(self, nodes=self.nodes[rows], probabilities=outputs, labels=labels, names=names)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        threshold = "" if self.threshold is None else f", threshold {self.threshold.value:.4g}"
        return f"Predictions({len(self):,} nodes, {self.task}, {self.probabilities.shape[1]} columns{threshold})"


@dataclass(frozen=True, eq=False, repr=False)
class Embeddings:
    """The model's vectors of some nodes: `vectors` is float32 [m, h]; the rest is as in `Predictions`."""

    nodes: NDArray[np.int64]
    vectors: NDArray[np.float32]
    task: str
    names: NDArray[np.str_] | None = None
    class_names: tuple[str, ...] | None = None
    parts: NDArray[np.str_] | None = None
    true_labels: Array | None = None

    def columns(self) -> dict[str, Array]:
        """Return the columns of the table that `save` writes to csv and parquet, by name."""
        return {**_about_nodes(self), "vector": self.vectors}

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that `save` writes to npz, by name."""
        return {"nodes": self.nodes, "vectors": self.vectors, **_arrays_about_nodes(self)}

    def save(self, file: str | Path, overwrite: bool = False) -> Path:
        """Write `.csv` or `.parquet` (a row per node), `.npz` (arrays) or `.npy` (the vectors alone).

        A vector is a list of fixed length in parquet, which pandas, polars and vector databases read as one column. csv
        has no lists: there it is one column per dimension.
        """
        path = Path(file)
        if path.suffix != ".npy":
            return _save(self, path, overwrite, also=(".npy",))
        _check_free(path, overwrite)
        write_array(path, self.vectors)
        return path

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Embeddings({len(self):,} nodes, vectors of {self.vectors.shape[1]} numbers)"


def _save(rows: Predictions | Embeddings, path: Path, overwrite: bool, *, also: tuple[str, ...] = ()) -> Path:
    if path.suffix not in TABLE_ENDINGS:
        raise ConfigError(f"{path} must end in {one_of((*TABLE_ENDINGS, *also))}")
    _check_free(path, overwrite)
    with replace_file(path) as temporary:
        if path.suffix == ".npz":
            with temporary.open("wb") as handle:
                np.savez(handle, **rows.arrays())  # type: ignore[arg-type]
        else:
            (write_csv if path.suffix == ".csv" else write_parquet)(temporary, rows.columns())
    return path


def _check_free(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise StoreError(f"{path} exists: choose another name or delete it")


def _classes(class_names: tuple[str, ...] | None, count: int) -> list[str]:
    return [*(class_names or map(str, range(count)))][:count]


def _named(labels: Array, classes: list[str]) -> Array:
    """Return the class names of labels, None for unknown ones."""
    names = np.array([*classes, None], dtype=object)
    return names[np.where(labels < 0, len(classes), labels)]


def _about_nodes(rows: Predictions | Embeddings, outputs: int = 0) -> dict[str, Array]:
    """Return the columns that say which nodes these are: id, name, part and label."""
    columns: dict[str, Array] = {"node": rows.nodes}
    if rows.names is not None:
        columns["name"] = rows.names
    if rows.parts is not None:
        columns["part"] = np.array([part or None for part in rows.parts.tolist()], dtype=object)
    if rows.true_labels is None:
        return columns
    task, labels = TASKS[rows.task], np.asarray(rows.true_labels)
    if task.has_classes:
        # The graph may have classes that the model does not know.
        return columns | {"label": _named(labels, _classes(rows.class_names, max(outputs, labels.max(initial=0) + 1)))}
    labels = labels[:, None] if labels.ndim == 1 else labels
    if not task.gives_values:
        labels = np.ma.masked_less(labels, 0)  # -1 is unknown
    names = _classes(rows.class_names, labels.shape[1])
    return columns | {f"label_{name}": labels[:, place] for place, name in enumerate(names)}


def _arrays_about_nodes(rows: Predictions | Embeddings) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name in ("names", "class_names", "parts"):
        if getattr(rows, name) is not None:
            arrays[name] = np.asarray(getattr(rows, name), dtype=np.str_)
    return arrays if rows.true_labels is None else arrays | {"true_labels": np.asarray(rows.true_labels)}


def check_finite(outputs: Array, nodes: NDArray[np.int64], *, graph: Graph, tokens: TokenLists) -> None:
    """Refuse outputs [m, c] that are no numbers; name the largest entry among what the model reads, the likely cause.

    Arrays with NaN or infinity are refused when they are opened. Finite numbers such as 1e38 can still be too large.
    """
    wrong = nodes[~np.isfinite(outputs).all(axis=1)]
    if not len(wrong):
        return
    arrays: dict[str, Any] = {"features": graph.features, **tokens.arrays}
    numbers = {name: array.data if sp.issparse(array) else array for name, array in arrays.items() if array is not None}
    largest = {
        name: float(np.abs(np.asarray(array)).max(initial=0))
        for name, array in numbers.items()
        if array.dtype.kind == "f"
    }
    name = max(largest, key=lambda one: largest[one])
    where = f"{tokens.where}/{name}.npy" if name in tokens.arrays else "the features of the graph"
    raise GraphError(
        f"the output for node {wrong[0]} is not a finite number: {where} holds numbers up to {largest[name]:.3g}. If "
        f"that was not so when the model was trained, a file is damaged; vcr-graphormer verify tells which"
    )


def find_nodes(graph: Graph, nodes: Any = None) -> NDArray[np.int64]:
    """Return node ids from ids or names, one or many; None is all nodes.

    A text is first looked up as a name, then read as an id; `id:7` is always an id.

    >>> find_nodes(Graph.from_edges([[0], [1]], names=["a", "b"]), ["b"])
    array([1])
    """
    if nodes is None:
        return np.arange(graph.num_nodes)
    array = np.atleast_1d(to_numpy(nodes, "nodes") if not isinstance(nodes, str) else np.asarray([nodes]))
    if array.ndim != 1:
        raise GraphError(f"nodes has shape {list(array.shape)}; it must be a list of ids or names")
    if array.dtype.kind in "US":
        return _by_name(graph, [str(name) for name in array.astype(np.str_)])
    if not array.size:
        return np.empty(0, dtype=np.int64)
    ids = to_whole_numbers(array, "nodes").astype(np.int64)
    wrong = ids[(ids < 0) | (ids >= graph.num_nodes)]
    if wrong.size:
        raise GraphError(f"there is no node {wrong[0]}: the graph has nodes 0 to {graph.num_nodes - 1}")
    return ids


def find_node(graph: Graph, node: Any) -> NDArray[np.int64]:
    """Return one node by id or name; refuse a number that is the name of one node and the id of another."""
    ids = find_nodes(graph, node)
    if len(ids) != 1:
        raise ConfigError(f"explain takes one node, not {len(ids)}; attributions takes many")
    text = node if isinstance(node, str) else ""
    if graph.names is not None and text.isdecimal() and int(text) < graph.num_nodes and int(text) != ids[0]:
        raise GraphError(f"{text!r} is the name of node {ids[0]} and also an id: give id:{ids[0]} or id:{text}")
    return ids


def similar_names(name: str, names: list[str]) -> str:
    """Return a hint with the names that contain a name."""
    similar = [other for other in names if name and name.casefold() in other.casefold()]
    if not similar:
        return " (names with commas: put them into a file, one per line)"
    more = f" and {len(similar) - _MOST_NAMES} more" if len(similar) > _MOST_NAMES else ""
    return f"; {len(similar)} names contain it: {', '.join(map(repr, similar[:_MOST_NAMES]))}{more}"


def text_to_id(text: str) -> int:
    """Return the id in a text such as `7` or `id:7`; -1 for other texts."""
    digits = text.removeprefix("id:")
    return int(digits) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else -1


def _by_name(graph: Graph, names: list[str]) -> NDArray[np.int64]:
    """Return the ids of nodes by name; if the graph has no names, texts of digits are ids."""
    if graph.names is None:
        names = [name.removeprefix("id:") for name in names]
        wrong = next((name for name in names if not (name.strip().isdecimal() and len(name) < _LONGEST)), None)
        if wrong is not None:
            raise GraphError(f"there is no node named {wrong!r}: the nodes have no names, give ids")
        return find_nodes(graph, np.asarray([int(name) for name in names]))
    id_of = {str(name): node for node, name in enumerate(graph.names)}
    ids = [id_of.get(name, text_to_id(name)) for name in names]
    missing = next((name for name, node in zip(names, ids, strict=True) if node < 0), None)
    if missing is not None:
        raise GraphError(f"there is no node named {missing!r}{similar_names(missing, list(id_of))}")
    return find_nodes(graph, np.asarray(ids, dtype=np.int64))
