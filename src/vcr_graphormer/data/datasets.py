"""Load a graph and its splits by the name of a published dataset, or by the path of one's own data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base.checks import AUTO, check_choice, check_seed, setting
from ..base.jobs import Progress
from ..base.problems import Problems, first_texts
from ..errors import ConfigError, GraphError, StoreError, unknown_name
from .agreement import can_compare_links, keeps_directions
from .catalogue import DATASETS, RANDOM, Counts, find_dataset
from .columns.schema import Schema
from .generated import digits
from .graph import Graph
from .inductive import Seen
from .readers.assembly import Wanted
from .readers.mapping import EdgeTable, NodeTable
from .readers.own import read_graph, read_mapped, read_splits, warn
from .split import Split
from .tasks import CLASSIFICATION, TASKS, known_labels

SCALES = ("auto", "none", "standard")
PREPARE = ("auto", "none")
EMBEDDED = "digits"  # comes with scikit-learn
DIGITS = Counts(1_797, 5_631, 64, 10)


@dataclass(frozen=True)
class DataConfig:
    """Which data to read, and how to split it: section `[data]`.

    Attributes
    ----------
    dataset : str
        A published dataset by name, `digits`, or the path of one's own folder or file.
    root : str
        Folder with the raw files of the published datasets.
    directed : bool
        Whether edges keep their direction. AUTO: if the outgoing links of training nodes tell their class better than
        all of their links do; never in large graphs, and without classes.
    task : str
        What to learn: `classification`, `multilabel` or `regression`. `auto` decides by the labels.
    ids : str
        Whether whole-number node ids of one's own data are `rows` of features and labels, or `names`.
    features : str
        `given` by the data, or made: `identity` (one column per node) or `degree`. `auto`: given, or made by degree
        where the data has none.
    scale : str
        `standard`: each column of dense features is standardized by mean and deviation of the training nodes. `none`
        leaves them as they are. `auto` standardizes columns on very different scales.
    prepare : str
        `auto`: missing values of a table are filled, its constant columns become 0, and columns are scaled as `scale`
        says. `none` leaves all numbers as they are and refuses missing values.
    split : str
        `random`, `per_class` (equally many nodes of each class) or `published`. `auto` takes the split beside one's own
        data, or the paper's protocol.
    train, val : float
        Training and validation nodes: a fraction, or a number of nodes; of each class if `split` is `per_class`.
    stratified : bool
        Whether a random split has the same fractions of each class in every part.
    seed : int
        Seed of the split, or the number of a published one.
    nodes, edges : list of tables
        One's own tables with columns of any names: sections `[data.nodes]` and `[data.edges]`, see `NodeTable` and
        `EdgeTable`. Files are relative to the TOML file, or to `dataset` if that is a folder.
    inductive : bool
        Whether training sees no validation and test nodes: its token lists come from the graph without them and their
        edges. Both are judged on the whole graph, as nodes that came later.
    train_until, val_until : str
        A split by the column `time` of a node table: training nodes are those up to the first date, validation nodes
        up to the second, test nodes are newer.
    """

    dataset: str = setting(EMBEDDED, "a published dataset by name, or the path of your own folder or file")
    root: str = setting("data", "folder with the raw files of the published datasets")
    directed: bool = setting(AUTO, "keep the direction of edges; auto: if it tells the classes of training nodes")
    task: str = setting("auto", f"what to learn: {', '.join(TASKS)}; auto: by labels")
    ids: str = setting("auto", "what whole-number ids of own data are: rows or names; auto decides")
    features: str = setting("auto", "given by the data, or made: identity (one column per node) or degree")
    scale: str = setting("auto", "of feature columns: none, or standard; auto: standard if they differ strongly")
    prepare: str = setting("auto", "fill missing values of tables, drop constant columns, scale; none: keep numbers")
    split: str = setting("auto", "random, per_class, published; auto: your files, the paper's, or random")
    train: float = setting(0.6, "training nodes: a fraction, or a number (for per_class: of each class)")
    val: float = setting(0.2, "validation nodes: a fraction, or a number (for per_class: of each class)")
    stratified: bool = setting(False, "same fractions of each class in every part of a random split")
    seed: int = setting(0, "seed of the split, or the number of a published one")
    inductive: bool = setting(False, "hide validation and test nodes while training, as if they came later")
    nodes: tuple[NodeTable, ...] = setting((), "tables of nodes: sections [data.nodes] of a TOML file")
    edges: tuple[EdgeTable, ...] = setting((), "tables of edges: sections [data.edges] of a TOML file")
    train_until: str = setting("", "split by time: last date of training nodes; needs time in [data.nodes]")
    val_until: str = setting("", "split by time: last date of validation nodes; newer ones are for the test")


def with_absolute_paths(config: DataConfig) -> DataConfig:
    """Return the section as it can be read from any folder: with whole paths of own data or of published files."""
    if find_dataset(config.dataset) is not None:
        return replace(config, root=str(Path(config.root).absolute()))
    # A text that is no path is a title that somebody gave to a graph of their own making.
    own = config.dataset != EMBEDDED and Path(config.dataset).exists()
    return replace(config, dataset=str(Path(config.dataset).absolute())) if own else config


def data_paths(config: DataConfig) -> list[Path]:
    """Return the files and folders that the section reads; a text that is no path is a title."""
    own = config.root if find_dataset(config.dataset) is not None else config.dataset
    tables = [table.file for table in config.nodes] + [table.file for table in config.edges]
    names = [*tables, "" if config.dataset == EMBEDDED else own]
    return [Path(name) for name in names if name and Path(name).exists()]


def load_dataset(
    name: str | Path,
    root: str | Path = "data",
    directed: bool = False,
    task: str = "auto",
    ids: str = "auto",
    *,
    problems: Problems | None = None,
    progress: Progress | None = None,
) -> Graph:
    """Load a dataset by name, or one's own data by path.

    Parameters
    ----------
    name
        A published dataset or its alias, `digits` (comes with scikit-learn), or the path of a folder or file.
    root
        Folder with the raw files of published datasets; those with a fixed address are downloaded.
    directed
        Keep the direction of edges; the default makes every graph undirected.
    task, ids
        Only for one's own data; see `DataConfig`.
    problems
        Collects notes about one's own data, such as columns that are not used; by default they are one warning.
    progress
        Called with (stage, done, total) while one's own data is read.

    >>> load_dataset("digits")
    Graph(digits: 1,797 nodes, 5,631 edges, 64 features, 10 classes)
    """
    name = os.fspath(name)
    if directed not in (True, False):
        raise ConfigError(
            f"directed is {directed!r}; it must be True or False: a graph and its training nodes decide what auto is "
            f"(data.directed of a run)"
        )
    dataset = find_dataset(name)
    if dataset is None and name != EMBEDDED:
        path = _own_path(name)
        return read_graph(path, directed=directed, task=task, ids=ids, problems=problems, progress=progress)
    if task not in ("auto", CLASSIFICATION.name) or ids != "auto":
        raise ConfigError(f"task and ids describe one's own data; {name} has class labels and its own numbering")
    if dataset is None:
        if directed:
            raise ConfigError(f"{EMBEDDED} is an undirected graph: leave out directed")
        return digits()
    return dataset.read(Path(root), directed)


def _own_path(name: str) -> Path:
    """Return the path of one's own data; refuse a text that is more likely a misspelled dataset."""
    path = Path(name)
    if not (path.exists() or len(path.parts) > 1 or path.suffix or name.endswith(os.sep)):
        error = unknown_name("dataset", name, [EMBEDDED, *DATASETS])
        raise ConfigError(f"{error}; for your own data give the path of a folder or file")
    return path


