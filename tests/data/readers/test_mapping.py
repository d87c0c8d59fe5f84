"""A mapping of tables: every form of the same tables gives the same graph, every wrong file one clear error."""

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tests.support.command import run
from tests.support.tables import DELIMITERS, ENDINGS, Rows, naive_graph, write
from vcr_graphormer import Graph, GraphError, StoreError, VCRError
from vcr_graphormer.base.problems import Problems
from vcr_graphormer.data.readers.arrow import to_arrow
from vcr_graphormer.data.readers.assembly import Wanted
from vcr_graphormer.data.readers.mapping import EdgeTable, NodeTable, likely_column, propose, to_blocks
from vcr_graphormer.data.readers.own import read_graph, read_mapped, read_splits

NODES = NodeTable("nodes", "id", "job", ("town",), ())
EDGES = EdgeTable("edges", "source", "target", "weight")
# Quarters are exact in float32, so sums do not depend on their order.
weights = st.integers(1, 400).map(lambda number: number / 4)


@st.composite
def companies(draw: Any) -> tuple[Rows, Rows]:
    """Some people and their calls; ids are texts that are easily taken for numbers."""
    ids = draw(st.lists(st.sampled_from(["7", "007", "1e3", "x", "NA", "ü", "a b", "null"]), min_size=2, unique=True))
    towns, jobs = st.sampled_from(["Ulm", "Rom", None]), st.sampled_from(["spy", "friend", None])
    nodes = [
        {"id": id, "town": draw(towns), "age": draw(st.one_of(st.none(), weights)), "job": draw(jobs)} for id in ids
    ]
    nodes[0] |= {"town": "Ulm", "age": 1.5, "job": "spy"}  # an empty column has no type
    ends = st.sampled_from([*ids, "stranger"])
    pairs = draw(st.lists(st.tuples(ends, ends, weights), max_size=12))
    pairs = [(ids[0], ids[1], 0.25), *pairs]
    return nodes, [{"source": source, "target": target, "weight": weight} for source, target, weight in pairs]


def load(nodes: list[Path], edges: list[Path], *tables: NodeTable, **wanted: Any) -> tuple[Graph, Problems]:
    problems = Problems()
    mapped = [NodeTable(str(file), *_rest(table)) for file, table in zip(nodes, tables or (NODES,), strict=False)]
    mapped_edges = [EdgeTable(str(file), "source", "target", "weight") for file in edges]
    graph, _ = read_mapped(mapped, mapped_edges, Wanted(**wanted), problems=problems)
    return graph, problems


def _rest(table: NodeTable) -> tuple[Any, ...]:
    return table.id, table.label, table.categories, table.drop, table.time


def check_equal(graph: Graph, expected: dict[str, Any]) -> None:
    assert graph.names is not None
    assert graph.labels is not None
    assert isinstance(graph.features, np.ndarray)
    assert graph.names.tolist() == expected["names"]
    np.testing.assert_array_equal(graph.to_scipy().toarray(), expected["adjacency"])
    assert (graph.class_names, graph.labels.tolist()) == (expected["classes"], expected["labels"])
    columns = dict(zip(graph.feature_names or (), graph.features.T, strict=True))
    for name in columns.keys() & expected.keys():
        np.testing.assert_array_equal(columns[name], expected[name])
    assert {"age", "town=Ulm"} <= columns.keys() & expected.keys()


@settings(max_examples=40, deadline=None)
@given(company=companies(), data=st.data())
def test_right_tables_of_any_form_give_the_same_graph(company: tuple[Rows, Rows], data: Any) -> None:
    nodes, edges = company
    expected = naive_graph(nodes, edges, category="town", number="age", label="job")
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, rows in (("nodes", nodes), ("edges", edges)):
            ending = data.draw(st.sampled_from(ENDINGS))
            delimiter = data.draw(st.sampled_from(DELIMITERS.get(ending, (",",))))
            columns = data.draw(st.permutations(list(rows[0])))
            files.append(write(Path(folder) / f"{name}{ending}", rows, columns=columns, delimiter=delimiter))
        graph, problems = load(files[:1], files[1:])
    check_equal(graph, expected)
    known = set(expected["names"])
    lost = sum(not {row["source"], row["target"]} <= known for row in edges)
    told = [note for note in problems.notes if "are left out: an id of theirs" in note]
    assert told == (
        [f"{lost} of {len(edges)} edges are left out: an id of theirs is in no table of nodes"] if lost else []
    )


