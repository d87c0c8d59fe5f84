"""`python -m benchmarks NAME`: every benchmark is found by name, and every recorded command still parses."""

import ast
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import FOLDER, scripts

from tests.support.command import run_benchmark

SCRIPTS = scripts()
RESULTS = FOLDER.parent / "results"


def commands(content: Any) -> Iterator[str]:
    """Every value of a key `command`, at any depth."""
    for value in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from commands(value)
    if isinstance(content, dict) and "command" in content:
        yield content["command"]


def recorded() -> set[str]:
    files = [*RESULTS.rglob("*.json"), *RESULTS.rglob("*.jsonl")]
    contents = (json.loads(line) for file in files for line in _documents(file))
    return {command for content in contents for command in commands(content)}


def _documents(file: Path) -> list[str]:
    text = file.read_text()
    return text.splitlines() if file.suffix == ".jsonl" else [text]


def test_names_are_unique_and_listed() -> None:
    trees = {file: ast.parse(file.read_text()) for file in FOLDER.rglob("*.py") if not file.stem.startswith("_")}
    with_main = [
        file.stem
        for file, tree in trees.items()
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
    ]
    assert sorted(with_main) == sorted(SCRIPTS)
    text = run_benchmark()
    for name, script in SCRIPTS.items():
        assert name in text
        assert script.about in text


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_docstrings_say_what_is_measured_and_how_to_run_it(name: str) -> None:
    module = SCRIPTS[name].load()
    first, blank, command = module.__doc__.split("\n")[:3]
    assert first.endswith(".")
    assert blank == ""
    assert command.startswith(f"    python -m benchmarks {name}")
    assert module.make_parser().description == module.__doc__


def test_an_unknown_name_suggests_the_nearest() -> None:
    text = run_benchmark("yardstick", code=2)
    assert "unknown benchmark 'yardstick'" in text
    assert "unknown benchmark 'rankin'; did you mean 'ranking'?" in run_benchmark("rankin", code=2)


def test_recorded_commands_can_be_run_again() -> None:
    parsers = {name: script.load().make_parser() for name, script in SCRIPTS.items()}
    found = recorded()
    assert len(found) > 100
    for command in found:
        start, name, *words = command.removeprefix("python -m ").split(" ", 2)
        assert start == "benchmarks", command
        parsers[name].parse_args(shlex.split(" ".join(words)))  # an unknown option or value would stop here


def test_the_page_of_the_studies_is_made_from_its_files() -> None:
    folder = RESULTS / "ablation"
    assert SCRIPTS["questions"].load().page(folder) == (folder / "README.md").read_text()
