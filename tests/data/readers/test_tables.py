"""Tables of every format give the same columns; wrong ones name their line."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from vcr_graphormer import GraphError, StoreError
from vcr_graphormer.base.files import read_npy
from vcr_graphormer.data.readers.tables import read_table

KNOWN = ("source", "target")


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        (".csv", "source,target\n0,1\n2,3\n"),
        (".csv", "SOURCE,target\r\n0,1\r\n2,3\r\n"),
        (".tsv", "# a comment\n# another\nsource\ttarget\n0\t1\n\n2\t3\n"),
        (".txt", "source target\n0 1\n2 3"),
        (".csv", "source;target\n0;1\n2;3\n"),
    ],
)
def test_text_formats(tmp_path: Path, ending: str, text: str) -> None:
    file = tmp_path / f"edges{ending}"
    file.write_text(text)
    table = read_table(file, KNOWN)
    assert [column.tolist() for column in table.columns] == [[0, 2], [1, 3]]
    assert table.header is not None
    assert (table.find(("target",)), table.find(("weight",)), len(table)) == (1, None, 2)


def test_without_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ann,bob\nbob,eve\n")
    table = read_table(tmp_path / "a.csv", KNOWN)
    assert (table.header, table.columns[1].tolist()) == (None, ["bob", "eve"])


def test_parquet_and_npy(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"source": [0, 2], "target": ["a", None]}), tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet", KNOWN)
    assert [column.tolist() for column in table.columns] == [[0, 2], ["a", ""]]
    with pytest.raises(GraphError, match=r"a\.parquet row 1: target is missing"):
        table.ids(1, "target")
    np.save(tmp_path / "b.npy", [[0, 1], [2, 3]])
    assert [column.tolist() for column in read_table(tmp_path / "b.npy", KNOWN).columns] == [[0, 2], [1, 3]]


def test_lines_are_named(tmp_path: Path) -> None:
    file = tmp_path / "edges.csv"
    file.write_text("# comment\nsource,target\n0,1\n\n2,3.5\n")
    table = read_table(file, KNOWN)
    assert table.ids(0, "source").tolist() == [0, 2]
    with pytest.raises(GraphError, match=r"edges\.csv line 5: target is 3\.5; it must be a whole number or a name"):
        table.ids(1, "target")
    file.write_text("source,target\n0,1\n2,\n")
    with pytest.raises(GraphError, match=r"edges\.csv line 3: target is missing"):
        read_table(file, KNOWN, ids=KNOWN).ids(1, "target")
    file.write_text("source,target\n0,1\n2,nan\n")
    with pytest.raises(GraphError, match=r"edges\.csv line 3: target is nan; it must be a whole number or a name"):
        read_table(file, KNOWN, ids=KNOWN).ids(1, "target")
    file.write_text("source,target\n0,ann\n2,\n")
    with pytest.raises(GraphError, match=r"edges\.csv line 3: target is missing"):
        read_table(file, KNOWN).ids(1, "target")
    file.write_text("source,target\n0,ann\n2,4\n")
    with pytest.raises(GraphError, match=r"edges\.csv line 2: weight is 'ann'; it must be a number"):
        read_table(file, KNOWN).numbers(1, "weight")
    file.write_text("source,target\n0,1\n2\n")
    with pytest.raises(GraphError, match=r"edges\.csv is not a regular table.*line 3 has 1 columns, the first has 2"):
        read_table(file, KNOWN)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"# only\n# comments\n", "has no data line"),
        ("a.csv", b"\xff\xfe\x00,1\n", "is not a UTF-8 text file"),
        ("a.parquet", b"PAR1 no", "is not a readable parquet file"),
        ("a.npy", b"\x93NUMPY no", "is not a readable .npy file"),
        ("a.docx", b"PK", "has the unknown ending '.docx'"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match=message):
        read_table(tmp_path / name, KNOWN)


def test_missing_files_and_pickled_arrays(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        read_table(tmp_path / "a.csv", KNOWN)
    with pytest.raises(StoreError, match="does not exist"):
        read_npy(tmp_path / "a.npy")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(StoreError, match="plain numbers"):
        read_npy(tmp_path / "objects.npy")
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    with pytest.raises(GraphError, match="a table has one or two dimensions"):
        read_table(tmp_path / "cube.npy", KNOWN)


def test_delimiters_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "edges.csv"
    for text, columns in (
        ("0;1;0,5\n1;2;0,7\n", 3),
        ('"a,b";"c"\n"d";"e"\n', 2),
        ("0  1\n10 11\n", 2),
        ("0, 1\n1, 2\n", 2),
    ):
        file.write_text(text)
        assert len(read_table(file, KNOWN, leading_ids=2).columns) == columns
    file.write_text("# top\n0,1\n# hello, world\n1,2\n")
    with pytest.raises(GraphError, match=r"line 3: comments \(#\) may only stand at the top"):
        read_table(file, KNOWN)
    file.write_text("source,target,Source\n0,1,2\n")
    with pytest.raises(GraphError, match="line 1: the column 'source' occurs twice"):
        read_table(file, KNOWN)


def test_nested_parquet_columns(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"source": [[1, 2], [3]]}), tmp_path / "a.parquet")
    with pytest.raises(GraphError, match="the column 'source' of type list.* holds no plain values"):
        read_table(tmp_path / "a.parquet", KNOWN)
