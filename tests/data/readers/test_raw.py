"""Raw files are read as PyG reads them, bit for bit, and nothing in them is ever run."""

import gzip
import hashlib
import io
import os
import pickle
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from vcr_graphormer import Graph, Split, StoreError, VCRError, load_dataset, load_splits
from vcr_graphormer.data import catalogue
from vcr_graphormer.data.catalogue import DATASETS, KNOWN, Counts
from vcr_graphormer.data.readers.downloads import download
from vcr_graphormer.data.readers.published import Files
from vcr_graphormer.data.readers.raw import distinct_edges, read_geom, read_planetoid, smaller_form

# Of each dataset, as PyG 2.6 read it before this package did without: the graph, the directed graph, all splits.
FINGERPRINTS = {
    "PubMed": (
        "b4b6ccb9cc69c644",
        "5ba06c9ae2ab4b86",
        "0b348427bab91f15",
    ),
    "Cora": (
        "59370b2080dc7bd6",
        "499bd7115451621c",
        "e004a4430532b3a4",
    ),
    "CiteSeer": (
        "0fa15ea9af0060cb",
        "f58f2eadc8883947",
        "cd5b9f776b4668e8",
    ),
    "Computer": (
        "3fec39393632fa39",
        "652546742f6ed103",
        "d8313551a2e84222",
    ),
    "Photo": (
        "b46bc70a91cee2fb",
        "37206f96eae9c19e",
        "34eb7ab1930debfc",
    ),
    "CS": ("f56697aa5ae5640a", "c9695314b07ae1b8", "b817278d874dffbc"),
    "Physics": (
        "e511af9aa3ca46e1",
        "cf1f86ef15345e74",
        "eea10af7abee8557",
    ),
    "Squirrel": (
        "e4c56fe40278c4c5",
        "adcbeb2aac3c70ea",
        "fa65563c4ea8e81a",
    ),
    "Actor": (
        "89e93c3fa6f595e7",
        "5154e5f44278c6a7",
        "e912fe46a95ce015",
    ),
    "Texas": (
        "19804dfb4c4abb90",
        "457b7700098240ed",
        "51e52cbc09fdc445",
    ),
    "Minesweeper": (
        "bf3fe5caf2b25aad",
        "06384ad8f6e0decd",
        "915e8aaeb4499a5e",
    ),
    "Tolokers": (
        "590fb97a2cdc8a64",
        "f29c1afee4c354aa",
        "45174cc695f28da1",
    ),
}


def digest_splits(splits: list[Split]) -> str:
    state = hashlib.sha256()
    for split in splits:
        for part in (split.train, split.val, split.test):
            state.update(part.tobytes())
            state.update(b"|")
    return state.hexdigest()[:16]


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_graphs_and_splits_are_those_of_pyg(name: str, data_root: Path) -> None:
    found = [load_dataset(name, data_root, directed).fingerprint[:16] for directed in (False, True)]
    assert (*found, digest_splits(load_splits(name, data_root))) == FINGERPRINTS[name]


# ---------------------------------------------------------------- small collections, with PyG as the reference


def small_graph(n: int = 40) -> tuple[Any, Any, Any]:
    """Random arcs with loops and repeats, 0/1 features and labels of three classes."""
    random = np.random.default_rng(3)
    edges = random.integers(0, n, (2, 150))
    return edges, (random.random((n, 9)) < 0.1).astype(np.float32), np.arange(n) % 3


def write_planetoid(root: Path, gaps: bool = False) -> None:
    edges, features, labels = small_graph(1000)
    name = "CiteSeer" if gaps else "Cora"
    raw = root / "Planetoid" / name / "raw"
    raw.mkdir(parents=True)
    test = np.random.default_rng(0).permutation(np.arange(900, 1000))
    test = test[test % 7 != 3] if gaps else test
    test = np.concatenate([test[(test != 900) & (test != 999)], [900, 999]])  # the ends are always there
    one_hot = np.eye(3)[labels]
    graph: dict[int, list[int]] = {node: [] for node in range(1000)}
    for source, target in edges.T:
        graph[int(source)].append(int(target))
        graph[int(target)].append(int(source))
    parts = {
        "x": sp.csr_matrix(features[:30]),
        "y": one_hot[:30],
        "allx": sp.csr_matrix(features[:900]),
        "ally": one_hot[:900],
        "tx": sp.csr_matrix(features[test]),
        "ty": one_hot[test],
        "graph": graph,
    }
    for part, value in parts.items():
        (raw / f"ind.{name.lower()}.{part}").write_bytes(pickle.dumps(value, 2))
    (raw / f"ind.{name.lower()}.test.index").write_text("".join(f"{node}\n" for node in test))


