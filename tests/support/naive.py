"""Slow, obvious twins of every fast path."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from vcr_graphormer import Graph


def neighbours(n: int, edges: Iterable[tuple[int, int]], directed: bool) -> list[list[int]]:
    """Adjacency lists without self-loops and repetitions, by sets."""
    found: list[set[int]] = [set() for _ in range(n)]
    for u, v in edges:
        if u != v:
            found[u].add(v)
            if not directed:
                found[v].add(u)
    return [sorted(row) for row in found]


def weights(edges: Iterable[tuple[int, int]], values: Iterable[float], directed: bool) -> dict[tuple[int, int], float]:
    """Weight of each arc: repetitions add up, then the larger of both directions counts."""
    total: dict[tuple[int, int], float] = {}
    for (u, v), weight in zip(edges, values, strict=True):
        if u != v:
            total[u, v] = total.get((u, v), 0.0) + weight
    if directed:
        return total
    both = set(total) | {(v, u) for u, v in total}
    return {(u, v): max(total.get((u, v), 0.0), total.get((v, u), 0.0)) for u, v in both}


def components(graph: Graph) -> list[set[int]]:
    """Connected components by walking, direction ignored."""
    around = neighbours(graph.num_nodes, arcs(graph), directed=False)
    left = set(range(graph.num_nodes))
    found = []
    while left:
        stack, seen = [min(left)], {min(left)}
        while stack:
            for node in around[stack.pop()]:
                if node not in seen:
                    seen.add(node)
                    stack.append(node)
        left -= seen
        found.append(seen)
    return found


def arcs(graph: Graph) -> list[tuple[int, int]]:
    return [(u, int(v)) for u in range(graph.num_nodes) for v in graph.indices[graph.indptr[u] : graph.indptr[u + 1]]]


def homophily(graph: Graph) -> tuple[float | None, float | None]:
    """Edge and node homophily by a loop over all arcs with known labels."""
    labels = graph.labels
    assert labels is not None
    same: dict[int, list[bool]] = {}
    for u, v in arcs(graph):
        if labels[u] >= 0 and labels[v] >= 0:
            same.setdefault(u, []).append(bool(labels[u] == labels[v]))
    if not same:
        return None, None
    everything = [flag for flags in same.values() for flag in flags]
    return float(np.mean(everything)), float(np.mean([np.mean(flags) for flags in same.values()]))


def pagerank(graph: Graph, assignment: list[int], count: int, source: int, restart: float) -> list[float]:
    """Personalized PageRank by following the definition for 400 steps, arc by arc, super nodes from n on."""
    n = graph.num_nodes
    unit = 1.0 if graph.weights is None or not len(graph.weights) else float(np.mean(graph.weights, dtype=np.float64))
    moves: list[dict[int, float]] = [{} for _ in range(n + count)]
    for place, (u, v) in enumerate(arcs(graph)):
        moves[u][v] = 1.0 if graph.weights is None else float(graph.weights[place])
    for v, s in enumerate(assignment):
        if s >= 0:
            moves[v][n + s] = moves[n + s][v] = unit
    score = [0.0] * (n + count)
    score[source] = 1.0
    for _ in range(400):
        following = [0.0] * (n + count)
        following[source] = restart
        for u, mass in enumerate(score):
            total = sum(moves[u].values())
            for v, weight in moves[u].items():
                following[v] += (1 - restart) * mass * weight / total
            if not moves[u]:  # a walk without a way out stays
                following[u] += (1 - restart) * mass
        score = following
    return score


def top(scores: list[float], source: int, num_nodes: int, k: int) -> list[tuple[int, float]]:
    """The k best ordinary nodes other than the source, ties by smaller id."""
    others = [(node, scores[node]) for node in range(num_nodes) if node != source and scores[node] > 0]
    return sorted(others, key=lambda pair: (-pair[1], pair[0]))[:k]


def hops(graph: Graph, count: int, self_loops: bool) -> list[np.ndarray]:
    """P X … P^L X by dense matrices in float64."""
    adjacency = graph.to_scipy().toarray().astype(np.float64)
    if self_loops:
        adjacency += np.eye(graph.num_nodes)
    out, into = adjacency.sum(axis=1), adjacency.sum(axis=0)
    scale = np.outer(out, into)
    step = np.divide(adjacency, np.sqrt(scale), out=np.zeros_like(adjacency), where=scale > 0)
    features = graph.features
    current = features.toarray() if not isinstance(features, np.ndarray) and features is not None else features
    result = []
    for _ in range(count):
        current = step @ current
        result.append(current)
    return result


def value_recall(ids: np.ndarray, exact: np.ndarray, sources: np.ndarray, k: int) -> float:
    """Share of returned nodes whose exact score is at least 0.99 × the exact k-th score; mean over sources."""
    shares = []
    for row, source, scores in zip(ids, sources, exact, strict=True):
        best = sorted((score for node, score in enumerate(scores) if node != source and score > 0), reverse=True)[:k]
        if best:
            found = [node for node in row if node >= 0]
            shares.append(sum(scores[node] >= 0.99 * best[-1] for node in found) / len(best))
    return float(np.mean(shares))


def distinct_lists(
    rankings: list[list[tuple[int, float]]], counts: list[int]
) -> tuple[list[list[tuple[int, float]]], list[dict[int, float]]]:
    """The list of one node, kind by kind, and the scores that each kind gives to nodes of earlier kinds.

    A kind takes its best nodes that no earlier kind has taken. What it meets on the way there, it scores.
    """
    lists: list[list[tuple[int, float]]] = []
    shared: list[dict[int, float]] = []
    for ranking, count in zip(rankings, counts, strict=True):
        taken = {node for earlier in lists for node, _ in earlier}
        new = [(node, score) for node, score in ranking if node not in taken][:count]
        way = ranking[: ranking.index(new[-1])] if new and len(new) == count else ranking
        lists.append(new)
        shared.append({node: score for node, score in way if node in taken} if count else {})
    return lists, shared


def transformer(model: Any, inputs: Any, node: int) -> Any:
    """The paper's equations for one node, token by token, padding left out instead of masked; float64.

    T_u = [X(u) ‖ 1, (P^l X)(u) ‖ (L-l+1)/Σl, X(i) ‖ r(i), …], then Z' = MHA(LN(Z)) + Z, Z = FFN(LN(Z')) + Z', then
    the readout and a head of two layers. If content proposes a structure token too, scores and embeddings are added.
    """
    state = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    features = inputs.features.double().numpy()
    hops = len(inputs.hops)
    tokens, kinds, ranks = [np.append(features[node], 1.0)], [[0]], [-1] * (1 + hops)
    for hop in range(1, hops + 1):
        share = (hops - hop + 1) / sum(range(1, hops + 1))
        tokens.append(np.append(inputs.hops[hop - 1][node].double().numpy(), share))
        kinds.append([hop])
    for place, (other, score) in enumerate(zip(inputs.ids[0][node], inputs.scores[0][node], strict=True)):
        if other >= 0:
            later = float(inputs.shared[0][node, place]) if inputs.shared and place < inputs.shared[0].shape[1] else 0.0
            tokens.append(np.append(features[other], float(score)))
            kinds.append([hops + 1 if place < inputs.layout.counts["structure"] else hops + 2])
            kinds[-1] += [hops + 2] if later else []
            ranks.append(place)
    weight = np.vstack([state["feature_weights.0"], state["score_weight"]])
    current = [token @ weight + state["bias"] for token in tokens]
    if "kinds" in state:
        current = [
            vector + sum(state["kinds"][kind] for kind in own) for vector, own in zip(current, kinds, strict=True)
        ]
    if "ranks" in state:
        current = [
            vector + state["ranks"][rank] if rank >= 0 else vector for vector, rank in zip(current, ranks, strict=True)
        ]
    for number in range(len(model.layers)):
        own = {name.removeprefix(f"layers.{number}."): value for name, value in state.items()}
        current = _encoder_layer(current, own, model.config.heads)
    current = [_layer_norm(vector, state, "norm") for vector in current]
    readout = model.config.readout
    if readout == "attention":
        scores = [float(vector @ state["readout_weight.weight"][0]) for vector in current[1:]]
        others = [math.exp(score) for score in scores]
        vector = current[0] + sum(share / sum(others) * other for share, other in zip(others, current[1:], strict=True))
    else:
        vector = {"mean": sum(current) / len(current), "target": current[0]}[readout]
    inner = _linear(vector, state, "head.0")
    return _linear(np.array([_gelu(value) for value in inner]), state, "head.2")


def _encoder_layer(tokens: list[np.ndarray], state: dict[str, np.ndarray], heads: int) -> list[np.ndarray]:
    normed = [_layer_norm(token, state, "first_norm") for token in tokens]
    triples = [np.split(_linear(token, state, "query_key_value"), 3) for token in normed]
    size = len(tokens[0]) // heads
    result = []
    for place, token in enumerate(tokens):
        mixed = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores = [math.exp(triples[place][0][part] @ key[part] / math.sqrt(size)) for _, key, _ in triples]
            values = [score / sum(scores) * value[part] for score, (_, _, value) in zip(scores, triples, strict=True)]
            mixed.append(sum(values))
        middle = token + _linear(np.concatenate(mixed), state, "mix")
        inner = _linear(_layer_norm(middle, state, "second_norm"), state, "feedforward.0")
        result.append(middle + _linear(np.array([_gelu(value) for value in inner]), state, "feedforward.3"))
    return result


def _linear(vector: np.ndarray, state: dict[str, np.ndarray], name: str) -> Any:
    return state[f"{name}.weight"] @ vector + state[f"{name}.bias"]


def _layer_norm(vector: np.ndarray, state: dict[str, np.ndarray], name: str) -> Any:
    scaled = (vector - vector.mean()) / math.sqrt(vector.var() + 1e-5)
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def _gelu(value: float) -> float:
    return 0.5 * value * (1 + math.erf(value / math.sqrt(2)))


def step_matrix(graph: Graph, self_loops: bool) -> np.ndarray:
    """P entry by entry: a(u, v) over the roots of u's out-degree and v's in-degree; float64."""
    n = graph.num_nodes
    entries = {(u, u): 1.0 for u in range(n)} if self_loops else {}
    for place, arc in enumerate(arcs(graph)):
        entries[arc] = 1.0 if graph.weights is None else float(graph.weights[place])
    out, into = [0.0] * n, [0.0] * n
    for (u, v), weight in entries.items():
        out[u] += weight
        into[v] += weight
    step = np.zeros((n, n))
    for (u, v), weight in entries.items():
        step[u, v] = weight / math.sqrt(out[u] * into[v])
    return step


def label_hops(graph: Graph, known: np.ndarray, count: int, self_loops: bool) -> list[np.ndarray]:
    """For each node the sum over all others w of P^l(u, w) Y(w), in float64: the own label is never looked at."""
    step = step_matrix(graph, self_loops)
    power, result = np.eye(graph.num_nodes), []
    for _ in range(count):
        power = power @ step
        rows = [sum(power[u, w] * known[w] for w in range(len(known)) if w != u) for u in range(len(known))]
        result.append(np.array([row + np.zeros(known.shape[1]) for row in rows]))
    return result


def labels_around(graph: Graph, known: np.ndarray, ids: np.ndarray, self_loops: bool) -> np.ndarray:
    """For each neighbour i of u the sum over all w but u of P(i, w) Y(w), in float64; zero for padding."""
    step, nodes = step_matrix(graph, self_loops), range(graph.num_nodes)
    result = np.zeros((*ids.shape, known.shape[1]))
    for u, place in np.argwhere((ids >= 0) & (ids < graph.num_nodes)).tolist():
        for w in nodes:
            if w != u:
                result[u, place] += step[ids[u, place], w] * known[w]
    return result


def join_neighbours(graph: Graph, largest: int, passes: int) -> list[int]:
    """Label propagation with a largest size, by dictionaries: heaviest label with room, own first, then as met."""
    label = list(range(graph.num_nodes))
    for _ in range(passes):
        moved = 0
        for u in range(graph.num_nodes):
            heard: dict[int, int] = {}
            for v in graph.indices[graph.indptr[u] : graph.indptr[u + 1]].tolist():
                heard[label[v]] = heard.get(label[v], 0) + 1
            best = label[u]
            for other, times in heard.items():
                if times > heard.get(best, 0) and label.count(other) < largest:
                    best = other
            moved += best != label[u]
            label[u] = best
        if moved * 200 < graph.num_nodes:
            break
    return label


def link_similarity(graph: Graph, source: int, most: int) -> list[float]:
    """Cosine of the source's row of the adjacency matrix with all rows; columns of more than `most` entries are out."""
    rows = [dict[int, float]() for _ in range(graph.num_nodes)]
    for place, (u, v) in enumerate(arcs(graph)):
        rows[u][v] = 1.0 if graph.weights is None else float(graph.weights[place])
    linked = [sum(w in row for row in rows) for w in range(graph.num_nodes)]
    rows = [{w: weight for w, weight in row.items() if linked[w] <= most} for row in rows]
    lengths = [math.sqrt(sum(weight**2 for weight in row.values())) for row in rows]
    common = [sum(weight * rows[source].get(w, 0.0) for w, weight in row.items()) for row in rows]
    return [found and found / (lengths[source] * length) for found, length in zip(common, lengths, strict=True)]


