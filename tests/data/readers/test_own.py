"""One's own data: every form of the same graph gives the same graph."""

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from pyarrow import parquet

from vcr_graphormer import ConfigError, Graph, GraphError, StoreError
from vcr_graphormer.base.problems import Problems
from vcr_graphormer.data.readers.own import read_graph, read_splits

EDGES = np.array([[0, 1, 2], [1, 2, 3]])
FEATURES = np.arange(8, dtype=np.float32).reshape(4, 2)
LABELS = np.array([0, 1, 1, 0])
EXPECTED = Graph.from_edges(EDGES, features=FEATURES, labels=LABELS)


def write_csv(file: Path, header: str, rows: Any) -> None:
    file.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


def folder_csv(folder: Path) -> None:
    write_csv(folder / "edges.csv", "source,target", EDGES.T)
    write_csv(folder / "features.csv", "id,a,b", [(i, *row) for i, row in enumerate(FEATURES)])
    write_csv(folder / "labels.csv", "node,label", enumerate(LABELS))


def folder_headerless(folder: Path) -> None:
    (folder / "edges.tsv").write_text("0\t1\n1\t2\n2\t3\n")
    (folder / "features.txt").write_text("0 1\n2 3\n4 5\n6 7\n")
    (folder / "labels.txt").write_text("0\n1\n1\n0\n")


def folder_npy(folder: Path) -> None:
    np.save(folder / "edges.npy", EDGES.T)
    np.save(folder / "features.npy", FEATURES)
    np.save(folder / "labels.npy", LABELS)


def folder_npz(folder: Path) -> None:
    np.savez(folder / "edges.npz", edge_index=EDGES)
    np.savez(folder / "features.npz", x=FEATURES)
    np.savez(folder / "labels.npz", y=LABELS)


def folder_parquet(folder: Path) -> None:
    parquet.write_table(pa.table({"src": EDGES[0], "dst": EDGES[1]}), folder / "edges.parquet")
    parquet.write_table(pa.table({"a": FEATURES[:, 0], "b": FEATURES[:, 1]}), folder / "features.parquet")
    parquet.write_table(pa.table({"label": LABELS}), folder / "labels.parquet")


def file_npz(folder: Path) -> None:
    np.savez(folder / "graph.npz", edge_index=EDGES, features=FEATURES, labels=LABELS)