def write_archive(file: Path) -> None:
    edges, features, labels = small_graph()
    file.parent.mkdir(parents=True)
    adjacency = sp.csr_matrix((np.ones(150, np.float32), tuple(edges)), shape=(40, 40))
    matrices = {"adj": adjacency, "attr": sp.csr_matrix(3 * features)}
    arrays = {f"{k}_{p}": getattr(m, p) for k, m in matrices.items() for p in ("data", "indices", "indptr", "shape")}
    names = {"idx_to_class": np.array([{"a": 1}], dtype=object)}  # pickled texts beside them, as in the original files
    np.savez(file, labels=labels, **arrays, **names)  # type: ignore[arg-type]


def write_geom(folder: Path, name: str) -> None:
    edges, features, labels = small_graph()
    folder.mkdir(parents=True)
    film = name == "film"
    lines = [f"node_id\tfeature{'(feature_amount:9)' if film else ''}\tlabel"]
    for node in np.random.default_rng(1).permutation(40) if film else range(40):
        row = np.flatnonzero(features[node]) if film and features[node].any() else [0] if film else features[node]
        lines.append(f"{node}\t{','.join(str(int(value)) for value in row)}\t{labels[node]}")
    (folder / "out1_node_feature_label.txt").write_text("\n".join(lines) + "\n")
    table = ["node_id\tnode_id", *(f"{source}\t{target}" for source, target in edges.T)]
    (folder / "out1_graph_edges.txt").write_text("\n".join(table) + "\n")
    for number in range(10):
        part = np.random.default_rng(number).integers(0, 3, 40)
        masks = {f"{name}_mask": (part == i).astype(np.uint8) for i, name in enumerate(("train", "val", "test"))}
        np.savez(folder / f"{name}_split_0.6_0.2_{number}.npz", **masks)


def write_heterophilous(file: Path) -> None:
    edges, features, labels = small_graph()
    file.parent.mkdir(parents=True)
    part = np.random.default_rng(0).integers(0, 3, (10, 40))
    masks = {f"{name}_masks": part == i for i, name in enumerate(("train", "val", "test"))}
    np.savez(file, node_features=features, node_labels=labels, edges=edges.T, **masks)


def write_reddit(folder: Path) -> None:
    edges, features, labels = small_graph()
    folder.mkdir(parents=True)
    np.savez(folder / "reddit_data.npz", feature=features, label=labels, node_types=np.arange(40) % 3 + 1)
    sp.save_npz(folder / "reddit_graph.npz", sp.coo_matrix((np.ones(150), tuple(edges)), shape=(40, 40)))


# Name of the dataset → how its files are written, and PyG's class, folder and arguments.
COLLECTIONS: dict[str, tuple[Callable[[Path], None], tuple[Any, ...], dict[str, Any]]] = {
    "Cora": (write_planetoid, ("Planetoid", "Planetoid", "Cora"), {}),
    "CiteSeer": (partial(write_planetoid, gaps=True), ("Planetoid", "Planetoid", "CiteSeer"), {}),
    "CoraFull": (
        lambda root: write_archive(root / "CitationFull/cora/raw/cora.npz"),
        ("CitationFull", "CitationFull", "Cora"),
        {},
    ),
    "Photo": (
        lambda root: write_archive(root / "Amazon/Photo/raw/amazon_electronics_photo.npz"),
        ("Amazon", "Amazon", "Photo"),
        {},
    ),
    "Squirrel": (
        lambda root: write_geom(root / "WikipediaNetwork/squirrel/geom_gcn/raw", "squirrel"),
        ("WikipediaNetwork", "WikipediaNetwork", "squirrel"),
        {"geom_gcn_preprocess": True},
    ),
    "Texas": (lambda root: write_geom(root / "WebKB/texas/raw", "texas"), ("WebKB", "WebKB", "texas"), {}),
    "Actor": (lambda root: write_geom(root / "Actor/raw", "film"), ("Actor", "Actor"), {}),
    "Minesweeper": (
        lambda root: write_heterophilous(root / "HeterophilousGraphDataset/minesweeper/raw/minesweeper.npz"),
        ("HeterophilousGraphDataset", "HeterophilousGraphDataset", "Minesweeper"),
        {},
    ),
    "Reddit": (lambda root: write_reddit(root / "Reddit/raw"), ("Reddit", "Reddit"), {}),
}


