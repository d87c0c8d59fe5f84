"""`Graph`: nodes, edges, features and labels. All arrays are checked once, when a graph is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..base.folders import check_once, digest, open_folder, verify_folder, write_folder
from ..base.mapping import Closed
from ..base.text import printable
from ..errors import ConfigError, GraphError, StoreError
from .columns.schema import Schema
from .contract import (
    Features,
    all_finite,
    build_adjacency,
    check_adjacency,
    check_class_names,
    check_complete,
    check_edge_index,
    check_edge_weight,
    check_feature_names,
    check_features,
    check_letters,
    check_names,
    check_sparse,
)
from .conversion import class_ids, networkx_arguments, number_texts, pyg_arguments, scipy_arguments
from .summary import GraphSummary, summarize
from .tasks import TASKS, check_labels

if TYPE_CHECKING:
    from torch_geometric.data import Data

FORMAT_VERSION = 1
_CSR_PARTS = ("data", "indices", "indptr")  # the arrays of sparse features; their names in the folder depend on these


class About(TypedDict, total=False):
    """The keywords of `Graph.from_edges` that describe a graph in words."""

    names: Sequence[Any] | None
    class_names: Sequence[Any] | None
    task: str
    name: str
    feature_names: Sequence[Any] | None
    schema: Schema | None


class Columns(TypedDict, total=False):
    """The keywords of `Graph.from_frames` that say what the columns of its tables mean."""

    id: str
    label: str
    categories: Sequence[str]
    drop: Sequence[str]
    source: str
    target: str
    weight: str
    schema: Schema | None


@dataclass(frozen=True)
class Saved:
    """The folder a graph was opened from, and the fingerprints in its manifest."""

    folder: Path
    fingerprints: dict[str, str]


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A graph with features and labels, which does not change. Make one with `from_edges` or another `from_…`.

    An undirected graph stores each edge as two arcs, so `num_arcs` is what PyG calls `num_edges`.

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
        Class ids (-1 for unknown), a multi-label matrix (-1 for unknown) or targets (NaN for unknown); see `task`.
    names : str [n] or None
        The names of the nodes, if the data has any.
    class_names : tuple of str or None
        The name of each class id.
    directed : bool
        Whether arc u → v may exist without v → u.
    task : str
        `classification`, `multilabel` or `regression`.
    name : str
        A title for people; it is not part of the fingerprint.
    feature_names : tuple of str or None
        The name of each feature column, by which another graph is matched; not part of the fingerprint.
    schema : Schema or None
        How the columns of a table became features, if they did. Only then may dense features hold NaN, for a missing
        value; `Preparation` fills it.
    saved : Saved or None
        The folder the graph was opened from. A copy by `dataclasses.replace` has none.
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
    feature_names: tuple[str, ...] | None = None
    schema: Schema | None = None
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
        """Make a graph from [2, m] node ids: row numbers, or texts.

        Texts are numbered in order of appearance, or in the order of `names`. Labels may be texts, too.

        Self-loops are dropped. Repeated edges become one, whose weight is their sum. Unless `directed`, every edge
        goes both ways; if its two directions have different weights, the larger one counts.

        Parameters
        ----------
        num_nodes
            Default: the rows of features or labels, or the largest id + 1.
        directed
            Keep the direction of edges.
        **about
            `names` of nodes, `class_names`, `task` (default: by the shape of the labels), `name` of the graph,
            `feature_names`. `schema`, if features come from a table: then they may hold NaN for missing values, and
            `feature_names` are those of the schema.

        >>> Graph.from_edges([[0, 1, 1, 2], [1, 0, 1, 1]], num_nodes=4)
        Graph(graph: 4 nodes, 2 edges, no features, no labels)
        """
        numbered, names = number_texts(edge_index, about.get("names"))
        labels, class_names = class_ids(labels, about.get("class_names"))
        if num_nodes is None:
            rows = names if numbered is not edge_index else features if features is not None else labels
            num_nodes = _count_rows(rows)
        edges, num_nodes = check_edge_index(numbered, num_nodes)
        weights = check_edge_weight(edge_weight, edges.shape[1])
        indptr, indices, weights = build_adjacency(edges, weights, num_nodes, directed)
        checked_labels, task = check_labels(labels, num_nodes, about.get("task", "auto"))
        schema = about.get("schema")
        checked_features = check_features(features, num_nodes, missing=schema is not None)
        feature_names = about.get("feature_names")
        if schema is not None and checked_features is not None:
            feature_names = schema.feature_names
        return cls(
            indptr,
            indices,
            weights=weights,
            features=checked_features,
            labels=checked_labels,
            names=check_names(names, num_nodes),
            class_names=check_class_names(class_names, checked_labels, task),
            directed=bool(directed),
            task=task,
            name=about.get("name", "graph"),
            feature_names=check_feature_names(feature_names, checked_features),
            schema=schema,
        )

    @classmethod
    def from_scipy(cls, adjacency: Any, **keywords: Any) -> Graph:
        """Make a graph from a square scipy sparse matrix; entries other than 1 become edge weights.

        Stored zeros are not edges. `keywords` as in `from_edges`.
        """
        return cls.from_edges(**scipy_arguments(adjacency, **keywords))

    @classmethod
    def from_pyg(cls, data: Data, **keywords: Any) -> Graph:
        """Make a graph from x, edge_index, y and edge_weight of a `torch_geometric.data.Data`.

        `keywords` as in `from_edges`; they replace what `data` has. `edge_weight="edge_attr:0"` takes the first column
        of `edge_attr` as weights.
        """
        return cls.from_edges(**pyg_arguments(data, **keywords))

    @classmethod
    def from_networkx(
        cls, graph: Any, features: Any = None, labels: Any = None, weight: str | None = "weight", **keywords: Any
    ) -> Graph:
        """Make a graph from a networkx graph; `weight` is the name of an edge attribute.

        `features` and `labels` are names of node attributes, or arrays in the order of `graph.nodes`. Node names are
        kept. Pass `directed=True` to keep the direction of a DiGraph.
        """
        return cls.from_edges(**networkx_arguments(graph, features, labels, weight, **keywords))

    @classmethod
    def from_frames(
        cls,
        nodes: Any,
        edges: Any,
        *,
        directed: bool = False,
        task: str = "auto",
        name: str = "graph",
        **columns: Unpack[Columns],
    ) -> Graph:
        """Make a graph from a table of nodes (or None) and one of edges.

        Tables are those of pandas, polars, pyarrow or another library with Arrow's interface, or dictionaries of
        columns. Columns become features as in files: numbers stay, dates become days, the `categories` become one
        feature per value, other texts are left out. What is left out is told by one warning, all that is wrong by one
        error.

        Parameters
        ----------
        **columns
            `id`, `label`, `categories` and `drop` of the nodes, `source`, `target` and `weight` of the edges, as in
            `NodeTable` and `EdgeTable`. `schema`, such as that of a run, applies features and classes as they are there
            instead of new ones.

        >>> people = {"name": ["ann", "bob"], "age": [30, None], "job": ["spy", "friend"]}
        >>> calls = {"caller": ["ann", "ann"], "callee": ["bob", "bob"], "minutes": [2, 3]}
        >>> ends = {"source": "caller", "target": "callee"}
        >>> graph = Graph.from_frames(people, calls, id="name", label="job", weight="minutes", **ends)
        >>> graph.weights.tolist(), graph.features.tolist(), graph.class_names
        ([5.0, 5.0], [[30.0], [nan]], ('friend', 'spy'))
        """
        from .readers.own import frame_graph

        return frame_graph(nodes, edges, directed=directed, task=task, name=name, columns=columns)

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """Open a saved graph. Arrays are memory-mapped, so this takes milliseconds at any size.

        The first time they are read once, to see that they fit together; `check_once` remembers that.
        """
        meta, arrays = open_folder(path, "graph", FORMAT_VERSION)
        missing = {"name", "task", "directed", "class_names", "features_shape", "fingerprints"} - meta.keys()
        missing |= {"indptr", "indices"} - arrays.keys()
        if missing:
            raise StoreError(f"{path} is damaged: its manifest lacks {', '.join(sorted(missing))}")
        _check_meta(meta, arrays, path)
        features: Features | None = arrays.get("features")
        if "features_data" in arrays:
            try:
                parts = tuple(arrays[f"features_{part}"] for part in _CSR_PARTS)
                features = sp.csr_matrix(parts, shape=tuple(meta["features_shape"]), copy=False)
            except (KeyError, TypeError, ValueError) as error:
                raise StoreError(f"{path} is damaged: its sparse features do not fit together ({error})") from error
        schema = None if meta.get("schema") is None else Schema.from_dict(meta["schema"], f"the schema in {path}")
        graph = cls(
            arrays["indptr"],
            arrays["indices"],
            weights=arrays.get("weights"),
            features=features,
            labels=arrays.get("labels"),
            names=arrays.get("names"),
            class_names=None if meta["class_names"] is None else tuple(meta["class_names"]),
            directed=meta["directed"],
            task=meta["task"],
            name=meta["name"],
            feature_names=None if meta.get("feature_names") is None else tuple(meta["feature_names"]),
            schema=schema,
        )
        check_once(path, lambda: graph._check_arrays(arrays))
        object.__setattr__(graph, "saved", Saved(Path(path).resolve(), meta["fingerprints"]))
        return graph

    def _check_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Refuse arrays from a file that do not fit together, before a compiled loop reads them."""
        n = self.num_nodes
        check_adjacency(self.indptr, self.indices, self.weights, num_nodes=n, symmetric=not self.directed)
        if sp.issparse(self.features):
            data, indices, indptr = (arrays[f"features_{part}"] for part in _CSR_PARTS)
            check_sparse(data, indices, indptr, shape=(n, self.num_features), name="features")
        elif self.features is not None:
            if self.features.dtype not in (np.float32, np.float16) or self.features.ndim != 2:
                raise GraphError(f"features is {self.features.dtype.str}{list(self.features.shape)}")
            if len(self.features) != n:
                raise GraphError(f"the number of feature rows is {len(self.features)}, not {n}")
            if self.schema is None and not all_finite(self.features):  # tables may have missing values
                raise GraphError("features must be finite")
        if self.feature_names is not None and len(self.feature_names) != self.num_features:
            raise GraphError(f"the number of feature names is {len(self.feature_names)}, not {self.num_features}")
        for name in ("labels", "names"):
            if getattr(self, name) is not None and len(getattr(self, name)) != n:
                raise GraphError(f"the length of {name} is {len(getattr(self, name))}, not {n}")
        labels, _ = check_labels(self.labels, n, self.task)
        if labels is not None and self.labels is not None:
            found, right = (f"{array.dtype}{list(array.shape)}" for array in (self.labels, labels))
            if found != right:
                raise GraphError(f"labels is {found}; for {self.task} it must be {right}")
        if self.names is not None and (self.names.dtype.kind != "U" or self.names.ndim != 1):
            raise GraphError(f"names is {self.names.dtype.str}; it must be texts")
        if self.names is not None:
            check_letters(self.names, name="names")
        check_class_names(self.class_names, self.labels, self.task)

    def close(self) -> None:
        """Let go of the mapped files of an opened graph; its arrays cannot be used afterwards.

        Files need no descriptor while they are mapped, so closing is never a must. A graph in memory stays.
        """
        if self.saved is not None:
            for name in ("indptr", "indices", "weights", "features", "labels", "names"):
                object.__setattr__(self, name, Closed(str(self.saved.folder)))

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self, path: str | Path, overwrite: bool = False, *, like: Iterable[Path] = ()) -> Path:
        """Write the graph as a folder of `.npy` files and a manifest, completely or not at all.

        Arrays that one of the saved graphs `like` has too are not stored again, but linked to their files.
        """
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
            for part in _CSR_PARTS:
                arrays[f"features_{part}"] = getattr(self.features, part)
        meta = {
            "name": self.name,
            "task": self.task,
            "directed": self.directed,
            "class_names": self.class_names,
            "features_shape": shape,
            "fingerprints": self.fingerprints,
        }
        if self.feature_names is not None:
            meta["feature_names"] = self.feature_names
        if self.schema is not None:
            meta["schema"] = self.schema.to_dict()
        present = {name: array for name, array in arrays.items() if array is not None}
        return write_folder(path, "graph", FORMAT_VERSION, present, meta, overwrite, like=like)

    @staticmethod
    def verify(path: str | Path) -> None:
        """Check every array of a saved graph against its checksum."""
        verify_folder(path)

    def to_pyg(self) -> Data:
        """Return the graph as `torch_geometric.data.Data`, with two arcs per undirected edge."""
        import torch
        from torch_geometric.data import Data

        sources = np.repeat(np.arange(self.num_nodes, dtype=np.int64), self.degrees)
        edge_index = torch.from_numpy(np.stack([sources, self.indices.astype(np.int64)]))
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
        """Return the adjacency matrix A as scipy CSR of float32."""
        data = np.ones(self.num_arcs, dtype=np.float32) if self.weights is None else self.weights
        return sp.csr_matrix((data, self.indices, self.indptr), shape=(self.num_nodes, self.num_nodes))

    def with_features(self, kind: Literal["identity", "degree"]) -> Graph:
        """Return the same graph with features made from its structure, for data without features.

        `identity`: one-hot node ids (sparse). `degree`: log(1 + degree), and one-hot of ⌊log2(1 + degree)⌋.
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
        return replace(self, features=features, feature_names=None, schema=None)

    def check_complete(self) -> None:
        """Refuse features with missing values, which only those of a table can have."""
        if self.schema is not None:
            check_complete(self.features, self.feature_names)

    def extend(
        self,
        names: Sequence[Any] | None = None,
        features: Any = None,
        edges: tuple[Any, Any] | None = None,
        weights: Any = None,
        labels: Any = None,
        remove_edges: tuple[Any, Any] | None = None,
    ) -> Graph:
        """Return the graph with new nodes after the old ones, new edges, and without some edges.

        An edge that exists already gets the sum of the weights; without weights, nothing changes.

        Parameters
        ----------
        names
            Names of the new nodes, if the nodes of this graph have names.
        features
            Rows of the new nodes, columns as in this graph.
        edges, remove_edges
            Sources and targets, old or new nodes, by name or row number. Edges to be removed must exist.
        weights
            Weights of the new edges; 1 by default if the graph has weights.
        labels
            Labels of the new nodes, class names or ids; unknown by default.

        >>> path = Graph.from_edges([[0, 1], [1, 2]], features=[[1.0], [2.0], [3.0]])
        >>> path.extend(features=[[4.0]], edges=([3], [0]), remove_edges=([1], [2]))
        Graph(graph: 4 nodes, 2 edges, 1 features, no labels)
        """
        from .growth import extend

        return extend(
            self,
            names=names,
            features=features,
            edges=edges,
            weights=weights,
            labels=labels,
            remove_edges=remove_edges,
        )

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes; the paper's n."""
        return len(self.indptr) - 1

    @property
    def num_arcs(self) -> int:
        """Return the number of arcs, two per edge of an undirected graph; PyG's `num_edges`."""
        return len(self.indices)

    @property
    def num_edges(self) -> int:
        """Return the number of edges, or of arcs of a directed graph; the paper's m."""
        return self.num_arcs if self.directed else self.num_arcs // 2

    @property
    def num_features(self) -> int:
        """Return the number of feature columns, 0 without features; the paper's d."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        """Return the number of classes, labels or targets, 0 without labels; the paper's c."""
        if self.class_names is not None:
            return len(self.class_names)
        return 0 if self.labels is None else TASKS[self.task].count_outputs(self.labels)

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Return the number of neighbours of each node (out-neighbours if directed)."""
        return np.diff(self.indptr)

    @property
    def folder(self) -> Path | None:
        """Return the folder the graph was opened from, or None."""
        return None if self.saved is None else self.saved.folder

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Return one hash each of adjacency, features, labels and names, so that errors can say which differs."""
        if self.saved is not None:
            return self.saved.fingerprints
        matrix: Any = self.features
        features: tuple[Any, ...] = (matrix,)
        if isinstance(matrix, sp.csr_matrix):
            # scipy chooses int32 or int64 by size and history; equal features must have equal hashes.
            indices, indptr = (array.astype(np.int64, copy=False) for array in (matrix.indices, matrix.indptr))
            features = (np.array(matrix.shape), matrix.data, indices, indptr)
        return {
            "adjacency": digest(self.indptr, self.indices, self.weights, np.array([self.directed])),
            "features": digest(*features),
            "labels": digest(self.labels, np.array([self.task, *(self.class_names or ())])),
            "names": digest(self.names),
        }

    @property
    def fingerprint(self) -> str:
        """Return one hash of the whole content, the same for equal graphs on every machine."""
        return digest(np.array(list(self.fingerprints.values())))

    def summary(self) -> GraphSummary:
        """Return counts and measures of the graph; `print` shows them as a table."""
        return summarize(self)

    def __repr__(self) -> str:
        features = f"{self.num_features} features" if self.features is not None else "no features"
        if sp.issparse(self.features):
            features = f"{self.num_features} sparse features"
        labels = "no labels" if self.labels is None else f"{self.num_classes} {TASKS[self.task].words}"
        edges = "arcs" if self.directed else "edges"
        weighted = "weighted " if self.weights is not None else ""
        counts = f"{self.num_nodes:,} nodes, {self.num_edges:,} {weighted}{edges}"
        return f"Graph({printable(self.name)}: {counts}, {features}, {labels})"


