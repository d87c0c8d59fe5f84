"""Collect the numbers of a run for its page: kinds of tokens, errors, rewiring, criteria and costs."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.jobs import Progress, Stages
from ..data.metrics import THRESHOLD
from ..data.tasks import choose_metric, known_labels
from ..explain.attributions import Attributions
from ..explain.criteria import COLUMNS, measure_criteria, same_label_neighbours
from ..explain.explanation import output_names
from ..explain.rewiring import Transfer, estimate_transfer
from ..explain.slices import by_class, by_degree, by_homophily, calibration, confusion, degree_groups, local_homophily
from ..ranking.pagerank import Ranker
from ..runs.baselines import comparison
from ..runs.run import Run
from ..runs.tuning import ABOUT_FILE, Tuning
from ..tokens.layout import NEIGHBOURS

EXACT_ARCS = 3_000_000  # in larger graphs exact PageRank would take longer than the rest of the page
_RANKED = 100  # length of the rankings from which the moved probability is estimated
_COMPARED = 5000  # test nodes at most that are predicted again without their neighbours
_BARS = 12  # of the histogram of moved probability
_LEAST_RANGE = 1e-6  # of that histogram, so that it has a width if nothing moved


def class_names(run: Run) -> list[str]:
    """Return the names of the model's outputs."""
    return output_names(run.graph, run.about["num_outputs"])


