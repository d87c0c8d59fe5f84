"""Name or path → `Graph` and its splits: the paper's 13 datasets, the embedded default, one's own files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..base.checks import check_seed
from ..errors import ConfigError, GraphError, StoreError, unknown_name
from .generated import digits
from .graph import Graph
from .readers.own import read_graph, read_splits
from .readers.published import read_arxiv_splits, read_arxiv_year, read_grand, read_pyg, smaller_form
from .split import Split
from .tasks import CLASSIFICATION


class Counts(NamedTuple):
    """Size of a dataset: `edges` as its source counts them."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class Dataset:
    """What is known of a published dataset.

    `raw` is one raw file under the data root that shows it is present; `stored` is checked when loading; `paper` is
    what the paper's tables print. `call` is PyG's class, its folder under the root and its arguments; `grand` is the
    adjacency among GRAND+'s files, which are preferred where both exist, for the paper used them.
    """

    name: str
    raw: str
    stored: Counts
    paper: Counts | None = None
    call: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    grand: str = ""
    splits: str = ""
    protocol: str = "random 60/20/20"
    aliases: tuple[str, ...] = ()

    def size(self, root: str | Path) -> int | None:
        """Bytes of the raw files under the data root; None where they are not present."""
        names = (self.grand, self.raw, self.raw.removesuffix(".gz"))
        file = next((Path(root) / name for name in names if name and (Path(root) / name).is_file()), None)
        return None if file is None else sum(part.stat().st_size for part in file.parent.iterdir() if part.is_file())


def _planetoid(name: str, stored: Counts, paper: Counts | None = None) -> Dataset:
    raw = f"Planetoid/{name}/raw/ind.{name.lower()}.graph"
    return Dataset(name, raw, stored, paper, ("Planetoid", "Planetoid", name), splits="masks")


def _geom(name: str, folder: str, stored: Counts, paper: Counts, *call: str, **options: Any) -> Dataset:
    raw = f"{folder}/raw/out1_graph_edges.txt"
    return Dataset(name, raw, stored, paper, call, options, splits="masks")


_KNOWN = [
    _planetoid("PubMed", Counts(19_717, 88_648, 500, 3), Counts(19_717, 88_651, 500, 3)),
    Dataset(
        "CoraFull",
        "CitationFull/cora/raw/cora.npz",
        Counts(19_793, 126_842, 8_710, 70),
        Counts(19_793, 126_842, 8_710, 70),
        ("CitationFull", "CitationFull", "Cora"),
    ),
    Dataset(
        "Computer",
        "Amazon/Computers/raw/amazon_electronics_computers.npz",
        Counts(13_752, 491_722, 767, 10),
        Counts(13_752, 491_722, 767, 10),
        ("Amazon", "Amazon", "Computers"),
        splits="splits/amazon-computer_split.npz",
        aliases=("Computers", "AmazonComputers"),
    ),
    Dataset(
        "Photo",
        "Amazon/Photo/raw/amazon_electronics_photo.npz",
        Counts(7_650, 238_162, 745, 8),
        Counts(7_650, 238_163, 745, 8),
        ("Amazon", "Amazon", "Photo"),
        splits="splits/amazon-photo_split.npz",
        aliases=("AmazonPhoto",),
    ),
    Dataset(
        "CS",
        "Coauthor/CS/raw/ms_academic_cs.npz",
        Counts(18_333, 163_788, 6_805, 15),
        Counts(18_333, 163_788, 6_805, 15),
        ("Coauthor", "Coauthor", "CS"),
        splits="splits/coauthor-cs_split.npz",
        aliases=("CoauthorCS",),
    ),
    Dataset(
        "Physics",
        "Coauthor/Physics/raw/ms_academic_phy.npz",
        Counts(34_493, 495_924, 8_415, 5),
        Counts(34_493, 495_924, 8_415, 15),  # the paper prints 15 labels; the data has 5
        ("Coauthor", "Coauthor", "Physics"),
        splits="splits/coauthor-physics_split.npz",
        aliases=("CoauthorPhysics",),
    ),
    Dataset(
        "Reddit",
        "Reddit/raw/reddit_data.npz",
        Counts(232_965, 114_615_892, 602, 41),
        Counts(232_965, 11_606_919, 602, 41),  # the paper's edges are those of GRAND+'s files, read where present
        ("Reddit", "Reddit"),
        grand="reddit/reddit_adj.npz",
        splits="masks",
        protocol="20/30 per class",
    ),
    Dataset(
        "AMiner",
        "aminer/aminer.adj.sp.pkl",
        Counts(593_486, 6_217_004, 100, 18),
        Counts(593_486, 6_217_004, 100, 18),
        grand="aminer/aminer.adj.sp.pkl",
        protocol="20/30 per class",
    ),
    Dataset(
        "Amazon2M",
        "Amazon2M/Amazon2M_adj.npz",
        Counts(2_449_029, 61_859_140, 100, 47),
        Counts(2_449_029, 61_859_140, 100, 47),
        grand="Amazon2M/Amazon2M_adj.npz",
        protocol="940/1410 nodes",
        aliases=("ogbn-products",),
    ),
    _geom(
        "Squirrel",
        "WikipediaNetwork/squirrel/geom_gcn",
        Counts(5_201, 217_073, 2_089, 5),
        Counts(5_201, 216_933, 2_089, 5),
        "WikipediaNetwork",
        "WikipediaNetwork",
        "squirrel",
        geom_gcn_preprocess=True,
    ),
    _geom("Actor", "Actor", Counts(7_600, 30_019, 932, 5), Counts(7_600, 33_544, 931, 5), "Actor", "Actor"),
    _geom("Texas", "WebKB/texas", Counts(183, 325, 1_703, 5), Counts(183, 295, 1_703, 5), "WebKB", "WebKB", "texas"),
    Dataset(
        "arXiv-year",
        "ogbn_arxiv/raw/edge.csv.gz",
        Counts(169_343, 1_166_243, 128, 5),
        Counts(169_343, 1_166_243, 128, 5),
        splits="LINKX",
        protocol="LINKX's splits",
        aliases=("ogbn-arxiv-year",),
    ),
    _planetoid("Cora", Counts(2_708, 10_556, 1_433, 7)),
    _planetoid("CiteSeer", Counts(3_327, 9_104, 3_703, 6)),
]
DATASETS = {dataset.name: dataset for dataset in _KNOWN}
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