def file_benchmark_npz(folder: Path) -> None:
    adjacency = sp.csr_matrix((np.ones(3), EDGES), shape=(4, 4))
    arrays = {f"adj_{part}": getattr(adjacency, part) for part in ("data", "indices", "indptr", "shape")}
    attributes = sp.csr_matrix(FEATURES)
    arrays |= {f"attr_{part}": getattr(attributes, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "graph.npz", labels=LABELS, **arrays)


def saved(folder: Path) -> None:
    EXPECTED.save(folder / "saved")
    for file in (folder / "saved").iterdir():
        file.rename(folder / file.name)


@pytest.mark.parametrize(
    "write",
    [folder_csv, folder_headerless, folder_npy, folder_npz, folder_parquet, file_npz, file_benchmark_npz, saved],
)
def test_every_form_gives_the_same_graph(tmp_path: Path, write: Any) -> None:
    write(tmp_path)
    graph = read_graph(tmp_path)
    dense = graph.features.toarray() if isinstance(graph.features, sp.csr_matrix) else graph.features
    np.testing.assert_array_equal(dense, FEATURES)
    for part in ("adjacency", "labels"):
        assert graph.fingerprints[part] == EXPECTED.fingerprints[part]
    assert graph.names is None


def test_text_ids_and_class_names(tmp_path: Path) -> None:
    write_csv(tmp_path / "edges.csv", "from,to,weight", [("ann", "bob", 2), ("eve", "bob", 1)])
    write_csv(tmp_path / "features.csv", "name,age", [("bob", 30), ("ann", 20), ("eve", 40), ("zoe", 50)])
    write_csv(tmp_path / "labels.csv", "name,class", [("eve", "spy"), ("bob", "friend"), ("ann", "")])
    graph = read_graph(tmp_path)
    assert graph.names is not None
    assert graph.labels is not None
    assert graph.weights is not None
    assert isinstance(graph.features, np.ndarray)
    assert graph.names.tolist() == ["bob", "ann", "eve", "zoe"]
    assert graph.features[:, 0].tolist() == [30, 20, 40, 50]
    assert (graph.class_names, graph.labels.tolist()) == (("friend", "spy"), [0, -1, 1, -1])
    assert graph.indptr.tolist() == [0, 2, 3, 4, 4]
    assert (graph.indices.tolist(), graph.weights.tolist()) == ([1, 2, 0, 0], [2, 1, 2, 1])


def test_sparse_whole_number_ids_are_mapped_on_request(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("1000000007,5\n5,77\n")
    with pytest.raises(GraphError, match="2 edges use ids up to 1000000007: pass ids='names'"):
        read_graph(tmp_path / "edges.csv")
    graph = read_graph(tmp_path / "edges.csv", ids="names")
    assert graph.names is not None
    assert (graph.names.tolist(), graph.num_edges) == (["1000000007", "5", "77"], 2)
    write_csv(tmp_path / "labels.csv", "node,label", [(77, 1), (5, 0), (1000000007, 1)])
    mapped = read_graph(tmp_path)
    assert mapped.names is not None
    assert mapped.labels is not None
    assert (mapped.names.tolist(), mapped.labels.tolist()) == (["77", "5", "1000000007"], [1, 0, 1])
    with pytest.raises(GraphError, match="ids is 'guess'"):
        read_graph(tmp_path / "edges.csv", ids="guess")
    (tmp_path / "edges.csv").write_text("ann,bob\n")
    with pytest.raises(GraphError, match="the node ids are names: use ids='names'"):
        read_graph(tmp_path / "edges.csv", ids="rows")


def test_direction_and_targets(tmp_path: Path) -> None:
    folder_csv(tmp_path)
    write_csv(tmp_path / "labels.csv", "node,label", [(0, 0.5), (2, 1.5)])
    graph = read_graph(tmp_path, directed=True, task="regression")
    assert graph.labels is not None
    assert graph.num_arcs == 3
    np.testing.assert_array_equal(graph.labels, np.array([0.5, np.nan, 1.5, np.nan], dtype=np.float32))
    with pytest.raises(GraphError, match=r"labels\[0\] is 0.5"):
        read_graph(tmp_path)


def test_graphml(tmp_path: Path) -> None:
    source = networkx.DiGraph()
    source.add_node("ann", age=20, height=1.5, label="b", note="text")
    source.add_node("bob", age=30, height=1.8, label="a", note="text")
    source.add_node("eve", age=40, height=1.7, note="text")
    source.add_edge("ann", "eve", weight=2.5, colour="red")
    networkx.write_graphml(source, tmp_path / "g.graphml")
    problems = Problems()
    graph = read_graph(tmp_path, problems=problems)
    assert problems.notes == [
        f"{tmp_path / 'g.graphml'}: the node attribute 'note' is no number and not used",
        f"{tmp_path / 'g.graphml'}: the edge attribute 'colour' is not used; edges may have a weight",
    ]
    assert graph.names is not None
    assert graph.labels is not None
    assert graph.weights is not None
    assert isinstance(graph.features, np.ndarray)
    assert graph.names.tolist() == ["ann", "bob", "eve"]
    np.testing.assert_allclose(graph.features, [[20, 1.5], [30, 1.8], [40, 1.7]], rtol=1e-6)
    assert (graph.class_names, graph.labels.tolist()) == (("a", "b"), [1, 0, -1])
    assert graph.weights.tolist() == [2.5, 2.5]
    for node, value in zip(source, (3, 1, 0), strict=True):
        source.nodes[node]["label"] = value
    networkx.write_graphml(source, tmp_path / "h.graphml")
    numbered = read_graph(tmp_path / "h.graphml", problems=Problems())
    assert numbered.labels is not None
    assert numbered.labels.tolist() == [3, 1, 0]
    (tmp_path / "g.graphml").write_text("<graphml><graph>")
    with pytest.raises(StoreError, match=r"g\.graphml is not a readable GraphML file"):
        read_graph(tmp_path / "g.graphml")


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({}, StoreError, r"has no edges\.csv"),
        ({"edges.csv": "0,1\n", "edges.tsv": "0\t1\n"}, StoreError, "has both edges.csv and edges.tsv: keep one"),
        ({"edges.csv": "source,weight\n0,1\n"}, GraphError, "line 1: .*the column 'target' is missing"),
        ({"edges.csv": "to,weight\n0,1\n"}, GraphError, "line 1: .*the column 'source' is missing"),
        ({"edges.csv": "1\n2\n"}, GraphError, "line 1: 1 columns; an edge has source, target"),
        ({"edges.csv": "0,1,x\n"}, GraphError, "line 1: weight is 'x'; it must be a number"),
        ({"edges.csv": "0,1\n0,-2\n"}, GraphError, r"edge_index\[1, 1\] is -2"),
        ({"edges.csv": "ann,bob\n", "features.csv": "1\n2\n"}, GraphError, "features file has no column 'node'"),
        ({"edges.csv": "ann,bob\n", "features.csv": "node,a\nann,1\n"}, GraphError, "node bob has no row in features"),
        (
            {"edges.csv": "ann,bob\n", "labels.csv": "node,label\nann,1\nann,0\n"},
            GraphError,
            "node ann has 2 rows in labels",
        ),
        ({"edges.csv": "0,1\n", "features.csv": "node\n0\n1\n"}, GraphError, "has no feature column"),
        ({"edges.csv": "0,1\n", "features.csv": "node,a\n0,x\n1,2\n"}, GraphError, "line 2: feature 'a' is 'x'"),
        (
            {"edges.csv": "0,1\n", "labels.csv": "node,p,q\n0,1,2\n"},
            GraphError,
            "line 2: the column 'label' is missing",
        ),
        ({"edges.csv": "0,5\n", "labels.csv": "0\n1\n"}, GraphError, "is 5 but the graph has 2 nodes"),
        ({"edges.csv": "0,1\n", "features.csv": "1\n2\n", "labels.csv": "7,1\n"}, GraphError, "a row for node 7 but"),
        ({"edges.csv": "0,1\n", "features.csv": "node,a\n0,1\n"}, GraphError, "node 1 has no row in features"),
        ({"edges.npz": {"a": [1]}}, StoreError, "has no array 'edge_index'"),
        ({"edges.npy": [[1, 2, 3, 4]]}, GraphError, r"must be \[2, m\], \[m, 2\] or \[m, 3\]"),
        ({"edges.csv": "0,1\n", "features.npz": {"a": [1]}}, StoreError, "has neither 'features' nor 'x'"),
        ({"edges.csv": "0,1\n", "labels.npz": {"a": [1]}}, StoreError, "has neither 'labels' nor 'y'"),
        ({"graph.npz": {"a": [1]}}, StoreError, "has neither edge_index nor adj_data"),
    ],
)
def test_bad_folders(tmp_path: Path, files: dict[str, Any], error: type[Exception], message: str) -> None:
    for name, content in files.items():
        if name.endswith(".npz"):
            np.savez(tmp_path / name, **content)
        elif name.endswith(".npy"):
            np.save(tmp_path / name, content)
        else:
            (tmp_path / name).write_text(content)
    with pytest.raises(error, match=message):
        read_graph(tmp_path)