@settings(max_examples=40, deadline=None)
@given(company=companies())
def test_frames_give_the_same_graph(company: tuple[Rows, Rows]) -> None:
    nodes, edges = company
    expected = naive_graph(nodes, edges, category="town", number="age", label="job")
    frames = [pa.table({name: [row[name] for row in rows] for name in rows[0]}) for rows in (nodes, edges)]
    names: dict[str, Any] = {"id": "id", "label": "job", "categories": ["town"], "weight": "weight"}
    for first, second in (frames, [Stream(frame) for frame in frames], [frame.to_pydict() for frame in frames]):
        with pytest.warns(UserWarning) if _has_notes(expected, edges) else _nothing():
            graph = Graph.from_frames(first, second, **names)
        check_equal(graph, expected)


class Stream:
    """A table of any library, as Arrow sees it."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def _has_notes(expected: dict[str, Any], edges: Rows) -> bool:
    known = set(expected["names"])
    loops = any(row["source"] == row["target"] for row in edges)
    lost = any(not {row["source"], row["target"]} <= known for row in edges)
    return loops or lost or bool((expected["adjacency"].sum(1) == 0).any())


def small(folder: Path) -> tuple[Path, Path]:
    rows = [{"id": f"n{i}", "age": 20.0 + i, "town": "Ulm", "job": "ab"[i % 2]} for i in range(12)]
    edges = [{"source": f"n{i}", "target": f"n{(i * 5 + 1) % 12}", "weight": 1.0 + i} for i in range(12)]
    nodes = write(folder / "people.csv", rows, columns=["id", "age", "town", "job"])
    return nodes, write(folder / "calls.csv", edges, columns=["source", "target", "weight"])


def mapping(folder: Path) -> Path:
    blocks = to_blocks(
        [NodeTable("people.csv", "id", "job", ("town",))], [EdgeTable("calls.csv", "source", "target", "weight")]
    )
    (folder / "data.toml").write_text(blocks)
    return folder / "data.toml"


@settings(max_examples=60, deadline=None)
@given(
    which=st.sampled_from(["people.csv", "calls.csv"]), place=st.floats(0, 1), bytes_=st.binary(min_size=1, max_size=6)
)
def test_damaged_files_get_one_clear_error(which: str, place: float, bytes_: bytes) -> None:
    """Any bytes anywhere: the graph is read, or one error of this package says why not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small(folder)
        content = (folder / which).read_bytes()
        cut = int(place * len(content))
        (folder / which).write_bytes(content[:cut] + bytes_ + content[cut:])
        try:
            load([folder / "people.csv"], [folder / "calls.csv"], NodeTable("", "id", "job", ("town",)))
        except VCRError as error:
            assert str(error).strip()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("people.csv", "", "people.csv is empty"),
        ("people.csv", "id,age,town,job\n", "people.csv: the table has no rows"),
        ("people.csv", "id,age,job,town,id\n1,2,3,4,5\n", "2 columns are called 'id'; rename all but one"),
        ("people.csv", "idd,age,town,job\nn1,2,a,b\n", "id: unknown column 'id'; did you mean 'idd'?"),
        ("people.csv", "id,age,town,job\nn1,2,a,b\nn1,3,a,b\n", "line 3, column 'id': the id 'n1' was there before"),
        ("people.csv", "id,age,town,job\nn1,2,a,b\n,3,a,b\n", "line 3, column 'id': the id is missing"),
        ("people.csv", "id,age,town,job\nn1,2,a,b\nn2,3,a\n", "line 3: the line has 3 columns, the header has 4"),
        (
            "people.csv",
            "id,age,town,job\nn1,2,a,b\nn2,3,a,b\nn3,x,a,b\n",
            "line 4, column 'age': holds numbers, but also 'x'",
        ),
        ("people.csv", "id,age,town,job\nn1,inf,a,b\nn2,3,a,b\n", "line 2, column 'age': holds inf"),
        (
            "people.csv",
            'id,age,town,job\n\nn1,2,a,"b\n\nc"\nn2,3,a,b\nn3,x,a,b\n',
            "line 7, column 'age': holds numbers, but also 'x'",
        ),
        (
            "people.csv",
            "id;age;town;job\nn1;2,5;a;b\nn2;3;a;b\n",
            "column 'age': holds numbers with a decimal comma, such as '2,5'; write a point",
        ),
        (
            "people.csv",
            "id,age,town,job\nn1,2,a,1.5\nn2,3,a,1\n",
            "line 2, column 'job': the label is 1.5; classes are",
        ),
        ("people.csv", "id,age,town,job\nn1,2,a," + 200_000 * "b" + ",\n", "line 2: field larger than field limit"),
        (
            "people.csv",
            'id,age,town,job\nn1,2,a,b\nn2,3,"a,b\nn3,4,a,b\n',
            'line 3: a quote (") is opened and never closed',
        ),
        ("calls.csv", "source,target,weight\nn1,n2,\n", "line 2, column 'weight': the weight is missing"),
        ("calls.csv", "source,target,weight\n\nn1,n2,-1\n", "line 3, column 'weight': the weight is -1"),
        ("calls.csv", "source,target,weight\nn1,n2,1e39\n", "the weight is 1e+39; it must be finite"),
        (
            "calls.csv",
            "# a comment\nsource,target,weight\nn1,n2,many\n",
            "line 3, column 'weight': the weight is 'many'",
        ),
        ("calls.csv", "source,target,weight\nn1,,1\n", "line 2, column 'target': the id is missing"),
        ("calls.csv", "source,target,weight\nn1, ,1\n", "line 2, column 'target': the id is missing"),
        ("calls.csv", "source,target,weight\nx1,x2,1\n", "none of the 1 edges joins two ids of the tables of nodes"),
        ("calls.csv", "source,target,weight\n", "calls.csv: the table has no rows"),
        ("calls.csv", "from_a,target,weight\nn1,n2,1\n", "unknown column 'source'"),
    ],
)
def test_every_wrong_file_is_told_and_nothing_is_written(tmp_path: Path, file: str, content: str, message: str) -> None:
    small(tmp_path)
    (tmp_path / file).write_text(content)
    settings_file = mapping(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    text = run("datasets", "--config", str(settings_file), "--save", str(tmp_path / "saved"), code=2)
    assert message in text
    assert text.count("error: ") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_problems_of_all_files_are_listed_at_once(tmp_path: Path) -> None:
    nodes, edges = small(tmp_path)
    nodes.write_text("id,age,town,job\nn1,2,a,b\nn1,3,a,b\nn2,4\n")
    edges.write_text("source,target,weight\n" + "n1,n2,-1\n" * 30 + "n1,n2\n")
    missing = EdgeTable(str(tmp_path / "more.csv"), "a", "b")
    with pytest.raises(GraphError) as caught:
        read_mapped(
            [NodeTable(str(nodes), "id", "status")], [EdgeTable(str(edges)), missing], Wanted(), problems=Problems()
        )
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{len(lines) - 1} problems:"
    text = str(caught.value)
    for part in (
        "more.csv does not exist",
        "label: unknown column 'status'",
        "people.csv line 4: the line has 2 columns",
    ):
        assert part in text
    for part in (
        "people.csv line 3, column 'id'",
        "calls.csv line 32: the line has 2 columns",
        "calls.csv line 2, column",
    ):
        assert part in text
    assert "25 more rows have this problem" in text


def test_several_tables_are_joined_by_id(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("id,age,town\nann,20,Ulm\nbob,30,Rom\n")
    (tmp_path / "jobs.csv").write_text("who,job\nbob,spy\nzoe,friend\n")
    (tmp_path / "calls.csv").write_text("source,target,weight\nann,bob,1\nann,bob,2\nbob,bob,1\n")
    (tmp_path / "mails.csv").write_text("source,target,weight\nbob,ann,4\nbob,eve,1\n")
    graph, problems = load(
        [tmp_path / "people.csv", tmp_path / "jobs.csv"],
        [tmp_path / "calls.csv", tmp_path / "mails.csv"],
        NodeTable("", "id", "", ("town",)),
        NodeTable("", "who", "job"),
        directed=True,
    )
    assert graph.names is not None
    assert graph.labels is not None
    assert graph.names.tolist() == ["ann", "bob", "zoe"]
    assert graph.labels.tolist() == [-1, 1, 0]
    assert graph.to_scipy().toarray().tolist() == [[0, 3, 0], [4, 0, 0], [0, 0, 0]]
    assert graph.feature_names == ("age", "town=Rom", "town=Ulm", "town=other")
    np.testing.assert_array_equal(graph.features, np.array([[20, 0, 1, 0], [30, 1, 0, 0], [np.nan, 0, 0, 0]]))
    assert [note.split(": ", 1)[-1] for note in problems.notes] == [
        "1 nodes of other tables have no row here; their values are missing",
        "an id of theirs is in no table of nodes",
        "1 edges from a node to itself are left out",
        "1 of 3 nodes have no edge",
    ]
    with pytest.raises(GraphError, match=r"the column 'age' is in .*people.csv and in .*again.csv: drop it in one"):
        (tmp_path / "again.csv").write_text("id,age\nann,1\n")
        load([tmp_path / "people.csv", tmp_path / "again.csv"], [tmp_path / "calls.csv"], *[NodeTable("", "id")] * 2)
    edges_only, _ = load([], [tmp_path / "calls.csv", tmp_path / "mails.csv"])
    assert edges_only.names is not None
    assert edges_only.names.tolist() == ["ann", "bob", "eve"]
    assert edges_only.features is None


def test_a_known_schema_is_applied_by_name(tmp_path: Path) -> None:
    nodes, edges = small(tmp_path)
    first, _ = load([nodes], [edges])
    edges.write_text("source,target,weight\nn1,n2,1\n")
    nodes.write_text("town,id,age,job\nOslo,n1,5,b\nUlm,n2,6,a\n")
    later, _ = load([nodes], [edges], schema=first.schema)
    np.testing.assert_array_equal(later.features, [[5, 0, 1], [6, 1, 0]])
    assert later.class_names == first.class_names
    nodes.write_text("town,id,job\nOslo,n1,c\nUlm,n2,a\n")
    with pytest.raises(
        GraphError, match="(?s)the column 'age' is missing; there are: town, id, job.*unknown class 'c'"
    ):
        load([nodes], [edges], schema=first.schema)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (NodeTable("", "id", "id"), "column 'id': is named as id and as label"),
        (NodeTable("", "id", "job", ("job",)), "column 'job': is named as label and as categories"),
        (NodeTable("", "id", "job", (), ("job",)), "column 'job': is named as label and as drop"),
        (NodeTable("", "id", "job", (), (), "id"), "column 'id': is named as id and as time"),
    ],
)
def test_a_column_is_one_thing(tmp_path: Path, table: NodeTable, message: str) -> None:
    small(tmp_path)
    with pytest.raises(GraphError, match=f"people.csv, {message}: leave out one of them$"):
        load([tmp_path / "people.csv"], [tmp_path / "calls.csv"], table)