def sample(nodes: NDArray[np.int64], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return `count` random nodes, or all if there are fewer, in ascending order."""
    return np.sort(nodes if len(nodes) <= count else random.choice(nodes, count, replace=False))


def summarize(run: Run, count: int, progress: Progress | None = None) -> dict[str, Any]:
    """Return effect and attention by kind of token over a sample of nodes, also by class and degree."""
    nodes = sample(np.arange(run.graph.num_nodes), count, np.random.default_rng(0))
    attributions = run.attributions(nodes, progress=progress)
    return {
        "nodes": len(nodes),
        "kinds": by_kind(attributions),
        "effects": effects(run, attributions),
        "neighbours": neighbours(run, attributions, progress),
    }


def by_kind(attributions: Attributions) -> list[dict[str, Any]]:
    """Return the tokens per list, fraction of attention and mean absolute effect of each kind of token."""
    averages = _averages(attributions, np.ones(len(attributions.nodes), dtype=np.bool_))
    return [
        {
            "kind": kind,
            "tokens": float(attributions.shown[:, attributions.kinds == number].sum(1).mean()),
            "attention": averages["attention"].get(kind),
            "effect": averages[kind],
        }
        for number, kind in enumerate(attributions.layout.names)
        if kind in averages
    ]


def effects(run: Run, attributions: Attributions) -> dict[str, list[dict[str, Any]]]:
    """Return effect and attention by kind of token, for each explained class and each range of degrees."""
    degrees = np.asarray(run.graph.degrees)[attributions.nodes]
    groups = {
        "class": [(name, attributions.column == number) for number, name in enumerate(class_names(run))],
        "degree": degree_groups(degrees),
    }
    return {
        by: [{"name": name} | _averages(attributions, rows) for name, rows in members if rows.any()]
        for by, members in groups.items()
    }


def _averages(attributions: Attributions, rows: NDArray[np.bool_]) -> dict[str, Any]:
    """Return mean absolute effect and fraction of attention of each kind of token, over some rows."""
    averages: dict[str, Any] = {"count": int(rows.sum()), "attention": {}}
    for number, kind in enumerate(attributions.layout.names):
        places = attributions.kinds == number
        shown = attributions.shown[rows][:, places]
        if shown.any():
            averages[kind] = float(np.abs(attributions.effect[rows][:, places])[shown].mean())
            if attributions.attends:
                averages["attention"][kind] = float(attributions.attention[rows][:, places].sum(1).mean())
    return averages


def neighbours(run: Run, attributions: Attributions, progress: Progress | None = None) -> dict[str, Any]:
    """Return what neighbours add: gate, metric without each kind, predictions that change without any of them.

    The metric and the changes are those of the test nodes that have a label, a sample of them if there are many. The
    median of the effects of single neighbours is that of the attributions. A number is None where it does not apply.
    """
    first = attributions.layout.first_neighbour
    effects = np.abs(attributions.effect[:, first:])[attributions.shown[:, first:]]
    row: dict[str, Any] = {"gate": run.gate, "median_effect": float(np.median(effects)) if len(effects) else None}
    if not len(effects) or run.graph.labels is None:
        return row
    labels, test = np.asarray(run.graph.labels), run.split.test
    test = test[test < len(labels)]  # `Run.on` may have been given a smaller graph
    labelled = test[known_labels(labels[test])]
    if not len(labelled):
        return row
    nodes = sample(labelled, _COMPARED, np.random.default_rng(0))
    whole, without = run.outputs_without(nodes, progress)
    metric = choose_metric(run.config.training.metric, run.target.task)
    row |= {
        "metric": metric,
        "nodes": len(nodes),
        "test_nodes": len(labelled),
        "whole": run.score(whole, nodes)[metric],
    }
    row["without"] = {name: run.score(outputs, nodes)[metric] for name, outputs in without.items()}
    return row | _changes(run, whole, without=without[NEIGHBOURS], labels=labels[nodes])


def _changes(
    run: Run, whole: NDArray[np.float32], *, without: NDArray[np.float32], labels: NDArray[Any]
) -> dict[str, Any]:
    """Return how many predictions change, and how many of these become right or wrong; of values the mean change."""
    target = run.target
    if target.task.gives_values:
        return {"mean_change": float(np.abs(whole - without).mean())}
    # One column per decision: the class, or each label. Several labels are right if all that are known are.
    truth = labels.reshape(len(labels), -1)
    before, after = (target.decide(outputs).reshape(truth.shape) for outputs in (whole, without))
    was_right, is_right = (((decided == truth) | (truth < 0)).all(1) for decided in (before, after))
    changed = ((before != after) & (truth >= 0)).any(1)
    return {
        "changed": int(changed.sum()),
        "fraction_changed": float(changed.mean()),
        "became_right": int((is_right & ~was_right).sum()),
        "became_wrong": int((was_right & ~is_right).sum()),
        "stayed_wrong": int((changed & ~was_right & ~is_right).sum()),
    }


def describe_rewiring(run: Run, node: int, k: int = 5) -> dict[str, Any]:
    """Return how super nodes change one node's PageRank, by kind; nothing if the graph is too large to be exact."""
    if run.graph.num_arcs > EXACT_ARCS:
        return {}
    return {kind: _transfer(run, kind, transfer=transfers[0]) for kind, transfers in run.rewiring(node, k).items()}


def _transfer(run: Run, kind: str, *, transfer: Transfer) -> dict[str, Any]:
    """Return a transfer as plain data with node names, and how far the stored scores are from the exact ones."""
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
    """Return how much probability super nodes move, by kind: estimated, and exact if the graph is small."""
    moves: dict[str, Any] = {}
    graph, tokens = run.graph, run.config.tokens
    kinds = run.store.connections()
    if not kinds:
        return moves
    coarse = run.store.coarse_clusters(graph)  # the same for all kinds, as is the plain ranking
    plain = Ranker.prepare(graph, None, tokens.restart, coarse).rank(nodes, _RANKED, tokens.tolerance)
    exact = run.rewiring(nodes) if graph.num_arcs <= EXACT_ARCS else {}
    for number, (kind, connections) in enumerate(kinds.items(), start=1):
        ranker = Ranker.prepare(graph, connections, tokens.restart, coarse)
        rewired = ranker.rank(nodes, _RANKED, tokens.tolerance, run.store.leaves_out(kind))
        moved = estimate_transfer(plain, rewired)
        # A ranking leaves out its source, so the estimate covers the losses of all other nodes.
        row: dict[str, Any] = {"nodes": len(nodes), "estimate_elsewhere": float(moved.mean())}
        if kind in exact:
            moved = np.array([transfer.moved for transfer in exact[kind]])
            row["mean"] = float(moved.mean())
            row["to_supers"] = float(np.mean([transfer.to_supers for transfer in exact[kind]]))
            row["elsewhere"] = float(np.mean([transfer.elsewhere for transfer in exact[kind]]))
        counts, edges = np.histogram(moved, bins=_BARS, range=(0, max(_LEAST_RANGE, float(moved.max()))))
        row["histogram"] = {"edges": edges.tolist(), "counts": counts.tolist()}
        moves[kind] = row
        if progress is not None:
            progress("rewiring", number, len(kinds))
    return moves


def correctness(run: Run, predicted: NDArray[np.float32]) -> dict[str, Any]:
    """Return confusion matrix, slices and calibration on the test nodes; nothing if the task has no classes."""
    graph, test = run.graph, run.split.test
    if not run.target.task.has_classes or graph.labels is None or not len(test):
        return {}
    labels = np.asarray(graph.labels)[test].astype(np.int64)
    test, labels = test[labels >= 0], labels[labels >= 0]
    decided = run.target.decide(predicted[test]).astype(np.int64)
    right, names = decided == labels, class_names(run)
    slices = {
        "class": by_class(labels, right, names),
        "degree": by_degree(np.asarray(graph.degrees)[test], right),
        "homophily": by_homophily(local_homophily(graph, test), right),
    }
    return {
        "confusion": confusion(labels, decided, len(names)).tolist(),
        "slices": {name: [asdict(group) for group in groups] for name, groups in slices.items()},
        "calibration": calibration(predicted[test], labels),
    }


def classes(run: Run, predicted: NDArray[np.float32]) -> dict[str, Any]:
    """Return precision, recall and F1 of each class on the test nodes; for two classes also the curve of the rarer one.

    The curve is that of the validation nodes, with its point at the threshold. `base` is the precision of guessing.
    """
    if run.target.task.gives_values or run.graph.labels is None or not len(run.split.test):
        return {}
    data: dict[str, Any] = {"class_scores": run.score_classes(predicted[run.split.test], run.split.test)}
    found = run.precision_recall(predicted)
    if found is None:
        return data
    (column, curve), threshold = found, run.threshold
    value = THRESHOLD if threshold is None else threshold.value
    above = int((curve.thresholds.astype(np.float64) >= value).sum())  # of all distinct probabilities
    at = {name: float(getattr(curve, name)[above - 1]) if above else None for name in ("precision", "recall", "f1")}
    points = {name: values.tolist() for name, values in curve.thinned()._asdict().items()}
    data["precision_recall"] = {"class": class_names(run)[column], "base": float(curve.precision[-1]), **points}
    data["threshold"] = {"value": value, "chosen": threshold is not None, **at}
    return data


def baselines(run: Run) -> dict[str, Any] | None:
    """Return our result above those of the baselines, and a sentence if one is at least as good; None without any."""
    metrics, rows = run.metrics, run.baselines
    if not rows:
        return None
    ours = {"name": "ours", "val": metrics["val"], "test": metrics["test"], "seconds": sum(metrics["timings"].values())}
    sentence = comparison(metrics["metric"], metrics["val"], rows, metrics.get("test"))
    return {"metric": metrics["metric"], "rows": [ours, *rows], "sentence": sentence}


def stages_of_tokens(run: Run) -> dict[str, dict[str, float]]:
    """Return the costs of its stages that `tokenize` wrote; without those that are missing or damaged."""
    return Stages(run.store.path / "stages.json").rows


def criteria(run: Run, nodes: NDArray[np.int64]) -> dict[str, Any]:
    """Return the four criteria, measured on some nodes."""
    rows = measure_criteria(run.graph, run.store, nodes, stages_of_tokens(run))
    return {
        "columns": list(COLUMNS),
        "rows": [{"name": row.name, "values": row.values} for row in rows],
        "same_label_neighbours": same_label_neighbours(run.graph, nodes),
    }


def costs(run: Run) -> list[dict[str, Any]]:
    """Return seconds and peak memory of the stages of tokenization, and seconds of training and prediction."""
    stages = stages_of_tokens(run)
    rows = [{"name": name, **{key: stage[key] for key in ("seconds", "peak_bytes")}} for name, stage in stages.items()]
    timings = run.metrics.get("timings", {})
    return rows + [{"name": name, "seconds": value} for name, value in timings.items() if name != "tokenize"]


def tuning(run: Run) -> dict[str, Any]:
    """Return `tuning`, the trials of the search that found the settings, best first; nothing if there was none."""
    if not (run.path / ABOUT_FILE).is_file():
        return {}
    search = Tuning.open(run.path)
    rows = [
        {
            "trial": entry.number,
            "recipe": entry.recipe,
            "score": entry.score,
            "epochs": entry.epochs,
            "seconds": entry.seconds,
            "changes": entry.error or ", ".join(f"{name} = {value}" for name, value in search.changes(entry).items()),
        }
        for entry in search.ranked
    ]
    # What would win if the search had ended there: trials in full count before those with fewer epochs.
    best = [replace(search, entries=search.entries[: count + 1]).ranked[0].score for count in range(len(rows))]
    scores = [entry.score for entry in search.entries]
    return {
        "tuning": {"metric": search.metric, "scores": scores, "best": best, "rows": rows, "skipped": search.skipped}
    }
