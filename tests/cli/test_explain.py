"""`explain` and `report` from the command line."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.command import run as command
from tests.support.runs import CONFIG


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plain = vcr.generate(nodes=120, edges=500, classes=3, features=8, homophily=0.8, seed=0)
    graph = replace(plain, names=np.array([f"n{i}" for i in range(120)]), class_names=("a[b]", "b", "c"))
    split = vcr.Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, CONFIG, tmp_path_factory.mktemp("runs") / "run", device="cpu").path


def test_a_node(folder: Path, tmp_path: Path) -> None:
    text = command("explain", str(folder), "--node", "n5")
    assert "node 5 (n5): " in text
    assert "with probability" in text
    for word in ("self", "hop 1", "hop 2", "structure", "content", "effect", "brightened: n", "faded: n"):
        assert word in text
    assert re.search(r"Without its neighbours the model would (still )?say (a\[b\]|b|c)", text)
    for kind in ("hops", "neighbours in structure places", "neighbours in content places", "neighbours"):
        assert re.search(rf"effect of all {kind} together: [+-]0\.\d{{4}}\n", text)
    found = json.loads(command("explain", str(folder), "--node", "5", "--class", "a[b]", "--json"))
    assert list(found["kind_effects"]) == ["hop", "structure", "content", "neighbours"]
    assert sum(found["without_neighbours"].values()) == pytest.approx(1)
    assert (found["node"], found["explained"]) == (5, "a[b]")
    assert set(found["rewiring"]) == {"structure", "content"}
    assert len(found["rewiring"]["structure"]["brightened"]) == 5
    for row in found["rewiring"].values():
        assert row["estimated_scores"] == pytest.approx(row["exact_scores"], abs=1e-5)
        assert row["largest_error"] < 1e-5  # so small a graph is ranked exactly
    assert found["rewiring"]["structure"]["brightened"][0]["name"].startswith("n")
    page = tmp_path / "node.html"
    assert f"written: {page}" in command("explain", str(folder), "--node", "5", "--html", str(page)).replace("\n", "")
    assert page.stat().st_size > 10_000
    assert "exists: choose another name" in command("explain", str(folder), "--node", "5", "--html", str(page), code=2)


def test_a_whole_run(folder: Path) -> None:
    text = command("explain", str(folder))
    assert "120 nodes" in text
    assert "by class" in text
    assert "by degree" in text
    said = " ".join(text.split())
    assert re.search(
        r"With all neighbours hidden, accuracy goes from 0\.\d{4} to 0\.\d{4}; \d+ of 24 predictions", said
    )
    assert "gate" not in said
    text = command("explain", str(folder), "--json")  # progress goes to the error stream, which is caught as well
    summary = json.loads(text[text.index("{") :])
    assert summary["nodes"] == 120
    assert summary["neighbours"]["gate"] is None


def test_report(folder: Path, tmp_path: Path) -> None:
    text = command("report", str(folder), "--nodes", "30", "--out", str(tmp_path / "page.html"))
    assert "open it in a browser" in text
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "--node", "n500"), "there is no node named 'n500'"),
        (("explain", "--node", "n11"), "node 11 (n11)"),
        (("explain", "--node", "N1"), "names contain it: 'n1', 'n10', 'n11', 'n12', 'n13' and"),
        (("explain", "--node", "1", "--class", "d"), "unknown class 'd'"),
        (("explain", "--html", "x.html"), "--html and --class are for one node"),
        (("explain", "--node", "1", "--html", "x.txt"), "x.txt must end in .html"),
        (("report", "--out", "x.txt"), "x.txt must end in .html"),
        (("report", "--nodes", "0"), "--nodes is 0; it must be 1 or more"),
    ],
)
def test_errors(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    code = 0 if "n11" in arguments else 2
    assert message in command(arguments[0], str(folder), *arguments[1:], code=code)


def test_folders_that_cannot_be_explained(folder: Path, tmp_path: Path) -> None:
    import shutil

    assert "is not a run folder" in command("explain", str(tmp_path), "--node", "1", code=2)
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    about = json.loads((broken / "run.json").read_text())
    (broken / "run.json").write_text(json.dumps(about | {"version": 99}))
    assert "has run format 99; this package reads 1" in command("report", str(broken), code=2)
    (broken / "run.json").write_text(json.dumps(about))
    shutil.rmtree(broken / "tokens")
    assert "tokens" in command("explain", str(broken), "--node", "1", code=2)


def test_a_report_uses_the_partitioner_and_the_seed_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Propagation hands METIS a small graph whose nodes have weights; METIS alone gets the graph without."""
    import pymetis

    weighted, seeds = [], []
    cut, options = pymetis.part_graph, pymetis.Options

    def note_weights(*arguments: Any, **keywords: Any) -> Any:
        weighted.append(keywords.get("vweights") is not None)
        return cut(*arguments, **keywords)

    def note_seed(seed: int) -> Any:
        seeds.append(seed)
        return options(seed=seed)

    monkeypatch.setattr(pymetis, "part_graph", note_weights)
    monkeypatch.setattr(pymetis, "Options", note_seed)
    graph = vcr.generate(1500, 6000, classes=3, features=6, seed=0)
    tokens = replace(CONFIG.tokens, partitioner="propagation", seed=5)
    config = replace(CONFIG, tokens=tokens, training=replace(CONFIG.training, epochs=1))
    made = vcr.train(graph, vcr.Split.random(graph.labels), config, out=tmp_path / "run", device="cpu")
    before = len(seeds)
    command("report", str(made.path), "--device", "cpu", "--nodes", "20")
    command("explain", str(made.path), "--node", "3", "--device", "cpu")
    assert before > 0
    assert len(seeds) > before
    assert all(weighted)
    assert set(seeds) == {6}  # METIS treats 0 and 1 alike, so seeds are counted from 1
