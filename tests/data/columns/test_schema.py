"""Columns become features by name and type; what is not used, missing or of another type is named."""

import json
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcr_graphormer import GraphError, StoreError
from vcr_graphormer.base.problems import Problems
from vcr_graphormer.data.columns.schema import LEAST_ROWS, MOST_VALUES, Column, Schema

ACCOUNTS = pa.table(
    {
        "account": ["a", "b", "c", "d"],
        "age": [3, None, 5, 7],
        "country": ["DE", "FR", None, " DE "],
        "active": [True, False, None, True],
        "since": pa.array([date(2024, 1, 1), date(2024, 1, 3), None, date(2023, 12, 31)]),
        "status": ["good", "bad", None, "good"],
        "plan": ["x", "y", "x", "y"],
    }
)
KEYS: dict[str, Any] = {"id": "account", "label": "status"}


def learned(table: pa.Table = ACCOUNTS, **keywords: Any) -> tuple[Schema, Problems]:
    problems = Problems()
    return Schema.learn(table, problems=problems, **keywords), problems


def error_of(schema: Schema, table: pa.Table) -> str:
    with pytest.raises(GraphError) as caught:
        schema.encode(table)
    return str(caught.value)


def test_a_table_becomes_features() -> None:
    schema, problems = learned(categories=["country"], **KEYS)
    assert problems.texts == []
    assert problems.notes == ["""column 'plan': holds text and is ignored; to use it: categories = ["plan"]"""]
    assert schema.feature_names == ("age", "country=DE", "country=FR", "country=other", "active", "since")
    assert schema.classes == ("bad", "good")
    assert schema.ignored == ("plan",)
    nan = np.nan
    expected = [[3, 1, 0, 0, 1, 1], [nan, 0, 1, 0, 0, 3], [5, 0, 0, 0, nan, nan], [7, 1, 0, 0, 1, 0]]
    features = schema.encode(ACCOUNTS)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, np.array(expected, np.float32))
    labels = schema.encode_labels(ACCOUNTS)
    assert labels is not None
    assert labels.tolist() == [1, 0, -1, 1]


def test_columns_are_found_by_name() -> None:
    schema, _ = learned(categories=["country"], **KEYS)
    problems = Problems()
    other = ACCOUNTS.select(["plan", "since", "active", "country", "age"]).append_column("extra", pa.array([1.0] * 4))
    np.testing.assert_array_equal(schema.encode(other, problems), schema.encode(ACCOUNTS))
    assert problems.texts == []
    assert problems.notes == ["column 'extra': was not there in training and is ignored"]


def test_a_value_not_known_is_other() -> None:
    schema, _ = learned(categories=["country"], **KEYS)
    features = schema.encode_rows([{"age": 1, "country": "XX", "active": True, "since": "2024-01-02"}])
    assert features.tolist() == [[1, 0, 0, 1, 1, 2]]


def test_rows_as_dictionaries() -> None:
    schema, _ = learned(categories=["country"], **KEYS)
    rows = ACCOUNTS.to_pylist()
    np.testing.assert_array_equal(schema.encode_rows(rows), schema.encode(ACCOUNTS))
    text = [{**row, "since": row["since"] and row["since"].isoformat()} for row in rows]
    np.testing.assert_array_equal(schema.encode_rows(text), schema.encode(ACCOUNTS))
    with pytest.raises(GraphError, match="column 'age': its values are of different types"):
        schema.encode_rows([{**rows[0], "age": 1}, {**rows[1], "age": "x"}])


def test_everything_wrong_is_told_at_once() -> None:
    schema, _ = learned(categories=["country"], **KEYS)
    wrong = pa.table({"age": ["old"], "active": [1], "since": ["soon"], "country": [[1]]})
    assert error_of(schema, wrong) == (
        "4 problems:\n"
        "  column 'age': must hold numbers, but holds text\n"
        "  column 'country': must hold categories, but holds list<item: int64>\n"
        "  column 'active': must hold true and false, but holds numbers\n"
        "  column 'since': must hold dates, but holds text"
    )
    assert error_of(schema, ACCOUNTS.drop_columns(["age"])).startswith(
        "the column 'age' is missing; there are: account"
    )


