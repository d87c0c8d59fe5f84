"""Find the top k nodes of personalized PageRank on the rewired graph.

A local push starts at each source; what it leaves over is spread by vectors that are computed once (`second_level`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from ..base.checks import check_sources
from ..base.folders import check_once, open_folder, write_folder
from ..base.machine import default_threads
from ..data.graph import Graph
from ..errors import StoreError
from .connections import Connections, connections_of
from .exact import TOLERANCE, check_restart, check_tolerance
from .kernels.push import Arcs, Members
from .kernels.topk import Limits, Vectors, rank_sources
from .ranker import Closing, Ranking, empty_lists
from .saved import check_pagerank
from .second_level import EXACT, SMALL_GRAPH, coarse_clusters, compute_vectors, make_arcs, new_scratch, with_weights

BUDGET = 2 * 2**30  # bytes for the vectors
FORMAT_VERSION = 1
KIND = "ranker"
# Bytes per arc or node, measured on generated graphs of 0.6 to 62 million edges (results/scale.json).
METIS_PER_ARC = 85
KAMINPAR_PER_ARC = 25
PARTITION_PER_NODE = 200
VECTORS_PER_NODE = 330
THREAD_PER_NODE = 40
WEIGHTS_PER_ARC = 12
RANKER_PER_NODE = 230
# Residual per edge weight at which the first push of every source stops, before its k-th score is known.
FIRST_TOLERANCE = 1e-3
# No push goes below this fraction of the tolerance (1e-5 at the default). Without it, sources with a minute k-th score
# would push for very long.
FLOOR = 1.4e-4
# Up to this tolerance `look_back` is worth the edges it touches (results/ranking_ablation.json).
LOOK_BACK_BELOW = 0.2
# Factor of the tolerance in directed graphs: without `look_back` a finer push is needed for the same recall.
DIRECTED_TOLERANCE = 1 / 4
BLOCKS_PER_THREAD = 16  # small blocks, so that all threads finish at about the same time


def rank(
    graph: Graph,
    connections: Connections | None = None,
    k: int = 20,
    restart: float = 0.15,
    sources: Any = None,
    **how: Unpack[Options],
) -> Ranking:
    """Find the top k nodes of the personalized PageRank of each source on the rewired graph.

    Lists hold neither the source itself nor super nodes.

    Parameters
    ----------
    connections
        Virtual connections; None ranks on the graph as it is.
    restart
        Probability to return to the source in each step (1 - the paper's α).
    sources
        Node ids; default all nodes.
    **how
        `tolerance`, `leave_out` and `threads` as in `Effort`; `seed`, `partitioner` and `budget` as in `Preparation`.

    >>> from vcr_graphormer import Graph
    >>> ranking = rank(Graph.from_edges([[0, 1, 2], [1, 2, 3]]), k=2, sources=[0])
    >>> ranking.ids.tolist(), [f"{score:.3f}" for score in ranking.scores[0]]
    ([[1, 2]], ['0.358', '0.238'])
    """
    options: dict[str, Any] = {**how}
    preparation = {name: options.pop(name) for name in ("seed", "partitioner", "budget") if name in options}
    ranker = Ranker.prepare(graph, connections, restart, threads=how.get("threads"), **preparation)
    return ranker.rank(sources, k, **options)


class Options(TypedDict, total=False):
    """The keywords of `rank`: how to prepare and how to rank."""

    tolerance: float
    leave_out: bool
    seed: int
    partitioner: str
    budget: int
    threads: int | None


@dataclass(frozen=True, eq=False)
class Ranker(Closing):
    """A rewired graph made ready for ranking. Its vectors are computed once, for any number of sources."""

    stage: ClassVar[str] = "vectors"
    uses_clusters: ClassVar[bool] = True

    arcs: Arcs
    assignment: NDArray[np.int32]
    vectors: Vectors
    members: Members
    visits: int
    directed: bool

    @classmethod
    def prepare(
        cls,
        graph: Graph,
        connections: Connections | None = None,
        restart: float = 0.15,
        coarse: NDArray[np.int32] | None = None,
        seed: int = 0,
        threads: int | None = None,
        budget: int = BUDGET,
        partitioner: str = "metis",
    ) -> Ranker:
        """Compute the vectors; parameters as in `Preparation`. Several rankers of one graph can share `coarse`."""
        check_restart(restart)
        connections = connections_of(connections, graph.num_nodes)
        arcs = make_arcs(graph)
        coarse = coarse_clusters(graph, seed, partitioner) if coarse is None else coarse
        vectors, visits = compute_vectors(
            graph,
            arcs,
            connections=connections,
            coarse=coarse,
            restart=restart,
            threads=default_threads(threads),
            budget=budget,
        )
        return cls(arcs, connections.assignment, vectors, members_of(connections), visits, graph.directed)

    def save(self, path: str | Path, graph: Graph) -> Path:
        """Write everything but the arcs of the graph as a folder of arrays."""
        arrays = self.vectors._asdict()
        meta = {
            "restart": arrays.pop("restart"),
            "visits": self.visits,
            "directed": self.directed,
            "graph adjacency": graph.fingerprints["adjacency"],
        }
        # Scaled weights are written too: another machine might round their mean in another way.
        arrays |= {"arc_weights": self.arcs.weights, "assignment": self.assignment}
        arrays |= {"member_ptr": self.members.ptr, "member_node": self.members.node}
        return write_folder(path, KIND, FORMAT_VERSION, arrays, meta, overwrite=False)

    @classmethod
    def open(cls, path: str | Path, graph: Graph) -> Ranker:
        """Open a saved ranker, with the graph it was prepared for. Takes milliseconds at any size."""
        # Mapped as if writable ("c"): numba compiles its loops once more for read-only arrays.
        meta, arrays = open_folder(path, KIND, FORMAT_VERSION, "c")
        missing = {"restart", "visits", "directed", "graph adjacency"} - meta.keys()
        missing |= {*Vectors._fields[1:], "arc_weights", "assignment", "member_ptr", "member_node"} - arrays.keys()
        if missing:
            raise StoreError(f"{path} is damaged: its manifest lacks {', '.join(sorted(missing))}")
        if meta["graph adjacency"] != graph.fingerprints["adjacency"]:
            raise StoreError(f"{path} was prepared for another graph than {graph.folder or graph.name}")
        check_once(path, lambda: check_pagerank(arrays, meta, graph), beside=graph.folder)
        arrays = {name: np.asarray(array) for name, array in arrays.items()}  # numba is slower to call with maps
        weights, assignment = arrays.pop("arc_weights"), arrays.pop("assignment")
        members = Members(arrays.pop("member_ptr"), arrays.pop("member_node"))
        arcs = with_weights(graph, weights)
        vectors = Vectors(restart=meta["restart"], **{name: arrays[name] for name in Vectors._fields[1:]})
        return cls(arcs, assignment, vectors, members, meta["visits"], meta["directed"])

    def rank(
        self,
        sources: Any = None,
        k: int = 20,
        tolerance: float = TOLERANCE,
        leave_out: bool = False,
        threads: int | None = None,
    ) -> Ranking:
        """Rank some sources (default: all nodes); parameters as in `Effort`."""
        check_tolerance(tolerance)
        vectors, num_nodes = self.vectors, len(self.vectors.total)
        nodes = np.arange(num_nodes) if sources is None else check_sources(sources, num_nodes)
        ids, scores = empty_lists(len(nodes), k, np.float64)
        kth = entry_after(vectors, k)
        limits = make_limits(tolerance, directed=self.directed, num_arcs=len(self.arcs.indices))

        def rank_blocks(own_blocks: list[NDArray[np.int64]]) -> int:
            scratch, visits = new_scratch(vectors.limit, len(kth), self.directed), 0
            for rows in own_blocks:
                lists, graph = (ids[rows], scores[rows]), (self.arcs, self.assignment, self.members)
                visits += rank_sources(nodes[rows], leave_out, *graph, vectors, kth, scratch, limits, *lists)
                ids[rows], scores[rows] = lists
            return visits

        # Sorted by cluster: sources of one cluster read the same memory.
        count = default_threads(threads)
        blocks = np.array_split(np.argsort(vectors.group[nodes], kind="stable"), BLOCKS_PER_THREAD * count)
        with ThreadPoolExecutor(count) as pool:
            visits = sum(pool.map(rank_blocks, [blocks[i::count] for i in range(count)]))
        return Ranking(ids, scores.astype(np.float32), nodes, int(visits))

    @classmethod
    def memory(cls, graph: Graph, threads: int, partitioner: str) -> dict[str, int]:
        """Return about how many bytes clusters and rankings need, without the graph."""
        per_arc = {"metis": METIS_PER_ARC, "kaminpar": KAMINPAR_PER_ARC}.get(partitioner)
        clusters = PARTITION_PER_NODE * graph.num_nodes if per_arc is None else per_arc * graph.num_arcs
        rankings = (VECTORS_PER_NODE + THREAD_PER_NODE * threads) * graph.num_nodes
        rankings += WEIGHTS_PER_ARC * graph.num_arcs if graph.weights is not None else 0
        return {"clusters": clusters, "rankings": rankings}

    @classmethod
    def saved_bytes(cls, graph: Graph) -> int:
        """Return about how many bytes `save` writes."""
        return RANKER_PER_NODE * graph.num_nodes


def make_limits(tolerance: float, *, directed: bool, num_arcs: int) -> Limits:
    """Return how far sources are pushed; in a small graph until they are exact."""
    limits = Limits(
        first=FIRST_TOLERANCE,
        tolerance=tolerance * (DIRECTED_TOLERANCE if directed else 1.0),
        floor=FLOOR * tolerance,
        slack=1.0,
        back=not directed and tolerance <= LOOK_BACK_BELOW,
    )
    return limits._replace(first=EXACT, floor=EXACT, slack=0.0) if num_arcs <= SMALL_GRAPH else limits


def members_of(connections: Connections) -> Members:
    """Return the nodes of each super node as CSR."""
    assignment = connections.assignment
    node = np.argsort(assignment, kind="stable")[np.count_nonzero(assignment < 0) :]
    ptr = np.concatenate([[0], np.cumsum(connections.sizes)])
    return Members(ptr.astype(np.int64), node.astype(np.int32))


def entry_after(vectors: Vectors, k: int) -> NDArray[np.float32]:
    """Return entry k + 1 of each vector's list, 0 if it is shorter: without the source, k nodes score at least that."""
    kth = np.zeros(len(vectors.ptr) - 1, dtype=np.float32)
    is_long = np.diff(vectors.ptr) > k
    kth[is_long] = vectors.values[vectors.ptr[:-1][is_long] + k]
    return kth
