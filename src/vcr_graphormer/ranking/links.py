"""Nodes that link alike: the cosine of their rows of the adjacency matrix. Content that needs no features or labels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from ..base.checks import check_sources
from ..base.folders import open_folder, write_folder
from ..base.machine import default_threads
from ..data.graph import Graph
from ..errors import StoreError
from .connections import Connections
from .kernels.links import rank_by_links, row_lengths
from .kernels.push import Arcs
from .ranker import Effort, Preparation, Ranking, empty_lists
from .second_level import with_weights

# A node that so many link to says little about who is alike, and looking at all pairs of them costs its square.
MOST_LINKS = 4096
FORMAT_VERSION = 1
# Bytes, read off the code: lengths and two working arrays per thread; order and arcs while they are turned around.
LINKS_PER_NODE = 12
LINKS_PER_ARC = 24
KIND = "likeness"  # the name of the format, as the first release wrote it


@dataclass(frozen=True, eq=False)
class LinkRanker:
    """A graph made ready to find, for any node, those whose links are most like its own.

    The similarity of u and v is Σ A(u, w) A(v, w) / (|A(u, :)| |A(v, :)|) over the nodes w that at most
    `MOST_LINKS` nodes link to: 1 where both link to the same nodes. In a directed graph, links leave a node.

    Attributes
    ----------
    links, back : Arcs
        Whom each node links to, and who links to it; the same where edges have no direction.
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
        """Turn the arcs around, where they have a direction, and measure the rows; super nodes play no part."""
        links = _arcs(graph)
        back = _turned(graph) if graph.directed else links
        return cls(links, back, row_lengths(*links, back.indptr, MOST_LINKS))

    @property
    def visits(self) -> int:
        """Arcs looked at while preparing."""
        return len(self.links.indices)

    def save(self, path: str | Path, graph: Graph) -> Path:
        """Write what was prepared, the arcs of the graph left out, as a folder of memory-mapped arrays."""
        arrays = {"lengths": self.lengths}
        if graph.directed:
            arrays |= {f"back_{name}": part for name, part in self.back._asdict().items()}
        meta = {"graph adjacency": graph.fingerprints["adjacency"]}
        return write_folder(path, KIND, FORMAT_VERSION, arrays, meta, overwrite=False)

    @classmethod
    def open(cls, path: str | Path, graph: Graph) -> LinkRanker:
        """Open what `save` wrote, with the graph it was prepared for."""
        meta, arrays = open_folder(path, KIND, FORMAT_VERSION, "c")
        if meta.get("graph adjacency") != graph.fingerprints["adjacency"]:
            raise StoreError(f"{path} was prepared for another graph than {graph.folder or graph.name}")
        wanted = {"lengths", *(f"back_{name}" for name in Arcs._fields if graph.directed)}
        if missing := wanted - arrays.keys():
            raise StoreError(f"{path} is damaged: its manifest lacks {', '.join(sorted(missing))}")
        links = back = _arcs(graph)
        if graph.directed:
            back = Arcs(*(np.asarray(arrays[f"back_{name}"]) for name in Arcs._fields))
        return cls(links, back, np.asarray(arrays["lengths"]))

    def rank(self, sources: Any = None, k: int = 20, **how: Unpack[Effort]) -> Ranking:
        """The k nodes most like each source (default: all nodes), the source itself left out.

        >>> pages = Graph.from_edges([[0, 0, 1, 1, 2], [3, 4, 3, 4, 4]], directed=True)
        >>> found = LinkRanker.prepare(pages).rank([0], k=3)
        >>> found.ids.tolist(), [f"{score:.3f}" for score in found.scores[0]]
        ([[1, 2, -1]], ['1.000', '0.707', '0.000'])
        """
        num_nodes = len(self.lengths)
        nodes = np.arange(num_nodes) if sources is None else check_sources(sources, num_nodes)
        ids, scores = empty_lists(len(nodes), k)

        def work(part: slice) -> int:
            products, touched = np.zeros(num_nodes), np.empty(num_nodes, dtype=np.int32)
            return int(
                rank_by_links(
                    nodes[part],
                    *self.links,
                    *self.back,
                    self.lengths,
                    MOST_LINKS,
                    products,
                    touched,
                    ids[part],
                    scores[part],
                )
            )

        count = default_threads(how.get("threads"))
        with ThreadPoolExecutor(count) as pool:
            ends = [len(nodes) * number // count for number in range(count + 1)]
            visits = sum(pool.map(work, map(slice, ends, ends[1:])))
        return Ranking(ids, scores, nodes, visits)

    @classmethod
    def memory(cls, graph: Graph, threads: int, partitioner: str) -> dict[str, int]:
        """Return the bytes for the similarity of links, about, beyond the graph itself."""
        turned = LINKS_PER_ARC * graph.num_arcs if graph.directed else 0
        return {"neighbours by links": LINKS_PER_NODE * (1 + threads) * graph.num_nodes + turned}

    @classmethod
    def saved_bytes(cls, graph: Graph) -> int:
        """Return the bytes that `save` writes: lengths, and the arcs turned around where they have a direction."""
        per_arc = 4 if graph.weights is None else 8
        return 8 * graph.num_nodes + (8 * graph.num_nodes + per_arc * graph.num_arcs) * graph.directed


def _arcs(graph: Graph) -> Arcs:
    weights = np.empty(0, dtype=np.float32) if graph.weights is None else np.ascontiguousarray(graph.weights)
    return with_weights(graph, weights)


def _turned(graph: Graph) -> Arcs:
    """Every arc the other way round."""
    columns = graph.to_scipy().tocsc()
    weights = np.empty(0, dtype=np.float32) if graph.weights is None else columns.data
    return Arcs(columns.indptr.astype(np.int64), columns.indices.view(np.uint32), weights)
