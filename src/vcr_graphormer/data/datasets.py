"""Name or path → `Graph` and its splits: the paper's 13 datasets, the embedded default, one's own files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.checks import check_seed
from ..errors import ConfigError, GraphError, unknown_name
from .catalogue import DATASETS, RANDOM, Counts, find_dataset
from .generated import digits
from .graph import Graph
from .readers.own import read_graph, read_splits
from .split import Split
from .tasks import CLASSIFICATION

EMBEDDED = "digits"
DIGITS = Counts(1_797, 5_631, 64, 10)


@dataclass(frozen=True)
class DataConfig:
    """Which data, and how to read and split it: section `[data]`."""

    dataset: str = field(default=EMBEDDED, metadata={"help": "a known name, or the path of a folder or file"})
    root: str = field(default="data", metadata={"help": "folder that holds the published datasets' raw files"})
    directed: bool = field(default=False, metadata={"help": "keep the direction of edges"})
    task: str = field(default="auto", metadata={"help": "auto, classification, multilabel or regression"})
    ids: str = field(default="auto", metadata={"help": "own data: whole-number ids are 'rows' or 'names'"})
    features: str = field(default="given", metadata={"help": "given, or made: 'identity' or 'degree'"})
    split: str = field(
        default="auto",
        metadata={"help": "auto (given with own data, else the paper's protocol), random, per_class or published"},
    )
    train: float = field(default=0.6, metadata={"help": "training nodes of a random split: a share, or a number"})
    val: float = field(default=0.2, metadata={"help": "validation nodes of a random split: a share, or a number"})
    stratified: bool = field(default=False, metadata={"help": "same class shares in every part of a random split"})
    seed: int = field(default=0, metadata={"help": "seed of the split; number of a published one"})


def load_dataset(
    name: str | Path, root: str | Path = "data", directed: bool = False, task: str = "auto", ids: str = "auto"
) -> Graph:
    """Load a dataset by name, or one's own data by path.

    Parameters
    ----------
    name
        One of the paper's datasets or its alias, `digits` (embedded), or the path of a folder or file.
    root
        Where the raw files lie; PyG downloads those it can.
    directed
        Keep the direction of edges; the default makes every graph undirected.
    task, ids
        Only for one's own data; see `files.read_graph`.

    >>> load_dataset("digits")
    Graph(digits: 1,797 nodes, 5,631 edges, 64 features, 10 classes)
    """
    name = os.fspath(name)
    dataset = find_dataset(name)
    if dataset is None and name != EMBEDDED:
        return read_graph(_own_path(name), directed, task, ids)
    if task not in ("auto", CLASSIFICATION.name) or ids != "auto":
        raise ConfigError(f"task and ids describe one's own data; {name} has class labels and its own numbering")
    if dataset is None:
        if directed:
            raise ConfigError(f"{EMBEDDED} is an undirected graph: leave out directed")
        return digits()
    return dataset.read(Path(root), directed)


def _own_path(name: str) -> Path:
    path = Path(name)
    looks_like_path = path.exists() or len(path.parts) > 1 or path.suffix
    if not looks_like_path:
        error = unknown_name("dataset", name, [EMBEDDED, *DATASETS])
        raise ConfigError(f"{error}; for your own data give the path of a folder or file")
    return path


def load_splits(name: str | Path, root: str | Path = "data", graph: Graph | None = None) -> list[Split]:
    """Load the published splits of a dataset, or those beside one's own data; empty where there are none.

    PubMed, Cora, CiteSeer: the public split. Squirrel, Actor, Texas: ten. Computer, Photo, CS, Physics: the one under
    `splits/` that strong published baselines use. arXiv-year: LINKX's five.

    Parameters
    ----------
    graph
        One's own graph, as `load_dataset` has read it with options of one's own: the split then belongs to it.
    """
    name = os.fspath(name)
    dataset = find_dataset(name)
    if dataset is None:
        return [] if name == EMBEDDED else read_splits(_own_path(name), graph)
    return dataset.splits(Path(root))


def paper_split(name: str, labels: Any, seed: int = 0, root: str | Path = "data") -> Split:
    """The split of the paper's protocol for this dataset: 60/20/20, few labels, or LINKX's; 60/20/20 for own data.

    LINKX published five splits; seeds beyond take them in turn.
    """
    dataset = find_dataset(name)
    protocol = RANDOM if dataset is None else dataset.protocol
    if protocol.draw is not None:
        return protocol.draw(labels, seed)
    splits = load_splits(name, root)
    return splits[check_seed(seed) % len(splits)]


def load_data(config: DataConfig) -> tuple[Graph, Split | None]:
    """The graph and the split that `[data]` describes; no split where there are no labels."""
    graph = load_dataset(config.dataset, config.root, config.directed, config.task, config.ids)
    if config.features in ("identity", "degree"):
        graph = graph.with_features(config.features)  # type: ignore[arg-type]
    elif config.features != "given":
        raise ConfigError(f"data.features is {config.features!r}; it must be given, identity or degree")
    if graph.labels is None:
        return graph, None
    return graph, _make_split(config, graph).check(graph.num_nodes, graph.labels, graph.class_names)


def load_labelled(config: DataConfig) -> tuple[Graph, Split]:
    """Load the graph and the split that `[data]` describes; refuse a graph with nothing to learn from."""
    graph, split = load_data(config)
    if split is None:
        raise GraphError(f"{config.dataset} has no labels to learn from")
    return graph, split


def _make_split(config: DataConfig, graph: Graph) -> Split:
    if config.split not in ("auto", "random", "per_class", "published"):
        raise ConfigError(f"data.split is {config.split!r}; it must be auto, random, per_class or published")
    sized = (config.train, config.val, config.stratified) != (0.6, 0.2, False)
    if config.split in ("auto", "published"):
        own_data = find_dataset(config.dataset) is None
        splits = load_splits(config.dataset, config.root, graph) if own_data or config.split == "published" else []
        if splits and config.split == "published" and not 0 <= config.seed < len(splits):
            raise ConfigError(
                f"data.seed is {config.seed} but {config.dataset} has published splits 0 to {len(splits) - 1}"
            )
        if config.split == "published" and not splits:
            raise ConfigError(f"{config.dataset} has no published split: set data.split to random")
        if (splits or not own_data) and sized:
            raise ConfigError(
                "data.train, data.val and data.stratified describe a random split: set data.split to random"
            )
        if splits:
            return splits[config.seed % len(splits)]
        if not own_data:
            return paper_split(config.dataset, graph.labels, config.seed, config.root)
    train, val = (int(part) if part >= 1 and part == int(part) else part for part in (config.train, config.val))
    if config.split == "per_class":
        return Split.per_class(graph.labels, train, val, config.seed)  # type: ignore[arg-type]
    return Split.random(graph.labels, train, val, config.seed, config.stratified)
