"""Names from data are harmless on a terminal, in a spreadsheet and in a notebook."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcr_graphormer.base.text import csv_cell, html_table, printable, read_csv_cell

HOSTILE = st.text(st.sampled_from(list("=+-@'\t\r\n 1.eE\x1b\x07\x9b\u202e\u2069ab")), max_size=8) | st.text(max_size=8)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
        ("a\r\n\tb\x7f", r"a\x0d\x0a\x09b\x7f"),
        ("\ud800", r"\ud800"),
        ("Zoë 📊 ‍‌", "Zoë 📊 ‍‌"),
        (7, "7"),
    ],
)
def test_what_a_terminal_gets(text: object, shown: str) -> None:
    assert printable(text) == shown


def test_lines_may_stay_lines() -> None:
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@pytest.mark.parametrize("name", ["=1+1", "+1+1", "-1-1", "@SUM(A1)", "＝1", "  =1", "'=1", "''+x", "-", "-1e", "+1 "])
def test_formulas_get_an_apostrophe(name: str) -> None:
    assert csv_cell(name) == f"'{name}"


@pytest.mark.parametrize(
    "name", ["-1", "+1.5", "-.5", "1e-7", "-1E+3", "0", "anna", "'tis", "a=b", "", "3-4", "x@y.org"]
)
def test_numbers_and_plain_names_stay(name: str) -> None:
    assert csv_cell(name) == name


@pytest.mark.parametrize(("name", "cell"), [("\t=1", r"\x09=1"), ("\r=1", r"\x0d=1"), ("=\x1b", r"'=\x1b")])
def test_control_characters_are_spelled_out(name: str, cell: str) -> None:
    assert csv_cell(name) == cell


@given(HOSTILE)
def test_no_cell_is_a_formula_and_all_come_back(name: str) -> None:
    cell = csv_cell(name)
    assert not re.match(r"\s*[=+\-@\t\r]", cell) or float(cell) is not None  # a number, or float() raises
    assert printable(cell) == cell
    assert cell.encode().decode() == cell
    assert read_csv_cell(cell) == printable(name)


def test_html_is_escaped() -> None:
    page = html_table("<b>", [("<script>", 'a"b')], header=("x", "\x1b"), notes=["<i>"])
    assert "<script>" not in page
    for text in ("&lt;b&gt;", "&lt;script&gt;", "a&quot;b", r"\x1b", "&lt;i&gt;"):
        assert text in page
    assert not re.search(r"#[0-9a-f]{3}|white|rgb", page)  # colours of the page alone, light or dark
