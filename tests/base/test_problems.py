"""All problems are told at once, each with its place; one alone reads as a plain error."""

from pathlib import Path

import pytest

from vcr_graphormer import GraphError
from vcr_graphormer.base.problems import MOST_SHOWN, Problems, first_texts


def text_of(problems: Problems) -> str:
    with pytest.raises(GraphError) as caught:
        problems.raise_any()
    return str(caught.value)


def test_nothing_wrong_raises_nothing() -> None:
    problems = Problems()
    problems.note("3 columns are ignored")
    problems.raise_any()
    assert problems.notes == ["3 columns are ignored"]


def test_one_problem_is_one_line() -> None:
    problems = Problems()
    problems.add("weight is 'x'; it must be a number", file="edges.csv", line=3, column="amount")
    assert text_of(problems) == "edges.csv line 3, column 'amount': weight is 'x'; it must be a number"


def test_several_are_listed_in_order_without_repetition() -> None:
    problems = Problems()
    for text in ("a", "b", "a"):
        problems.add(text)
    assert text_of(problems) == "2 problems:\n  a\n  b"


def test_a_long_list_is_cut() -> None:
    problems = Problems()
    for number in range(MOST_SHOWN + 132):
        problems.add(f"problem {number}")
    lines = text_of(problems).splitlines()
    assert lines[0] == "152 problems:"
    assert lines[-2:] == ["  problem 19", "  and 132 more"]


def test_files_share_one_list() -> None:
    problems = Problems()
    problems.of(Path("nodes.csv"), lambda row: row + 2).add("is 'x'", row=5, column="age")
    problems.of("nodes.parquet").add("is 'x'", row=5)
    problems.of("edges.csv").note("is ignored", column="memo")
    assert problems.texts == ["nodes.csv line 7, column 'age': is 'x'", "nodes.parquet row 5: is 'x'"]
    assert problems.notes == ["edges.csv, column 'memo': is ignored"]


def test_of_many_texts_the_first_are_shown() -> None:
    assert first_texts(["a", "b"]) == ["a", "b"]
    shown = first_texts([str(number) for number in range(1_050)])
    assert (len(shown), shown[-2:]) == (MOST_SHOWN + 1, ["19", "and 1,030 more"])
