"""`Predictions` of a model as arrays, `.npz` or `.csv`; and how to find nodes by id or name."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import Array, to_numpy, to_whole_numbers
from ..base.files import replace_file
from ..data.graph import Graph
from ..data.tasks import TASKS
from ..errors import ConfigError, GraphError, StoreError

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
        The most probable class, the labels with probability 0.5 or more, or the values.
    task : str
        The task, as in `Graph`.
    names, class_names
        Names of nodes and classes, if the graph has them.
    """

    nodes: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    labels: Array
    task: str
    names: NDArray[np.str_] | None = None
    class_names: tuple[str, ...] | None = None

    def save(self, file: str | Path, overwrite: bool = False) -> Path:
        """Write `.npz` (arrays) or `.csv` (a row per node, with names if there are any)."""
        path = Path(file)
        if path.suffix not in (".npz", ".csv"):
            raise ConfigError(f"{path} must end in .npz or .csv")
        if path.exists() and not overwrite:
            raise StoreError(f"{path} exists: choose another name or delete it")
        with replace_file(path) as temporary:
            if path.suffix == ".csv":
                self._write_csv(temporary)
            else:
                arrays: dict[str, Any] = {"nodes": self.nodes, "labels": self.labels}
                arrays["probabilities"] = self.probabilities
                for name in ("names", "class_names"):
                    if getattr(self, name) is not None:
                        arrays[name] = np.asarray(getattr(self, name), dtype=np.str_)
                with temporary.open("wb") as handle:
                    np.savez(handle, **arrays)
        return path

    def _write_csv(self, path: Path) -> None:
        count = self.probabilities.shape[1]
        classes = self.class_names or tuple(str(number) for number in range(count))
        word = "value" if TASKS[self.task].gives_values else "probability"
        prediction = ["prediction"] if TASKS[self.task].has_classes else []
        with path.open("w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(handle)
            columns = [f"{word}_{name}" for name in classes[:count]]
            writer.writerow(["node", *(["name"] if self.names is not None else []), *prediction, *columns])
            for row, node in enumerate(self.nodes):
                name = [self.names[row]] if self.names is not None else []
                label = [classes[int(self.labels[row])]] if prediction else []
                writer.writerow([node, *name, *label, *(f"{value:.6g}" for value in self.probabilities[row])])

    def part(self, rows: slice) -> Predictions:
        """Return some consecutive rows."""
        names = None if self.names is None else self.names[rows]
        outputs, labels = self.probabilities[rows], self.labels[rows]
        return replace(self, nodes=self.nodes[rows], probabilities=outputs, labels=labels, names=names)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Predictions({len(self):,} nodes, {self.task}, {self.probabilities.shape[1]} columns)"


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
    return int(digits) if digits.isdecimal() else -1


def _by_name(graph: Graph, names: list[str]) -> NDArray[np.int64]:
    """Return the ids of nodes by name; if the graph has no names, texts of digits are ids."""
    if graph.names is None:
        names = [name.removeprefix("id:") for name in names]
        wrong = next((name for name in names if not name.strip().isdecimal()), None)
        if wrong is not None:
            raise GraphError(f"there is no node named {wrong!r}: the nodes have no names, give ids")
        return find_nodes(graph, np.asarray([int(name) for name in names]))
    id_of = {str(name): node for node, name in enumerate(graph.names)}
    ids = [id_of.get(name, text_to_id(name)) for name in names]
    missing = next((name for name, node in zip(names, ids, strict=True) if node < 0), None)
    if missing is not None:
        raise GraphError(f"there is no node named {missing!r}{similar_names(missing, list(id_of))}")
    return find_nodes(graph, np.asarray(ids, dtype=np.int64))
