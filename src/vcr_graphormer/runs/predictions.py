"""`Predictions`: what the model says about nodes, as arrays, `.npz` or `.csv`."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checks import Array, to_numpy, to_whole_numbers
from ..base.files import replace_file
from ..data.graph import Graph
from ..data.tasks import TASKS
from ..errors import ConfigError, GraphError, StoreError


@dataclass(frozen=True, eq=False, repr=False)
class Predictions:
    """Predictions of some nodes.

    Attributes
    ----------
    nodes : int64 [m]
        Node ids.
    probabilities : float32 [m, c]
        Of each class or label; the values themselves for regression.
    labels : [m] or [m, c]
        The most probable class, the labels with probability 0.5 or more, or the values.
    task : str
        As in `Graph`.
    names, class_names
        Of nodes and classes, where the graph has them.
    """

    nodes: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    labels: Array
    task: str
    names: NDArray[np.str_] | None = None
    class_names: tuple[str, ...] | None = None

    def save(self, file: str | Path, overwrite: bool = False) -> Path:
        """Write `.npz` (arrays) or `.csv` (a row per node, names where there are any)."""
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
        decided = ["prediction"] if TASKS[self.task].has_classes else []
        with path.open("w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(handle)
            columns = [f"{word}_{name}" for name in classes[:count]]
            writer.writerow(["node", *(["name"] if self.names is not None else []), *decided, *columns])
            for row, node in enumerate(self.nodes):
                name = [self.names[row]] if self.names is not None else []
                label = [classes[int(self.labels[row])]] if decided else []
                writer.writerow([node, *name, *label, *(f"{value:.6g}" for value in self.probabilities[row])])

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"Predictions({len(self):,} nodes, {self.task}, {self.probabilities.shape[1]} columns)"


def find_nodes(graph: Graph, nodes: Any = None) -> NDArray[np.int64]:
    """Node ids from ids or names, one or many; None is all nodes. A name wins over an id; `id:7` is always an id.

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
    """One node by id or name. What is one node's name and another one's id is refused; `id:7` is always an id."""
    found = find_nodes(graph, node)
    if len(found) != 1:
        raise ConfigError(f"explain takes one node, not {len(found)}; attributions takes many")
    text = node if isinstance(node, str) else ""
    if graph.names is not None and text.isdecimal() and int(text) < graph.num_nodes and int(text) != found[0]:
        raise GraphError(f"{text!r} is the name of node {found[0]} and also an id: give id:{found[0]} or id:{text}")
    return found


def _similar(name: str, names: list[str]) -> str:
    """Names that contain the one that was not found."""
    found = [other for other in names if name and name.casefold() in other.casefold()]
    if not found:
        return " (names with commas: put them into a file, one per line)"
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"; {len(found)} names contain it: {', '.join(map(repr, found[:5]))}{more}"


def _as_id(name: str) -> int:
    """The id a text may stand for where it is no name: `7` or `id:7`; -1 for none."""
    digits = name.removeprefix("id:")
    return int(digits) if digits.isdecimal() else -1


def _by_name(graph: Graph, names: list[str]) -> NDArray[np.int64]:
    """By the nodes' own names; where the graph has none, texts of digits are ids."""
    if graph.names is None:
        names = [name.removeprefix("id:") for name in names]
        wrong = next((name for name in names if not name.strip().isdecimal()), None)
        if wrong is not None:
            raise GraphError(f"there is no node named {wrong!r}: the nodes have no names, give ids")
        return find_nodes(graph, np.asarray([int(name) for name in names]))
    places = {str(name): place for place, name in enumerate(graph.names)}
    found = [places.get(name, _as_id(name)) for name in names]
    missing = next((name for name, place in zip(names, found, strict=True) if place < 0), None)
    if missing is not None:
        raise GraphError(f"there is no node named {missing!r}{_similar(missing, list(places))}")
    return find_nodes(graph, np.asarray(found, dtype=np.int64))
