"""`Graph`: one data contract, validated once, then trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..base.folders import digest, open_folder, verify_folder, write_folder
from ..errors import ConfigError, StoreError
from .contract import (
    Features,
    build_adjacency,
    check_class_names,
    check_edge_index,
    check_edge_weight,
    check_features,
    check_names,
)
from .conversion import networkx_arguments, pyg_arguments, scipy_arguments
from .summary import GraphSummary, summarize
from .tasks import TASKS, check_labels

if TYPE_CHECKING:
    from torch_geometric.data import Data

FORMAT_VERSION = 1


class About(TypedDict, total=False):
    """What a graph may say of itself beyond its arrays."""

    names: Sequence[Any] | None
    class_names: Sequence[Any] | None
    task: str
    name: str


@dataclass(frozen=True)
class Saved:
    """Where a graph lies on disk, and the fingerprints that its manifest states."""

    folder: Path
    fingerprints: dict[str, str]


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Nodes, edges, features and labels; never changed once made. Build one with `from_edges` and its siblings.

    Undirected graphs store each edge as two arcs, so `num_arcs` is what PyG calls `num_edges`.

    Attributes
    ----------
    indptr : int64 [n + 1]
        Row u of the adjacency lies at `indptr[u]:indptr[u + 1]`.
    indices : int32 [arcs]
        Neighbour ids, ascending within a row, without duplicates and self-loops.
    weights : float32 [arcs] or None
        Positive edge weights; None means every weight is 1.
    features : float [n, d], scipy CSR [n, d] or None
        The paper's X. Dense features may be a memory map.
    labels : int64 [n], int8 [n, c], float32 [n] or [n, t], or None
        Class ids (-1 unknown), multi-label matrix (-1 unknown) or targets (NaN unknown); see `task`.
    names : str [n] or None
        The nodes' own names, where they came with any.
    class_names : tuple of str or None
        What the class ids mean.
    directed : bool
        Whether arc u → v may stand without v → u.
    task : str
        `classification`, `multilabel` or `regression`.
    name : str
        Where the graph came from; for people, not for the fingerprint.
    saved : Saved or None
        The folder it was opened from. A graph made from this one by `dataclasses.replace` has none.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None = None
    features: Features | None = None
    labels: Array | None = None
    names: NDArray[np.str_] | None = None
    class_names: tuple[str, ...] | None = None
    directed: bool = False
    task: str = "classification"
    name: str = "graph"
    saved: Saved | None = field(default=None, init=False)

    @classmethod
    def from_edges(
        cls,
        edge_index: Any,
        num_nodes: int | None = None,
        edge_weight: Any = None,
        features: Any = None,
        labels: Any = None,
        directed: bool = False,
        **about: Unpack[About],
    ) -> Graph:
        """Build a graph from [2, m] node ids.

        Self-loops are dropped and repeated edges merged (their weights add up). Unless `directed`, every edge goes
        both ways; where both directions were given with different weights, the larger one counts.

        Parameters
        ----------
        num_nodes
            Default: the rows of features or labels, or the largest id + 1.
        directed
            Keep the direction of edges.
        **about
            `names` of nodes, `class_names`, the `task` (default: from the shape of the labels), the graph's `name`.

        >>> Graph.from_edges([[0, 1, 1, 2], [1, 0, 1, 1]], num_nodes=4)
        Graph(graph: 4 nodes, 2 edges, no features, no labels)
        """
        if num_nodes is None:
            num_nodes = _rows(features) if features is not None else _rows(labels)
        edges, num_nodes = check_edge_index(edge_index, num_nodes)
        weights = check_edge_weight(edge_weight, edges.shape[1])
        indptr, indices, weights = build_adjacency(edges, weights, num_nodes, directed)
        checked_labels, task = check_labels(labels, num_nodes, about.get("task", "auto"))
        return cls(
            indptr,
            indices,
            weights,
            check_features(features, num_nodes),
            checked_labels,
            check_names(about.get("names"), num_nodes),
            check_class_names(about.get("class_names"), checked_labels, task),
            bool(directed),
            task,
            about.get("name", "graph"),
        )

    @classmethod
    def from_scipy(cls, adjacency: Any, **keywords: Any) -> Graph:
        """Build a graph from a square scipy sparse matrix; entries other than 1 become edge weights.

        Stored zeros are not edges. Keywords as in `from_edges`.
        """
        return cls.from_edges(**scipy_arguments(adjacency, **keywords))

    @classmethod
    def from_pyg(cls, data: Data, **keywords: Any) -> Graph:
        """Build a graph from a `torch_geometric.data.Data`: x, edge_index, y, edge_weight; keywords override them."""
        return cls.from_edges(**pyg_arguments(data, **keywords))

    @classmethod
    def from_networkx(
        cls, graph: Any, features: Any = None, labels: Any = None, weight: str | None = "weight", **keywords: Any
    ) -> Graph:
        """Build a graph from a networkx graph; `weight` names an edge attribute.

        `features` and `labels` name node attributes, or are arrays in the order of `graph.nodes`. Node names are
        kept. Pass `directed=True` to keep the direction of a DiGraph.
        """
        return cls.from_edges(**networkx_arguments(graph, features, labels, weight, **keywords))

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """Open a saved graph; arrays are memory-mapped, so this takes milliseconds at any size."""
        meta, arrays = open_folder(path, "graph", FORMAT_VERSION)
        missing = {"name", "task", "directed", "class_names", "features_shape", "fingerprints"} - meta.keys()
        missing |= {"indptr", "indices"} - arrays.keys()
        if missing:
            raise StoreError(f"{path} is damaged: its manifest lacks {', '.join(sorted(missing))}")
        features: Features | None = arrays.get("features")
        if "features_data" in arrays:
            try:
                parts = tuple(arrays[f"features_{part}"] for part in ("data", "indices", "indptr"))
                features = sp.csr_matrix(parts, shape=tuple(meta["features_shape"]), copy=False)
            except (KeyError, TypeError, ValueError) as error:
                raise StoreError(f"{path} is damaged: its sparse features do not fit together ({error})") from error
        graph = cls(
            arrays["indptr"],
            arrays["indices"],
            arrays.get("weights"),
            features,
            arrays.get("labels"),
            arrays.get("names"),
            None if meta["class_names"] is None else tuple(meta["class_names"]),
            meta["directed"],
            meta["task"],
            meta["name"],
        )
        graph._check_lengths(path)
        object.__setattr__(graph, "saved", Saved(Path(path).resolve(), meta["fingerprints"]))
        return graph

    def _check_lengths(self, path: str | Path) -> None:
        """Notice arrays that do not belong together, without reading them."""
        expected = {
            "the last entry of indptr": (int(self.indptr[-1]), self.num_arcs),
            "the first entry of indptr": (int(self.indptr[0]), 0),
        }
        for name, size in (("weights", self.num_arcs), ("labels", self.num_nodes), ("names", self.num_nodes)):
            if getattr(self, name) is not None:
                expected[f"the length of {name}"] = (len(getattr(self, name)), size)
        if self.features is not None:
            expected["the number of feature rows"] = (self.features.shape[0], self.num_nodes)
        for what, (found, right) in expected.items():
            if found != right:
                raise StoreError(f"{path} is damaged: {what} is {found}, not {right}")
        if self.task not in TASKS:
            raise StoreError(f"{path} is damaged: its task is {self.task!r}")

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write the graph as a folder of `.npy` files and a manifest; the folder appears whole or not at all."""
        arrays: dict[str, Array | None] = {
            "indptr": self.indptr,
            "indices": self.indices,
            "weights": self.weights,
            "labels": self.labels,
            "names": self.names,
        }
        shape = None
        if isinstance(self.features, np.ndarray):
            arrays["features"] = self.features
        elif self.features is not None:
            shape = list(self.features.shape)
            for part in ("data", "indices", "indptr"):
                arrays[f"features_{part}"] = getattr(self.features, part)
        meta = {
            "name": self.name,
            "task": self.task,
            "directed": self.directed,
            "class_names": self.class_names,
            "features_shape": shape,
            "fingerprints": self.fingerprints,
        }
        present = {name: array for name, array in arrays.items() if array is not None}
        return write_folder(path, "graph", FORMAT_VERSION, present, meta, overwrite)

    @staticmethod
    def verify(path: str | Path) -> None:
        """Compare every array of a saved graph with its checksum."""
        verify_folder(path)

    def to_pyg(self) -> Data:
        """The graph as `torch_geometric.data.Data`, each undirected edge as two arcs, as PyG stores it."""
        import torch
        from torch_geometric.data import Data

        rows = np.repeat(np.arange(self.num_nodes, dtype=np.int64), self.degrees)
        edge_index = torch.from_numpy(np.stack([rows, self.indices.astype(np.int64)]))
        data = Data(edge_index=edge_index, num_nodes=self.num_nodes)
        if self.features is not None:
            dense = np.array(self.features) if isinstance(self.features, np.ndarray) else self.features.toarray()
            data.x = torch.from_numpy(dense)
        if self.labels is not None:
            data.y = torch.from_numpy(np.array(self.labels))
        if self.weights is not None:
            data.edge_weight = torch.from_numpy(np.array(self.weights))
        return data

    def to_scipy(self) -> sp.csr_matrix:
        """The adjacency A as scipy CSR of float32."""
        data = np.ones(self.num_arcs, dtype=np.float32) if self.weights is None else self.weights
        return sp.csr_matrix((data, self.indices, self.indptr), shape=(self.num_nodes, self.num_nodes))

    def with_features(self, kind: Literal["identity", "degree"]) -> Graph:
        """The same graph with made features, for data that came without any.

        `identity`: one-hot node ids (sparse). `degree`: log(1 + degree) and a one-hot of its power-of-two bucket.
        """
        features: Features
        if kind == "identity":
            features = sp.identity(self.num_nodes, dtype=np.float32, format="csr")
        elif kind == "degree":
            bucket = np.log2(self.degrees + 1).astype(np.int64)
            one_hot = np.eye(int(bucket.max()) + 1, dtype=np.float32)[bucket]
            features = np.column_stack([np.log1p(self.degrees).astype(np.float32), one_hot])
        else:
            raise ConfigError(f"features kind is {kind!r}; it must be 'identity' or 'degree'")
        return replace(self, features=features)

    @property
    def num_nodes(self) -> int:
        """The paper's n."""
        return len(self.indptr) - 1

    @property
    def num_arcs(self) -> int:
        """Stored adjacency entries: twice the edges of an undirected graph (PyG's `num_edges`)."""
        return len(self.indices)

    @property
    def num_edges(self) -> int:
        """The paper's m: undirected edges, or arcs of a directed graph."""
        return self.num_arcs if self.directed else self.num_arcs // 2

    @property
    def num_features(self) -> int:
        """The paper's d; 0 without features."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        """The paper's c: classes, label columns or targets; 0 without labels."""
        if self.class_names is not None:
            return len(self.class_names)
        return 0 if self.labels is None else TASKS[self.task].count_outputs(self.labels)

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Number of neighbours of each node (out-neighbours if directed)."""
        return np.diff(self.indptr)

    @property
    def folder(self) -> Path | None:
        """Return the saved folder this graph was opened from, so that others can open it too; None if it was not."""
        return None if self.saved is None else self.saved.folder

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """A hash each of adjacency, features, labels and names, so that a mismatch can be named."""
        if self.saved is not None:
            return self.saved.fingerprints
        parts: Any = self.features
        features: tuple[Any, ...] = (parts,)
        if isinstance(parts, sp.csr_matrix):
            # scipy picks the width of its index arrays by size and history; the content is the same.
            indices, indptr = (array.astype(np.int64, copy=False) for array in (parts.indices, parts.indptr))
            features = (np.array(parts.shape), parts.data, indices, indptr)
        return {
            "adjacency": digest(self.indptr, self.indices, self.weights, np.array([self.directed])),
            "features": digest(*features),
            "labels": digest(self.labels, np.array([self.task, *(self.class_names or ())])),
            "names": digest(self.names),
        }

    @property
    def fingerprint(self) -> str:
        """One hash of the whole content; equal graphs have equal fingerprints on every machine."""
        return digest(np.array(list(self.fingerprints.values())))

    def summary(self) -> GraphSummary:
        """Count, measure and describe the graph; `print` it."""
        return summarize(self)

    def __repr__(self) -> str:
        features = f"{self.num_features} features" if self.features is not None else "no features"
        if sp.issparse(self.features):
            features = f"{self.num_features} sparse features"
        labels = "no labels" if self.labels is None else f"{self.num_classes} {TASKS[self.task].words}"
        edges = "arcs" if self.directed else "edges"
        weighted = "weighted " if self.weights is not None else ""
        return (
            f"Graph({self.name}: {self.num_nodes:,} nodes, {self.num_edges:,} {weighted}{edges}, {features}, {labels})"
        )


def _rows(value: Any) -> int | None:
    """Number of rows of an array-like, None where it has none."""
    if value is None:
        return None
    if hasattr(value, "shape"):
        return int(value.shape[0]) if len(value.shape) else None
    return len(value) if hasattr(value, "__len__") else None
