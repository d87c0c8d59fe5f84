"""Published raw files, rebuilt in small: GRAND+'s archives, OGB's arXiv, LINKX's splits."""

import gzip
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from vcr_graphormer import GraphError, StoreError, load_dataset, load_splits
from vcr_graphormer.data import catalogue
from vcr_graphormer.data.catalogue import DATASETS, Counts
from vcr_graphormer.data.readers.published import (
    read_arxiv_splits,
    read_arxiv_year,
    read_grand,
    year_classes,
)
from vcr_graphormer.data.readers.raw import smaller_form

ADJACENCY = sp.csr_matrix(np.array([[0, 2, 0], [2, 0, 1], [0, 1, 0]]))
FEATURES = np.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
ONE_HOT = np.array([[0, 1], [1, 0], [0, 0]])


def test_grand_archive(tmp_path: Path) -> None:
    folder = tmp_path / "Amazon2M"
    folder.mkdir()
    sp.save_npz(folder / "Amazon2M_adj.npz", ADJACENCY)
    np.save(folder / "Amazon2M_feat.npy", FEATURES)
    np.save(folder / "Amazon2M_labels.npy", ONE_HOT)
    graph, stored = read_grand(folder, False, "Amazon2M")
    assert (graph.num_edges, stored, graph.weights, graph.name) == (2, 4, None, "Amazon2M")
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, 0, -1]
    np.testing.assert_array_equal(graph.features, FEATURES.astype(np.float32))
    (folder / "Amazon2M_adj.npz").write_bytes(b"PK no")
    with pytest.raises(StoreError, match="is not a readable scipy sparse matrix"):
        read_grand(folder, False, "Amazon2M")
    (folder / "Amazon2M_adj.npz").unlink()
    with pytest.raises(StoreError, match="Amazon2M_adj.npz does not exist"):
        read_grand(folder, False, "Amazon2M")


def test_aminer_pickles_with_standardized_features(tmp_path: Path) -> None:
    folder = tmp_path / "aminer"
    folder.mkdir()
    for part, value in (("adj.sp", ADJACENCY), ("features", FEATURES), ("labels", ONE_HOT)):
        (folder / f"aminer.{part}.pkl").write_bytes(pickle.dumps(value))
    graph, _ = read_grand(folder, False, "AMiner")
    # Column (1, 2, 6) has mean 3 and standard deviation sqrt(14 / 3); a constant column becomes 0.
    expected = np.column_stack([np.array([-2, -1, 3]) / np.sqrt(14 / 3), np.zeros(3)])
    np.testing.assert_allclose(np.asarray(graph.features), expected, rtol=1e-6)


def write_arxiv(root: Path) -> None:
    raw = root / "ogbn_arxiv" / "raw"
    raw.mkdir(parents=True)
    for name, text in {
        "edge": "0,1\n1,2\n3,0\n4,4\n",
        "node-feat": "0.5,1\n1.5,2\n2.5,3\n3.5,4\n4.5,5\n",
        "node_year": "2010\n2020\n2015\n2013\n2018\n",
    }.items():
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))


