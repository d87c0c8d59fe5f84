"""Names, aliases, counts, protocols; and the real data where it is present."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import vcr_graphormer as vcr
from tests.data.readers.test_published import ADJACENCY, FEATURES, ONE_HOT, write_arxiv
from tests.support.command import run
from vcr_graphormer import ConfigError, StoreError, load_dataset, load_splits, paper_split
from vcr_graphormer.data import catalogue
from vcr_graphormer.data.catalogue import DATASETS, Counts, find_dataset
from vcr_graphormer.data.datasets import DataConfig, load_data, with_absolute_paths

# Nodes, edges as PyG stores them, features, classes: the table of the data's own README.
REAL = {
    "PubMed": (19_717, 88_648, 500, 3),
    "Cora": (2_708, 10_556, 1_433, 7),
    "CiteSeer": (3_327, 9_104, 3_703, 6),
    "Computer": (13_752, 491_722, 767, 10),
    "Photo": (7_650, 238_162, 745, 8),
    "CS": (18_333, 163_788, 6_805, 15),
    "Physics": (34_493, 495_924, 8_415, 5),
    "Squirrel": (5_201, 217_073, 2_089, 5),
    "Actor": (7_600, 30_019, 932, 5),
    "Texas": (183, 325, 1_703, 5),
}
# Undirected edges after dropping self-loops and merging both directions.
EDGES = {"PubMed": 44_324, "Computer": 245_861, "Squirrel": 198_353, "Actor": 26_659, "Texas": 279}


def test_all_datasets_of_the_paper_are_known() -> None:
    paper = [name for name, dataset in DATASETS.items() if dataset.paper is not None]
    assert paper == [
        "PubMed", "CoraFull", "Computer", "Photo", "CS", "Physics", "Reddit", "AMiner", "Amazon2M",
        "Squirrel", "Actor", "Texas", "arXiv-year",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("pubmed", "PubMed"),
        ("Computers", "Computer"),
        ("amazon-photo", "Photo"),
        ("coauthor_cs", "CS"),
        ("CoauthorPhysics", "Physics"),
        ("cora_full", "CoraFull"),
        ("arxiv-year", "arXiv-year"),
        ("Aminer", "AMiner"),
        ("ogbn-products", "Amazon2M"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    dataset = find_dataset(alias)
    assert dataset is not None
    assert dataset.name == name


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match=r"unknown dataset 'PubMd'; did you mean 'PubMed'\?.*give the path"):
        load_dataset("PubMd")
    with pytest.raises(StoreError, match=r"my/graph\.csv does not exist"):
        load_dataset("my/graph.csv")
    with pytest.raises(StoreError, match=r"AMiner is not under .*aminer\.adj\.sp\.pkl"):
        load_dataset("AMiner", "nowhere")


@pytest.mark.parametrize("name", REAL)
def test_real_data_has_the_known_counts(name: str, data_root: Path) -> None:
    assert tuple(DATASETS[name].stored) == REAL[name]
    graph = load_dataset(name, data_root)
    nodes, _, features, classes = REAL[name]
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (nodes, features, classes)
    # load_dataset refuses other stored edge counts, which test_other_variants_are_refused shows.
    assert graph.num_edges == EDGES.get(name, REAL[name][1] // 2)
    size = DATASETS[name].size(data_root)
    assert size is not None
    assert size > 0
    for split in load_splits(name, data_root):
        with warnings.catch_warnings():
            # One class of Texas has a single node, which not every training part can hold.
            warnings.simplefilter("ignore" if name == "Texas" else "error")
            split.check(graph.num_nodes, graph.labels)


def test_real_splits(data_root: Path) -> None:
    public = load_splits("PubMed", data_root)
    assert [(len(s.train), len(s.val), len(s.test)) for s in public] == [(60, 500, 1000)]
    assert len(load_splits("Texas", data_root)) == 10
    fixed = load_splits("Photo", data_root)
    assert [len(split.train) + len(split.val) + len(split.test) for split in fixed] == [7650]


@pytest.mark.parametrize(("name", "heterophily"), [("Squirrel", 0.78), ("Actor", 0.76), ("Texas", 0.89)])
def test_node_heterophily_of_the_papers_table(name: str, heterophily: float, data_root: Path) -> None:
    measured = load_dataset(name, data_root).summary().node_homophily
    assert measured is not None
    # The paper keeps direction and self-loops, which moves Texas by five points.
    assert abs((1 - measured) - heterophily) < 0.06


def test_squirrels_paper_count_is_the_directed_one(data_root: Path) -> None:
    paper = DATASETS["Squirrel"].paper
    assert paper is not None
    assert load_dataset("Squirrel", data_root, directed=True).num_edges == paper.edges == 216_933


def write_grand(root: Path, name: str) -> None:
    (root / name).mkdir(parents=True)
    sp.save_npz(root / name / f"{name}_adj.npz", ADJACENCY)
    np.save(root / name / f"{name}_feat.npy", FEATURES)
    np.save(root / name / f"{name}_labels.npy", ONE_HOT)


@pytest.mark.parametrize("edges", [2, 4])  # an archive may list each edge once or twice
def test_grand_datasets_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edges: int) -> None:
    write_grand(tmp_path, "Amazon2M")
    known = replace(DATASETS["Amazon2M"], paper=Counts(3, edges, 2, 2))
    monkeypatch.setattr(catalogue, "KNOWN", [known])
    assert load_dataset("Amazon2M", tmp_path).num_edges == 2
    assert load_splits("Amazon2M", tmp_path) == []


def test_other_variants_are_refused(tmp_path: Path) -> None:
    write_grand(tmp_path, "Amazon2M")
    with pytest.raises(StoreError, match="Amazon2M has 3 nodes, 4 edges, 2 features, 2 classes, but 2,449,029 nodes"):
        load_dataset("Amazon2M", tmp_path)
    write_arxiv(tmp_path)
    with pytest.raises(StoreError, match="arXiv-year has 5 nodes, 4 edges, 2 features, 5 classes"):
        load_dataset("arXiv-year", tmp_path)


def test_reddit_prefers_the_papers_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_grand(tmp_path, "reddit")
    monkeypatch.setattr(catalogue, "KNOWN", [replace(DATASETS["Reddit"], paper=Counts(3, 2, 2, 2))])
    assert load_dataset("Reddit", tmp_path).name == "Reddit"
    assert load_splits("Reddit", tmp_path) == []
    assert catalogue.KNOWN[0].size(tmp_path) is not None


def test_protocols(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], 1000)
    sizes = {
        "PubMed": (1800, 600, 600),
        "AMiner": (60, 90, 2850),
        "Amazon2M": (940, 1410, 650),
        "my own": (1800, 600, 600),
    }
    for name, expected in sizes.items():
        split = paper_split(name, labels, seed=3)
        assert (len(split.train), len(split.val), len(split.test)) == expected
    (tmp_path / "splits").mkdir()
    parts = [{"train": [i], "valid": [5], "test": [6]} for i in range(5)]
    np.save(tmp_path / "splits" / "arxiv-year-splits.npy", np.array(parts), allow_pickle=True)
    assert paper_split("arXiv-year", labels, seed=7, root=tmp_path).train.tolist() == [2]


def write_own(folder: Path) -> None:
    (folder / "edges.csv").write_text("0,1\n1,2\n2,3\n3,4\n")
    (folder / "labels.csv").write_text("0\n0\n0\n0\n0\n")


def test_load_data(tmp_path: Path) -> None:
    write_own(tmp_path)
    own = DataConfig(dataset=str(tmp_path), features="identity", seed=1)
    graph, split = load_data(own)
    assert split is not None
    assert (graph.num_features, len(split.train)) == (5, 3)
    for part in ("train", "val", "test"):
        (tmp_path / f"{part}.txt").write_text({"train": "0\n1\n", "val": "2\n", "test": "4\n"}[part])
    _, split = load_data(own)
    assert split is not None
    assert split.test.tolist() == [4]
    (tmp_path / "labels.csv").write_text("0\n1\n2\n3\n4\n")
    with pytest.warns(UserWarning, match="no training node has class"):
        _, split = load_data(replace(own, split="random", train=0.2, val=0.4))
    assert split is not None
    assert (len(split.train), len(split.val)) == (1, 2)
    (tmp_path / "labels.csv").unlink()
    assert load_data(replace(own, features="degree"))[1] is None


def test_digits_have_the_papers_split_and_no_published_one() -> None:
    _, split = load_data(DataConfig())
    assert split is not None
    assert (len(split.train), len(split.val), len(split.test)) == (1078, 359, 360)
    assert load_splits("digits") == []
    with pytest.raises(ConfigError, match="digits has no published split"):
        load_data(DataConfig(split="published"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": "ones"}, "data.features is 'ones'"),
        ({"split": "half"}, "data.split is 'half'"),
        ({"task": "guess"}, "data.task is 'guess'"),
        ({"scale": "large"}, "data.scale is 'large'"),
        ({"prepare": "all"}, "data.prepare is 'all'"),
        ({"prepare": "none", "scale": "standard"}, "data.scale is 'standard', but data.prepare is 'none'"),
    ],
)
def test_bad_settings(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_data(DataConfig(**change))  # type: ignore[arg-type]


def test_paths_are_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cora").mkdir()
    write_own(tmp_path / "cora")
    monkeypatch.chdir(tmp_path)
    assert load_dataset("./cora").num_nodes == 5
    assert load_dataset(tmp_path / "cora").num_nodes == 5
    assert find_dataset("cora") is not None


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"task": "regression"}, "task and ids describe one's own data"),
        ({"ids": "names"}, "task and ids describe one's own data"),
        ({"directed": True}, "digits is an undirected graph"),
    ],
)
def test_options_that_would_change_nothing_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_dataset("digits", **keywords)


def test_split_settings(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n2,3\n3,4\n4,5\n")
    (tmp_path / "labels.csv").write_text("0\n0\n0\n1\n1\n1\n")
    own = DataConfig(dataset=str(tmp_path))
    _, split = load_data(replace(own, split="per_class", train=1.0, val=1.0))
    assert split is not None
    assert (len(split.train), len(split.val), len(split.test)) == (2, 2, 2)
    _, split = load_data(replace(own, train=3, val=2, stratified=False, seed=3))
    assert split is not None
    assert len(split.train) == 3
    np.savez(tmp_path / "split.npz", train=[0, 3], val=[1], test=[2])
    with pytest.raises(ConfigError, match="data.seed is 1 but .* has published splits 0 to 0"):
        load_data(replace(own, split="published", seed=1))
    with pytest.raises(ConfigError, match="describe a random split: set data.split to random"):
        load_data(replace(own, train=0.1))
    with pytest.raises(ConfigError, match="seed is -1"):
        load_data(DataConfig(seed=-1))


def write_own_data(folder: Path, ending: str, text: str = "{}") -> None:
    """Eight nodes with numeric names 1 … 8 in descending order, a label each, and a split by name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{u},{u + 1}\n" for u in range(1, 8)))
    names = range(8, 0, -1)
    (folder / "features.csv").write_text("node,x,y\n" + "".join(f"{u},{u},{u % 2}\n" for u in names))
    (folder / "labels.csv").write_text("node,label\n" + "".join(f"{u},{u % 2}\n" for u in names))
    for part, nodes in (("train", (1, 2, 3, 4)), ("val", (5, 6)), ("test", (7, 8))):
        lines = text.format("".join(f"{node}\n" for node in nodes))
        (folder / f"{part}{ending}").write_text(lines, encoding="utf-8-sig" if "bom" in folder.name else "utf-8")


