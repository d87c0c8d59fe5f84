"""`TokenStore`: the token lists of all nodes, memory-mapped, open in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..base.folders import MANIFEST, differences, open_folder, verify_folder
from ..base.machine import format_bytes
from ..data.contract import Features
from ..errors import StoreError, unknown_name
from .config import KINDS

FORMAT_VERSION = 1


KIND = "token store"


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
        """PageRank scores, or link similarity, [n, k] that belong to `ids`; 0 for padding."""
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