def test_a_missing_value_has_any_type() -> None:
    schema, _ = learned(categories=["country"], **KEYS)
    features = schema.encode_rows([{"age": None, "country": None, "active": None, "since": None}])
    np.testing.assert_array_equal(features, np.array([[np.nan, 0, 0, 0, np.nan, np.nan]], np.float32))


def test_an_unknown_class_is_named() -> None:
    schema, _ = learned(**KEYS)
    with pytest.raises(GraphError, match="column 'status': unknown class 'ugly'; the classes are bad, good"):
        schema.encode_labels(pa.table({"status": ["good", "ugly"]}))
    assert schema.encode_labels(pa.table({"age": [1]})) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [([2, 0, 1], [2, 0, 1]), ([True, False, True], [1, 0, 1]), ([1.5, None, 2.5], [1.5, np.nan, 2.5])],
)
def test_targets_stay(values: list[Any], expected: list[float]) -> None:
    table = pa.table({"y": values})
    schema, _ = learned(table, label="y", targets=True)
    assert schema.classes is None
    np.testing.assert_array_equal(schema.encode_labels(table), expected)
    with pytest.raises(GraphError, match="column 'y': holds text; labels must be numbers$"):
        schema.encode_labels(pa.table({"y": ["a"]}))


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        ([2, 0, 1], ("0", "1", "2"), [2, 0, 1]),
        ([3, 1, None], ("1", "3"), [1, 0, -1]),
        ([10.0, 9.0, None], ("9", "10"), [1, 0, -1]),  # by size, not by text
        ([-1, 1, 1], ("-1", "1"), [0, 1, 1]),  # two classes, as some tables write them
        ([-1, 1, 2], ("1", "2"), [-1, 0, 1]),  # unknown, as arrays have it
    ],
)
def test_whole_numbers_are_names_of_classes(values: list[Any], classes: tuple[str, ...], expected: list[int]) -> None:
    table = pa.table({"y": values})
    schema, problems = learned(table, label="y")
    assert schema.classes == classes
    labels = schema.encode_labels(table)
    assert labels is not None
    assert labels.tolist() == expected
    assert [note for note in problems.notes if "unknown label" in note] == (
        ["column 'y': -1 is taken for an unknown label"] if expected[0] == -1 else []
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.5], r"row 1, column 'y': the label is 2.5; classes are whole numbers or texts; .*regression"),
        (list(range(100)), "holds 100 different numbers, too many for classes; .*regression"),
    ],
)
def test_numbers_that_are_no_classes(values: list[Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Schema.learn(pa.table({"y": values}), label="y")


def test_a_whole_number_is_one_category_as_number_and_as_text() -> None:
    schema = Schema((Column("plan", "category", ("01", "3")),))
    for values in ([3, 3], [3.0, 3.0], ["3", "3.0"]):
        assert schema.encode(pa.table({"plan": values})).tolist() == [[0, 1, 0], [0, 1, 0]]
    assert schema.encode(pa.table({"plan": ["01", "1.0"]})).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_names_that_are_not_there_are_problems() -> None:
    _, problems = learned(id="acount", label="staus", categories=["contry"], drop=["mail"])
    assert [text.split(" (")[0] for text in problems.texts] == [
        "id: unknown column 'acount'; did you mean 'account'?",
        "label: unknown column 'staus'; did you mean 'status'?",
        "categories: unknown column 'contry'; did you mean 'country'?",
        "drop: unknown column 'mail'",
    ]
    with pytest.raises(GraphError, match="4 problems"):
        Schema.learn(ACCOUNTS, id="acount", label="staus", categories=["contry"], drop=["mail"])


def test_dropped_columns_need_no_note() -> None:
    schema, problems = learned(drop=["plan", "country", "age"], **KEYS)
    assert schema.feature_names == ("active", "since")
    assert schema.ignored == ("age", "country", "plan")
    assert problems.notes == []


def test_rare_values_stand_together() -> None:
    values = ["a"] * 2000 + ["b"] * LEAST_ROWS + ["c"] * (LEAST_ROWS - 1) + ["other"] * 50
    schema, _ = learned(pa.table({"plan": values}), categories=["plan"])
    assert schema.feature_names == ("plan=a", "plan=b", "plan=other")
    counts = schema.encode(pa.table({"plan": values})).sum(axis=0).tolist()
    assert counts == [2000, LEAST_ROWS, LEAST_ROWS - 1 + 50]
    many, _ = learned(pa.table({"zip": np.arange(3000) % 150}), categories=["zip"])
    assert len(many.feature_names) == MOST_VALUES + 1


def test_whole_numbers_as_categories_have_one_text() -> None:
    schema, _ = learned(pa.table({"code": pa.array([1, 2, 2], pa.int32())}), categories=["code"])
    for values in (pa.array([1.0, np.nan, 2.0]), pa.array(["1", "", "2"]), pa.array([1, None, 2]).dictionary_encode()):
        assert schema.encode(pa.table({"code": values})).tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_times_of_any_unit_and_zone_are_days() -> None:
    start = datetime(2024, 5, 1, 12)
    plain = pa.table({"t": pa.array([start, datetime(2024, 5, 2, 18)], pa.timestamp("s"))})
    schema, _ = learned(plain)
    assert schema.encode(plain).tolist() == [[0.5], [1.75]]
    later = pa.array([datetime(2024, 5, 3, tzinfo=UTC)], pa.timestamp("ns", "UTC"))
    assert schema.encode(pa.table({"t": later})).tolist() == [[2]]
    for text in ("2024-05-03", "2024-05-03T00:00:00", "2024-05-03T02:00:00+02:00"):
        assert schema.encode_rows([{"t": text}]).tolist() == [[2]]
    # Days since 1970 would keep no more than about two minutes apart in float32.
    second = schema.encode_rows([{"t": "2024-05-03T00:00:10"}])
    assert second[0, 0] == pytest.approx(2 + 10 / 86_400, abs=1e-6)


@pytest.mark.parametrize("name", ["__index_level_0__", "Unnamed: 0", "", "index"])
def test_a_pandas_index_is_skipped(name: str) -> None:
    schema, problems = learned(pa.table({name: [0, 1, 2], "x": [1.0, 2.0, 3.0]}))
    assert schema.feature_names == ("x",)
    assert problems.notes == [f"column '{name}': is the index of a pandas table and is ignored"]


def test_a_column_named_index_that_counts_nothing_is_used() -> None:
    schema, problems = learned(pa.table({"index": [0.3, 0.1]}))
    assert schema.feature_names == ("index",)
    assert problems.notes == []


def test_columns_that_cannot_be_used_are_named() -> None:
    table = pa.table(
        {
            "lists": [[1], [2]],
            "nothing": pa.nulls(2),
            "names": ["ann", "ben"],
            "digits": ["1", "2"],
        }
    )
    schema, problems = learned(table)
    assert schema.columns == ()
    assert problems.notes == [
        "column 'lists': holds list<item: int64>, which is not used",
        "column 'nothing': holds no values and is ignored",
        """column 'names': holds text and is ignored; to use it: categories = ["names"]""",
        "column 'digits': holds numbers as text and is ignored; to use it, store numbers",
    ]
    _, problems = learned(pa.table({"mail": [f"{i}@example.org" for i in range(60)]}))
    assert problems.notes == ["column 'mail': holds text (60 different values) and is ignored"]


def test_one_text_among_numbers_is_a_problem_with_its_line() -> None:
    problems = Problems()
    table = pa.table({"age": ["3", "4", "unknown", "5", None]})
    Schema.learn(table, problems=problems.of("nodes.csv", lambda row: row + 2))
    assert problems.texts == [
        "nodes.csv line 4, column 'age': holds numbers, but also 'unknown'; correct or empty it, or name the column in "
        "categories or drop"
    ]


def test_wrong_dates_and_several_wrong_entries_are_told() -> None:
    problems = Problems()
    days = [f"2024-01-{day:02d}" for day in range(1, 21)]
    ages = [str(age) for age in range(20)]
    wrong = ["a", "b", "c", "d", "e", "f"]
    table = pa.table({"since": [*days, "2024-02-31"] + [None] * 5, "age": ages + wrong, "day": days + days[:6]})
    Schema.learn(table, problems=problems.of("nodes.csv", lambda row: row + 2))
    way_out = "correct or empty it, or name the column in categories or drop"
    assert problems.texts == [
        f"nodes.csv line 22, column 'since': holds dates, but also '2024-02-31'; {way_out}",
        f"nodes.csv line 22, column 'age': holds numbers, but also 'a', 'b', 'c', 'd', 'e', …; {way_out}",
    ]
    assert problems.notes == ["nodes.csv, column 'day': holds dates as text and is ignored; to use it, store dates"]


def test_infinite_numbers_are_named() -> None:
    schema = Schema((Column("x"),))
    assert error_of(schema, pa.table({"x": [1.0, np.inf]})) == (
        "row 1, column 'x': holds inf; numbers must be finite (below 3e38)"
    )
    assert "holds 1e+39" in error_of(schema, pa.table({"x": [1e39]}))


def test_names_that_collide_are_problems() -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    assert learned(twice)[1].texts == ["column 'x': 2 columns have this name; rename all but one"]
    table = pa.table({"a": ["b"], "a=b": [1]})
    assert learned(table, categories=["a"])[1].texts == ["2 features would be called 'a=b'; rename a column"]


def test_it_is_kept_as_json() -> None:
    schema, _ = learned(categories=["country"], **KEYS)
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    with pytest.raises(StoreError, match="version 7; this package reads 1"):
        Schema.from_dict({"version": 7})
    with pytest.raises(StoreError, match=r"the schema is damaged: it is \[1\]"):
        Schema.from_dict([1])  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="damaged: KeyError 'classes'"):
        Schema.from_dict({"version": 1, "columns": []})


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[str]]:
    """Return a table of columns of any type, and the names of its categories."""
    rows = draw(st.integers(1, 6))
    values = {
        "number": st.floats(-1e6, 1e6, width=32),
        "whole": st.integers(-1000, 1000),
        "flag": st.booleans(),
        "date": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
        "category": st.sampled_from(["x", "y", "z", "1"]),
    }
    types = draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=6))
    columns = {
        f"{type_}{place}": draw(st.lists(st.none() | values[type_], min_size=rows, max_size=rows))
        for place, type_ in enumerate(types)
    }
    return pa.table(columns), [name for name in columns if name.startswith("category")]


@settings(max_examples=60, deadline=None)
@given(tables(), st.randoms())
def test_order_of_columns_and_a_round_trip_change_nothing(made: tuple[pa.Table, list[str]], random: Any) -> None:
    table, categories = made
    schema, problems = learned(table, categories=categories)
    assert problems.texts == []
    features = schema.encode(table)
    assert features.shape == (len(table), len(schema.feature_names))
    assert len(set(schema.feature_names)) == features.shape[1]
    names = list(table.column_names)
    random.shuffle(names)
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    np.testing.assert_array_equal(again.encode(table.select(names)), features)
    rows = [schema.encode(table.slice(row, 1)) for row in range(len(table))]
    np.testing.assert_array_equal(np.concatenate(rows), features)