def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue.Dataset, "_check", lambda *_: None)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", COLLECTIONS)
@pytest.mark.filterwarnings("ignore")
def test_small_collections_are_read_as_by_pyg(
    name: str, directed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("torch_geometric.datasets")
    write, (kind, folder, *arguments), options = COLLECTIONS[name]
    write(tmp_path)
    any_size(monkeypatch)
    graph, splits = load_dataset(name, tmp_path, directed), []
    if name != "Photo":  # whose split is a file of its own
        splits = load_splits(name, tmp_path)
    assert not list(tmp_path.rglob("processed"))
    data = getattr(datasets, kind)(str(tmp_path / folder), *arguments, **options)[0]
    expected = Graph.from_pyg(data, features=smaller_form(data.x), directed=directed)
    assert graph.fingerprints == expected.fingerprints
    _, edges = DATASETS[name].sources[-1].read(tmp_path, directed, name)
    assert edges == data.edge_index.shape[1]
    masks = getattr(data, "train_mask", None)
    columns = 0 if masks is None else 1 if masks.ndim == 1 else masks.shape[1]
    assert digest_splits(splits) == digest_splits([Split.from_pyg(data, column) for column in range(columns)])


# ---------------------------------------------------------------- nothing runs


class Hostile:
    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.victim}",)


def payloads(victim: Path) -> dict[str, bytes]:
    """Programs that make the file `victim`, in every wrapping that a reader might open."""
    program, objects = Hostile(victim), np.array([Hostile(victim)], dtype=object)
    tensors, array, archive, packed = (io.BytesIO() for _ in range(4))
    torch.save(program, tensors)
    np.save(array, objects, allow_pickle=True)
    with zipfile.ZipFile(archive, "w") as content:  # under every name that a reader asks an archive for
        for name in ("adj_data", "data", "format", "feature", "labels", "node_features", "train_mask", "train", "row"):
            content.writestr(f"{name}.npy", array.getvalue())
    np.savez(packed, **dict.fromkeys(("edge_index", "features", "labels", "x", "y"), objects))  # type: ignore[arg-type]
    return {
        "pickle": pickle.dumps(program),
        "old pickle": pickle.dumps(program, 0),
        "torch": tensors.getvalue(),
        "npy": array.getvalue(),
        "archive": archive.getvalue(),
        "npz": packed.getvalue(),
        "gzip": gzip.compress(pickle.dumps(program)),
    }


def all_files(name: str) -> list[str]:
    """Every file that the readers of a dataset look for, under the data root."""
    files = []
    for source in DATASETS[name].sources:
        folder = source.raw.rpartition("/")[0]
        files += [source.raw, *(f"{folder}/{file}" for file, _ in getattr(source, "urls", ()))]
    if name in ("Reddit", "Amazon2M", "AMiner"):
        folder = DATASETS[name].sources[0].raw.rpartition("/")[0]
        stem = "aminer." if name == "AMiner" else f"{folder}_"
        files += [f"{folder}/{stem}{part}" for part in ("feat.npy", "labels.npy", "features.pkl", "labels.pkl")]
    if name == "arXiv-year":
        files += [f"ogbn_arxiv/raw/{part}.csv.gz" for part in ("edge", "node-feat", "node_year")]
        files += ["splits/arxiv-year-splits.npy"]
    return [*files, *([DATASETS[name].split_file] if DATASETS[name].split_file else [])]


@pytest.mark.parametrize("kind", ["pickle", "old pickle", "torch", "npy", "archive", "npz", "gzip"])
@pytest.mark.parametrize("name", [dataset.name for dataset in KNOWN])
def test_no_file_of_a_published_dataset_runs(name: str, kind: str, tmp_path: Path) -> None:
    content = payloads(tmp_path / "ran")[kind]
    for file in all_files(name):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    for load in (load_dataset, load_splits):
        with pytest.raises(VCRError):
            load(name, tmp_path)
            assert load is load_splits
            assert load(name, tmp_path) == []
            raise StoreError("a dataset without splits")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", COLLECTIONS)