def test_arxiv_year(tmp_path: Path) -> None:
    write_arxiv(tmp_path)
    graph, stored = read_arxiv_year(tmp_path / "ogbn_arxiv", True, "arXiv-year")
    assert graph.labels is not None
    assert (graph.num_arcs, stored, graph.labels.tolist()) == (3, 4, [0, 4, 2, 1, 3])
    raw = tmp_path / "ogbn_arxiv" / "raw"
    (raw / "node_year.csv.gz").write_bytes(gzip.compress(b"2010\n"))
    with pytest.raises(GraphError, match="node_year has 1 rows but node-feat has 5"):
        read_arxiv_year(tmp_path / "ogbn_arxiv", True, "arXiv-year")
    (raw / "node_year.csv.gz").unlink()
    with pytest.raises(StoreError, match=r"node_year\.csv\.gz does not exist: put OGB's raw"):
        read_arxiv_year(tmp_path / "ogbn_arxiv", True, "arXiv-year")
    (raw / "node_year.csv").write_text("2010\n2020\n2015\n2013\n2018\n")
    assert read_arxiv_year(tmp_path / "ogbn_arxiv", True, "arXiv-year")[1] == 4
    (raw / "edge.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(StoreError, match="is not a readable table of numbers"):
        read_arxiv_year(tmp_path / "ogbn_arxiv", True, "arXiv-year")


def test_year_classes_follow_the_quantiles() -> None:
    years = np.array([2000] * 4 + [2001] * 4 + [2002] * 2)
    # The quantiles at 1/5 … 4/5 are 2000, 2000.6, 2001 and 2001.2: a year equal to a cut is in the later class.
    assert year_classes(years, 5).tolist() == [1] * 4 + [3] * 4 + [4] * 2


def test_linkx_splits(tmp_path: Path) -> None:
    (tmp_path / "splits").mkdir()
    file = tmp_path / "splits" / "arxiv-year-splits.npy"
    splits = np.array([{"train": np.array([i]), "valid": np.array([5]), "test": np.array([6])} for i in range(3)])
    np.save(file, splits, allow_pickle=True)
    assert [split.train.tolist() for split in read_arxiv_splits(tmp_path)] == [[0], [1], [2]]
    np.save(file, np.array([{"train": [1]}]), allow_pickle=True)
    with pytest.raises(StoreError, match="split 0 is not a dictionary with train, valid and test"):
        read_arxiv_splits(tmp_path)
    file.unlink()
    with pytest.raises(StoreError, match=r"arxiv-year-splits\.npy does not exist"):
        read_arxiv_splits(tmp_path)


def test_smaller_form() -> None:
    for features in (np.eye(5), sp.identity(5)):
        assert sp.issparse(smaller_form(features))
    for features in (np.eye(4), sp.identity(4)):
        assert isinstance(smaller_form(features), np.ndarray)


def test_damaged_raw_files(tmp_path: Path) -> None:
    raw = tmp_path / "Amazon" / "Photo" / "raw"
    raw.mkdir(parents=True)
    (raw / "amazon_electronics_photo.npz").write_bytes(b"PK no")
    with pytest.raises(StoreError, match=r"amazon_electronics_photo\.npz is not a readable \.npz file"):
        load_dataset("Photo", tmp_path)
    np.savez(raw / "amazon_electronics_photo.npz", adj_data=[1])
    with pytest.raises(StoreError, match="it has no array adj_indices, adj_indptr"):
        load_dataset("Photo", tmp_path)


def test_citation_and_reddit_files_of_pyg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "CitationFull" / "cora" / "raw"
    raw.mkdir(parents=True)
    matrices = {"adj": ADJACENCY, "attr": sp.csr_matrix(FEATURES)}
    arrays = {f"{k}_{p}": getattr(m, p) for k, m in matrices.items() for p in ("data", "indices", "indptr", "shape")}
    np.savez(raw / "cora.npz", labels=[0, 1, 1], **arrays)
    reddit = tmp_path / "Reddit" / "raw"
    reddit.mkdir(parents=True)
    np.savez(reddit / "reddit_data.npz", feature=FEATURES, label=[0, 1, 1], node_types=[1, 2, 3])
    sp.save_npz(reddit / "reddit_graph.npz", ADJACENCY.tocoo())
    small = [replace(DATASETS[name], stored=Counts(3, 4, 2, 2)) for name in ("CoraFull", "Reddit")]
    monkeypatch.setattr(catalogue, "KNOWN", small)
    for name in ("CoraFull", "Reddit"):
        graph = load_dataset(name, tmp_path)
        assert (graph.num_edges, graph.num_features, graph.name) == (2, 2, name)
    assert [split.test.tolist() for split in load_splits("Reddit", tmp_path)] == [[2]]
