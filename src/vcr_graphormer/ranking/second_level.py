"""The second level of the ranking: PageRank vectors of a few fixed starts, truncated, computed once per rewired graph.

Write a = restart and r_x for the PageRank that starts at x. A vector q stands for one of

- a super node s, V = r_s;
- a coarse cluster c, V = π_c - a · start_c, where π_c starts at the cluster's nodes in proportion to their weight;
- a hub h, one of the heaviest nodes, V = r_h - a · e_h: a cluster of one.

Every node belongs to one cluster or is a hub. A push from any start x that absorbs at super nodes, never pushes hubs
and stops early satisfies

    r_x = settled + a · residual + Σ_q w_q V_q,

where w_q is the mass absorbed by super node q, or the residual left in group q. This is exact for super nodes and hubs
(the hub decomposition of Jeh and Widom, 2003), and as good as "residual is spread like weight" inside a cluster. The
vectors obey the same identity, V = L + W V, so V = M L with M = (I - W)^-1: only the local parts L are kept, truncated
to the largest entries, and a source needs one small product m = w M. The score of a hub is a · m_h, for nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.machine import format_bytes
from ..data.graph import Graph
from ..errors import ConfigError
from .connections import Connections, structure_connections
from .exact import super_edge_weight
from .kernels.push import LIMIT, Arcs, Scratch, by_node, local_vector, resolvent
from .kernels.scans import weighted_degrees
from .kernels.topk import Vectors
from .reachability import reachability

# Graphs this small are pushed to the end, so that their rankings are exact to float32.
SMALL_GRAPH = 5_000


EXACT = 1e-9


# Without hubs Computer needs eight times the visits for recall 0.99 (results/ranking_ablation.json).
MOST_HUBS = 256


TINY = 1e-30


def coarse_clusters(graph: Graph, seed: int = 0, partitioner: str = "metis") -> NDArray[np.int32]:
    """Clusters for the second level: √n of them, between 100 and 512 so that M stays in a cache."""
    count = max(1, int(min(max(np.sqrt(graph.num_nodes), 100), 512, graph.num_nodes // 16)))
    # Recursive bisection is as good here as METIS's k-way scheme and takes less than half the time.
    return structure_connections(graph, count, seed, recursive=True, partitioner=partitioner).assignment


def make_arcs(graph: Graph) -> Arcs:
    """The graph for the kernels; weights are scaled so that an edge to a super node weighs 1.

    Weights below 1e-12 of the mean are raised to that: float32 residuals could not follow them.
    """
    weights = np.empty(0, dtype=np.float32)
    if graph.weights is not None:
        weights = np.maximum(graph.weights / super_edge_weight(graph), 1e-12).astype(np.float32)
    return with_weights(graph, weights)


def with_weights(graph: Graph, weights: NDArray[np.float32]) -> Arcs:
    """The arcs of a graph with these weights, none of them for 1 everywhere."""
    return Arcs(np.ascontiguousarray(graph.indptr), np.ascontiguousarray(graph.indices).view(np.uint32), weights)


def new_scratch(limit: NDArray[np.float32], num_vectors: int, directed: bool) -> Scratch:
    """Working memory of one thread: 16 bytes per node for the table, 12 to 16 for queue and list."""
    state = np.zeros((len(limit), 4), dtype=np.float32)
    state[:, LIMIT] = limit
    ring = 1 << max(len(limit), 1).bit_length()
    touched = np.empty(2 * len(limit) + 2, dtype=np.int32)  # pushed or listed
    stamp = np.zeros(len(limit) if directed else 0, dtype=np.int32)
    return Scratch(state, np.empty(ring, dtype=np.int32), touched, np.zeros(num_vectors), stamp)


def compute_vectors(
    graph: Graph,
    arcs: Arcs,
    connections: Connections,
    coarse: NDArray[np.int32],
    restart: float,
    threads: int,
    budget: int,
) -> tuple[Vectors, int]:
    """All vectors of one rewired graph, and the edge visits they cost.

    `budget` bounds their bytes; lists are cut shorter to fit, and more super nodes than fit are refused.
    """
    num_nodes, assignment = graph.num_nodes, connections.assignment
    supers, clusters = connections.count, int(coarse.max()) + 1
    out, into = weighted_degrees(arcs.indptr, arcs.indices, arcs.weights)
    member = assignment >= 0
    total, mass = out + member, np.maximum(into + member, TINY)
    # A hub must be able to pass mass on, or its score would not be restart · m.
    heaviest = np.argsort(np.where(total > 0, -mass, 0.0), kind="stable")[: min(MOST_HUBS, num_nodes // 16)]
    hubs: NDArray[np.int32] = np.sort(heaviest[total[heaviest] > 0]).astype(np.int32)
    num_vectors = supers + clusters + len(hubs)

    vector_of = (coarse + supers).astype(np.int32)
    group = coarse.astype(np.int32)
    limit = np.maximum(total, TINY).astype(np.float32)
    vector_of[hubs], group[hubs], limit[hubs] = supers + clusters + np.arange(len(hubs)), clusters, np.inf
    start_ptr, start_node, start_mass, volume = _starts(assignment, vector_of, mass, supers, num_vectors, restart)
    modelled = np.where(np.arange(num_vectors) < supers + clusters, volume, 0.0)
    tolerance = _tolerances(arcs, total, assignment, vector_of, hubs, supers, clusters, restart)
    keep = _list_lengths(np.diff(start_ptr), num_nodes, budget)

    steps = np.zeros((num_vectors, num_vectors))
    spill = np.zeros((clusters + 1, num_vectors), dtype=np.float32)
    visits = np.zeros(num_vectors, dtype=np.int64)
    lists: list[Any] = [None] * num_vectors

    def compute(part: NDArray[np.int64]) -> None:
        scratch = new_scratch(limit, num_vectors, False)
        score, node = np.empty(num_nodes), np.empty(num_nodes, dtype=np.int32)
        for q in part:
            own = slice(start_ptr[q], start_ptr[q + 1])
            found, visits[q] = local_vector(
                start_node[own],
                start_mass[own],
                q >= supers,
                q >= supers + clusters,
                tolerance[q],
                arcs,
                total,
                assignment,
                vector_of,
                modelled,
                restart,
                not graph.directed,
                scratch,
                steps[q],
                score,
                node,
            )
            ids, values, spill[:, q] = _truncate(score[:found], node[:found], keep[q], group, clusters + 1)
            lists[q] = ids, values.astype(np.float32)

    # Long ones first, dealt out like cards, so that the threads end together.
    order = np.argsort(-np.diff(start_ptr), kind="stable")
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(compute, [order[i::threads] for i in range(threads)]))

    ptr = np.concatenate([[0], np.cumsum([len(ids) for ids, _ in lists])]).astype(np.int64)
    ids, values = (np.concatenate([entry[i] for entry in lists]) for i in (0, 1))
    density = _per_unlisted_weight(spill, ptr, ids, mass, group)
    row_ptr, row_vector, row_value = by_node(num_nodes, ptr, ids, values)
    row_node = np.repeat(np.arange(num_nodes, dtype=np.int32), np.diff(row_ptr))
    row_value -= (mass[row_node] * density[group[row_node], row_vector]).astype(np.float32)
    matrix = resolvent(steps)
    weight = np.where(np.arange(num_vectors) >= supers, volume, 0.0)
    vectors = Vectors(
        restart=float(restart),
        total=total,
        limit=limit,
        members=connections.sizes.astype(np.float64),
        group=group,
        mass=mass.astype(np.float32),
        vector_of=vector_of,
        volume=modelled,
        hubs=hubs,
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
        **reachability(graph, assignment, supers),
    )
    return vectors, int(visits.sum())


def _per_unlisted_weight(
    spill: NDArray[np.float32], ptr: Any, ids: Any, mass: NDArray[np.float64], group: NDArray[np.int32]
) -> NDArray[np.float32]:
    """What truncation dropped of each vector in each cluster, per weight of the nodes that its list does not hold."""
    groups, num_vectors = spill.shape
    cluster_weight = np.bincount(group, mass, groups)
    vector = np.repeat(np.arange(num_vectors), np.diff(ptr))
    listed = np.bincount(group[ids] * num_vectors + vector, mass[ids], groups * num_vectors)
    unlisted = cluster_weight[:, None] - listed.reshape(groups, num_vectors)
    density: NDArray[np.float32] = (spill / np.maximum(unlisted, 1e-6 * cluster_weight[:, None] + TINY)).astype(
        np.float32
    )
    return density


def _starts(
    assignment: NDArray[np.int32],
    vector_of: NDArray[np.int32],
    mass: NDArray[np.float64],
    supers: int,
    num_vectors: int,
    restart: float,
) -> tuple[Any, Any, Any, Any]:
    """The start of every vector, as CSR: a super node after one step (its members alike), a group by weight."""
    sizes = np.bincount(assignment[assignment >= 0], minlength=supers)
    members = np.argsort(assignment, kind="stable")[np.count_nonzero(assignment < 0) :]
    grouped = np.argsort(vector_of, kind="stable")
    volume = np.bincount(vector_of, mass, num_vectors)
    node = np.concatenate([members, grouped]).astype(np.int32)
    part = np.concatenate([(1 - restart) / sizes[assignment[members]], mass[grouped] / volume[vector_of[grouped]]])
    counts = np.concatenate([sizes, np.bincount(vector_of, minlength=num_vectors)[supers:]])
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), node, part, volume


def _tolerances(
    arcs: Arcs,
    total: NDArray[np.float64],
    assignment: NDArray[np.int32],
    vector_of: NDArray[np.int32],
    hubs: NDArray[np.int32],
    supers: int,
    clusters: int,
    restart: float,
) -> NDArray[np.float64]:
    """How far each vector is pushed: a tenth of its start's mean residual per weight, so it costs its start's volume.

    Hubs spread thin at once and need a finer push: with twice these bounds Squirrel falls to the bar of 0.99.
    """
    num_vectors = supers + clusters + len(hubs)
    if len(arcs.indices) <= SMALL_GRAPH:
        return np.full(num_vectors, EXACT)
    reach = np.bincount(vector_of, total, num_vectors)
    member = assignment >= 0
    reach[:supers] = np.bincount(assignment[member], total[member], supers) / (1 - restart)
    around = np.array([total[arcs.indices[arcs.indptr[h] : arcs.indptr[h + 1]]].sum() for h in hubs])
    of_hubs = np.clip(0.5 / np.maximum(around, TINY), 5e-6, 1e-5)
    # A cluster of nodes without edges has no reach: what starts there is settled there.
    reach = reach[: supers + clusters]
    return np.concatenate([np.where(reach > 1e-9, 0.1 / np.maximum(reach, 1e-9), EXACT), of_hubs])


def _list_lengths(start_sizes: NDArray[np.int64], num_nodes: int, budget: int) -> NDArray[np.int64]:
    """Entries kept of each vector: twice its start and an equal share of 3 n, or less where the budget is smaller.

    Super nodes have the longest starts: an equal share alone would cut off their own members.
    """
    num_vectors = len(start_sizes)
    fixed = 28 * num_vectors**2  # W, M and their working copies
    per_entry = 16  # the lists, and the same entries by node
    if fixed + per_entry * 64 * num_vectors > budget:
        raise ConfigError(
            f"{num_vectors:,} vectors need more than {format_bytes(fixed)}, the budget is {format_bytes(budget)}: "
            f"use fewer clusters or a larger budget"
        )
    wanted = 2 * start_sizes + max(max(3 * num_nodes, 500_000) // num_vectors, 64)
    share = min(1.0, (budget - fixed) / (per_entry * max(1, int(wanted.sum()))))
    return np.clip((share * wanted).astype(np.int64), min(64, num_nodes), num_nodes)


def _truncate(
    score: NDArray[np.float64], node: NDArray[np.int32], keep: int, group: NDArray[np.int32], groups: int
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """The `keep` largest entries, sorted (ties by id), and the mass of the others by cluster."""
    rest: Any = np.zeros(groups)
    chosen = np.arange(len(score))
    if len(score) > keep:
        split = np.argpartition(-score, keep)
        rest = np.bincount(group[node[split[keep:]]], score[split[keep:]], groups)
        chosen = split[:keep]
    order = chosen[np.lexsort((node[chosen], -score[chosen]))]
    return node[order], score[order], rest