def test_each_single_file_with_a_program_in_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are sound, so that the reader comes to the one that is not."""
    write, _, _ = COLLECTIONS[name]
    write(tmp_path)
    any_size(monkeypatch)
    for file in [file for file in tmp_path.rglob("*") if file.is_file()]:
        before = file.read_bytes()
        for content in payloads(tmp_path / "ran").values():
            file.write_bytes(content)
            refused = []
            for load in (load_dataset, load_splits):
                try:
                    load(name, tmp_path)
                except VCRError as error:
                    refused.append(str(error))
            assert refused or file.suffix in (".x", ".y")  # of Planetoid, whose `x` nobody needs
        file.write_bytes(before)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", COLLECTIONS)
def test_processed_files_of_pyg_are_never_opened(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, _, _ = COLLECTIONS[name]
    write(tmp_path)
    any_size(monkeypatch)
    before = load_dataset(name, tmp_path).fingerprint
    for raw in tmp_path.rglob("raw"):
        (raw.parent / "processed").mkdir()
        for file in ("data.pt", "pre_transform.pt", "pre_filter.pt", "geometric_data_processed.pt"):
            torch.save(Hostile(tmp_path / "ran"), raw.parent / "processed" / file)
    assert load_dataset(name, tmp_path).fingerprint == before
    if name != "Photo":
        load_splits(name, tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("ending", ["npy", "npz", "csv", "tsv", "txt", "parquet", "graphml", "pt", "pkl", "json"])
def test_no_file_of_own_data_runs(ending: str, tmp_path: Path) -> None:
    for number, content in enumerate(payloads(tmp_path / "ran").values()):
        for name in ("edges", "features", "labels", "split", "train", "graph", "manifest", "indices", "indptr"):
            folder = tmp_path / f"{number}-{name}"
            folder.mkdir()
            if name != "edges":
                (folder / "edges.csv").write_text("source,target\n0,1\n1,2\n")
            (folder / f"{name}.{ending}").write_bytes(content)
            for path in (folder, folder / f"{name}.{ending}"):
                for load in (load_dataset, load_splits):
                    try:
                        load(path)
                    except VCRError as error:
                        assert str(error)
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------- damaged files, downloads


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("ind.cora.test.index", b"5\n5\n", "does not number the rows"),
        ("ind.cora.test.index", b"x\n", "is damaged"),
        ("ind.cora.graph", pickle.dumps([1]), "graph is not a dictionary of lists"),
        ("ind.cora.graph", pickle.dumps({0: [10**9]}), "node"),
        ("ind.cora.tx", None, r"tx does not exist"),
    ],
)
def test_damaged_planetoid(name: str, change: bytes | None, message: str, tmp_path: Path) -> None:
    write_planetoid(tmp_path)
    file = tmp_path / "Planetoid" / "Cora" / "raw" / name
    file.unlink() if change is None else file.write_bytes(change)
    with pytest.raises(VCRError, match=message):
        read_planetoid(file.parent)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("out1_node_feature_label.txt", "a\tb\tc\n", "line 2: 3 columns"),
        ("out1_node_feature_label.txt", "a\tb\tc\n1\t0,1\n", "line 2: 3 columns"),
        ("out1_node_feature_label.txt", "a\tb\tc\n1\t0,1\t0\n", "its nodes are not numbered 0 to 0"),
        ("out1_node_feature_label.txt", "a\tb\tc\n0\tx,1\t0\n", "is damaged"),
        ("out1_graph_edges.txt", "a\tb\n0\t99999999999999999999999\n", "is damaged"),
        ("out1_graph_edges.txt", "a\tb\n0\t77\n", "77 but the graph has 40 nodes"),
    ],
)
def test_damaged_geom(name: str, text: str, message: str, tmp_path: Path) -> None:
    write_geom(tmp_path / "raw", "texas")
    (tmp_path / "raw" / name).write_text(text)
    with pytest.raises(VCRError, match=message):
        read_geom(tmp_path / "raw")


def test_distinct_edges_of_larger_graphs() -> None:
    edges = distinct_edges(np.array([[3, 3, 0], [0, 0, 3]]), 4)
    assert edges.tolist() == [[0, 3], [3, 0]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address it is served at."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()


def test_missing_files_are_downloaded(
    server: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = server
    write_heterophilous(folder / "deep" / "minesweeper.npz")
    source = DATASETS["Minesweeper"].sources[0]
    assert isinstance(source, Files)
    local = replace(source, urls=(("minesweeper.npz", f"{address}/deep/minesweeper.npz"),))
    small = replace(DATASETS["Minesweeper"], sources=(local,), stored=Counts(40, 269, 9, 3))
    monkeypatch.setattr(catalogue, "KNOWN", [small])
    any_size(monkeypatch)
    assert load_dataset("Minesweeper", tmp_path / "data").num_nodes == 40
    (folder / "deep" / "minesweeper.npz").unlink()
    assert load_dataset("Minesweeper", tmp_path / "data").num_nodes == 40  # it is there


def test_files_are_taken_out_of_an_archive(server: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = server
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.writestr("a.npz", "first")
        archive.writestr("b.npz", "second")
        archive.writestr("../evil", "outside")
    urls = {"a.npz": f"{address}/all.zip", "b.npz": f"{address}/all.zip"}
    download(urls, tmp_path / "data" / "raw")
    assert (tmp_path / "data" / "raw" / "b.npz").read_text() == "second"
    assert not (tmp_path / "data" / "evil").exists()
    with pytest.raises(StoreError, match="c.npz is missing and could not be downloaded from .*all.zip"):
        download({"c.npz": f"{address}/all.zip"}, tmp_path / "data" / "raw")


def test_no_network(server: tuple[Path, str], tmp_path: Path) -> None:
    _, address = server
    for url in (f"{address}/nothing.npz", "http://127.0.0.1:1/x.npz"):
        with pytest.raises(StoreError, match="x.npz is missing and could not be downloaded from .*put it there"):
            download({"x.npz": url}, tmp_path)
    assert list(tmp_path.glob("*.npz")) == []