def _check_meta(meta: Mapping[str, Any], arrays: Mapping[str, Array], path: str | Path) -> None:
    """Refuse a manifest whose values are not of the types that `save` writes."""
    names, shape, prints = meta["class_names"], meta["features_shape"], meta["fingerprints"]
    right = {
        "name": isinstance(meta["name"], str),
        "task": isinstance(meta["task"], str) and meta["task"] in TASKS,
        "directed": isinstance(meta["directed"], bool),
        "class_names": names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)),
        "features_shape": shape is None or (isinstance(shape, list) and [type(size) for size in shape] == [int, int]),
        "fingerprints": isinstance(prints, dict) and all(isinstance(value, str) for value in prints.values()),
    }
    for name in (name for name, is_right in right.items() if not is_right):
        raise StoreError(f"{path} is damaged: its {name} is {meta[name]!r}")
    for name in ("adjacency", "features", "labels", "names"):
        if name not in prints:
            raise StoreError(f"{path} is damaged: its fingerprints lack {name}")
    if arrays["indptr"].ndim != 1 or arrays["indptr"].dtype != np.int64 or len(arrays["indptr"]) < 2:
        raise StoreError(f"{path} is damaged: indptr is {arrays['indptr'].dtype.str}{list(arrays['indptr'].shape)}")


def _count_rows(value: Any) -> int | None:
    """Return the number of rows of an array or a list; None for anything else."""
    if value is None:
        return None
    if hasattr(value, "shape"):
        return int(value.shape[0]) if len(value.shape) else None
    return len(value) if hasattr(value, "__len__") else None
