"""Whole commands on damaged files, as `python -m benchmarks robustness --parts commands` found them: one line each."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.command import run
from tests.support.damage import put_array
from vcr_graphormer.base.files import read_json

SAMPLE = Path(__file__).parents[1] / "samples" / "2-checksums"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a run, its graph and its token lists."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "sample"))


def refused(*words: str) -> str:
    """The one line of a command that is refused."""
    [line] = [line for line in run(*words, code=2).splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize(
    "stage",
    [
        5,
        [],
        {},
        {"seconds": "x", "visits": 0, "peak_bytes": 0},
        {"seconds": 1, "visits": float("nan"), "peak_bytes": 0},
    ],
)
def test_costs_of_another_form_are_left_out(stage: Any, folder: Path) -> None:
    tokens = vcr.Run.open(folder / "run", "cpu").tokens_folder
    whole = read_json(tokens / "stages.json")
    (tokens / "stages.json").write_text(json.dumps({**whole, "hop features": stage}))
    run("report", str(folder / "run"), "--out", str(folder / "report.html"), "--device", "cpu")
    page = (folder / "report.html").read_text()
    assert "coarse clusters" in page
    assert '"name":"hop features"' not in page


@pytest.mark.parametrize("command", ["evaluate", "predict", "explain", "report"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "structure_scores must be finite"),
        (np.inf, "structure_scores must be finite"),
        (3e38, "structure_scores.npy holds numbers up to 3e+38"),
    ],
)
def test_scores_that_are_no_numbers_or_too_large(command: str, value: float, message: str, folder: Path) -> None:
    opened = vcr.Run.open(folder / "run", "cpu")
    scores = np.array(opened.store.scores("structure"), np.float32)
    tokens = opened.tokens_folder
    opened.close()
    scores[:, 0] = value
    put_array(tokens, "structure_scores", scores)
    line = refused(command, str(folder / "run"), "--device", "cpu")
    assert str(tokens) in line
    assert message in line


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph and the trials of a search, whose last training has not begun."""
    folder = tmp_path_factory.mktemp("searched")
    vcr.generate(60, 200, classes=3, features=5, seed=0).save(folder / "graph")
    run(*tuning(folder))
    for inside in (folder / "found").iterdir():
        if inside.name not in ("tuning.json", "tuning.jsonl"):
            shutil.rmtree(inside) if inside.is_dir() else inside.unlink()
    return folder


def tuning(folder: Path) -> list[str]:
    options = ["--trials", "1", "--recipes", "hops", "--device", "cpu", "--set", "training.epochs=4"]
    return ["tune", "--dataset", str(folder / "graph"), "--out", str(folder / "found"), *options]


@pytest.mark.parametrize(
    ("about", "trial", "message"),
    [
        ({}, {"settings": {"tokens": {"hopps": 2}}}, "tuning.jsonl line 1 is damaged"),
        ({}, {"settings": {"tokens": {"hops": "x"}}}, "tuning.jsonl line 1 is damaged"),
        ({}, {"settings": {"data": {"dataset": "x"}}}, "tuning.jsonl line 1 is damaged"),
        ({}, {"epochs": 10**400}, "tuning.jsonl line 1 is damaged"),
        ({}, {"recipe": "hopps"}, "tuning.jsonl line 1 is of the recipe 'hopps'"),
        ({"identity": 5}, {}, "tuning.json.identity is 5"),
        ({"group": 0}, {}, "tuning.json.group is 0"),
    ],
)
def test_searches_that_are_continued(
    about: dict[str, Any], trial: dict[str, Any], message: str, searched: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(searched, tmp_path / "searched"))
    found = folder / "found"
    (found / "tuning.json").write_text(json.dumps({**read_json(found / "tuning.json"), **about}))
    [line] = (found / "tuning.jsonl").read_text().splitlines()
    (found / "tuning.jsonl").write_text(json.dumps({**json.loads(line), **trial}) + "\n")
    assert message in refused(*tuning(searched)[:3], "--out", str(found), *tuning(searched)[5:])


def test_sound_searches_are_continued(searched: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(searched, tmp_path / "searched"))
    run(*tuning(searched)[:3], "--out", str(folder / "found"), *tuning(searched)[5:])
    assert vcr.Run.open(folder / "found", "cpu").finished