def is_published(name: str) -> bool:
    """Return whether this is the name of a dataset, and not the path of one's own data."""
    return name == EMBEDDED or find_dataset(name) is not None


def load_splits(name: str | Path, root: str | Path = "data", graph: Graph | None = None) -> list[Split]:
    """Return the published splits of a dataset, or the split beside one's own data; empty if there are none.

    PubMed, Cora and CiteSeer have the public split. Squirrel, Actor and Texas have ten, arXiv-year has LINKX's five.
    Computer, Photo, CS and Physics have one under `splits/`, which strong published baselines use.

    Parameters
    ----------
    graph
        One's own graph if `load_dataset` read it with other options than the defaults, so that node ids agree.
    """
    name = os.fspath(name)
    dataset = find_dataset(name)
    if dataset is None:
        return [] if name == EMBEDDED else read_splits(_own_path(name), graph)
    return dataset.splits(Path(root))


def paper_split(name: str, labels: Any, seed: int = 0, root: str | Path = "data") -> Split:
    """Return the split that the paper uses for this dataset; random 60/20/20 for one's own data.

    arXiv-year has LINKX's five published splits: seed 5 takes the first again.
    """
    dataset = find_dataset(name)
    protocol = RANDOM if dataset is None else dataset.protocol
    if protocol.draw is not None:
        return protocol.draw(labels, seed)
    splits = load_splits(name, root)
    return splits[check_seed(seed) % len(splits)]