def find_dataset(name: str) -> Dataset | None:
    """The dataset of that name or alias, case, hyphens and spaces ignored; None if there is none, or for a path."""
    wanted = _plain(name)
    return next((d for d in _KNOWN if wanted in {_plain(n) for n in (d.name, *d.aliases)}), None)


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())


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
    graph, stored_edges = _read(dataset, Path(root), directed)
    _check_counts(dataset, Counts(graph.num_nodes, stored_edges, graph.num_features, graph.num_classes))
    return graph


def _own_path(name: str) -> Path:
    path = Path(name)
    looks_like_path = path.exists() or len(path.parts) > 1 or path.suffix
    if not looks_like_path:
        error = unknown_name("dataset", name, [EMBEDDED, *DATASETS])
        raise ConfigError(f"{error}; for your own data give the path of a folder or file")
    return path


def _read(dataset: Dataset, root: Path, directed: bool) -> tuple[Graph, int]:
    if dataset.grand and (root / dataset.grand).is_file():
        return read_grand((root / dataset.grand).parent, directed, dataset.name)
    if dataset.call:
        data = read_pyg(root, dataset.call, dataset.options)
        features = smaller_form(data.x)
        graph = Graph.from_pyg(data, features=features, directed=directed, name=dataset.name)
        return graph, int(data.edge_index.shape[1])
    if dataset.grand or dataset.size(root) is None:
        raise StoreError(f"{dataset.name} is not under {root}: put its published raw files there ({dataset.raw}, …)")
    return read_arxiv_year(root / "ogbn_arxiv", directed, dataset.name)


def _check_counts(dataset: Dataset, found: Counts) -> None:
    """Refuse a dataset whose size is not the known one: another variant would give other results under its name.

    Edges of PyG's and OGB's datasets must agree exactly. GRAND+'s archives list an edge once or twice, so there the
    paper's number or its double is accepted, give or take 1 % for self-loops and duplicates.
    """
    if found == dataset.stored:
        return
    paper = dataset.paper
    if dataset.grand and paper is not None:
        near = any(abs(found.edges - times * paper.edges) <= 0.01 * times * paper.edges for times in (1, 2))
        if near and found._replace(edges=paper.edges) == paper:
            return
    has, expected = (", ".join(f"{n:,} {what}" for what, n in c._asdict().items()) for c in (found, dataset.stored))
    raise StoreError(
        f"{dataset.name} has {has}, but {expected} were expected: the raw files are another variant of the dataset "
        f"(load them by path, as your own data)"
    )


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
    if dataset.splits == "LINKX":
        return read_arxiv_splits(Path(root))
    if dataset.splits == "masks":
        if dataset.grand and (Path(root) / dataset.grand).is_file():
            return []
        data = read_pyg(Path(root), dataset.call, dataset.options)
        columns = data.train_mask.shape[1] if data.train_mask.ndim == 2 else 1
        return [Split.from_pyg(data, column) for column in range(columns)]
    return [Split.from_files(Path(root) / dataset.splits)] if dataset.splits else []


def paper_split(name: str, labels: Any, seed: int = 0, root: str | Path = "data") -> Split:
    """The split of the paper's protocol for this dataset: 60/20/20, few labels, or LINKX's; 60/20/20 for own data.

    LINKX published five splits; seeds beyond take them in turn.
    """
    dataset = find_dataset(name)
    protocol = "random 60/20/20" if dataset is None else dataset.protocol
    if protocol == "20/30 per class":
        return Split.per_class(labels, 20, 30, seed)
    if protocol == "940/1410 nodes":
        return Split.random(labels, 940, 1410, seed)
    if protocol == "LINKX's splits":
        splits = load_splits(name, root)
        return splits[check_seed(seed) % len(splits)]
    return Split.random(labels, 0.6, 0.2, seed)


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