def feature_similarity(graph: Graph, source: int, with_hop: bool) -> list[float]:
    """Cosine of the source's feature row with all rows; with the hop, the mean of the cosines of X and of PX."""
    raw: Any = graph.features
    matrices = [np.asarray(raw.todense() if hasattr(raw, "todense") else raw, dtype=np.float64)]
    if with_hop:
        matrices.append(step_matrix(graph, False) @ matrices[0])
    found = []
    for other in range(graph.num_nodes):
        cosines = []
        for matrix in matrices:
            length = math.hypot(*matrix[source]) * math.hypot(*matrix[other])
            cosines.append(float(matrix[source] @ matrix[other]) / length if length else 0.0)
        found.append(sum(cosines) / len(cosines))
    return found


def is_adjacency(indptr: list[int], indices: list[int], *, symmetric: bool) -> bool:
    """Whether CSR arrays are an adjacency matrix without self-loops, rows ascending, entry by entry."""
    n = len(indptr) - 1
    if indptr[0] != 0 or indptr[-1] != len(indices) or any(indptr[u] > indptr[u + 1] for u in range(n)):
        return False
    rows = [indices[indptr[u] : indptr[u + 1]] for u in range(n)]
    if any(v < 0 or v >= n or v == u for u in range(n) for v in rows[u]):
        return False
    if any(sorted(set(row)) != row for row in rows):
        return False
    return not symmetric or all(u in rows[v] for u in range(n) for v in rows[u])
