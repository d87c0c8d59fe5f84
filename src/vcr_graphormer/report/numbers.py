"""What is inside a run, as plain numbers: kinds of tokens, errors, the rewiring, the criteria, what it cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.files import read_json
from ..base.jobs import Progress
from ..explain.attributions import Attributions
from ..explain.criteria import COLUMNS, measure_criteria, same_label_neighbours
from ..explain.explanation import output_names
from ..explain.rewiring import Transfer, estimate_transfer
from ..explain.slices import by_class, by_degree, by_homophily, calibration, confusion, degree_groups, local_homophily
from ..ranking.pagerank import Ranker
from ..ranking.second_level import coarse_clusters
from ..runs.run import Run

EXACT_ARCS = 3_000_000  # up to which PageRank is computed exactly
_LISTED = 100  # nodes of the rankings the moved mass is estimated from


def class_names(run: Run) -> list[str]:
    """Of the model's outputs."""
    return output_names(run.graph, run.about["num_outputs"])


def sample(nodes: NDArray[np.int64], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """So many of the nodes, all of them where there are fewer, in order."""
    return np.sort(nodes if len(nodes) <= count else random.choice(nodes, count, replace=False))


def summarize(run: Run, count: int, progress: Progress | None = None) -> dict[str, Any]:
    """Effect and attention by kind of token, in all and by class and degree, over a sample of nodes."""
    nodes = sample(np.arange(run.graph.num_nodes), count, np.random.default_rng(0))
    attributions = run.attributions(nodes, progress=progress)
    return {"nodes": len(nodes), "kinds": by_kind(attributions), "effects": effects(run, attributions)}


def by_kind(attributions: Attributions) -> list[dict[str, Any]]:
    """Tokens per list, share of attention and mean absolute effect of each kind of token."""
    everyone = np.ones(len(attributions.nodes), dtype=np.bool_)
    counts = {
        kind: float(attributions.shown[:, attributions.kinds == place].sum(1).mean())
        for place, kind in enumerate(attributions.layout.names)
    }
    found = _averages(attributions, everyone)
    return [
        {"kind": kind, "tokens": counts[kind], "attention": found["attention"].get(kind), "effect": found[kind]}
        for kind in attributions.layout.names
        if kind in found
    ]


def effects(run: Run, attributions: Attributions) -> dict[str, list[dict[str, Any]]]:
    """Mean absolute effect and share of attention by kind, for each explained class and each range of degrees."""
    degrees = np.asarray(run.graph.degrees)[attributions.nodes]
    groups = {
        "class": [(name, attributions.column == number) for number, name in enumerate(class_names(run))],
        "degree": degree_groups(degrees),
    }
    return {
        by: [{"name": name} | _averages(attributions, chosen) for name, chosen in parts if chosen.any()]
        for by, parts in groups.items()
    }


def _averages(attributions: Attributions, rows: NDArray[np.bool_]) -> dict[str, Any]:
    """Of some nodes: mean absolute effect of each kind that occurs, and its share of attention if the model attends."""
    found: dict[str, Any] = {"count": int(rows.sum()), "attention": {}}
    for number, kind in enumerate(attributions.layout.names):
        chosen = attributions.kinds == number
        shown = attributions.shown[rows][:, chosen]
        if shown.any():
            found[kind] = float(np.abs(attributions.effect[rows][:, chosen])[shown].mean())
            if attributions.attends:
                found["attention"][kind] = float(attributions.attention[rows][:, chosen].sum(1).mean())
    return found


def describe_rewiring(run: Run, node: int, k: int = 5) -> dict[str, Any]:
    """What the super nodes do to one node's PageRank, by kind; empty where the graph is too large to do it exactly."""
    if run.graph.num_arcs > EXACT_ARCS:  # it would take longer than all the rest
        return {}
    return {kind: _transfer(run, kind, found[0]) for kind, found in run.rewiring(node, k).items()}


def _transfer(run: Run, kind: str, transfer: Transfer) -> dict[str, Any]:
    """As plain data, nodes with their names, and how far the stored scores are from the exact ones."""
    names, exact = run.graph.names, transfer.scores
    stored = np.asarray(run.store.scores(kind)[transfer.node])[: len(exact)].astype(np.float64)

    def pairs(nodes: NDArray[np.int64], amounts: NDArray[np.float64]) -> list[dict[str, Any]]:
        return [
            {"node": node, "name": None if names is None else str(names[node]), "amount": amount}
            for node, amount in zip(nodes.tolist(), amounts.tolist(), strict=True)
        ]

    return {
        "moved": transfer.moved,
        "to_supers": transfer.to_supers,
        "brightened": pairs(transfer.brightened, transfer.gains),
        "faded": pairs(transfer.faded, transfer.losses),
        "exact_scores": exact.tolist(),
        "estimated_scores": stored.tolist(),
        "largest_error": float(np.abs(exact - stored).max(initial=0)),
    }


def rewiring(run: Run, nodes: NDArray[np.int64], progress: Progress | None = None) -> dict[str, Any]:
    """The mass that super nodes move, for nodes of the sample: exactly where the graph is small, estimated anywhere."""
    found: dict[str, Any] = {}
    graph, tokens = run.graph, run.config.tokens
    kinds = run.store.connections()
    if not kinds:
        return found
    coarse = coarse_clusters(graph, tokens.seed, tokens.partitioner)  # these and the plain ranking serve both kinds
    plain = Ranker.prepare(graph, None, tokens.restart, coarse).rank(nodes, _LISTED, tokens.tolerance)
    exact = run.rewiring(nodes) if graph.num_arcs <= EXACT_ARCS else {}
    for number, (kind, connections) in enumerate(kinds.items(), start=1):
        ranker = Ranker.prepare(graph, connections, tokens.restart, coarse)
        rewired = ranker.rank(nodes, _LISTED, tokens.tolerance, run.store.leaves_out(kind))
        estimate = estimate_transfer(plain, rewired)
        # What an estimate can see: the losses of other nodes than the source.
        row: dict[str, Any] = {"nodes": len(nodes), "estimate_elsewhere": float(estimate.mean())}
        moved = estimate
        if kind in exact:
            moved = np.array([transfer.moved for transfer in exact[kind]])
            row |= {"mean": float(moved.mean()), "to_supers": float(np.mean([part.to_supers for part in exact[kind]]))}
            row["elsewhere"] = float(np.mean([part.elsewhere for part in exact[kind]]))
        counts, edges = np.histogram(moved, bins=12, range=(0, max(1e-6, float(moved.max()))))
        row["histogram"] = {"edges": edges.tolist(), "counts": counts.tolist()}
        found[kind] = row
        if progress is not None:
            progress("rewiring", number, len(kinds))
    return found


def correctness(run: Run, predicted: NDArray[np.float32]) -> dict[str, Any]:
    """Confusion, slices and calibration of the test part, for class labels."""
    graph, test = run.graph, run.split.test
    if not run.target.task.has_classes or graph.labels is None or not len(test):
        return {}
    labels = np.asarray(graph.labels)[test].astype(np.int64)
    test, labels = test[labels >= 0], labels[labels >= 0]
    chosen = run.target.task.decide(predicted[test]).astype(np.int64)
    right, names = chosen == labels, class_names(run)
    slices = {
        "class": by_class(labels, right, names),
        "degree": by_degree(np.asarray(graph.degrees)[test], right),
        "homophily": by_homophily(local_homophily(graph, test), right),
    }
    return {
        "confusion": confusion(labels, chosen, len(names)).tolist(),
        "slices": {name: [asdict(part) for part in parts] for name, parts in slices.items()},
        "calibration": calibration(predicted[test], labels),
    }


def stages_of_tokens(run: Run) -> dict[str, dict[str, float]]:
    """What `tokenize` wrote about its stages; empty where that file is gone."""
    file = run.store.path / "stages.json"
    return read_json(file) if file.is_file() else {}


def criteria(run: Run, nodes: NDArray[np.int64]) -> dict[str, Any]:
    """The four criteria, measured on some nodes."""
    rows = measure_criteria(run.graph, run.store, nodes, stages_of_tokens(run))
    return {
        "columns": list(COLUMNS),
        "rows": [{"name": row.name, "values": row.values} for row in rows],
        "same_label_neighbours": same_label_neighbours(run.graph, nodes),
    }


def costs(run: Run) -> list[dict[str, Any]]:
    """Seconds and peak memory of the stages of tokenization, and seconds of training and prediction."""
    stages = stages_of_tokens(run)
    rows = [{"name": name, **{key: stage[key] for key in ("seconds", "peak_bytes")}} for name, stage in stages.items()]
    timings = run.metrics.get("timings", {})
    return rows + [{"name": name, "seconds": value} for name, value in timings.items() if name != "tokenize"]