def test_a_text_with_lines_may_stand_in_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vcr_graphormer.data.readers.text._BLOCK", 200)
    rows = "".join(f'n{i},"a\n{"b" * (i % 40)}",{i}\n' for i in range(100))
    (tmp_path / "nodes.csv").write_text("id,note,age\n" + rows)
    (tmp_path / "edges.csv").write_text("source,note,target\n" + "".join(f'n{i},"x\ny",n0\n' for i in range(1, 100)))
    nodes, edges = NodeTable(str(tmp_path / "nodes.csv")), EdgeTable(str(tmp_path / "edges.csv"))
    graph, _ = read_mapped([nodes], [edges], Wanted(), problems=Problems())
    assert (graph.num_nodes, graph.num_edges) == (100, 99)
    assert np.asarray(graph.features).ravel().tolist() == list(range(100))


def test_labels_that_are_all_missing_are_refused(tmp_path: Path) -> None:
    small(tmp_path)
    people = (tmp_path / "people.csv").read_text().splitlines()
    rows = [people[0], *(line.rpartition(",")[0] + "," for line in people[1:])]
    (tmp_path / "people.csv").write_text("\n".join(rows) + "\n")
    assert people[0].endswith(",job")
    assert "error: all labels are missing" in run("datasets", "--config", str(mapping(tmp_path)), code=2)