def load_data(
    config: DataConfig, *, progress: Progress | None = None, tell: Callable[[str], None] | None = None
) -> tuple[Graph, Split | None]:
    """Load the graph and the split that `[data]` describes; without labels there is no split.

    Parameters
    ----------
    tell
        Called with each note about one's own data; by default the notes are one warning.
    """
    check_choice(config, "data", "task", ("auto", *TASKS))
    if config.directed not in (True, False, AUTO):
        raise ConfigError(f"data.directed is {config.directed!r}; it must be true, false or auto")
    _check_time_split(config)
    check_preparation(config)
    with _told(tell) as problems:
        graph, times = _read(config, problems, progress=progress)
        split = _split(config, graph, times=times)
        if graph.directed and config.directed is False:
            problems.note(f"{graph.folder} is a saved graph with directions: data.directed = false does not change it")
    if config.directed == AUTO and split is not None:
        directed = with_directions(config, graph, split, progress=progress)
        if directed is not None:
            graph = directed
            if tell is not None:
                tell("edges keep their direction (data.directed): outgoing links tell the class of training nodes best")
    return graph, split


def with_directions(
    config: DataConfig, graph: Graph, split: Split, *, progress: Progress | None = None
) -> Graph | None:
    """Return the graph with the directions of its edges where they tell the classes of training nodes, else None.

    Edges are read once more. A saved graph stays as it was saved.
    """
    embedded = config.dataset == EMBEDDED and not (config.nodes or config.edges)
    if embedded or graph.folder is not None or not can_compare_links(graph):
        return None
    arcs, _ = _read(replace(config, directed=True), Problems(), progress=progress)
    directed = arcs  # its features are those of the graph, but for degrees
    if config.features != "degree":
        directed = replace(graph, indptr=arcs.indptr, indices=arcs.indices, weights=arcs.weights, directed=True)
    with_them, without, train = directed, graph, split.train
    if config.inductive:
        seen = Seen.of(directed, split)
        with_them, without, train = seen.graph, Seen.of(graph, split).graph, seen.train
    return directed if keeps_directions(with_them, without, train) else None


