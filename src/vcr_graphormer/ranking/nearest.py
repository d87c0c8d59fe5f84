"""Rank nodes by the similarity of their features: the cosine of their rows, alone or together with the next hop's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack
from warnings import catch_warnings, simplefilter

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array, check_sources, seed_within
from ..base.folders import check_once, open_folder, write_folder
from ..base.machine import default_threads
from ..data.graph import Graph
from ..errors import GraphError, StoreError
from .connections import LARGEST_RANDOM_STATE, Connections
from .kernels.nearest import LANES, rank_all_rows, rank_among, rank_candidates
from .kernels.scans import arc_weights, degrees_both_ways
from .ranker import Candidates, Closing, Effort, Preparation, Ranking, empty_lists
from .saved import check_nearest

# Up to so many nodes each source is compared with all nodes; the time grows with their square. Recall and seconds of
# both ways are in results/neighbours_by_features.json.
EXACT_NODES = 100_000
# Beyond: nodes that the approximate search finds for each node. A source is compared with these and with theirs.
CANDIDATES = 30
# Cosines are rounded to multiples of this, so that equal ones tie although float32 sums differ in their last bits.
STEP = 2.0**-16
FORMAT_VERSION = 1
KIND = "nearest"
ROWS = ("indptr", "indices", "values")
ENTRY_BYTES = 8  # of a row: float32 and its int32 column
SCALING_BYTES = 32  # per entry while rows are scaled; measured on 100,000 generated rows of 64 columns
SEARCH_BYTES = 40  # per candidate while pynndescent searches; measured on 100,000 generated rows of 64 columns
# Wider rows are projected to so many dense columns for the approximate search: sparse rows take it ten times as long.
SEARCHED_COLUMNS = 1024


@dataclass(frozen=True, eq=False)
class FeatureRanker(Closing):
    """A graph made ready to find the nodes with the most similar features.

    The similarity of u and v is the cosine of their rows of X. Nodes whose cosine is not positive are not listed.

    Attributes
    ----------
    rows : CSR float32 [n, columns]
        Rows of unit length, or zero.
    candidates : int32 [n, c] or None
        About the nearest nodes of each node, -1 for none; None where each source is compared with all nodes.
    visits : int
        Edges touched while preparing.
    """

    stage: ClassVar[str] = "features"
    uses_clusters: ClassVar[bool] = False
    with_hop: ClassVar[bool] = False

    rows: sp.csr_matrix
    candidates: NDArray[np.int32] | None = None
    visits: int = 0

    @classmethod
    def prepare(cls, graph: Graph, connections: Connections | None = None, **how: Unpack[Preparation]) -> Self:
        """Scale the rows to unit length; search for candidates if there are many nodes. Super nodes are not used."""
        if graph.features is None:
            raise GraphError("the graph has no features, which nearest neighbours compare")
        rows = _with_hop(graph) if cls.with_hop else _unit_rows(graph.features)
        candidates = _candidates(rows, how.get("seed", 0)) if graph.num_nodes > EXACT_NODES else None
        return cls(rows, candidates, graph.num_arcs if cls.with_hop else 0)

    def save(self, path: str | Path, graph: Graph) -> Path:
        """Write rows and candidates as a folder of arrays: workers may have the graph without its features."""
        arrays: dict[str, Array] = dict(zip(ROWS, _arrays(self.rows), strict=True))
        if self.candidates is not None:
            arrays["candidates"] = self.candidates
        about = {"columns": self.rows.shape[1], "hop": self.with_hop, "visits": self.visits}
        meta = {"graph adjacency": graph.fingerprints["adjacency"], **about}
        return write_folder(path, KIND, FORMAT_VERSION, arrays, meta, overwrite=False)

    @classmethod
    def open(cls, path: str | Path, graph: Graph) -> Self:
        """Open a saved ranker, with the graph it was prepared for."""
        meta, arrays = open_folder(path, KIND, FORMAT_VERSION, "c")
        if meta.get("graph adjacency") != graph.fingerprints["adjacency"] or meta.get("hop") != cls.with_hop:
            raise StoreError(f"{path} was prepared for another graph than {graph.folder or graph.name}, or other rows")
        if missing := {*ROWS} - arrays.keys() | {"columns", "visits"} - meta.keys():
            raise StoreError(f"{path} is damaged: its manifest lacks {', '.join(sorted(missing))}")
        check_once(path, lambda: check_nearest(arrays, meta, graph), beside=graph.folder)
        indptr, indices, values = (np.asarray(arrays[name]) for name in ROWS)
        rows = sp.csr_matrix((graph.num_nodes, meta["columns"]), dtype=np.float32)
        rows.indptr, rows.indices, rows.data = indptr, indices, values  # as they are: scipy would copy or check them
        found = arrays.get("candidates")
        return cls(rows, None if found is None else np.asarray(found), meta["visits"])

    def rank(self, sources: Any = None, k: int = 20, **how: Unpack[Effort]) -> Ranking:
        """Find the k nodes whose features are most similar to those of each source (default: all nodes).

        >>> graph = Graph.from_edges([[0, 1], [1, 2]], features=[[1.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
        >>> ranking = FeatureRanker.prepare(graph).rank([0], k=3)
        >>> ranking.ids.tolist(), [f"{score:.3f}" for score in ranking.scores[0]]
        ([[2, 1, -1]], ['1.000', '0.707', '0.000'])
        """
        num_nodes, columns = self.rows.shape
        nodes = np.arange(num_nodes) if sources is None else check_sources(sources, num_nodes)
        ids, scores = empty_lists(len(nodes), k)
        rows = _arrays(self.rows)

        def rank_rows(part: slice) -> None:
            lists = (ids[part], scores[part])
            if self.candidates is None:
                table = np.zeros((columns, max(1, min(LANES, part.stop - part.start))), dtype=np.float32)
                rank_all_rows(nodes[part], *rows, STEP, table, *lists)
            else:
                column, seen = np.zeros(columns, dtype=np.float32), np.full(num_nodes, -1)
                rank_candidates(nodes[part], *rows, STEP, self.candidates, column, seen, *lists)

        count = default_threads(how.get("threads"))
        with ThreadPoolExecutor(count) as pool:
            ends = [len(nodes) * number // count for number in range(count + 1)]
            list(pool.map(rank_rows, map(slice, ends, ends[1:])))
        return Ranking(ids, scores, nodes, visits=0)

    def rank_among(self, sources: NDArray[np.int64], candidates: Candidates, k: int, threads: int | None) -> Ranking:
        """Find the k most similar nodes among the candidates of each source; all others count as not similar."""
        ids, scores = empty_lists(len(sources), k)
        rows, columns = _arrays(self.rows), self.rows.shape[1]

        def rank_rows(part: slice) -> None:
            work = (np.zeros(columns, dtype=np.float32), np.full(self.rows.shape[0], -1))
            rank_among(sources[part], *rows, STEP, *candidates.of(part), *work, ids[part], scores[part])

        count = default_threads(threads)
        with ThreadPoolExecutor(count) as pool:
            ends = [len(sources) * number // count for number in range(count + 1)]
            list(pool.map(rank_rows, map(slice, ends, ends[1:])))
        return Ranking(ids, scores, sources, visits=0)

    @classmethod
    def memory(cls, graph: Graph, threads: int, partitioner: str) -> dict[str, int]:
        """Return about how many bytes scaling the rows, searching for candidates and ranking need at most."""
        tables = threads * 4 * LANES * graph.num_features * (1 + cls.with_hop)
        entries, searching = cls._entries(graph), 0
        if graph.num_nodes > EXACT_NODES:
            dense = 4 * min(SEARCHED_COLUMNS, graph.num_features * (1 + cls.with_hop))
            searching = (2 * dense + SEARCH_BYTES * CANDIDATES + 8 * threads) * graph.num_nodes
        return {"neighbours by features": (ENTRY_BYTES + SCALING_BYTES) * entries + tables + searching}

    @classmethod
    def saved_bytes(cls, graph: Graph) -> int:
        """Return about how many bytes `save` writes: rows and candidates."""
        candidates = 4 * CANDIDATES if graph.num_nodes > EXACT_NODES else 0
        return ENTRY_BYTES * cls._entries(graph) + (8 + candidates) * graph.num_nodes

    @classmethod
    def _entries(cls, graph: Graph) -> int:
        """Return how many entries the rows have; those of the hop as if no two neighbours shared a column."""
        features: Any = graph.features
        full = graph.num_nodes * graph.num_features
        own = int(features.nnz) if sp.issparse(features) else full
        hop = min(full, own * graph.num_arcs // max(1, graph.num_nodes)) if cls.with_hop else 0
        return own + hop


@dataclass(frozen=True, eq=False)
class HopFeatureRanker(FeatureRanker):
    """The same by [X, PX]: rows of both have unit length, so the similarity is the mean of both cosines."""

    with_hop: ClassVar[bool] = True


def _arrays(rows: sp.csr_matrix) -> tuple[Array, Array, Array]:
    """Return indptr int64, indices int32 and values float32 of the rows, as compiled loops take them."""
    return rows.indptr.astype(np.int64, copy=False), rows.indices.astype(np.int32, copy=False), rows.data


def _unit_rows(features: Any, length: float = 1.0) -> sp.csr_matrix:
    """Return all rows scaled to one length, as CSR even where they are dense; rows of zeros stay zero."""
    rows = sp.csr_matrix(features if sp.issparse(features) else np.asarray(features), dtype=np.float32, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    node = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    lengths = np.sqrt(np.bincount(node, np.square(rows.data, dtype=np.float64), rows.shape[0]))
    rows.data = (rows.data * (length / lengths[node])).astype(np.float32)
    return rows


def _with_hop(graph: Graph) -> sp.csr_matrix:
    """Return [X, PX], the rows of each scaled to the length √½.

    P(u, v) = weight / √(degree(u) degree(v)). The factor of u is left out: rows are scaled anyway.
    """
    features: Any = graph.features
    _, into = degrees_both_ways(graph, arc_weights(graph))
    step = graph.to_scipy().astype(np.float32)
    step.data /= np.sqrt(into[step.indices])
    hop = step @ (features if sp.issparse(features) else np.asarray(features))
    return sp.hstack([_unit_rows(matrix, 0.5**0.5) for matrix in (features, hop)], format="csr")


def _candidates(rows: sp.csr_matrix, seed: int) -> NDArray[np.int32]:
    """Return about the nearest nodes of each node, by pynndescent; wide rows are multiplied by random signs first.

    One thread: with more of them, what it finds depends on their number.
    """
    from pynndescent import NNDescent
    from threadpoolctl import threadpool_limits

    if rows.shape[1] <= SEARCHED_COLUMNS:
        dense = rows.toarray()
    else:
        signs = np.array([-1, 1], dtype=np.float32)
        dense = rows @ np.random.default_rng(seed).choice(signs, (rows.shape[1], SEARCHED_COLUMNS))
    # The limit ends with the search. Without it, OpenMP would go on with all cores afterwards, whatever it had before,
    # and torch's sums would have other bits.
    with catch_warnings(), threadpool_limits(1, user_api="openmp"):
        simplefilter("ignore", UserWarning)  # it finds fewer nodes for some, as for rows of zeros
        start = seed_within(seed, LARGEST_RANDOM_STATE)
        index = NNDescent(dense, metric="cosine", n_neighbors=CANDIDATES, random_state=start, n_jobs=1)
    found: NDArray[np.int32] = index.neighbor_graph[0].astype(np.int32)
    return found