def test_one_column_is_not_several_labels(tmp_path: Path) -> None:
    nodes, edges = small(tmp_path)
    with pytest.raises(GraphError, match=r"people.csv, column 'job': is one column of labels, but multilabel needs"):
        load([nodes], [edges], task="multilabel")


def test_labels_of_no_node_are_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,age\na,1\nb,2\n")
    (tmp_path / "labels.csv").write_text("id,y\nA,u\nB,v\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    nodes = [NodeTable(str(tmp_path / f"{name}.csv")) for name in ("nodes", "labels")]
    with pytest.raises(GraphError, match="labels.csv, column 'id': none of its ids, such as 'A', is in another table"):
        read_mapped(nodes, [EdgeTable(str(tmp_path / "edges.csv"))], Wanted(), problems=Problems())


def test_later_frames_are_read_by_a_schema() -> None:
    people = {"id": ["a", "b", "c", "z"], "age": [1.0, 2.0, 3.0, 4.0], "town": ["Ulm", "Rom"] * 2, "job": [3, 5] * 2}
    calls = {"source": ["a", "a", "a"], "target": ["b", "c", "z"]}
    first = Graph.from_frames(people, calls, label="job", categories=["town"])
    later = {
        "job": [5, None, -1, 3],
        "town": ["Rom", "Bari", None, None],
        "age": [None] * 4,
        "id": ["a", "b", "c", "z"],
    }
    graph = Graph.from_frames(later, calls, label="job", schema=first.schema)
    assert graph.feature_names == first.feature_names == ("age", "town=Rom", "town=Ulm", "town=other")
    nan = np.nan
    np.testing.assert_array_equal(graph.features, np.array([[nan, 1, 0, 0], [nan, 0, 0, 1], *[[nan, 0, 0, 0]] * 2]))
    assert graph.class_names == first.class_names == ("3", "5")
    assert graph.labels is not None
    assert graph.labels.tolist() == [1, -1, -1, 0]
    with pytest.raises(GraphError, match="column 'job': unknown class '4'; the classes are 3, 5"):
        Graph.from_frames({**later, "job": [4, 3, 3, 3]}, calls, label="job", schema=first.schema)


def test_types_of_ids_and_weights() -> None:
    ids = [Decimal(1), Decimal(2)]
    graph = Graph.from_frames({"id": ids}, {"source": ids[:1], "target": [2.0], "weight": [Decimal("1.5")]})
    assert graph.names is not None
    assert graph.weights is not None
    assert (graph.names.tolist(), graph.weights.tolist()) == (["1", "2"], [1.5, 1.5])
    with pytest.raises(GraphError, match="nodes, column 'id': holds bool, which are no ids"):
        Graph.from_frames({"id": [True, False]}, {"source": [1], "target": [2]})
    with pytest.raises(GraphError, match="edges, column 'weight': holds list<item: int64>; weights are numbers"):
        Graph.from_frames(None, {"source": [1], "target": [2], "weight": [[1]]})


def test_categories_are_read_as_written(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,zip,y\na,01234,-1\nb,1234,1\nc,00501,1\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    nodes = NodeTable(str(tmp_path / "nodes.csv"), categories=("zip",))
    graph, _ = read_mapped([nodes], [EdgeTable(str(tmp_path / "edges.csv"))], Wanted(), problems=Problems())
    assert graph.feature_names == ("zip=00501", "zip=01234", "zip=1234", "zip=other")
    assert np.asarray(graph.features).tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
    assert graph.labels is not None
    assert (graph.labels.tolist(), graph.class_names) == ([0, 1, 1], ("-1", "1"))


def test_the_index_of_a_pandas_table_is_no_feature(tmp_path: Path) -> None:
    """Findings 3.2: `__index_level_0__` in features.parquet became a feature, without a word."""
    (tmp_path / "edges.csv").write_text("source,target,kind\n0,1,call\n1,2,mail\n")
    table = pa.table({"a": [0.5, 0.25, 0.75], "__index_level_0__": [30, 10, 20]})
    parquet.write_table(table, tmp_path / "features.parquet")
    with pytest.warns(UserWarning, match="column '__index_level_0__': is the index of a pandas table") as caught:
        graph = read_graph(tmp_path)
    assert (graph.num_features, graph.feature_names) == (1, ("a",))
    # Findings 3.5: columns of edges that are not used were dropped without a note.
    assert "edges.csv: the column 'kind' is not used" in str(caught[0].message)
    frames = pa.table({"id": ["x", "y"], "a": [1, 2], "__index_level_0__": [5, 3]})
    with pytest.warns(UserWarning, match="column '__index_level_0__': is the index of a pandas table"):
        made = Graph.from_frames(frames, {"source": ["x"], "target": ["y"]})
    assert made.feature_names == ("a",)


def test_frames_of_pandas_and_polars() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    nodes = {"who": ["ann", "bob"], "age": [20, 30], "job": ["spy", "friend"]}
    edges = {"source": ["ann"], "target": ["bob"]}
    graphs = [
        Graph.from_frames(library.DataFrame(nodes), library.DataFrame(edges), id="who", label="job")
        for library in (pandas, polars)
    ]
    indexed = pandas.DataFrame(nodes, index=[7, 3])
    with pytest.warns(UserWarning, match="index of a pandas table"):
        graphs.append(Graph.from_frames(indexed, pandas.DataFrame(edges), id="who", label="job"))
    assert len({graph.fingerprint for graph in graphs}) == 1
    assert all(graph.feature_names == ("age",) for graph in graphs)


def test_frames_that_are_none() -> None:
    with pytest.raises(GraphError, match="nodes is a list; give a table of pandas, polars or pyarrow"):
        Graph.from_frames([1], {"source": ["a"], "target": ["b"]})
    with pytest.raises(GraphError, match="edges cannot be read as a table"):
        Graph.from_frames(None, {"source": ["a"], "target": ["b", "c"]})
    with pytest.raises(GraphError, match="drop is 'age'; it must be a list of columns"):
        Graph.from_frames(None, {"source": ["a"], "target": ["b"]}, drop="age")
    with pytest.raises(TypeError, match="unexpected keyword argument 'sorce'"):
        Graph.from_frames(None, {"source": ["a"], "target": ["b"]}, sorce="a")  # type: ignore[call-arg]
    with pytest.raises(GraphError, match="edges row 1, column 'weight': the weight is missing"):
        Graph.from_frames(None, {"source": ["a", "b"], "target": ["b", "c"], "weight": [1.0, None]})
    graph = Graph.from_frames(None, {"src": np.array([5, 6]), "dst": np.array([6.0, 7.0])})
    assert graph.names is not None
    assert graph.names.tolist() == ["5", "6", "7"]
    assert to_arrow({"a": np.array(["x"])}, "table").column("a").to_pylist() == ["x"]


@pytest.mark.parametrize(
    ("what", "names", "expected"),
    [
        ("source", ["tx", "from_account", "to_account"], "from_account"),
        ("target", ["tx", "FromAccount", "ToAccount"], "ToAccount"),
        ("source", ["a", "b"], None),
        ("id", ["age", "customer_id"], "customer_id"),
        ("weight", ["amount"], "amount"),
    ],
)
def test_likely_columns(what: str, names: list[str], expected: str | None) -> None:
    assert likely_column(what, names) == expected


def test_a_mapping_is_proposed(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("user_id,friend_id\n0,1\n1,2\n")
    with pytest.raises(
        GraphError, match=r"did you mean source = user_id and target = friend_id in edges.csv\?"
    ) as caught:
        read_graph(tmp_path)
    assert '[data.edges]\nfile = "edges.csv"\nsource = "user_id"\ntarget = "friend_id"\n' in str(caught.value)
    (tmp_path / "edges.csv").unlink()
    assert propose(tmp_path) == ([], [])
    with pytest.raises(StoreError, match=r"has no edges.csv .*; see docs/own-data.md for the forms that are read$"):
        read_graph(tmp_path)


def test_ids_are_found_by_their_values(tmp_path: Path) -> None:
    """No name sounds like an id or a label; wrong entries make no category and drop nothing."""
    rows = "".join(f"{i},C{i},{'x' if i == 7 else i},{i}@a.org,{'DE' if i % 2 else 'FR'}\n" for i in range(60))
    (tmp_path / "crm.csv").write_text(f",customer_no,age,mail,country\n{rows}")
    (tmp_path / "cases.csv").write_text(
        "customer,verdict\n" + "".join(f"C{i},{'bad' * (i % 3)}ok\n" for i in range(60))
    )
    (tmp_path / "payments.csv").write_text("no,payer,payee\n" + "".join(f"{i},C{i},C{i + 1}\n" for i in range(59)))
    (tmp_path / "rates.csv").write_text("currency,rate\nUSD,1.1\n")
    (tmp_path / "out.csv").write_text(
        "node,name,part,label,prediction\n" + "".join(f"{i},C{i},,,ok\n" for i in range(60))
    )
    with pytest.raises(StoreError, match="did you mean source = payer and target = payee in payments.csv") as caught:
        read_graph(tmp_path)
    text = str(caught.value)
    assert f"{tmp_path / 'rates.csv'} is not in this mapping: it has no ids of the edges" in text
    assert "crm.csv line 9, column 'age': holds numbers, but also 'x'" in text
    nodes, _ = propose(tmp_path)
    assert nodes == [
        NodeTable(str(tmp_path / "cases.csv"), "customer", "verdict"),
        NodeTable(str(tmp_path / "crm.csv"), "customer_no", "", ("country",), ("mail",)),
    ]


def test_edges_are_found_by_their_values(tmp_path: Path) -> None:
    """No name sounds like an end of an edge: two columns hold the ids of another table."""
    (tmp_path / "Kunden.csv").write_text("Nr;Umsatz\n" + "".join(f"K{i};{i}.5\n" for i in range(20)))
    (tmp_path / "Werbung.csv").write_text("von;an;count\n" + "".join(f"K{i};K{i % 7};{i}\n" for i in range(20)))
    nodes, edges = propose(tmp_path)
    assert nodes == [NodeTable(str(tmp_path / "Kunden.csv"), "Nr")]
    assert edges == [EdgeTable(str(tmp_path / "Werbung.csv"), "von", "an", "count")]
    (tmp_path / "Werbung.csv").write_text("von;an\n" + "".join(f"K{i};X{i}\n" for i in range(20)))
    assert propose(tmp_path) == ([], [])  # one end is not enough


def test_a_folder_with_nodes(tmp_path: Path) -> None:
    (tmp_path / "edges.feather").touch()
    write(tmp_path / "edges.feather", [{"src": "b", "dst": "a"}], columns=["src", "dst"])
    write(
        tmp_path / "nodes.jsonl",
        [{"id": "a", "x": 1.5, "y": "no"}, {"id": "b", "x": None, "y": "yes"}],
        columns=["id", "x", "y"],
    )
    with pytest.warns(UserWarning, match="column 'y': is taken for the label"):
        graph = read_graph(tmp_path)
    assert (graph.feature_names, graph.class_names) == (("x",), ("no", "yes"))


def test_geom_gcn_files(tmp_path: Path) -> None:
    (tmp_path / "out1_graph_edges.txt").write_text("node_id\tnode_id\n0\t1\n2\t1\n")
    lines = ["node_id\tfeature\tlabel", "1\t0,1,1\t0", "0\t1,0,0\t2", "2\t0,0,0\t1"]
    (tmp_path / "out1_node_feature_label.txt").write_text("\n".join(lines))
    for number in (10, 9):
        masks = {f"{part}_mask": np.arange(3) == (i + number) % 3 for i, part in enumerate(("train", "val", "test"))}
        np.savez(tmp_path / f"texas_split_0.6_0.2_{number}.npz", **masks)
    graph = read_graph(tmp_path)
    assert graph.labels is not None
    np.testing.assert_array_equal(graph.features, [[1, 0, 0], [0, 1, 1], [0, 0, 0]])
    assert (graph.labels.tolist(), graph.indices.tolist()) == ([2, 0, 1], [1, 0, 2, 1])
    assert [split.train.tolist() for split in read_splits(tmp_path)] == [[0], [1]]
    lines[1:] = ["0\t4,1\t0", "1\t2\t1", "2\t0\t1"]  # columns that are 1, as in Actor
    (tmp_path / "out1_node_feature_label.txt").write_text("\n".join(lines))
    dense = read_graph(tmp_path).features.toarray()  # type: ignore[union-attr]
    assert dense.tolist() == [[0, 1, 0, 0, 1], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]
    for text, message in (
        ("0\t1\n", "line 2: a line has a node"),
        ("0\tx\t1\n", "features must be whole numbers"),
        ("5\t1\t1\n", "must be 0 to 0"),
    ):
        (tmp_path / "out1_node_feature_label.txt").write_text("node_id\tfeature\tlabel\n" + text)
        with pytest.raises(GraphError, match=message):
            read_graph(tmp_path)
    (tmp_path / "out1_node_feature_label.txt").write_text("\n".join(lines))
    (tmp_path / "out1_graph_edges.txt").write_text("node_id\tnode_id\n0\tx\n")
    with pytest.raises(GraphError, match="every line must hold two nodes"):
        read_graph(tmp_path)


def test_archives_of_heterophilous_graphs(tmp_path: Path) -> None:
    masks: dict[str, Any] = {
        f"{part}_masks": np.eye(3, dtype=bool)[[i, (i + 1) % 3]] for i, part in enumerate(("train", "val", "test"))
    }
    arrays: dict[str, Any] = {"edges": [[0, 1], [1, 2], [2, 0]], "node_features": np.eye(3), "node_labels": [0, 1, 0]}
    np.savez(tmp_path / "roman.npz", **arrays, **masks, class_names=["no", "yes"])
    graph = read_graph(tmp_path)
    assert (graph.num_edges, graph.num_features, graph.class_names) == (3, 3, ("no", "yes"))
    for path in (tmp_path, tmp_path / "roman.npz"):
        assert [split.train.tolist() for split in read_splits(path)] == [[0], [1]]
    np.savez(tmp_path / "roman.npz", **arrays, train_masks=np.eye(3, dtype=bool))
    with pytest.raises(StoreError, match=r"train_masks, val_masks and test_masks must have one shape, \[splits, n\]"):
        read_splits(tmp_path)


def test_large_tables_use_the_compiled_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": f"n{i}", "age": float(i), "town": "Ulm", "job": "ab"[i % 2]} for i in range(50)]
    edges = [{"source": f" n{i % 50}", "target": f"n{i * 7 % 53}", "weight": 0.25 * i + 1} for i in range(300)]
    nodes = write(tmp_path / "people.csv", rows, columns=["id", "age", "town", "job"])
    calls = write(tmp_path / "calls.csv", edges, columns=["source", "target", "weight"])
    plain, problems = load([nodes], [calls])
    monkeypatch.setattr("vcr_graphormer.data.readers.edges._COMPILED_FROM", 1)
    monkeypatch.setattr("vcr_graphormer.data.readers.text._BLOCK", 1024)
    compiled, again = load([nodes], [calls])
    assert (plain.fingerprint, problems.notes) == (compiled.fingerprint, again.notes)


@pytest.mark.parametrize("quoted", ["plain", "two\\nlines", "many\\n\\n\\nlines", 'a ""quote""', '""\\n""'])
def test_blocks_end_where_rows_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quoted: str) -> None:
    lines = [f'"{i % 7} {quoted}",{i * 3 % 7} {quoted[:1]},{i + 1}' for i in range(40)]
    file = tmp_path / "calls.csv"
    file.write_text("source,target,weight\n" + "\n".join([*lines[:20], "", "\r", *lines[20:]]))
    whole, _ = load([], [file])
    for size in (3, 30, 64, 500):
        monkeypatch.setattr("vcr_graphormer.data.readers.text._BLOCK", size)
        assert load([], [file])[0].fingerprint == whole.fingerprint
    assert whole.names is not None
    assert whole.names[1] == f"1 {quoted}".replace('""', '"')


def test_flags_are_the_same_category_in_every_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,paid\n" + "".join(f"n{i},{bool(i % 2)}\n" for i in range(6)))
    parquet.write_table(
        pa.table({"id": [f"n{i}" for i in range(6)], "paid": [bool(i % 2) for i in range(6)]}), tmp_path / "a.parquet"
    )
    (tmp_path / "edges.csv").write_text("source,target\nn0,n1\n")
    tables = [NodeTable(str(tmp_path / f"a.{ending}"), categories=("paid",)) for ending in ("csv", "parquet")]
    edges = [EdgeTable(str(tmp_path / "edges.csv"))]
    graphs = [read_mapped([table], edges, Wanted(), problems=Problems())[0] for table in tables]
    assert graphs[0].fingerprint == graphs[1].fingerprint
    assert graphs[0].feature_names == ("paid=false", "paid=true", "paid=other")


def test_dates_with_the_day_first_are_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,born,age\nn0,31.01.2024,1\nn1,1.2.2024,2\n")
    (tmp_path / "edges.csv").write_text("source,target\nn0,n1\n")
    message = (
        r"nodes.csv, column 'born': holds dates such as '31.01.2024', where day and month can be mixed up; write 2024"
    )
    with pytest.raises(GraphError, match=message):
        read_graph(tmp_path)


def test_both_directions_of_an_undirected_edge_add_up(tmp_path: Path) -> None:
    rows = [{"source": "a", "target": "b", "weight": 3}, {"source": "b", "target": "a", "weight": 5}]
    file = write(tmp_path / "edges.csv", rows, columns=["source", "target", "weight"])
    frames = Graph.from_frames(None, {name: [row[name] for row in rows] for name in rows[0]})
    for graph in (load([], [file])[0], read_graph(file), read_graph(tmp_path), frames):
        assert graph.to_scipy().toarray().tolist() == [[0, 8], [8, 0]]
    assert load([], [file], directed=True)[0].to_scipy().toarray().tolist() == [[0, 3], [5, 0]]
    assert Graph.from_edges([[0, 1], [1, 0]], edge_weight=[3, 5]).to_scipy().toarray().tolist() == [[0, 5], [5, 0]]


def test_progress_is_told(tmp_path: Path) -> None:
    nodes, edges = small(tmp_path)
    steps: list[tuple[str, int, int]] = []
    tables = [NodeTable(str(nodes), "id", "job")], [EdgeTable(str(edges))]
    read_mapped(*tables, Wanted(), problems=Problems(), progress=lambda *step: steps.append(step))
    assert {stage for stage, _, _ in steps} == {"reading calls.csv"}
    assert steps[-1][1] == steps[-1][2]
    assert all(done < total for _, done, total in steps[:-1])


def test_ids_of_a_parquet_file_that_are_no_utf8(tmp_path: Path) -> None:
    """Parquet keeps any bytes as text, and Arrow looks at them only when it compares them."""
    parquet.write_table(pa.table({"id": ["a", "b"], "x": [1.0, 2.0]}), tmp_path / "nodes.parquet")
    wrong = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"b"], pa.binary()).buffers())
    parquet.write_table(pa.table({"source": wrong, "target": ["a", "b"]}), tmp_path / "edges.parquet")
    nodes, edges = NodeTable(str(tmp_path / "nodes.parquet")), EdgeTable(str(tmp_path / "edges.parquet"))
    with pytest.raises(VCRError, match=r"edges\.parquet is not a readable parquet file: Invalid UTF8"):
        read_mapped([nodes], [edges], Wanted(), problems=Problems())
    file = tmp_path / "edges.parquet"
    damaged = bytearray(file.read_bytes())
    damaged[4:40] = bytes(36)  # the pages, not the footer that names the columns
    file.write_bytes(damaged)
    with pytest.raises(VCRError, match="is not a readable parquet file") as info:
        read_mapped([nodes], [edges], Wanted(), problems=Problems())
    assert str(info.value).count("is not a readable") == 1  # said once, however deep it was found
