"""Features and classes of another graph are found by name; nothing is matched by place where names exist."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from vcr_graphormer import Graph, GraphError
from vcr_graphormer.base.problems import Problems
from vcr_graphormer.data.columns.matching import match, schema_of
from vcr_graphormer.data.columns.schema import Column, Schema

EDGES = [[0, 1, 2], [1, 2, 3]]
VALUES = np.arange(12, dtype=np.float32).reshape(4, 3)
NAMED = Graph.from_edges(EDGES, features=VALUES, feature_names=["x", "y", "z"])
CLASSES = Graph.from_edges(EDGES, labels=[0, 1, 2, -1], class_names=["bad", "good", "new"])


def matched(graph: Graph, schema: Schema) -> tuple[Graph, list[str]]:
    problems = Problems()
    result = match(graph, schema, problems)
    problems.raise_any()
    return result, problems.notes


def graph_of(table: pa.Table, **keywords: Any) -> Graph:
    """Return a graph with the features and labels of a table."""
    schema = Schema.learn(table, **keywords)
    labels = schema.encode_labels(table)
    names = schema.classes
    return Graph.from_edges(EDGES, features=schema.encode(table), labels=labels, class_names=names, schema=schema)


def test_the_same_names_change_nothing() -> None:
    assert matched(NAMED, schema_of(NAMED)) == (NAMED, [])
    assert matched(CLASSES, schema_of(CLASSES)) == (CLASSES, [])


@given(st.permutations(range(3)), st.booleans())
def test_another_order_is_put_right(order: list[int], sparse: bool) -> None:
    names = [("x", "y", "z")[i] for i in order]
    features: Any = sp.csr_matrix(VALUES[:, order]) if sparse else VALUES[:, order]
    other = Graph.from_edges(EDGES, features=features, feature_names=names)
    found, notes = matched(other, schema_of(NAMED))
    assert sp.issparse(found.features) == sparse
    np.testing.assert_array_equal(sp.csr_matrix(found.features).toarray(), VALUES)
    assert (found.feature_names, notes) == (("x", "y", "z"), [])


def test_more_columns_are_ignored_and_missing_ones_named() -> None:
    few = Graph.from_edges(EDGES, features=VALUES[:, ::2], feature_names=["x", "z"])
    found, notes = matched(NAMED, schema_of(few))
    np.testing.assert_array_equal(np.asarray(found.features), VALUES[:, ::2])
    assert notes == ["column 'y': was not there in training and is ignored"]
    with pytest.raises(GraphError, match="^the feature 'y' is missing; there are: x, z$"):
        matched(few, schema_of(NAMED))


def test_without_names_places_count() -> None:
    bare = replace(NAMED, feature_names=None)
    assert matched(bare, schema_of(NAMED))[0] is bare
    assert matched(NAMED, schema_of(bare))[0] is NAMED


def test_class_ids_follow_names() -> None:
    schema = Schema(classes=("new", "good", "bad"))
    found, _ = matched(CLASSES, schema)
    assert np.asarray(found.labels).tolist() == [2, 1, 0, -1]
    assert found.class_names == ("new", "good", "bad")
    with pytest.raises(GraphError, match="^unknown class 'new'; the classes are bad, good$"):
        matched(CLASSES, Schema(classes=("bad", "good")))
    unused = replace(CLASSES, labels=np.array([0, 1, 1, -1]))
    assert np.asarray(matched(unused, Schema(classes=("good", "bad")))[0].labels).tolist() == [1, 0, 0, -1]


def test_classes_that_are_numbers_follow_names() -> None:
    ends = {"source": ["a", "b"], "target": ["b", "c"]}
    later = Graph.from_frames({"id": ["a", "b", "c"], "x": [1, 2, 3], "job": [7, -1, 7]}, ends, label="job")
    assert later.class_names == ("-1", "7")
    found, _ = matched(later, Schema(classes=("2", "7")))  # of two classes only one is there yet, and -1 is unknown
    assert np.asarray(found.labels).tolist() == [1, -1, 1]


def test_numbers_that_became_names_are_numbers_again() -> None:
    """A run learned the classes 0, 1 and 2 without names; a later table has no node of class 1."""
    later = replace(CLASSES, class_names=("0", "2"), labels=np.array([1, 0, -1, 1]))
    found, _ = matched(later, Schema())
    assert (found.class_names, np.asarray(found.labels).tolist()) == (None, [2, 0, -1, 2])
    texts = replace(CLASSES, class_names=("0", "two"), labels=np.array([1, 0, -1, 1]))
    assert matched(texts, Schema())[0] is texts


def test_a_column_that_holds_something_else_is_told() -> None:
    ends = {"source": ["a", "b"], "target": ["b", "c"]}
    with pytest.warns(UserWarning, match="column 'x': holds no values and is ignored"):
        later = Graph.from_frames({"id": ["a", "b", "c"], "x": [None] * 3, "z": [1, 2, 3]}, ends)
    with pytest.raises(GraphError, match="^column 'x': must hold numbers, but holds other values or none$"):
        matched(later, Schema((Column("x"), Column("z"))))


def test_columns_of_several_labels_follow_names() -> None:
    several = Graph.from_edges(EDGES, labels=[[0, 1], [1, 1], [-1, 0], [0, 0]], class_names=["a", "b"])
    found, _ = matched(several, Schema(classes=("b", "c", "a")))
    assert np.asarray(found.labels).tolist() == [[1, -1, 0], [1, -1, 1], [0, -1, -1], [0, -1, 0]]
    with pytest.raises(GraphError, match="unknown class 'b'; the classes are a"):
        matched(several, Schema(classes=("a",)))


def test_labels_without_names_get_those_of_the_schema() -> None:
    bare = replace(CLASSES, class_names=None)
    assert matched(bare, Schema(classes=("p", "q", "r")))[0].class_names == ("p", "q", "r")
    assert matched(replace(bare, labels=None), Schema(classes=("p", "q")))[0].class_names == ("p", "q")
    with pytest.raises(GraphError, match="class 2 is in the data but the model knows only 2 classes"):
        matched(bare, Schema(classes=("p", "q")))


def test_tables_are_matched_column_by_column() -> None:
    one = pa.table(
        {
            "age": [1, 2, None, 4],
            "plan": ["a", "b", "c", None],
            "day": pa.array(["2024-01-02", None, "2024-01-05", "2024-01-01"]).cast(pa.date32()),
        }
    )
    two = pa.table(
        {
            "memo": [9, 9, 8, 8],
            "day": pa.array(["2024-02-01", "2024-02-02", None, "2024-01-31"]).cast(pa.date32()),
            "plan": ["c", "d", "e", None],
            "age": [5, None, 7, 8],
        }
    )
    trained, later = (graph_of(table, categories=["plan"]) for table in (one, two))
    assert trained.schema is not None
    found, notes = matched(later, schema_of(trained))
    np.testing.assert_array_equal(np.asarray(found.features), trained.schema.encode(two))
    assert np.asarray(found.features)[1].tolist()[1:] == [0, 0, 0, 1, 32]
    assert notes == ["column 'memo': was not there in training and is ignored"]
    with pytest.raises(GraphError, match="missing values"):
        found.check_complete()


def test_problems_of_tables_are_told_at_once() -> None:
    trained = graph_of(
        pa.table({"age": [1, 2, 3, 4], "sum": [1, 2, 3, 4], "status": ["a", "b", "a", "b"]}), label="status"
    )
    later = graph_of(pa.table({"age": [True, False, True, True], "status": ["a", "c", "a", "a"]}), label="status")
    with pytest.raises(GraphError) as caught:
        matched(later, schema_of(trained))
    assert str(caught.value).splitlines() == [
        "3 problems:",
        "  column 'age': must hold numbers, but holds true and false",
        "  the column 'sum' is missing; there are: age",
        "  unknown class 'c'; the classes are a, b",
    ]


def test_a_rare_value_that_was_put_with_others_is_refused() -> None:
    trained = graph_of(pa.table({"plan": ["a", "b", "b", "a"]}), categories=["plan"])
    schema = Schema.learn(pa.table({"plan": ["a"]}), categories=["plan"])
    table = pa.table({"plan": ["a", "b", "a", "a"]})
    later = Graph.from_edges(EDGES, features=schema.encode(table), schema=schema)
    with pytest.raises(GraphError, match="column 'plan': 'b' cannot be told from other rare values"):
        matched(later, schema_of(trained))
