"""A run as one self-contained HTML page: numbers are collected here, everything visible is drawn by the page itself."""

from __future__ import annotations

import base64
import datetime
import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .criteria import COLUMNS, measure_criteria, same_label_neighbours
from .distances import hop_distances
from .explain import KINDS_OF_TOKEN, Looked, label_text, output_names
from .inference import Progress
from .metrics import decide
from .rewiring import Transfer, estimate_transfer, mass_transfer, stored_connections
from .run import Run
from .slices import by_class, by_degree, by_homophily, calibration, confusion, degree_ranges, local_homophily
from .split import PARTS
from .storage import read_json, replace_file

SAMPLE = 2000  # nodes in the explorer: for PubMed's lists about 1 MB of the page
_EVEN, _MEASURED, _REWIRED = 1000, 300, 100  # nodes for averages, for criteria and faithfulness, for the rewiring
_MOST_VISITS = 2_000_000  # arcs followed for the distances of one node of the explorer
EXACT_ARCS = 3_000_000  # up to which PageRank is computed exactly


def write_report(run: Run, file: Path | None = None, sample: int = SAMPLE, progress: Progress | None = None) -> Path:
    """Write the page of a run; default: report.html in its folder."""
    path = run.path / "report.html" if file is None else Path(file)
    with replace_file(path) as temporary:
        temporary.write_text(render(collect(run, sample, progress=progress)), encoding="utf-8")
    return path


def write_explanation(run: Run, node: int, file: Path, output: Any = None) -> Path:
    """Write the page of one node: the node and, one click away, the nodes among its tokens.

    `output`: the class that is explained, for all of them; default: what each is predicted as.
    """
    looked = run.look(np.array([node]))
    ids = looked.ids[0][looked.shown[0]]
    others = np.unique(ids[(ids >= 0) & (ids < run.graph.num_nodes) & (ids != node)])
    nodes = np.concatenate([[node], others])
    data = {
        "title": f"{_dataset(run)}, node {node}" + ("" if output is None else f": what speaks for {output}"),
        "task": run.task,
        "classes": _classes(run),
        "explorer": _explorer(run, run.look(nodes, output)),
        "transfer": describe_rewiring(run, node),
    }
    with replace_file(Path(file)) as temporary:
        temporary.write_text(render(data), encoding="utf-8")
    return Path(file)


def summarize(run: Run, count: int, progress: Progress | None = None) -> dict[str, Any]:
    """Effect and attention by kind of token, in all and by class and degree, over a sample of nodes."""
    nodes = _sample(np.arange(run.graph.num_nodes), count, np.random.default_rng(0))
    looked = run.look(nodes, progress=progress)
    return {"nodes": len(nodes), "kinds": _kinds(looked), "effects": _effects(run, looked)}


def describe_rewiring(run: Run, node: int, k: int = 5) -> dict[str, Any]:
    """What the super nodes do to one node's PageRank, by kind; empty where the graph is too large to do it exactly."""
    if run.graph.num_arcs > EXACT_ARCS:  # it would take longer than all the rest
        return {}
    found = {kind: _transfer(run, part[0]) for kind, part in run.rewiring(node, k).items()}
    for kind, exact in run.exact_scores(node).items():
        stored = np.asarray(run.store.scores(kind)[node])[: len(exact)].astype(np.float64)
        found[kind] |= {"exact_scores": exact.tolist(), "estimated_scores": stored.tolist()}
        found[kind]["largest_error"] = float(np.abs(exact - stored).max()) if len(exact) else 0.0
    return found


def _transfer(run: Run, transfer: Transfer) -> dict[str, Any]:
    """As plain data, nodes with their names."""
    names = run.graph.names

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
    }


def render(data: dict[str, Any]) -> str:
    """The page for what `collect` gave. No text of the data can end its script element."""
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    template = Environment(loader=PackageLoader("vcr_graphormer"), autoescape=True).get_template("report.html")
    return template.render(data=Markup(text), title=data["title"])