def test_weights_and_sparse_features(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", [[0.0, 1.0, 0.5], [1.0, 2.0, 4.0], [2.0, 2.0, 1.0]])
    sp.save_npz(tmp_path / "features.npz", sp.identity(3, format="csr"))
    (tmp_path / "labels.csv").write_text("0,1\n2,0\n")
    graph = read_graph(tmp_path)
    assert graph.weights is not None
    assert graph.labels is not None
    assert (graph.weights.tolist(), graph.labels.tolist()) == ([0.5, 0.5, 4.0, 4.0], [1, -1, 0])
    assert isinstance(graph.features, sp.csr_matrix)
    sp.save_npz(tmp_path / "adjacency.npz", sp.csr_matrix([[0, 1], [0, 0]]))
    assert read_graph(tmp_path / "adjacency.npz").num_edges == 1
    np.savez(tmp_path / "labelled.npz", edge_index=[[0], [1]], y=[0, 1, 1])
    assert read_graph(tmp_path / "labelled.npz").num_nodes == 3
    np.savez(tmp_path / "more.npz", edge_index=[[0], [1]], y=[0, 1], edge_attr=[[1.0]], train_mask=[1, 0], age=[3, 4])
    with pytest.warns(UserWarning, match=r"more.npz: the arrays 'age', 'edge_attr' are not used"):
        assert read_graph(tmp_path / "more.npz").weights is None


def test_refused_files(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist: give a folder"):
        read_graph(tmp_path / "nowhere")
    (tmp_path / "data.pt").write_bytes(b"")
    with pytest.raises(StoreError, match="is a pickle, which can run code"):
        read_graph(tmp_path / "data.pt")
    (tmp_path / "fraud.toml").write_text("[data]\n")
    with pytest.raises(StoreError, match=r"fraud.toml holds settings, not data: give it by --config .*fraud.toml"):
        read_graph(tmp_path / "fraud.toml")
    (tmp_path / "data.xyz").write_bytes(b"")
    with pytest.raises(StoreError, match="has the unknown ending '.xyz'"):
        read_graph(tmp_path / "data.xyz")


def test_splits_beside_the_data(tmp_path: Path) -> None:
    for name in ("train.log", "train.py", "test.sh", "train.toml"):  # no data, though the names could be of a split
        (tmp_path / name).write_text("")
    assert read_splits(tmp_path) == []
    assert read_splits(tmp_path / "edges.csv") == []
    (tmp_path / "train.txt").write_text("0\n1\n")
    with pytest.raises(StoreError, match=r"has train\.txt but no val\.txt"):
        read_splits(tmp_path)
    (tmp_path / "edges.csv").write_text("0,1\n2,3\n")
    (tmp_path / "val.txt").write_text("2\n")
    (tmp_path / "test.csv").write_text("3\n")
    assert [split.train.tolist() for split in read_splits(tmp_path)] == [[0, 1]]
    np.savez(tmp_path / "split.npz", train=[3], valid=[2], test=[1])
    assert [split.train.tolist() for split in read_splits(tmp_path)] == [[3]]
    np.savez(tmp_path / "graph.npz", edge_index=EDGES, train=[0], val=[1], test=[2])
    assert [split.test.tolist() for split in read_splits(tmp_path / "graph.npz")] == [[2]]
    file_npz(tmp_path)
    assert read_splits(tmp_path / "graph.npz") == []


def test_ids_are_never_rewritten(tmp_path: Path) -> None:
    for text in (
        "007,7\n",
        "0x10,16\n",
        "12345678901234567890,12345678901234567891\n",
        "2020-01-01 10:00,2020-01-01\n",
    ):
        (tmp_path / "edges.csv").write_text(text)
        graph = read_graph(tmp_path / "edges.csv", ids="names")
        assert graph.names is not None
        assert graph.names.tolist() == text.strip().split(",")
    (tmp_path / "edges.csv").write_text('ann, bob\n"bob",ann\n')
    assert read_graph(tmp_path).num_nodes == 2


def test_labels_of_every_type(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    (tmp_path / "labels.csv").write_text("node,label\n0,true\n1,false\n")
    graph = read_graph(tmp_path)
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, 0, -1]
    (tmp_path / "labels.csv").unlink()
    table = pa.table({"node": pa.array([1, 0], pa.uint64()), "label": pa.array([3, 1], pa.uint8())})
    parquet.write_table(table, tmp_path / "labels.parquet")
    graph = read_graph(tmp_path)
    assert graph.labels is not None
    assert (graph.labels.tolist(), graph.class_names) == ([0, 1, -1], ("1", "3"))
    (tmp_path / "labels.parquet").unlink()
    (tmp_path / "labels.csv").write_text("node,red,green\n2,1,0\n0,0,1\n")
    graph = read_graph(tmp_path, task="multilabel")
    assert graph.labels is not None
    assert (graph.labels.tolist(), graph.class_names) == ([[0, 1], [-1, -1], [1, 0]], ("red", "green"))


@pytest.mark.parametrize(
    ("cells", "names", "labels"),
    [
        ("3 7 7 3", ("3", "7"), [0, 1, 1, 0]),
        ("1 2 2 1", ("1", "2"), [0, 1, 1, 0]),
        ("10 9 -1 10", ("9", "10"), [1, 0, -1, 1]),
        ("5 -2 5 -2", ("-2", "5"), [1, 0, 1, 0]),
        ("0 1 2 1", None, [0, 1, 2, 1]),
        ("0 1 -1 1", None, [0, 1, -1, 1]),
    ],
)
def test_whole_numbers_are_names_of_classes(
    cells: str, names: tuple[str, ...] | None, labels: list[int], tmp_path: Path
) -> None:
    """No class that nobody has; class ids only where the numbers are 0, 1, 2, …"""
    write_csv(tmp_path / "edges.csv", "source,target", EDGES.T)
    write_csv(tmp_path / "labels.csv", "node,label", enumerate(cells.split()))
    graph = read_graph(tmp_path)
    assert (graph.class_names, np.asarray(graph.labels).tolist()) == (names, labels)


def test_numbers_with_empty_cells_are_names_of_classes(tmp_path: Path) -> None:
    write_csv(tmp_path / "edges.csv", "source,target", EDGES.T)
    write_csv(tmp_path / "labels.csv", "node,label", zip(range(4), ["3", "", "7", "3"], strict=True))
    graph = read_graph(tmp_path)
    assert (graph.class_names, np.asarray(graph.labels).tolist()) == (("3", "7"), [0, -1, 1, 0])


def test_byte_order_mark_and_unknown_columns(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    (tmp_path / "labels.csv").write_text("\ufeffnode,label\r\n2,7\r\n0,5\r\n1,6\r\n")
    graph = read_graph(tmp_path)
    assert graph.labels is not None
    assert (graph.labels.tolist(), graph.class_names) == ([0, 1, 2], ("5", "6", "7"))
    (tmp_path / "labels.csv").write_text("vertex,label\n2,7\n0,5\n1,6\n")
    with pytest.raises(GraphError, match="the column 'node' is missing; columns are"):
        read_graph(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("edges.csv", "user_id,friend_id\n0,1\n1,2\n"),
        ("edges.csv", "u,v\n0,1\n"),
        ("labels.csv", "category\n0\n1\n1\n"),
    ],
)
def test_unknown_headers_are_noticed(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    (tmp_path / name).write_text(text)
    with pytest.raises(GraphError, match="looks like a header, but none of its names is known: use"):
        read_graph(tmp_path)


def test_headerless_names_are_no_header(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("u,v\nv,w\nw,u\n")
    graph = read_graph(tmp_path)
    assert (graph.num_nodes, graph.num_edges) == (3, 3)


def test_split_files_use_names_where_nodes_have_them(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("1,2\n2,3\n3,4\n")
    (tmp_path / "labels.csv").write_text("node,label\n4,0\n3,1\n2,0\n1,1\n")
    for part, entry in (("train", "1\n2\n"), ("val", "3\n"), ("test", "4\n")):
        (tmp_path / f"{part}.txt").write_text(entry)
    graph = read_graph(tmp_path)
    assert graph.names is not None
    for known in (graph, None):
        (split,) = read_splits(tmp_path, known)
        assert graph.names[split.train].tolist() == ["2", "1"]
    (tmp_path / "val.txt").write_text("9\n")
    with pytest.raises(GraphError, match="val.txt line 1: there is no node named '9'"):
        read_splits(tmp_path, graph)


def test_splits_in_arrays_are_rows_or_names_but_never_guessed(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("1,2\n2,3\n3,4\n")
    (tmp_path / "labels.csv").write_text("node,label\n4,0\n3,1\n2,0\n1,1\n")
    np.savez(tmp_path / "split.npz", train=[0, 1], val=[2], test=[3])  # rows, or names with a mistake: not guessed
    with pytest.raises(GraphError, match="there is no node named '0'; for row numbers give masks"):
        read_splits(tmp_path)
    np.savez(tmp_path / "split.npz", train=["1", "2"], val=["3"], test=["4"])
    assert [split.train.tolist() for split in read_splits(tmp_path)] == [[2, 3]]
    np.savez(tmp_path / "split.npz", train=[1, 2], val=[3], test=[4])  # row 4 does not exist: these are names
    assert [split.train.tolist() for split in read_splits(tmp_path)] == [[2, 3]]
    np.savez(tmp_path / "split.npz", train=[1], val=[2], test=[3])
    with pytest.raises(GraphError, match="are both names and row numbers of nodes: give masks"):
        read_splits(tmp_path)
    np.savez(tmp_path / "split.npz", train=[True, False, False, False], val=[0, 1, 0, 0], test=[0, 0, 1, 1])
    with pytest.raises(StoreError, match="mixes masks and node ids"):
        read_splits(tmp_path)
    np.savez(tmp_path / "split.npz", train_mask=[1, 0, 0, 0], val_mask=[0, 1, 0, 0], test_mask=[0, 0, 1, 1])
    assert [split.test.tolist() for split in read_splits(tmp_path)] == [[2, 3]]
    (tmp_path / "split.npz").unlink()
    for part, names in (("train", ["1"]), ("val", ["2"]), ("test", ["3", "4"])):
        np.save(tmp_path / f"{part}.npy", names)
    assert [split.test.tolist() for split in read_splits(tmp_path)] == [[0, 1]]
    (tmp_path / "val.npy").unlink()
    (tmp_path / "val.txt").write_text("2\n")
    with pytest.raises(StoreError, match="must all be .npy files, or all be text files"):
        read_splits(tmp_path)


def test_nothing_is_passed_over(tmp_path: Path) -> None:
    folder_csv(tmp_path)
    for name in ("features.pkl", "labels.csv.gz", "train.parquet"):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(StoreError, match=f"{name} cannot be read as {name.split('.')[0]}"):
            read_splits(tmp_path) if name.startswith("train") else read_graph(tmp_path)
        (tmp_path / name).unlink()
    (tmp_path / "labels.csv").rename(tmp_path / "labels.CSV")
    assert read_graph(tmp_path).labels is not None
    saved_graph = EXPECTED.save(tmp_path / "saved")
    with pytest.raises(ConfigError, match="is a saved graph: directed, task and ids were decided"):
        read_graph(saved_graph, directed=True)


def test_row_numbers_in_arrays_are_rows_where_no_node_has_such_a_name(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,d\n")
    np.savez(tmp_path / "split.npz", train=[0, 1], val=[2], test=[3])
    assert [split.train.tolist() for split in read_splits(tmp_path)] == [[0, 1]]


def test_a_title_above_row_numbers(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n2,3\n")
    for part, lines in (("train", "node\n0\n1\n"), ("val", "id\n2\n"), ("test", "3\n")):
        (tmp_path / f"{part}.csv").write_text(lines)
    (split,) = read_splits(tmp_path)
    assert (split.train.tolist(), split.val.tolist(), split.test.tolist()) == ([0, 1], [2], [3])


def test_a_quote_that_is_never_closed(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text('source,target\na,b\n"c,d\ne,f\n')
    with pytest.raises(GraphError, match=r"edges.csv line 3: a quote \(\"\) is opened and never closed"):
        read_graph(tmp_path)


def test_minus_one_beside_one_other_label_is_a_class(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("0,1\n1,2\n")
    (tmp_path / "labels.csv").write_text("-1\n1\n-1\n")
    graph = read_graph(tmp_path)
    assert (np.asarray(graph.labels).tolist(), graph.class_names) == ([0, 1, 0], ("-1", "1"))
    (tmp_path / "labels.csv").write_text("-1\n1\n0\n")
    assert np.asarray(read_graph(tmp_path).labels).tolist() == [-1, 1, 0]


@pytest.mark.parametrize(("weight", "shown"), [("", "nan"), ("0", "0"), ("-2", "-2"), ("inf", "inf")])
def test_a_wrong_weight_is_named_with_its_line(tmp_path: Path, weight: str, shown: str) -> None:
    (tmp_path / "edges.csv").write_text(f"source,target,weight\na,b,3\nb,c,{weight}\n")
    with pytest.raises(GraphError, match=rf"edges.csv line 3: the weight is {shown}(\.0)?; every edge needs one"):
        read_graph(tmp_path)
