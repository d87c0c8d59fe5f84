"""Rank nodes by the similarity of their links: the cosine of their rows of the adjacency matrix."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from ..base.checks import check_sources
from ..base.folders import check_once, open_folder, write_folder
from ..base.machine import default_threads
from ..data.agreement import MOST_LINKS
from ..data.graph import Graph
from ..errors import GraphError, StoreError
from .connections import Connections
from .kernels.links import (
    MOST_COUNTED,
    count_table,
    rank_by_links,
    rank_by_shared_links,
    rank_links_among,
    row_lengths,
)
from .kernels.push import Arcs
from .ranker import Candidates, Closing, Effort, Preparation, Ranking, empty_lists
from .saved import check_links
from .second_level import with_weights

# Counting shared links takes a table of all nodes, some 4 µs per 4,096 nodes; it saves tens of µs per source.
NODES_PER_SOURCE = 4096
BLOCKS_PER_THREAD = 16  # small blocks, so that all threads finish at about the same time
FORMAT_VERSION = 1
# Bytes, counted in this file: lengths and two working arrays per thread; order and arcs while arcs are reversed.
LINKS_PER_NODE = 12
LINKS_PER_ARC = 24
KIND = "likeness"  # the name of the format, as the first release wrote it


@dataclass(frozen=True, eq=False)
class LinkRanker(Closing):
    """A graph made ready to find the nodes with the most similar links.

    The similarity of u and v is Σ A(u, w) A(v, w) / (|A(u, :)| |A(v, :)|), 1 if both link to the same nodes. Nodes w
    that more than `MOST_LINKS` nodes link to do not count. In a directed graph, links are outgoing arcs.

    Attributes
    ----------
    links, back : Arcs
        The arcs, and the reversed arcs; the same in an undirected graph.
    lengths : float64 [n]
        |A(u, :)|.
    """

    stage: ClassVar[str] = "links"
    uses_clusters: ClassVar[bool] = False

    links: Arcs
    back: Arcs
    lengths: NDArray[np.float64]

    @classmethod
    def prepare(cls, graph: Graph, connections: Connections | None = None, **how: Unpack[Preparation]) -> LinkRanker:
        """Reverse the arcs of a directed graph and measure all rows; super nodes are not used."""
        links = _arcs(graph)
        back = _reversed_arcs(graph) if graph.directed else links
        return cls(links, back, row_lengths(*links, back.indptr, MOST_LINKS))

    @property
    def visits(self) -> int:
        """Return the edges touched while preparing."""
        return len(self.links.indices)

    def save(self, path: str | Path, graph: Graph) -> Path:
        """Write everything but the arcs of the graph as a folder of arrays."""
        arrays = {"lengths": self.lengths}
        if graph.directed:
            arrays |= {f"back_{name}": array for name, array in self.back._asdict().items()}
        meta = {"graph adjacency": graph.fingerprints["adjacency"]}
        return write_folder(path, KIND, FORMAT_VERSION, arrays, meta, overwrite=False)

    @classmethod
    def open(cls, path: str | Path, graph: Graph) -> LinkRanker:
        """Open a saved ranker, with the graph it was prepared for."""
        meta, arrays = open_folder(path, KIND, FORMAT_VERSION, "c")
        if meta.get("graph adjacency") != graph.fingerprints["adjacency"]:
            raise StoreError(f"{path} was prepared for another graph than {graph.folder or graph.name}")
        expected = {"lengths", *(f"back_{name}" for name in Arcs._fields if graph.directed)}
        if missing := expected - arrays.keys():
            raise StoreError(f"{path} is damaged: its manifest lacks {', '.join(sorted(missing))}")
        links = back = _arcs(graph)
        if graph.directed:
            back = Arcs(*(np.asarray(arrays[f"back_{name}"]) for name in Arcs._fields))

        def check() -> None:
            check_links(arrays, graph)
            if not np.allclose(arrays["lengths"], row_lengths(*links, back.indptr, MOST_LINKS), rtol=1e-6, atol=0):
                raise GraphError("lengths are not those of the rows")  # the loop divides by them

        check_once(path, check, beside=graph.folder)
        return cls(links, back, np.asarray(arrays["lengths"]))

    def rank(self, sources: Any = None, k: int = 20, **how: Unpack[Effort]) -> Ranking:
        """Find the k nodes whose links are most similar to those of each source (default: all nodes).

        >>> pages = Graph.from_edges([[0, 0, 1, 1, 2], [3, 4, 3, 4, 4]], directed=True)
        >>> ranking = LinkRanker.prepare(pages).rank([0], k=3)
        >>> ranking.ids.tolist(), [f"{score:.3f}" for score in ranking.scores[0]]
        ([[1, 2, -1]], ['1.000', '0.707', '0.000'])
        """
        num_nodes = len(self.lengths)
        nodes = np.arange(num_nodes) if sources is None else check_sources(sources, num_nodes)
        ids, scores = empty_lists(len(nodes), k)

        def rank_blocks(own_blocks: list[slice]) -> int:
            table = count_table(self.lengths) if countable else None
            return sum(self._rank_rows(nodes[rows], table, ids[rows], scores[rows]) for rows in own_blocks)

        countable = len(self.links.weights) == 0 and num_nodes <= NODES_PER_SOURCE * len(nodes)
        count = default_threads(how.get("threads"))
        ends = [len(nodes) * number // (BLOCKS_PER_THREAD * count) for number in range(BLOCKS_PER_THREAD * count + 1)]
        blocks = list(map(slice, ends, ends[1:]))
        with ThreadPoolExecutor(count) as pool:
            visits = sum(pool.map(rank_blocks, [blocks[number::count] for number in range(count)]))
        return Ranking(ids, scores, nodes, visits)

    def _rank_rows(self, nodes: Any, table: Any, ids: Any, scores: Any) -> int:
        """Write the lists of some sources; return how many arcs were read. Both loops give the same bits."""
        links, back, num_nodes = self.links, self.back, len(self.lengths)
        touched = np.empty(num_nodes + 1, dtype=np.int32)
        most_links = (links.indptr[nodes + 1] - links.indptr[nodes]).max(initial=0)
        if table is not None and most_links <= MOST_COUNTED:
            graph = (links.indptr, links.indices, back.indptr, back.indices, self.lengths, MOST_LINKS)
            return int(rank_by_shared_links(nodes, *graph, table, touched, ids, scores))
        products = np.zeros(num_nodes)
        return int(rank_by_links(nodes, *links, *back, self.lengths, MOST_LINKS, products, touched, ids, scores))

    def rank_among(self, sources: NDArray[np.int64], candidates: Candidates, k: int, threads: int | None) -> Ranking:
        """Find the k most similar nodes among the candidates of each source; all others count as not similar."""
        ids, scores = empty_lists(len(sources), k)

        def rank_rows(part: slice) -> None:
            graph = (*self.links, self.back.indptr, self.lengths, MOST_LINKS)
            work = (np.zeros(len(self.lengths)), np.full(len(self.lengths), -1))
            rank_links_among(sources[part], *graph, *candidates.of(part), *work, ids[part], scores[part])

        count = default_threads(threads)
        with ThreadPoolExecutor(count) as pool:
            ends = [len(sources) * number // count for number in range(count + 1)]
            list(pool.map(rank_rows, map(slice, ends, ends[1:])))
        return Ranking(ids, scores, sources, visits=0)

    @classmethod
    def memory(cls, graph: Graph, threads: int, partitioner: str) -> dict[str, int]:
        """Return about how many bytes the ranking by links needs, without the graph."""
        reversing = LINKS_PER_ARC * graph.num_arcs if graph.directed else 0
        return {"neighbours by links": LINKS_PER_NODE * (1 + threads) * graph.num_nodes + reversing}

    @classmethod
    def saved_bytes(cls, graph: Graph) -> int:
        """Return the bytes that `save` writes: lengths, and reversed arcs if the graph is directed."""
        lengths = indptr = 8 * graph.num_nodes  # float64 and int64
        indices_and_weights = (4 if graph.weights is None else 8) * graph.num_arcs  # uint32 and float32
        return lengths + (indptr + indices_and_weights) * graph.directed


def _arcs(graph: Graph) -> Arcs:
    """Return the arcs with the weights as given; PageRank scales them, a cosine does not need that."""
    weights = np.empty(0, dtype=np.float32) if graph.weights is None else np.ascontiguousarray(graph.weights)
    return with_weights(graph, weights)


def _reversed_arcs(graph: Graph) -> Arcs:
    by_column = graph.to_scipy().tocsc()
    weights = np.empty(0, dtype=np.float32) if graph.weights is None else by_column.data
    return Arcs(by_column.indptr.astype(np.int64), by_column.indices.view(np.uint32), weights)