@pytest.mark.parametrize("ending", [".txt", ".csv", ".tsv"])
@pytest.mark.parametrize("form", ["plain", "bom"])
@pytest.mark.parametrize("text", ["{}", "node\n{}"])
def test_split_files_by_name_beside_own_data(tmp_path: Path, ending: str, form: str, text: str) -> None:
    folder = tmp_path / form
    write_own_data(folder, ending, text)
    graph, split = load_data(DataConfig(dataset=str(folder)))
    assert split is not None
    assert graph.names is not None
    (alone,) = load_splits(folder)
    for found in (split, alone):
        assert graph.names[found.train].tolist() == ["4", "3", "2", "1"]
        assert graph.names[found.test].tolist() == ["8", "7"]
    saved = tmp_path / "saved"
    assert "4 train, 2 val, 2 test" in run("datasets", str(folder), "--save", str(saved))
    (again,) = load_splits(saved)
    assert again.train.tolist() == split.train.tolist()  # the split stays with the graph


def test_the_split_belongs_to_the_graph_as_it_was_read(tmp_path: Path) -> None:
    """Numeric names, where the graph is read with options: the files mean names, whatever `auto` would say."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "edges.csv").write_text("0,1\n1,2\n2,3\n3,0\n")  # 0 … 3 in all: rows, unless asked otherwise
    (folder / "labels.csv").write_text("node,label\n" + "3,0\n2,1\n1,0\n0,1\n")
    for part, lines in (("train", "0\n1\n"), ("val", "2\n"), ("test", "3\n")):
        (folder / f"{part}.txt").write_text(lines)
    graph, split = load_data(DataConfig(dataset=str(folder), ids="names"))
    assert split is not None
    assert graph.names is not None
    assert graph.names[split.train].tolist() == ["1", "0"]
    assert split.train.tolist() == [2, 3]
    assert [part.train.tolist() for part in load_splits(folder, graph=graph)] == [[2, 3]]
    _, rows = load_data(DataConfig(dataset=str(folder), ids="rows"))
    assert rows is not None
    assert rows.train.tolist() == [0, 1]
    for option, train in (("data.ids=names", [2, 3]), ("data.ids=rows", [0, 1])):
        out = tmp_path / option
        quick = ["training.epochs=1", "tokens.hops=0", "tokens.clusters=0", "tokens.content_tokens=0", option]
        words = [word for setting in (*quick, "data.features=degree") for word in ("--set", setting)]
        run("train", "--dataset", str(folder), "--out", str(out), "--device", "cpu", *words)
        assert vcr.Run.open(out).split.train.tolist() == train


def test_split_files_beside_several_labels_per_node(tmp_path: Path) -> None:
    write_own_data(tmp_path, ".txt")
    (tmp_path / "labels.csv").write_text("node,a,b\n" + "".join(f"{u},{u % 2},1\n" for u in range(8, 0, -1)))
    graph, split = load_data(DataConfig(dataset=str(tmp_path), task="multilabel"))
    assert split is not None
    assert graph.names is not None
    assert graph.names[split.val].tolist() == ["6", "5"]
    assert "4 train, 2 val, 2 test" in run("datasets", str(tmp_path), "--set", "data.task=multilabel")


def test_paths_that_hold_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    own, published, embedded = (DataConfig(dataset=name, root="raw") for name in ("own", "PubMed", "digits"))
    assert with_absolute_paths(own) == DataConfig(dataset=str(tmp_path / "own"), root="raw")
    assert with_absolute_paths(published) == DataConfig(dataset="PubMed", root=str(tmp_path / "raw"))
    assert with_absolute_paths(embedded) == embedded
    title = DataConfig(dataset="my graph")  # of a graph that was made in Python
    assert with_absolute_paths(title) == title