def _finite(value: Any) -> Any:
    """The same with None for NaN and infinity, which JSON has not."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def collect(run: Run, sample: int = SAMPLE, seed: int = 0, progress: Progress | None = None) -> dict[str, Any]:
    """Everything the page shows, as plain data."""
    metrics = run.metrics
    random = np.random.default_rng(seed)
    predicted = run.predict(progress=progress).probabilities
    # The explorer favours wrong nodes; what is averaged comes from nodes drawn evenly.
    looked = run.look(_choose(run, predicted, sample, random), progress=progress)
    even = run.look(_sample(np.arange(run.graph.num_nodes), _EVEN, random), progress=progress)
    measured = _sample(run.split.test if len(run.split.test) else even.nodes, _MEASURED, random)
    data: dict[str, Any] = {
        "title": _dataset(run),
        "created": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "headline": {key: metrics.get(key) for key in ("metric", *PARTS, "seed", "epochs", "best_epoch")}
        | {"scores": metrics["scores"]["test"]},
        "reproduce": [_command(run)],
        "versions": metrics.get("versions"),
        "graph": _graph(run),
        "config": {name: asdict(getattr(run.config, name)) for name in ("tokens", "model", "training")},
        "history": {key: [row[key] for row in run.history] for key in ("epoch", "loss", "val_loss", "val")},
        "classes": _classes(run),
        "task": run.task,
        "averaged": len(even.nodes),
        "kinds": _kinds(even),
        "effects": _effects(run, even),
        "faithfulness": run.faithfulness(run.look(measured, progress=progress)),
        "rewiring": _rewiring(run, _sample(measured, _REWIRED, random), progress),
        "criteria": _criteria(run, measured),
        "stages": _stages(run),
        "explorer": _explorer(run, looked, _wrong(run, predicted)),
    }
    return data | _correctness(run, predicted)


def _command(run: Run) -> str:
    """Train again from what the run folder holds: its graph may have come from anywhere."""
    code = f"run = vcr.Run.open({str(run.path)!r}); vcr.train(run.graph, run.split, run.config, out='again')"
    return f'python -c "import vcr_graphormer as vcr; {code}"'


def _dataset(run: Run) -> str:
    return str(run.metrics.get("dataset") or run.path.name)


def _classes(run: Run) -> list[str]:
    return output_names(run.graph, run.about["num_outputs"])


def _sample(nodes: NDArray[np.int64], count: int, random: np.random.Generator) -> NDArray[np.int64]:
    return np.sort(nodes if len(nodes) <= count else random.choice(nodes, count, replace=False))


def _wrong(run: Run, predicted: Any) -> NDArray[np.int64] | None:
    """Test nodes whose class was not found; None where there are no classes."""
    if run.task != "classification" or run.graph.labels is None:
        return None
    labels = np.asarray(run.graph.labels)[run.split.test]
    wrong: NDArray[np.int64] = run.split.test[(decide(predicted[run.split.test], run.task) != labels) & (labels >= 0)]
    return wrong


def _choose(run: Run, predicted: Any, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Nodes of the explorer: all where they fit; otherwise the wrong ones of the test part first, half at most."""
    total = run.graph.num_nodes
    if total <= count:
        return np.arange(total)
    found = _wrong(run, predicted)
    wrong = _sample(np.empty(0, dtype=np.int64) if found is None else found, count // 2, random)
    others = np.setdiff1d(np.arange(total), wrong)
    return np.union1d(wrong, _sample(others, count - len(wrong), random))


def _graph(run: Run) -> dict[str, Any]:
    graph = run.graph
    about: dict[str, Any] = {"nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
    about |= {"classes": run.about["num_outputs"], "directed": graph.directed}
    return about | {"homophily": graph.summary().edge_homophily}


def _correctness(run: Run, predicted: NDArray[np.float32]) -> dict[str, Any]:
    """Confusion, slices and calibration of the test part, for class labels."""
    graph, test = run.graph, run.split.test
    if run.task != "classification" or graph.labels is None or not len(test):
        return {}
    labels = np.asarray(graph.labels)[test].astype(np.int64)
    test, labels = test[labels >= 0], labels[labels >= 0]
    chosen = decide(predicted[test], run.task).astype(np.int64)
    right, names = chosen == labels, _classes(run)
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


def _kinds(looked: Looked) -> list[dict[str, Any]]:
    """Tokens, attention and effect of each kind."""
    rows = []
    for number, kind in enumerate(KINDS_OF_TOKEN):
        chosen = looked.kinds == number
        shown = looked.shown[:, chosen]
        if shown.any():
            rows.append(
                {
                    "kind": kind,
                    "tokens": float(shown.sum(1).mean()),
                    "attention": float(looked.attention[:, chosen].sum(1).mean()) if looked.attends else None,
                    "effect": float(np.abs(looked.effect[:, chosen])[shown].mean()),
                }
            )
    return rows


def _effects(run: Run, looked: Looked) -> dict[str, list[dict[str, Any]]]:
    """Mean absolute effect and share of attention by kind, for each explained class and each range of degrees."""
    degrees = np.asarray(run.graph.degrees)[looked.nodes]
    groups = {
        "class": [(name, looked.column == number) for number, name in enumerate(_classes(run))],
        "degree": [
            (str(low) if low == high else f"{low} to {high}", (degrees >= low) & (degrees <= high))
            for low, high in degree_ranges(degrees)
        ],
    }
    return {
        by: [{"name": name} | _by_kind(looked, chosen) for name, chosen in parts if chosen.any()]
        for by, parts in groups.items()
    }


def _by_kind(looked: Looked, rows: NDArray[np.bool_]) -> dict[str, Any]:
    found: dict[str, Any] = {"count": int(rows.sum()), "attention": {}}
    for number, kind in enumerate(KINDS_OF_TOKEN):
        chosen = looked.kinds == number
        shown = looked.shown[rows][:, chosen]
        if shown.any():
            found[kind] = float(np.abs(looked.effect[rows][:, chosen])[shown].mean())
            if looked.attends:
                found["attention"][kind] = float(looked.attention[rows][:, chosen].sum(1).mean())
    return found


def _rewiring(run: Run, nodes: NDArray[np.int64], progress: Progress | None) -> dict[str, Any]:
    """The mass that super nodes move, for nodes of the sample: exactly where the graph is small, estimated anywhere."""
    found: dict[str, Any] = {}
    graph, restart = run.graph, run.config.tokens.restart
    kinds = stored_connections(run.store)
    for number, (kind, connections) in enumerate(kinds.items(), start=1):
        estimate = estimate_transfer(graph, connections, nodes, restart)
        # What an estimate can see: the losses of other nodes than the source.
        row: dict[str, Any] = {"nodes": len(nodes), "estimate_elsewhere": float(estimate.mean())}
        moved = estimate
        if graph.num_arcs <= EXACT_ARCS:
            exact = mass_transfer(graph, connections, nodes, restart)
            moved = np.array([transfer.moved for transfer in exact])
            row |= {"mean": float(moved.mean()), "to_supers": float(np.mean([part.to_supers for part in exact]))}
            row["elsewhere"] = float(np.mean([part.elsewhere for part in exact]))
        counts, edges = np.histogram(moved, bins=12, range=(0, max(1e-6, float(moved.max()))))
        row["histogram"] = {"edges": edges.tolist(), "counts": counts.tolist()}
        found[kind] = row
        if progress is not None:
            progress("rewiring", number, len(kinds))
    return found


def _criteria(run: Run, nodes: NDArray[np.int64]) -> dict[str, Any]:
    file = run.store.path / "stages.json"
    rows = measure_criteria(run.graph, run.store, nodes, read_json(file) if file.is_file() else {})
    return {
        "columns": list(COLUMNS),
        "rows": [{"name": row.name, "values": row.values} for row in rows],
        "same_label_neighbours": same_label_neighbours(run.graph, nodes),
    }


def _stages(run: Run) -> list[dict[str, Any]]:
    file = run.store.path / "stages.json"
    stages = read_json(file) if file.is_file() else {}
    rows = [{"name": name, **{key: stage[key] for key in ("seconds", "peak_bytes")}} for name, stage in stages.items()]
    timings = run.metrics.get("timings", {})
    return rows + [{"name": name, "seconds": value} for name, value in timings.items() if name != "tokenize"]


def _explorer(run: Run, looked: Looked, wrong: NDArray[np.int64] | None = None) -> dict[str, Any]:
    """The token lists of the sample as packed arrays. `wrong`: all wrong test nodes, in the sample or not."""
    graph, nodes = run.graph, looked.nodes
    total = graph.num_nodes
    part = np.zeros(total, dtype=np.uint8)
    for number, name in enumerate(PARTS, start=1):
        part[getattr(run.split, name)] = number
    labels = np.full(total, -1, dtype=np.int16)
    if run.task == "classification" and graph.labels is not None:
        labels = np.asarray(graph.labels).astype(np.int16)
    inside = (looked.ids >= 0) & (looked.ids < total)
    token = np.where(inside, looked.ids, 0)
    token_label = np.where(inside & (part[token] == 1), labels[token], -1)
    token_label[:, 0] = -1  # the node's own label is no input of its own prediction
    mentioned = np.unique(token[inside])
    counts = np.bincount(looked.kinds, minlength=4)
    packed: dict[str, Callable[[], NDArray[Any]]] = {
        "nodes": lambda: nodes.astype("<i4"),
        "predicted": lambda: looked.predicted.astype("<i2"),
        "label": lambda: labels[nodes].astype("<i2"),
        "part": lambda: part[nodes],
        "confidence": lambda: looked.outputs.max(1).astype("<f4"),
        "ids": lambda: looked.ids.astype("<i4"),
        "shown": lambda: looked.shown.astype(np.uint8),
        "score": lambda: looked.scores.astype("<f4"),
        "attention": lambda: looked.attention.astype("<f4"),
        "readout": lambda: looked.readout.astype("<f4"),
        "effect": lambda: looked.effect.astype("<f4"),
        "distance": lambda: np.minimum(hop_distances(graph, nodes, looked.ids, _MOST_VISITS), 127).astype(np.int8),
        "token_label": lambda: token_label.astype("<i2"),
    }
    texts = [label_text(graph, int(node)) for node in nodes] if run.task == "multilabel" else None
    if run.task == "regression":  # the first target: its value instead of a class
        for name in ("predicted", "label", "confidence", "token_label"):
            del packed[name]
        wanted = (
            np.asarray(graph.labels).reshape(total, -1)[:, 0] if graph.labels is not None else np.full(total, np.nan)
        )
        packed |= {"value": lambda: looked.explained.astype("<f4"), "target": lambda: wanted[nodes].astype("<f4")}
    return {
        "total": total,
        "sampled": len(nodes) < total,
        "hint": f"vcr-graphormer explain {shlex.quote(str(run.path))} --node id:N --html node.html",
        "wrong": None if wrong is None else len(wrong),
        "label_text": texts,
        "layout": {kind: int(counts[place]) for place, kind in enumerate(KINDS_OF_TOKEN) if place},
        "names": None if graph.names is None else {str(node): str(graph.names[node]) for node in mentioned.tolist()},
        **{name: base64.b64encode(make().tobytes()).decode() for name, make in packed.items()},
    }
