"""Write a run as one HTML page. Python collects the numbers; the scripts in `templates` draw them."""

from __future__ import annotations

import base64
import datetime
import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.checksums import CHECKSUMS_FILE, record
from ..base.files import replace_file
from ..base.jobs import Progress
from ..base.progress import bars
from ..data.split import PARTS
from ..explain.attributions import Attributions
from ..explain.distances import hop_distances
from ..explain.explanation import label_text
from ..runs.run import Run
from ..tokens.layout import HOP, NEIGHBOURS
from . import numbers
from .numbers import class_names, sample

SAMPLE = 2000  # nodes in the explorer: about 1 MB of the page for the lists of PubMed
# Nodes for averages, for criteria and faithfulness, and for the rewiring; fewer where a node takes more time.
_AVERAGED, _MEASURED, _REWIRED = 1000, 300, 100
_MOST_VISITS = 2_000_000  # arcs followed at most for the distances of one node; beyond, a distance is unknown
_FAR = 127  # the largest distance that fits into the int8 of the page


def write_report(
    run: Run, file: Path | None = None, nodes: int = SAMPLE, progress: Progress | bool | None = None
) -> Path:
    """Write the page of a run; default: report.html in its folder."""
    path = run.path / "report.html" if file is None else Path(file)
    with bars(progress) as show, replace_file(path) as temporary:
        page = render(collect(run, nodes, progress=show))
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")  # names may hold half characters
    if path.resolve().parent == run.path.resolve() and (run.path / CHECKSUMS_FILE).is_file():
        record(run.path, [path.name])
    return path


def write_explanation(run: Run, node: int, transfer: dict[str, Any], file: Path, output: Any = None) -> Path:
    """Write the page of one node. Its explorer holds the node and the nodes among its tokens.

    Parameters
    ----------
    transfer
        The result of `describe_rewiring` for the node.
    output
        The class to explain, for all of these nodes; default: the predicted class of each.
    """
    ids = run.store.neighbours(np.array([node]))[0].astype(np.int64)
    others = np.unique(ids[(ids >= 0) & (ids < run.graph.num_nodes)])
    nodes = np.concatenate([[node], others])
    attributions, classes = run.attributions(nodes, output), class_names(run)
    chosen = None if output is None else int(attributions.column[0])
    data = {
        "title": f"{_dataset(run)}, node {node}" + ("" if chosen is None else f": what speaks for {classes[chosen]}"),
        "task": run.task,
        "classes": classes,
        "chosen": chosen,
        "explorer": _explorer(run, attributions),
        "transfer": transfer,
    }
    with replace_file(Path(file)) as temporary:
        temporary.write_text(render(data), encoding="utf-8", errors="backslashreplace")
    return Path(file)


