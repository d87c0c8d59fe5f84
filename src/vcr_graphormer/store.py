"""`TokenConfig`: what a token list is; `TokenStore`: the lists of all nodes, memory-mapped, open in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .arrays import Array, Features, check_seed
from .connections import PARTITIONERS
from .errors import ConfigError, GraphError, StoreError, unknown_name
from .graph import Graph
from .hops import check_hops
from .storage import MANIFEST, differences, open_folder, verify_folder
from .summary import format_bytes
from .walks import TOLERANCE, check_restart, check_tolerance

FORMAT_VERSION = 1
KIND = "token store"
KINDS = ("structure", "content")


@dataclass(frozen=True)
class TokenConfig:
    """What is in a token list: section `[tokens]`."""

    hops: int = field(default=3, metadata={"help": "hop tokens P X … P^L X (the paper's L)"})
    clusters: int = field(
        default=10, metadata={"help": "METIS clusters, one super node each (s̄); 0 ranks on the graph as it is"}
    )
    partitioner: str = field(
        default="metis",
        metadata={"help": "of clusters: metis, or propagation, whose memory does not grow with edges"},
    )
    structure_tokens: int = field(default=8, metadata={"help": "structure-aware neighbours (k̄)"})
    content_tokens: int = field(default=8, metadata={"help": "content-aware neighbours (k̂)"})
    restart: float = field(default=0.15, metadata={"help": "restart probability of the walk (1 - the paper's α)"})
    tolerance: float = field(
        default=TOLERANCE, metadata={"help": "of the ranking, relative to the k-th score: smaller is closer and slower"}
    )
    content: str = field(
        default="auto",
        metadata={
            "help": "what content neighbours share: 'labels', 'features' (k-means) or 'links'; auto: labels if any"
        },
    )
    content_clusters: int = field(default=10, metadata={"help": "k-means clusters where content is 'features' (ŝ)"})
    leave_own_label_out: bool = field(
        default=True, metadata={"help": "rank a training node as if its own label were unknown"}
    )
    self_loops: bool = field(default=False, metadata={"help": "hops on the graph with self-loops"})
    super_tokens: str = field(
        default="drop", metadata={"help": "'drop' super nodes, or rank them too, with the 'mean' of their members"}
    )
    score_type: str = field(default="float32", metadata={"help": "how scores are stored: float32 or float16"})
    seed: int = field(default=0, metadata={"help": "seed of METIS and k-means"})

    def check(self, graph: Graph, train: NDArray[np.int64] | None) -> str:
        """Refuse what cannot be done with this graph; returns the kind of content in use: labels, features or links."""
        for name in ("structure_tokens", "content_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ConfigError(f"tokens.{name} is {value!r}; it must be a whole number of 0 or more")
        check_hops(graph, self.hops)
        check_restart(self.restart)
        check_tolerance(self.tolerance)
        check_seed(self.seed)
        choices = {
            "partitioner": PARTITIONERS,
            "content": ("auto", "labels", "features", "links"),
            "super_tokens": ("drop", "mean"),
            "score_type": ("float32", "float16"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"tokens.{name} is {getattr(self, name)!r}; it must be {' or '.join(allowed)}")
        if self.super_tokens == "mean" and graph.features is None:
            raise GraphError("tokens.super_tokens is 'mean' but the graph has no features to average")
        content = self._kind_of_content(graph, train)
        counts = {
            "clusters": self.structure_tokens > 0,
            "content_clusters": self.content_tokens > 0 and content == "features",
        }
        for name, used in counts.items():
            value = getattr(self, name)
            least = 0 if name == "clusters" else 1
            if used and not least <= value <= graph.num_nodes:
                raise ConfigError(
                    f"tokens.{name} is {value}; it must lie between {least} and the number of nodes ({graph.num_nodes})"
                )
        if content == "labels" and self.content_tokens and train is not None and graph.labels is not None:
            unlabelled = train[np.asarray(graph.labels)[train] < 0]
            if unlabelled.size:
                raise GraphError(f"train contains node {unlabelled[0]}, which has no label")
        return content

    @property
    def by_links(self) -> bool:
        """Whether there are content neighbours that need no PageRank."""
        return self.content_tokens > 0 and self.content == "links"

    def _kind_of_content(self, graph: Graph, train: Any) -> str:
        if self.content == "links":
            return "links"
        labelled = graph.labels is not None and graph.task == "classification"
        if self.content == "features" or (self.content == "auto" and not (labelled and train is not None)):
            if self.content_tokens and graph.features is None:
                raise GraphError(
                    "content tokens need class labels and training nodes, or features: set tokens.content=links, or "
                    "content_tokens=0"
                )
            return "features"
        if not labelled:
            raise GraphError("tokens.content is 'labels' but the graph has no class labels: use 'features' or 'links'")
        if train is None:
            raise GraphError("tokens.content is 'labels': pass the training nodes")
        return "labels"


@dataclass(frozen=True, eq=False, repr=False)
class TokenStore:
    """The token lists of all nodes. Made by `tokenize`; reopened by `TokenStore.open`.

    Components 3 and 4 are node ids and scores, [n, k] each, best first, padded with -1 and 0; an id of n + s is super
    node s. Component 2 is one matrix per hop. Component 1 is the node itself and needs no storage.

    Attributes
    ----------
    path : Path
        The folder.
    config : dict
        The settings that made it.
    identity : dict
        Hashes of what it was made from: adjacency, features, training nodes and their labels, settings.
    arrays : dict
        Memory-mapped arrays by name; prefer the methods below.
    """

    path: Path
    config: dict[str, Any]
    identity: dict[str, str]
    arrays: dict[str, Array]

    @classmethod
    def open(cls, path: str | Path) -> TokenStore:
        """Open a finished store; what is unfinished, damaged in form or of another format is refused."""
        folder = Path(path)
        if folder.is_dir() and not (folder / MANIFEST).exists() and (folder / "parts").is_dir():
            raise StoreError(
                f"{folder} is an unfinished token store: run tokenize again with the same settings to resume"
            )
        meta, arrays = open_folder(folder, KIND, FORMAT_VERSION)
        missing = {"config", "identity"} - meta.keys()
        missing |= {f"{kind}_{part}" for kind in KINDS for part in ("ids", "scores", "assignment")} - arrays.keys()
        if missing:
            raise StoreError(f"{folder} is damaged: its manifest lacks {', '.join(sorted(missing))}")
        num_nodes = len(arrays["structure_ids"])
        for name, array in arrays.items():
            per_node = name.endswith(("_ids", "_scores", "_assignment")) or (name.startswith("hop") and array.ndim == 2)
            if per_node and len(array) != num_nodes:
                raise StoreError(f"{folder} is damaged: {name} has {len(array)} rows, structure_ids has {num_nodes}")
        return cls(folder, meta["config"], meta["identity"], arrays)

    def verify(self) -> None:
        """Read everything once and compare it with its checksum."""
        verify_folder(self.path)

    def check(self, identity: Mapping[str, str]) -> None:
        """Refuse to be used for another graph, split or configuration, by name of what differs."""
        different = differences(identity, self.identity)
        if different:
            raise StoreError(f"{self.path} belongs to another {', '.join(different)}: tokenize into another folder")

    def ids(self, kind: str) -> NDArray[np.int32]:
        """Token ids [n, k] of the kind `structure` or `content`; -1 is padding."""
        return self._of_kind(kind, "ids")

    def scores(self, kind: str) -> Array:
        """PageRank scores, or likeness of links, [n, k] that belong to `ids`; 0 for padding."""
        return self._of_kind(kind, "scores")

    def assignment(self, kind: str) -> NDArray[np.int32]:
        """The super node of each node, -1 for none."""
        return self._of_kind(kind, "assignment")

    def _of_kind(self, kind: str, part: str) -> Array:
        if kind not in KINDS:
            raise unknown_name("kind of token", kind, KINDS)
        return self.arrays[f"{kind}_{part}"]

    def super_features(self, kind: str) -> Array | None:
        """Mean features of the super nodes' members [count, d], where super nodes may be tokens."""
        return self.arrays.get(f"{kind}_means")

    def hop(self, number: int) -> Features:
        """Hop features P^l X for l = 1 … L, dense or CSR."""
        name = f"hop_{number}"
        if name in self.arrays:
            return self.arrays[name]
        if f"{name}_data" not in self.arrays:
            raise StoreError(f"{self.path} has hops 1 to {self.num_hops}, not {number}")
        parts = tuple(self.arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
        matrix = sp.csr_matrix(parts, shape=(self.num_nodes, self.config["num_features"]), copy=False)
        matrix.has_canonical_format = True  # it was sorted before it was written; the arrays are read-only
        return matrix

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph it was made from."""
        return len(self.arrays["structure_ids"])

    @property
    def num_hops(self) -> int:
        """The paper's L."""
        return int(self.config["hops"])

    @property
    def num_tokens(self) -> int:
        """Length of a token list: 1 + L + k̄ + k̂."""
        return 1 + self.num_hops + sum(int(self.ids(kind).shape[1]) for kind in KINDS)

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(int(array.nbytes) for array in self.arrays.values())

    def __repr__(self) -> str:
        structure, content = (self.ids(kind).shape[1] for kind in KINDS)
        return (
            f"TokenStore({self.path}: {self.num_nodes:,} nodes, {self.num_tokens} tokens each (1 self, {self.num_hops} "
            f"hops, {structure} structure, {content} content), {format_bytes(self.num_bytes)})"
        )
