"""A model in a folder that travels: weights, schema, settings and a model card, without the graph it was trained on."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...base.checksums import problems, record, run_files
from ...base.files import json_text, replace_file, write_json
from ...data.columns.schema import SCHEMA_FILE
from ...data.datasets import DataConfig
from ...data.graph import Graph
from ...data.split import PARTS, Known
from ...data.tasks import known_labels, unknown_label
from ...errors import ConfigError, GraphError, StoreError
from ...tokens.lists import make_lists
from ...tokens.store import TokenStore
from ..config import Config, to_toml
from ..run import METRICS_FILE, RUN_FILE, WEIGHTS_FILE, Run, check_lists

CARD_FILE = "README.md"  # the name under which model hubs look for a card
_MOST_CLASSES = 30  # rows of the card's table
_NOT_STATED = "The authors of the model have not stated one."


def save_pretrained(run: Run, path: str | Path, *, with_graph: bool = False, intended_use: str = "") -> Path:
    """Write the model of a finished run to a new folder; see `Run.save_pretrained`."""
    run.check_finished()
    if run.other_graph is not None:
        raise ConfigError("this is a run on another graph: save the run it came from")
    _check_travels(run, with_graph)
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(f"{folder} exists and is not empty: choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror or error}") from error
    about = {name: value for name, value in run.about.items() if name not in ("agents", "process", "asked")}
    write_json(folder / RUN_FILE, {**about, "graph": "graph", "tokens": "tokens", "pretrained": __version__})
    run.preparation.save(folder)
    write_json(folder / SCHEMA_FILE, run.schema.to_dict())
    _write_text(folder / "config.toml", to_toml(_without_paths(run)))
    _write_text(folder / CARD_FILE, model_card(run, intended_use, with_graph=with_graph))
    shutil.copyfile(run.path / WEIGHTS_FILE, folder / WEIGHTS_FILE)
    if with_graph:
        run.original.save(folder / "graph")
        shutil.copytree(run.tokens_folder, folder / "tokens")
        shutil.copyfile(run.path / "split.npz", folder / "split.npz")
    results = json_text(run.metrics)
    record(folder, run_files(folder), texts={METRICS_FILE: results})
    _write_text(folder / METRICS_FILE, results)  # last: a folder that has it is whole
    return folder


def open_pretrained(path: str | Path, device: str) -> Run:
    """Open a folder that `save_pretrained` wrote, after comparing every file with its checksum."""
    folder = Path(path)
    run = Run.open(folder, device)
    if "pretrained" not in run.about:
        raise StoreError(f"{folder} is a run, not a folder of save_pretrained: open it with Run.open")
    if not run.finished:
        raise StoreError(f"{folder} is not whole: {METRICS_FILE} is missing. Bring it back, or save the model again")
    saved = [folder / "graph", folder / "tokens"] if run.has_graph else []
    if wrong := problems(folder, saved):
        raise StoreError("; ".join(wrong))
    return run


def on_another(run: Run, graph: Graph, tokens: TokenStore | None = None) -> Run:
    """Return a run without its own graph on a given one; labels that this graph has are known to the model."""
    prepared = run.prepare(graph) if tokens is None else run.prepared_for(graph, tokens)
    if prepared.num_features != run.about["num_features"]:
        raise GraphError(
            f"the graph has {prepared.num_features} features but the model was trained on {run.about['num_features']}"
        )
    if prepared.labels is not None and prepared.task != run.task:
        raise GraphError(f"the labels of the graph are for {prepared.task}, the model was trained for {run.task}")
    known = np.empty(0, dtype=np.int64)
    if prepared.labels is None:
        shape = (prepared.num_nodes, run.about["num_outputs"])
        unknown = np.full(shape[:1] if run.target.task.has_classes else shape, unknown_label(run.task))
        prepared = replace(prepared, labels=run.target.task.check_labels(unknown), task=run.task)
    else:
        known = np.flatnonzero(known_labels(np.asarray(prepared.labels)))
    if not known.size and _reads_labels(run.config):
        warnings.warn(
            "the graph has no labels, but the model was trained to read labels of neighbours: expect it to be less "
            "exact than its card says",
            stacklevel=3,
        )
    if prepared.class_names is None:
        prepared = replace(prepared, class_names=run.schema.classes)
    settings = run.config.tokens
    if settings.clusters > prepared.num_nodes:
        settings = replace(settings, clusters=0)  # every node would be a cluster of its own
    if tokens is None:
        lists = make_lists(prepared, known, settings)
        tokens = TokenStore(lists.config, lists.arrays, path=run.tokens_folder)
    check_lists(tokens, run.config.tokens)
    return replace(run, other_graph=prepared, other_tokens=tokens, other_split=Known(known, known[:0], known[:0]))


def _reads_labels(config: Config) -> bool:
    model, tokens = config.model, config.tokens
    content = tokens.content == "labels" and bool(tokens.content_tokens)
    return content or bool(model.label_hops) or model.label_embedding or model.rich_labels


def _check_travels(run: Run, with_graph: bool) -> None:
    """Refuse a model that cannot read any other graph, unless its own goes with it."""
    if run.about.get("kinds"):
        kinds = ", ".join(run.about["kinds"])
        raise ConfigError(f"the model reads neighbours of your own kinds ({kinds}), which are code: it cannot travel")
    reason = ""
    if run.config.model.adjacency_rows:
        reason = "knows nodes by their links (model.adjacency_rows)"
    elif run.preparation.made == "identity":
        reason = "knows nodes by their numbers (data.features = identity)"
    if reason and not with_graph:
        raise ConfigError(f"the model {reason}, so it cannot read another graph: give with_graph=True, or train anew")


def _without_paths(run: Run) -> Config:
    """Return the settings without paths of the machine that trained, and with what content neighbours share.

    Tables keep their names and columns.
    """
    data, plain = run.config.data, DataConfig()
    nodes = tuple(replace(table, file=Path(table.file).name) for table in data.nodes)
    edges = tuple(replace(table, file=Path(table.file).name) for table in data.edges)
    name = Path(data.dataset).name or plain.dataset
    own = replace(data, dataset=name, root=plain.root, nodes=nodes, edges=edges)
    return replace(run.config, data=own, tokens=replace(run.config.tokens, content=run.store.settings.content))


def _write_text(file: Path, text: str) -> None:
    with replace_file(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def model_card(run: Run, intended_use: str = "", *, with_graph: bool = False) -> str:
    """Return the model card in Markdown: data, results, intended use, limits, how to use it."""
    graph, metrics, split = run.original, run.metrics, run.split
    names = ", ".join(run.class_names[:_MOST_CLASSES]) + (" …" if len(run.class_names) > _MOST_CLASSES else "")
    carried = "It also holds the graph, its labels and its token lists." if with_graph else "It holds no graph."
    lines = [
        f"# VCR-Graphormer: {metrics['dataset']}",
        "",
        f"A model for {run.task} of nodes, trained with vcr-graphormer {metrics['versions']['vcr-graphormer']}.",
        "",
        "## Data",
        "",
        f"- Trained on `{metrics['dataset']}`: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, "
        f"{graph.num_features} features.",
        f"- {len(split.train):,} training, {len(split.val):,} validation and {len(split.test):,} test nodes.",
        f"- Outputs: {names}.",
        f"- This folder holds names of feature columns, categories and classes. {carried}",
        "",
        "## Results",
        "",
        *_results(run),
        "",
        "## Intended use",
        "",
        intended_use.strip() or _NOT_STATED,
        "",
        "## Limits",
        "",
        *(f"- {limit}" for limit in _limits(run)),
        "",
        "## Use",
        "",
        "```python",
        "import vcr_graphormer as vcr",
        "",
        "model = vcr.Run.from_pretrained('.')  # this folder",
        "predictions = model.on(graph).predict()  # a Graph with the same columns; model.schema names them",
        "```",
        "",
        "All settings are in `config.toml`, all results in `metrics.json`.",
        "",
    ]
    return "\n".join(lines)


def _results(run: Run) -> list[str]:
    """Return the metrics of all parts, of the classes on test nodes, and of baselines on the same split."""
    scores = run.metrics["scores"]
    lines = ["| metric | train | val | test |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {name} | {' | '.join(_number(scores[part].get(name)) for part in PARTS)} |" for name in scores["test"]
    ]
    classes = run.metrics.get("classes", {}).get("test", [])[:_MOST_CLASSES]
    if classes:
        lines += ["", "| class, test nodes | nodes | precision | recall | F1 |", "| --- | --- | --- | --- | --- |"]
        columns = ("precision", "recall", "f1")
        lines += [
            f"| {_cell(row['name'])} | {row['nodes']} | {' | '.join(_number(row[name]) for name in columns)} |"
            for row in classes
        ]
    rows = [row for row in run.baselines if row.get("test") is not None]
    if rows:
        lines += ["", f"| baseline, same split | {run.metrics['metric']}, test |", "| --- | --- |"]
        lines += [f"| {_cell(row['name'])} | {_number(row['test'])} |" for row in rows]
    return lines


def _limits(run: Run) -> list[str]:
    limits = [
        "Results are those of one split of the training graph. On another graph they may be lower: compare with known "
        "labels first.",
        "Other graphs must have the same features, by name where they have names, and the same kind of edges.",
    ]
    if _reads_labels(_without_paths(run)):
        limits.append("The model reads labels of neighbours: give those labels of the new graph that are known.")
    if run.threshold is not None:
        name = run.class_names[run.threshold.column]
        value = f"{run.threshold.value:.4g}"
        limits.append(f"`{name}` is predicted from a probability of {value}, as validation nodes or settings said.")
    if run.config.tokens.structure_tokens and run.config.tokens.clusters:
        limits.append(f"A new graph is cut into {run.config.tokens.clusters} clusters, as the training graph was.")
    return limits


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}"


def _cell(text: Any) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
