"""Compute the second level of the ranking: truncated PageRank vectors of a few fixed starts, once per rewired graph.

Write a = restart and r_x for the PageRank that starts at x. A vector q stands for one of

- a super node s, V = r_s;
- a coarse cluster c, V = π_c - a · start_c, where π_c starts at the cluster's nodes in proportion to their weight;
- a hub h, one of the heaviest nodes, V = r_h - a · e_h: a cluster of one.

Every node belongs to one cluster or is a hub. A push from any start x that absorbs at super nodes, never pushes hubs
and stops early satisfies

    r_x = settled + a · residual + Σ_q w_q V_q,

where w_q is the mass absorbed by super node q, or the residual left in group q (a cluster or a hub). This is exact for
super nodes and hubs (the hub decomposition of Jeh and Widom, 2003). For clusters it assumes that the residual is spread
by weight. The vectors obey the same identity, V = L + W V, so V = M L with M = (I - W)^-1. Only the local parts L are
kept, truncated to the largest entries. A source needs one small product m = w M, and the score of a hub is a · m_h.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.machine import format_bytes
from ..data.graph import Graph
from ..errors import ConfigError
from .connections import Connections, structure_connections
from .exact import super_edge_weight
from .kernels.push import (
    LIMIT,
    TINY,
    Arcs,
    Scratch,
    by_node,
    local_vector,
    per_unlisted_weight,
    resolvent,
    subtract_unlisted,
)
from .kernels.scans import degrees_both_ways
from .kernels.topk import Vectors
from .reachability import reachability

# Graphs of at most this many arcs are pushed to the tolerance EXACT, so that their rankings are exact to float32.
SMALL_GRAPH = 5_000
EXACT = 1e-9
# Without hubs Computer needs eight times the visits for recall 0.99 (results/ranking_ablation.json).
MOST_HUBS = 256
# Bounds of the number of coarse clusters. At most 512 keep M in a cache. Twice or four times as many clusters hardly
# raise recall (results/ranking_ablation.json).
FEWEST_CLUSTERS, MOST_CLUSTERS = 100, 512
# A small graph has at most one coarse cluster, and one hub, per 16 nodes.
NODES_PER_VECTOR = 16
# Weights relative to the mean are at least this: float32 residuals could not follow smaller ones.
LEAST_WEIGHT = 1e-12
# The weight of the unlisted nodes of a cluster is a difference of sums; below this fraction it is rounding error.
LEAST_UNLISTED = 1e-6
# How far vectors are pushed. A cluster or super node stops at a tenth of the mean residual per weight of its start, so
# that it costs about the volume of its start. A hub spreads over many nodes at once and needs a finer push: with twice
# these bounds recall on Squirrel falls to 0.99.
CLUSTER_TOLERANCE = 0.1
HUB_TOLERANCE = 0.5
LEAST_HUB_TOLERANCE, MOST_HUB_TOLERANCE = 5e-6, 1e-5
# A start with less weight than this has no edges: its mass stays where it is.
LEAST_REACH = 1e-9
# Lengths of the lists. A list has twice the length of its start, because super nodes have the longest starts and would
# lose members otherwise. To that comes an equal part of three entries per node, of half a million in a small graph.
ENTRIES_PER_START = 2
ENTRIES_PER_NODE = 3
LEAST_ENTRIES = 500_000
LEAST_LENGTH = 64  # of a list
BYTES_PER_PAIR = 28  # of vectors: W, M and their working copies
BYTES_PER_ENTRY = 16  # id and value in the lists, and the same entry by node


@dataclass(frozen=True, eq=False)
class _Layout:
    """Which vectors there are, in the order super nodes, clusters, hubs, and what belongs to each.

    Attributes
    ----------
    supers, clusters : int
        Number of super nodes and of coarse clusters.
    hubs : int32 [hubs]
        The heaviest nodes, ascending.
    assignment : int32 [n]
        The super node of each node, -1 for none.
    vector_of : int32 [n]
        The vector of the cluster or hub that a node belongs to.
    group : int32 [n]
        The coarse cluster of a node, `clusters` for hubs.
    total, mass : float64 [n]
        Weight of the edges out of and into a node, the one of its super node included.
    """

    supers: int
    clusters: int
    hubs: NDArray[np.int32]
    assignment: NDArray[np.int32]
    vector_of: NDArray[np.int32]
    group: NDArray[np.int32]
    total: NDArray[np.float64]
    mass: NDArray[np.float64]

    @property
    def first_hub(self) -> int:
        """The vector of the first hub."""
        return self.supers + self.clusters

    @property
    def num_vectors(self) -> int:
        """The number of all vectors."""
        return self.first_hub + len(self.hubs)


def coarse_clusters(graph: Graph, seed: int = 0, partitioner: str = "metis", *, threads: int = 1) -> NDArray[np.int32]:
    """Return the clusters of the second level [n]: about √n, between 100 and 512, fewer in small graphs.

    Threads are those of `structure_connections`.
    """
    most = min(max(np.sqrt(graph.num_nodes), FEWEST_CLUSTERS), MOST_CLUSTERS, graph.num_nodes // NODES_PER_VECTOR)
    count = max(1, int(most))
    # Recursive bisection is as good here as METIS's k-way scheme in half the time (results/ranking_ablation.json).
    how: dict[str, Any] = {"recursive": True, "partitioner": partitioner, "threads": threads}
    return structure_connections(graph, count, seed, **how).assignment


def make_arcs(graph: Graph, unit: float | None = None) -> Arcs:
    """Return the graph as the kernels take it, weights scaled so that an edge to a super node weighs 1.

    `unit`: the weight of such an edge before; default: as `super_edge_weight` says.
    """
    weights = np.empty(0, dtype=np.float32)
    if graph.weights is not None:
        unit = super_edge_weight(graph) if unit is None else unit
        weights = np.maximum(graph.weights / unit, LEAST_WEIGHT).astype(np.float32)
    return with_weights(graph, weights)


def with_weights(graph: Graph, weights: NDArray[np.float32]) -> Arcs:
    """Return the arcs of a graph with these weights; an empty array means 1 everywhere."""
    return Arcs(np.ascontiguousarray(graph.indptr), np.ascontiguousarray(graph.indices).view(np.uint32), weights)


def new_scratch(limit: NDArray[np.float32], num_vectors: int, directed: bool) -> Scratch:
    """Return the working memory of one thread: 16 bytes per node for the table, 12 to 16 for queue and list."""
    state = np.zeros((len(limit), 4), dtype=np.float32)
    state[:, LIMIT] = limit
    ring = 1 << max(len(limit), 1).bit_length()
    touched = np.empty(2 * len(limit) + 2, dtype=np.int32)  # the push and the lists may each add every node
    stamp = np.zeros(len(limit) if directed else 0, dtype=np.int32)
    return Scratch(state, np.zeros(ring, dtype=np.int32), touched, np.zeros(num_vectors), stamp)


def compute_vectors(
    graph: Graph,
    arcs: Arcs,
    connections: Connections,
    coarse: NDArray[np.int32],
    restart: float,
    threads: int,
    budget: int,
) -> tuple[Vectors, int]:
    """Return all vectors of one rewired graph, and the edge visits that they cost.

    Parameters
    ----------
    coarse
        The coarse cluster of each node, from `coarse_clusters`.
    budget
        Most bytes for the vectors. Lists are shortened to fit; more vectors than fit raise an error.
    """
    num_nodes = graph.num_nodes
    layout = _lay_out(graph, arcs, connections=connections, coarse=coarse)
    num_vectors, clusters, group, mass = layout.num_vectors, layout.clusters, layout.group, layout.mass
    limit = np.maximum(layout.total, TINY).astype(np.float32)
    limit[layout.hubs] = np.inf
    start_ptr, start_node, start_mass, volume = _starts(layout, restart)
    modelled = np.where(np.arange(num_vectors) < layout.first_hub, volume, 0.0)
    tolerance = _tolerances(layout, arcs, restart=restart)
    keep = _list_lengths(np.diff(start_ptr), num_nodes, budget=budget)

    steps = np.zeros((num_vectors, num_vectors))
    spill = np.zeros((clusters + 1, num_vectors), dtype=np.float32)
    visits = np.zeros(num_vectors, dtype=np.int64)
    lists: list[Any] = [None] * num_vectors

    def compute(numbers: Iterator[int]) -> None:
        scratch = new_scratch(limit, num_vectors, False)
        score, node = np.empty(num_nodes), np.empty(num_nodes, dtype=np.int32)
        for q in numbers:
            start = slice(start_ptr[q], start_ptr[q + 1])
            length, visits[q] = local_vector(
                start_node[start],
                start_mass[start],
                q >= layout.supers,
                q >= layout.first_hub,
                tolerance[q],
                arcs,
                layout.total,
                layout.assignment,
                layout.vector_of,
                modelled,
                restart,
                not graph.directed,
                scratch,
                steps[q],
                score,
                node,
            )
            ids, values, spill[:, q] = _truncate(
                score[:length], node[:length], keep=keep[q], group=group, groups=clusters + 1
            )
            lists[q] = ids, values

    # The longest starts first. Each thread takes the next one when it is ready, so that all end at about the same time.
    numbers = iter(np.argsort(-np.diff(start_ptr), kind="stable").tolist())
    with ThreadPoolExecutor(threads) as pool:
        paths = pool.submit(reachability, graph, layout.assignment, layout.supers)
        list(pool.map(compute, [numbers] * threads))
        inverse = pool.submit(resolvent, steps)
        ptr = np.concatenate([[0], np.cumsum([len(ids) for ids, _ in lists])]).astype(np.int64)
        ids, values = (np.concatenate([entry[i] for entry in lists]) for i in (0, 1))
        density = per_unlisted_weight(spill, group, mass, ptr, ids, LEAST_UNLISTED)
        row_ptr, row_vector, row_value = by_node(num_nodes, ptr, ids, values)
        subtract_unlisted(row_ptr, row_vector, row_value, group, mass, density)
        matrix = inverse.result()
    weight = np.where(np.arange(num_vectors) >= layout.supers, volume, 0.0)
    vectors = Vectors(
        restart=float(restart),
        total=layout.total,
        limit=limit,
        members=connections.sizes.astype(np.float64),
        group=group,
        mass=mass.astype(np.float32),
        vector_of=layout.vector_of,
        volume=modelled,
        hubs=layout.hubs,
        ptr=ptr,
        ids=ids,
        values=values,
        largest=np.array([entry[0] if len(entry) else 0 for _, entry in lists], dtype=np.float32),
        row_ptr=row_ptr,
        row_vector=row_vector,
        row_value=row_value,
        spill=density,
        matrix=matrix.astype(np.float32),
        mean_row=(weight @ matrix / weight.sum()).astype(np.float32),
        **paths.result(),
    )
    return vectors, int(visits.sum())


def _lay_out(graph: Graph, arcs: Arcs, *, connections: Connections, coarse: NDArray[np.int32]) -> _Layout:
    """Choose the hubs and number the vectors."""
    supers, clusters = connections.count, int(coarse.max()) + 1
    out, into = degrees_both_ways(graph, arcs.weights)
    is_member = connections.assignment >= 0
    total, mass = out + is_member, np.maximum(into + is_member, TINY)
    # A hub needs an edge out of it: else its score would not be restart · m.
    most_hubs = min(MOST_HUBS, len(coarse) // NODES_PER_VECTOR)
    heaviest = np.argsort(np.where(total > 0, -mass, 0.0), kind="stable")[:most_hubs]
    hubs: NDArray[np.int32] = np.sort(heaviest[total[heaviest] > 0]).astype(np.int32)
    vector_of = (coarse + supers).astype(np.int32)
    group = coarse.astype(np.int32)
    vector_of[hubs], group[hubs] = supers + clusters + np.arange(len(hubs)), clusters
    return _Layout(supers, clusters, hubs, connections.assignment, vector_of, group, total, mass)


def _starts(layout: _Layout, restart: float) -> tuple[Any, Any, Any, Any]:
    """Return the start of every vector as CSR (offsets, nodes, masses), and the weight of every vector's nodes.

    A super node starts after its first step, with equal mass at all members. A cluster or hub starts by weight.
    """
    assignment, vector_of, mass, supers = layout.assignment, layout.vector_of, layout.mass, layout.supers
    sizes = np.bincount(assignment[assignment >= 0], minlength=supers)
    members = np.argsort(assignment, kind="stable")[np.count_nonzero(assignment < 0) :]
    grouped = np.argsort(vector_of, kind="stable")
    volume = np.bincount(vector_of, mass, layout.num_vectors)
    node = np.concatenate([members, grouped]).astype(np.int32)
    start = np.concatenate([(1 - restart) / sizes[assignment[members]], mass[grouped] / volume[vector_of[grouped]]])
    counts = np.concatenate([sizes, np.bincount(vector_of, minlength=layout.num_vectors)[supers:]])
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), node, start, volume


def _tolerances(layout: _Layout, arcs: Arcs, *, restart: float) -> NDArray[np.float64]:
    """Return the residual per weight at which the push of each vector stops; see CLUSTER_TOLERANCE."""
    if len(arcs.indices) <= SMALL_GRAPH:
        return np.full(layout.num_vectors, EXACT)
    assignment, total, supers = layout.assignment, layout.total, layout.supers
    reach = np.bincount(layout.vector_of, total, layout.num_vectors)
    is_member = assignment >= 0
    reach[:supers] = np.bincount(assignment[is_member], total[is_member], supers) / (1 - restart)
    around = np.array([total[arcs.indices[arcs.indptr[h] : arcs.indptr[h + 1]]].sum() for h in layout.hubs])
    of_hubs = np.clip(HUB_TOLERANCE / np.maximum(around, TINY), LEAST_HUB_TOLERANCE, MOST_HUB_TOLERANCE)
    reach = reach[: layout.first_hub]
    of_others = np.where(reach > LEAST_REACH, CLUSTER_TOLERANCE / np.maximum(reach, LEAST_REACH), EXACT)
    return np.concatenate([of_others, of_hubs])


def _list_lengths(start_sizes: NDArray[np.int64], num_nodes: int, *, budget: int) -> NDArray[np.int64]:
    """Return the number of entries to keep of each vector, reduced in proportion if they exceed the budget."""
    num_vectors = len(start_sizes)
    fixed = BYTES_PER_PAIR * num_vectors**2
    if fixed + BYTES_PER_ENTRY * LEAST_LENGTH * num_vectors > budget:
        raise ConfigError(
            f"{num_vectors:,} vectors need more than {format_bytes(fixed)}, the budget is {format_bytes(budget)}: "
            f"use fewer clusters or a larger budget"
        )
    equal_part = max(max(ENTRIES_PER_NODE * num_nodes, LEAST_ENTRIES) // num_vectors, LEAST_LENGTH)
    lengths = ENTRIES_PER_START * start_sizes + equal_part
    fraction = min(1.0, (budget - fixed) / (BYTES_PER_ENTRY * max(1, int(lengths.sum()))))
    return np.clip((fraction * lengths).astype(np.int64), min(LEAST_LENGTH, num_nodes), num_nodes)


def _truncate(
    score: NDArray[np.float64], node: NDArray[np.int32], *, keep: int, group: NDArray[np.int32], groups: int
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float64]]:
    """Return the `keep` largest entries, sorted (ties by id), and the mass of the others by cluster."""
    rest: Any = np.zeros(groups)
    chosen = np.arange(len(score))
    if len(score) > keep:
        split = np.argpartition(-score, keep)
        rest = np.bincount(group[node[split[keep:]]], score[split[keep:]], groups)
        chosen = split[:keep]
    return *_best_first(score[chosen].astype(np.float32), node[chosen]), rest


def _best_first(values: NDArray[np.float32], ids: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return ids and values, which are above 0, the largest value first; of equal values the smaller id.

    One number holds both: the bits of the value, whose order is that of the values, inverted above those of the id.

    >>> _best_first(np.array([0.5, 2, 0.5], dtype=np.float32), np.array([7, 8, 3], dtype=np.int32))[0].tolist()
    [8, 3, 7]
    """
    keys = np.sort((~values.view(np.uint32)).astype(np.uint64) << 32 | ids.astype(np.uint64))
    return keys.astype(np.uint32).view(np.int32), (~(keys >> 32).astype(np.uint32)).view(np.float32)