def render(data: dict[str, Any]) -> str:
    """Return the page for the data of `collect`. Letters are escaped so that no text can end the script element."""
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    # A date of the settings, such as data.train_until, is shown as text.
    text = json.dumps(finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    template = Environment(loader=PackageLoader("vcr_graphormer.report"), autoescape=True).get_template("report.html")
    return template.render(data=Markup(text), title=data["title"])


def finite(value: Any) -> Any:
    """Replace NaN and infinity by None, for JSON has neither."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


def collect(run: Run, nodes: int = SAMPLE, seed: int = 0, progress: Progress | None = None) -> dict[str, Any]:
    """Return everything the page shows, as plain data."""
    metrics = run.metrics
    random = np.random.default_rng(seed)
    predicted = run.predict(progress=progress).probabilities
    # The explorer prefers wrong nodes, so averages need nodes of their own, drawn evenly.
    explored = run.attributions(_choose(run, predicted, count=nodes, random=random), progress=progress)
    averaged = run.attributions(sample(np.arange(run.graph.num_nodes), _AVERAGED, random), progress=progress)
    measured = sample(run.split.test if len(run.split.test) else averaged.nodes, _MEASURED, random)
    data: dict[str, Any] = {
        "title": _dataset(run),
        "created": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "headline": {key: metrics.get(key) for key in ("metric", *PARTS, "seed", "epochs", "best_epoch")}
        | {"scores": metrics["scores"]["test"]},
        "baselines": numbers.baselines(run),
        "reproduce": [_command(run)],
        "versions": metrics.get("versions"),
        "graph": _graph(run),
        "config": {
            "tokens": run.config.tokens.to_dict(),
            "model": asdict(run.config.model),
            "training": asdict(run.config.training),
        },
        "notes": run.notes,
        "history": {key: [row[key] for row in run.history] for key in ("epoch", "loss", "val_loss", "val")},
        "classes": class_names(run),
        "task": run.task,
        "averaged": len(averaged.nodes),
        "kinds": numbers.by_kind(averaged),
        "effects": numbers.effects(run, averaged),
        "neighbours": numbers.neighbours(run, averaged, progress),
        "faithfulness": run.faithfulness(run.attributions(measured, progress=progress)),
        "rewiring": numbers.rewiring(run, sample(measured, _REWIRED, random), progress),
        "criteria": numbers.criteria(run, measured),
        "stages": numbers.costs(run),
        "explorer": _explorer(run, explored, wrong=_wrong(run, predicted)),
    }
    return data | numbers.correctness(run, predicted) | numbers.classes(run, predicted) | numbers.tuning(run)


def _command(run: Run) -> str:
    """Return a command that trains again from the run folder, which works wherever the graph came from."""
    code = f"run = vcr.Run.open({str(run.path)!r}); vcr.train(run.original, run.split, run.config, out='again')"
    return f"python -c {shlex.quote(f'import vcr_graphormer as vcr; {code}')}"


def _dataset(run: Run) -> str:
    return str(run.metrics.get("dataset") or run.path.name)


def _wrong(run: Run, predicted: Any) -> NDArray[np.int64] | None:
    """Return the test nodes with a wrong prediction; None if the task has no classes."""
    if not run.target.task.has_classes or run.graph.labels is None:
        return None
    test = run.split.test
    labels, decided = np.asarray(run.graph.labels)[test], run.target.decide(predicted[test])
    wrong: NDArray[np.int64] = test[(decided != labels) & (labels >= 0)]
    return wrong


def _probability(outputs: NDArray[np.float32], columns: NDArray[np.int64]) -> NDArray[Any]:
    """Return the probability of one output of each node."""
    return np.take_along_axis(outputs, columns[:, None], 1)[:, 0].astype("<f4")


def _choose(run: Run, predicted: Any, *, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the nodes of the explorer: all if they fit; else wrong test nodes, at most half, and random others."""
    total = run.graph.num_nodes
    if total <= count:
        return np.arange(total)
    mistakes = _wrong(run, predicted)
    wrong = sample(np.empty(0, dtype=np.int64) if mistakes is None else mistakes, count // 2, random)
    others = np.setdiff1d(np.arange(total), wrong)
    return np.union1d(wrong, sample(others, count - len(wrong), random))


def _graph(run: Run) -> dict[str, Any]:
    graph = run.graph
    about: dict[str, Any] = {"nodes": graph.num_nodes, "edges": graph.num_edges, "features": graph.num_features}
    about |= {"classes": run.about["num_outputs"], "directed": graph.directed}
    return about | {"homophily": graph.summary().edge_homophily}


def _explorer(run: Run, attributions: Attributions, *, wrong: NDArray[np.int64] | None = None) -> dict[str, Any]:
    """Return the token lists of the explorer as packed arrays. `wrong` lists all wrong test nodes, shown or not."""
    graph, nodes = run.graph, attributions.nodes
    total = graph.num_nodes
    part = np.zeros(total, dtype=np.uint8)
    for number, name in enumerate(PARTS, start=1):
        part[getattr(run.split, name)] = number
    labels = np.full(total, -1, dtype=np.int16)
    if run.target.task.has_classes and graph.labels is not None:
        labels = np.asarray(graph.labels).astype(np.int16)
    inside = (attributions.ids >= 0) & (attributions.ids < total)
    token = np.where(inside, attributions.ids, 0)
    token_label = np.where(inside & (part[token] == 1), labels[token], -1)
    token_label[:, 0] = -1  # the node's own label is not an input of its prediction
    mentioned = np.unique(token[inside])
    packed: dict[str, NDArray[Any]] = {
        "nodes": nodes.astype("<i4"),
        "part": part[nodes],
        "ids": attributions.ids.astype("<i4"),
        "shown": attributions.shown.astype(np.uint8),
        "score": attributions.scores.astype("<f4"),
        "attention": attributions.attention.astype("<f4"),
        "readout": attributions.readout.astype("<f4"),
        "effect": attributions.effect.astype("<f4"),
        "distance": np.minimum(hop_distances(graph, nodes, attributions.ids, _MOST_VISITS), _FAR).astype(np.int8),
    }
    if attributions.shared is not None:  # bit i: the kind after the i-th one proposes this token, too
        proposed = attributions.shared != 0
        bits = (proposed << np.arange(proposed.shape[2])).sum(2)
        packed["also"] = np.pad(bits, ((0, 0), (attributions.layout.first_neighbour, 0))).astype("<i4")
    if attributions.without:  # how much hiding whole groups of tokens lowers the explained output
        packed["group_effect"] = np.stack(list(attributions.kind_effects.values()), 1).astype("<f4")
    if run.target.task.gives_values:  # the page shows the value of the explained target instead of a class
        packed["value"] = attributions.explained.astype("<f4")
        if graph.labels is not None:
            packed["target"] = np.asarray(graph.labels).reshape(total, -1)[nodes, attributions.column].astype("<f4")
    else:
        predicted = attributions.predicted
        packed["predicted"] = predicted.astype("<i2")
        packed["confidence"] = _probability(attributions.outputs, predicted)
        packed["explained"] = attributions.explained.astype("<f4")
        if NEIGHBOURS in attributions.without:
            alone = attributions.decide(attributions.without[NEIGHBOURS])  # predicted without neighbours
            packed["alone"] = alone.astype("<i2")
            packed["alone_confidence"] = _probability(attributions.without[NEIGHBOURS], alone)
        packed["label"] = labels[nodes].astype("<i2")
        packed["token_label"] = token_label.astype("<i2")
    texts = [label_text(graph, int(node)) for node in nodes] if run.target.task.several_columns else None
    return {
        "total": total,
        "sampled": len(nodes) < total,
        "hint": f"vcr-graphormer explain {shlex.quote(str(run.path))} --node id:N --html node.html",
        "wrong": None if wrong is None else len(wrong),
        "label_text": texts,
        "groups": list(attributions.without),
        "layout": {HOP: attributions.layout.hops, **attributions.layout.counts},
        "names": None if graph.names is None else {str(node): str(graph.names[node]) for node in mentioned.tolist()},
        **{name: base64.b64encode(array.tobytes()).decode() for name, array in packed.items()},
    }
