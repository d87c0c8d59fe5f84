"""A small sound sample of every format that the package reads, and a function that uses it as a caller would.

A sample lies in a folder of its own. `use` takes that folder, opens what lies there and lets compiled loops read it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import scipy.sparse as sp

import vcr_graphormer as vcr
from benchmarks.attacks.raw import RAW
from vcr_graphormer.data.catalogue import DATASETS, Counts, Dataset
from vcr_graphormer.data.datasets import load_data, load_later
from vcr_graphormer.ranking import partitioners
from vcr_graphormer.report.leaderboard import Leaderboard
from vcr_graphormer.runs.config import load_config, to_toml
from vcr_graphormer.runs.launch import check_settings
from vcr_graphormer.runs.tuning import ABOUT_FILE, TRIALS_FILE, Tuning
from vcr_graphormer.training.checkpoint import load_tensors, save_tensors

NODES = 60
TEXTS = ("metrics.json", "run.json", "history.jsonl", "config.toml", "checksums.json", "baselines.json")
CONFIG = vcr.Config(
    data=vcr.DataConfig(features="given", scale="none"),
    tokens=vcr.TokenConfig(hops=2, clusters=3, structure_tokens=2, content_tokens=2, link_tokens=1),
    model=vcr.ModelConfig(hidden_channels=8, heads=2, layers=1),
    training=vcr.TrainConfig(epochs=3, batch_size=32, warmup_steps=1, checkpoint_every=1),
)
MAPPING = """
[data.nodes]
file = "accounts.ENDING"
id = "account"
label = "status"
categories = ["plan"]
[data.edges]
file = "payments.ENDING"
source = "payer"
target = "payee"
weight = "amount"
[tokens]
hops = 2
clusters = 3
structure_tokens = 2
content_tokens = 2
[model]
hidden_channels = 8
heads = 2
layers = 1
[training]
epochs = 2
warmup_steps = 1
"""


@dataclass(frozen=True)
class Sample:
    """A format: how its files are written and used.

    Attributes
    ----------
    write : callable
        Writes the files into a folder, which exists.
    use : callable
        Opens them; must raise nothing but the errors of this package.
    changes : bool
        Whether using it changes files, so that every case needs a copy.
    inside, only : str, tuple of str
        The part of the folder whose files are damaged, and their names; default: all.
    share : float
        How many cases it gets, relative to the others; those that take milliseconds get more.
    """

    write: Callable[[Path], Any]
    use: Callable[[Path], Any]
    changes: bool = False
    inside: str = ""
    only: tuple[str, ...] = ()
    share: float = 10


@cache
def graph(named: bool = False) -> vcr.Graph:
    """Return the graph that most samples hold."""
    plain = vcr.generate(NODES, 200, classes=3, features=5, homophily=0.8, seed=0)
    names = np.array([f"n{node}" for node in range(NODES)])
    return replace(plain, names=names, class_names=("a", "b", "c")) if named else plain


@cache
def directed() -> vcr.Graph:
    """Return a graph whose edges have a direction and weights."""
    arcs = graph().to_scipy().tocoo()
    edges = np.stack([arcs.row, arcs.col])[:, ::2]
    return vcr.Graph.from_edges(edges, NODES, directed=True, edge_weight=1.0 + np.arange(edges.shape[1]) % 3)


def split() -> vcr.Split:
    """Return the split of that graph."""
    return vcr.Split.random(graph().labels, seed=0)


@cache
def _settled() -> vcr.Config:
    """Return the settings without any that still depend on the graph."""
    return vcr.adapt(CONFIG, graph(), split()).config


def train(folder: Path, *, named: bool = False, baselines: bool = False) -> vcr.Run:
    """Train on the graph; three epochs."""
    how: dict[str, Any] = {"device": "cpu", "threads": 1, "baselines": "quick" if baselines else "none"}
    return vcr.train(graph(named), split(), CONFIG, folder / "run", **how)


# ---------------------------------------------------------------- one's own data


def _pairs() -> list[tuple[int, int]]:
    arcs = graph().to_scipy().tocoo()
    return [(int(u), int(v)) for u, v in zip(arcs.row, arcs.col, strict=True) if u < v]


def _columns() -> dict[str, dict[str, list[Any]]]:
    """Return the tables of edges, features and labels."""
    pairs, features = _pairs(), np.asarray(graph().features)
    nodes: dict[str, list[Any]] = {"node": list(range(NODES))}
    return {
        "edges": {"source": [u for u, _ in pairs], "target": [v for _, v in pairs], "weight": [1.5] * len(pairs)},
        "features": nodes | {f"f{place}": features[:, place].tolist() for place in range(features.shape[1])},
        "labels": nodes | {"label": ["abc"[label] for label in np.asarray(graph().labels)]},
    }


def _company() -> dict[str, dict[str, list[Any]]]:
    """Return tables whose columns need a mapping: texts, categories, missing values."""
    pairs, features = _pairs(), np.asarray(graph().features)
    labels = np.asarray(graph().labels)
    return {
        "accounts": {
            "account": [f"acc-{node}" for node in range(NODES)],
            "age": [None if node % 9 == 0 else float(features[node, 0]) for node in range(NODES)],
            "plan": ["pro" if node % 3 else "free" for node in range(NODES)],
            "status": [None if node % 7 == 0 else ("good" if labels[node] else "bad") for node in range(NODES)],
        },
        "payments": {
            "payer": [f"acc-{u}" for u, _ in pairs],
            "payee": [f"acc-{v}" for _, v in pairs],
            "amount": [1.0 + u % 3 for u, _ in pairs],
        },
    }


def write_table(file: Path, columns: dict[str, list[Any]]) -> None:
    """Write a table in the format that its ending names."""
    ending = file.suffix
    rows = list(zip(*columns.values(), strict=True))
    if ending == ".parquet":
        pa.parquet.write_table(pa.table(columns), file)
    elif ending == ".feather":
        pa.feather.write_feather(pa.table(columns), file)
    elif ending == ".jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
        file.write_text("\n".join(lines) + "\n")
    else:
        between = {".csv": ",", ".tsv": "\t", ".txt": " "}[ending]
        texts = [between.join("" if cell is None else str(cell) for cell in row) for row in [tuple(columns), *rows]]
        file.write_text("\n".join(texts) + "\n")


def _write_own(folder: Path, ending: str) -> None:
    for name, columns in _columns().items():
        write_table(folder / f"{name}.{ending}", columns)
    parts = split()
    for part in ("train", "val", "test"):
        (folder / f"{part}.txt").write_text("".join(f"{node}\n" for node in getattr(parts, part)))


def _write_arrays(folder: Path) -> None:
    np.save(folder / "edges.npy", np.array(_pairs()).T)
    np.save(folder / "features.npy", np.asarray(graph().features))
    np.save(folder / "labels.npy", np.asarray(graph().labels))
    parts = split()
    np.savez(folder / "split.npz", train=parts.train, val=parts.val, test=parts.test)


def _use_own(folder: Path) -> None:
    found = vcr.load_dataset(folder)
    found.summary()
    vcr.load_splits(folder, graph=found)


def _write_archive(folder: Path) -> None:
    parts = split()
    masks = {f"{part}_mask": np.isin(np.arange(NODES), getattr(parts, part)) for part in ("train", "val", "test")}
    arrays = {"edge_index": np.array(_pairs()).T, "features": np.asarray(graph().features)}
    np.savez_compressed(folder / "graph.npz", labels=np.asarray(graph().labels), **arrays, **masks)  # type: ignore[arg-type]
    adjacency = graph().to_scipy()
    sp.save_npz(folder / "matrix.npz", sp.csr_matrix(adjacency))


def _use_archive(folder: Path) -> None:
    for name in ("graph.npz", "matrix.npz"):
        vcr.load_dataset(folder / name).summary()
        vcr.load_splits(folder / name)


def _write_graphml(folder: Path) -> None:
    import networkx

    tables = _columns()
    net = networkx.Graph()
    for node in range(NODES):
        values = {name: column[node] for name, column in tables["features"].items() if name != "node"}
        net.add_node(f"n{node}", label=tables["labels"]["label"][node], **values)
    net.add_weighted_edges_from([(f"n{u}", f"n{v}", 1.5) for u, v in _pairs()])
    networkx.write_graphml(net, folder / "graph.graphml")


def _write_mapped(folder: Path, ending: str) -> None:
    for name, columns in _company().items():
        write_table(folder / f"{name}.{ending}", columns)
    (folder / "run.toml").write_text(MAPPING.replace("ENDING", ending))


def _use_mapped(folder: Path) -> None:
    load_data(load_config(folder / "run.toml").data, tell=lambda note: None)


def train_on_tables(folder: Path) -> None:
    """Write a run that was trained on tables, which has a schema, and the tables as they are later."""
    _write_mapped(folder, "csv")
    config = load_config(folder / "run.toml")
    found, parts = load_data(config.data, tell=lambda note: None)
    assert parts is not None
    vcr.train(found, parts, config, folder / "run", device="cpu", threads=1, baselines="none")
    (folder / "later").mkdir()
    for name, columns in _company().items():
        write_table(folder / "later" / f"{name}.csv", columns)


def _use_company(folder: Path) -> None:
    run = vcr.Run.open(folder / "run", "cpu")
    run.predict([0, 1])
    later = load_later(run.config.data, folder / "later", run.schema, tell=lambda note: None)
    run.prepare(later)


# ---------------------------------------------------------------- what the package writes


def _use_graph(folder: Path) -> None:
    found = vcr.Graph.open(folder / "graph")
    vcr.structure_connections(found, 3)
    vcr.make_lists(found, np.arange(20), CONFIG.tokens, threads=1)
    vcr.LinkRanker.prepare(vcr.Graph.open(folder / "directed")).rank(k=2)


def _write_graphs(folder: Path) -> None:
    graph(named=True).save(folder / "graph")
    directed().save(folder / "directed")


def _write_rankers(folder: Path) -> None:
    vcr.Ranker.prepare(graph(), threads=1).save(folder / "ranker", graph())
    vcr.LinkRanker.prepare(directed()).save(folder / "links", directed())
    vcr.FeatureRanker.prepare(graph()).save(folder / "nearest", graph())


def _use_rankers(folder: Path) -> None:
    vcr.Ranker.open(folder / "ranker", graph()).rank(k=3, threads=1)
    vcr.LinkRanker.open(folder / "links", directed()).rank(k=3)
    vcr.FeatureRanker.open(folder / "nearest", graph()).rank(k=3)


def _use_run(folder: Path) -> None:
    Leaderboard.of(folder).to_dict()
    with vcr.Run.open(folder / "run", "cpu") as run:
        run.predict([0, 1])
        run.explain(3)
        _ = run.metrics, run.notes, run.baselines, run.history


def _use_texts(folder: Path) -> None:
    """Show a run in every way that reads its texts."""
    from vcr_graphormer.cli.console import print_history, print_runs

    print_runs(Leaderboard.of(folder))
    run = vcr.Run.open(folder / "run", "cpu")
    run.evaluate("test")
    print_history(run)
    run.report(folder / "report.html")
    run._repr_html_()
    (folder / "report.html").unlink()


def _write_tokens(folder: Path) -> None:
    vcr.tokenize(graph(), split().train, CONFIG.tokens, folder / "tokens", threads=1)


def _use_tokens(folder: Path) -> None:
    import torch

    store = vcr.TokenStore.open(folder / "tokens")
    inputs = vcr.make_inputs(graph(), store, _settled().model, split().train, torch.device("cpu"))
    inputs.batch(torch.arange(4))


def _write_large_tokens(folder: Path) -> None:
    """Write lists as large graphs have them: hops of half the bytes, and clusters that cannot be made again."""
    config = replace(CONFIG.tokens, partitioner="kaminpar", hop_type="float16")
    with mock.patch.object(partitioners, "SEVERAL_THREADS_FROM", 1):
        vcr.tokenize(graph(), split().train, config, folder / "tokens", threads=1)


def _use_large_tokens(folder: Path) -> None:
    _use_tokens(folder)
    store = vcr.TokenStore.open(folder / "tokens")
    coarse = store.coarse_clusters(graph())
    # Another array of the right size may say that no node has a super node.
    if (structure := store.connections().get("structure")) is not None:
        vcr.Ranker.prepare(graph(), structure, coarse=coarse, threads=1).rank(np.arange(4), 2)


class _StopError(Exception):
    """Ends a training in the middle."""


def interrupted(folder: Path, config: vcr.Config, of: vcr.Graph) -> None:
    """Write a run that was stopped after its first epoch, with its checkpoint."""

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise _StopError

    how: dict[str, Any] = {"device": "cpu", "threads": 1, "baselines": "none"}
    with suppress(_StopError):
        vcr.train(of, split(), config, folder, on_epoch=stop, **how)


def _use_checkpoint(folder: Path) -> None:
    vcr.resume(folder / "run", "cpu", baselines="none")


def _write_weights(folder: Path) -> None:
    run = train(folder)
    save_tensors(folder / "weights.safetensors", run.model.state_dict(), {"epoch": 1})
    shutil.rmtree(folder / "run")


def _use_settings(folder: Path) -> None:
    config = load_config(folder / "settings.toml")
    overrides = (folder / "options.txt").read_bytes().decode("utf-8", "replace").splitlines()
    load_config(overrides=overrides)
    check_settings(graph(), split(), config)


def _write_settings(folder: Path) -> None:
    (folder / "settings.toml").write_text(to_toml(CONFIG))
    lines = ["tokens.hops=3", "model.dropout=0.5", "data.split=random", "training.epochs=7", "data.train=0.5"]
    (folder / "options.txt").write_text("\n".join(lines) + "\n")


def _write_search(folder: Path) -> None:
    options: dict[str, Any] = {"minutes": 5, "trials": 2, "recipes": ["hops"], "device": "cpu", "seed": 0}
    vcr.tune(graph(), split(), out=folder / "whole", **options)
    (folder / "search").mkdir()
    for name in (ABOUT_FILE, TRIALS_FILE):
        shutil.copy(folder / "whole" / name, folder / "search")
    shutil.rmtree(folder / "whole")


def _use_search(folder: Path) -> None:
    from vcr_graphormer.cli.console import print_leaderboard

    found = Tuning.open(folder / "search")
    found.best(2)
    for entry in found.ranked:
        found.changes(entry)
    print_leaderboard(found)


# ---------------------------------------------------------------- all of them


class _AnySize(Dataset):
    """A published dataset in miniature."""

    def _check(self, counts: Counts, exact: bool) -> None:
        pass


def _published(name: str) -> Sample:
    dataset = _AnySize(**vars(DATASETS[name]))

    def use(folder: Path) -> None:
        dataset.read(folder, directed=False)
        dataset.splits(folder)

    return Sample(RAW[name], use)


SAMPLES: dict[str, Sample] = {
    **{ending: Sample(partial(_write_own, ending=ending), _use_own) for ending in ("csv", "tsv", "txt")},
    **{ending: Sample(partial(_write_own, ending=ending), _use_own) for ending in ("parquet", "feather", "jsonl")},
    "npy": Sample(_write_arrays, _use_own),
    "npz": Sample(_write_archive, _use_archive),
    "graphml": Sample(_write_graphml, lambda folder: vcr.load_dataset(folder / "graph.graphml")),
    **{
        f"mapped {ending}": Sample(partial(_write_mapped, ending=ending), _use_mapped)
        for ending in ("csv", "parquet", "jsonl")
    },
    "geom-gcn": Sample(RAW["own geom-gcn"], _use_own),
    **{name: _published(name) for name in RAW if name in DATASETS},
    "graph": Sample(_write_graphs, _use_graph, share=4),
    "rankers": Sample(_write_rankers, _use_rankers, share=8),
    "tokens": Sample(_write_tokens, _use_tokens),
    "tokens of a large graph": Sample(_write_large_tokens, _use_large_tokens),
    "run": Sample(train, _use_run, share=5),
    "texts of a run": Sample(partial(train, baselines=True), _use_texts, only=TEXTS, share=0.7),
    "run of tables": Sample(train_on_tables, _use_company, share=4),
    "checkpoint": Sample(
        lambda folder: interrupted(folder / "run", CONFIG, graph()), _use_checkpoint, changes=True, share=1
    ),
    "safetensors": Sample(_write_weights, lambda folder: load_tensors(folder / "weights.safetensors")),
    "settings": Sample(_write_settings, _use_settings),
    "search": Sample(_write_search, _use_search),
}