def load_later(
    config: DataConfig,
    dataset: str | Path,
    schema: Schema,
    *,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> Graph:
    """Load a later state of the data that `[data]` describes, from another path.

    Tables of a mapping are looked for under the same names in the new folder. Their columns become features as the
    schema says, so that a value means what it meant before.
    """
    folder = Path(dataset)
    if not folder.exists():
        raise StoreError(f"{folder} does not exist: give the path of the data of now")

    def moved(table: Any) -> Any:
        return replace(table, file=str(folder / Path(table.file).name))

    nodes, edges = tuple(map(moved, config.nodes)), tuple(map(moved, config.edges))
    with _told(tell) as problems:
        now = replace(config, dataset=str(folder), nodes=nodes, edges=edges)
        return _read(now, problems, progress=progress, schema=schema)[0]


@contextmanager
def _told(tell: Callable[[str], None] | None) -> Iterator[Problems]:
    """Yield where problems are collected, and tell the notes among them in the end."""
    problems = Problems()
    yield problems
    if tell is None:
        warn(problems)
    else:
        for note in first_texts(problems.notes):
            tell(note)


def _read(
    config: DataConfig, problems: Problems, *, progress: Progress | None, schema: Schema | None = None
) -> tuple[Graph, Any]:
    """Return the graph, without directions if these are AUTO, and the times of its nodes if a column holds them."""
    times, directed = None, config.directed != AUTO and config.directed
    if config.nodes or config.edges:
        if find_dataset(config.dataset) is not None:
            raise ConfigError(
                f"data.dataset is {config.dataset}, a published one: leave out [data.nodes] and [data.edges]"
            )
        name = "tables" if config.dataset == EMBEDDED else Path(config.dataset).resolve().stem
        wanted = Wanted(directed, config.task, name, schema)
        graph, times = read_mapped(config.nodes, config.edges, wanted, problems=problems, progress=progress)
    else:
        how: dict[str, Any] = {"directed": directed, "task": config.task, "ids": config.ids}
        graph = load_dataset(config.dataset, config.root, **how, problems=problems, progress=progress)
    if config.features in ("identity", "degree"):
        graph = graph.with_features(config.features)  # type: ignore[arg-type]
    for table in config.nodes if not config.train_until else ():
        if table.time:
            problems.note("is not used: only a split by time (data.train_until) needs it", column=table.time)
    return graph, times


def _split(config: DataConfig, graph: Graph, *, times: Any) -> Split | None:
    if graph.labels is None:
        return None
    if not known_labels(np.asarray(graph.labels)).any():
        raise GraphError("all labels are missing: no node can be trained on")
    if config.train_until:
        split = Split.by_time(graph.labels, times, train_until=config.train_until, val_until=config.val_until)
    else:
        split = _make_split(config, graph)
    return split.check(graph.num_nodes, graph.labels, graph.class_names)


def check_preparation(config: DataConfig) -> None:
    """Refuse unknown values of the settings that say what becomes of features, and those that contradict each other."""
    check_choice(config, "data", "features", ("auto", "given", "identity", "degree"))
    check_choice(config, "data", "scale", SCALES)
    check_choice(config, "data", "prepare", PREPARE)
    if config.prepare == "none" and config.scale == "standard":
        raise ConfigError("data.scale is 'standard', but data.prepare is 'none': leave out one of them")


def _check_time_split(config: DataConfig) -> None:
    if not config.train_until and not config.val_until:
        return
    if not config.train_until or not config.val_until:
        raise ConfigError("a split by time needs both data.train_until and data.val_until")
    if not any(table.time for table in config.nodes):
        raise ConfigError('data.train_until needs a column of times: write time = "…" in [data.nodes]')
    if config.split != "auto":
        raise ConfigError(
            f"data.split is {config.split!r}, but data.train_until asks for a split by time: leave out one"
        )


def load_labelled(
    config: DataConfig, *, progress: Progress | None = None, tell: Callable[[str], None] | None = None
) -> tuple[Graph, Split]:
    """Load the graph and the split that `[data]` describes, as `load_data`; refuse a graph without labels."""
    graph, split = load_data(config, progress=progress, tell=tell)
    if split is None:
        raise GraphError(f"{config.dataset} has no labels to learn from")
    return graph, split


def _make_split(config: DataConfig, graph: Graph) -> Split:
    if config.split not in ("auto", "random", "per_class", "published"):
        raise ConfigError(f"data.split is {config.split!r}; it must be auto, random, per_class or published")
    defaults = DataConfig.train, DataConfig.val, DataConfig.stratified
    sizes_given = (config.train, config.val, config.stratified) != defaults
    if config.split in ("auto", "published"):
        own_data = find_dataset(config.dataset) is None
        mapped = bool(config.nodes or config.edges) and config.dataset == EMBEDDED
        look = not mapped and (own_data or config.split == "published")
        splits = load_splits(config.dataset, config.root, graph) if look else []
        if splits and config.split == "published" and not 0 <= config.seed < len(splits):
            raise ConfigError(
                f"data.seed is {config.seed} but {config.dataset} has published splits 0 to {len(splits) - 1}"
            )
        if config.split == "published" and not splits:
            raise ConfigError(f"{config.dataset} has no published split: set data.split to random")
        if (splits or not own_data) and sizes_given:
            raise ConfigError(
                "data.train, data.val and data.stratified describe a random split: set data.split to random"
            )
        if splits:
            return splits[config.seed % len(splits)]
        if not own_data:
            return paper_split(config.dataset, graph.labels, seed=config.seed, root=config.root)
    # Settings are floats: 20.0 stands for 20 nodes.
    train, val = (int(size) if size >= 1 and size == int(size) else size for size in (config.train, config.val))
    if config.split == "per_class":
        return Split.per_class(graph.labels, train, val, seed=config.seed)  # type: ignore[arg-type]
    return Split.random(graph.labels, train, val, seed=config.seed, stratified=config.stratified)
