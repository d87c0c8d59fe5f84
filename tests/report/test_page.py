"""The numbers of the report, and that no text of the data breaks out of the page (its looks: test_report_page.py)."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.plain import plain_config, train_config
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer import Graph, Run
from vcr_graphormer.report.numbers import describe_rewiring
from vcr_graphormer.report.page import collect, render, write_explanation, write_report

EVIL = "</script><script>alert(1)</script>"


def unpack(text: str, kind: str) -> Any:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return named_graph(EVIL)


@pytest.fixture(scope="module")
def run(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Run:
    split = vcr.Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, CONFIG, tmp_path_factory.mktemp("runs") / "run", device="cpu")


@pytest.fixture(scope="module")
def data(run: Run) -> dict[str, Any]:
    return collect(run, nodes=60)


def test_numbers_are_those_of_the_run(run: Run, data: dict[str, Any]) -> None:
    assert data["headline"]["test"] == run.metrics["test"]
    assert data["baselines"]["rows"][1:] == run.baselines
    assert data["baselines"]["rows"][0]["test"] == data["headline"]["test"]
    assert "on the validation nodes: the graph may need" in data["baselines"]["sentence"]  # three epochs: ours is weak
    assert data["history"]["val"] == [row["val"] for row in run.history]
    found = np.array(data["confusion"])
    assert found.sum() == len(run.split.test)
    assert np.trace(found) / found.sum() == pytest.approx(run.metrics["test"])
    for by in ("class", "degree"):
        rows = data["slices"][by]
        assert sum(row["count"] for row in rows) == len(run.split.test)
        weighted = sum(row["count"] * row["accuracy"] for row in rows) / len(run.split.test)
        assert weighted == pytest.approx(run.metrics["test"])
    assert sum(row["count"] for row in data["slices"]["homophily"]) <= len(run.split.test)
    assert data["neighbours"]["whole"] == pytest.approx(run.metrics["test"])
    assert list(data["neighbours"]["without"]) == ["hop", "structure", "content", "neighbours"]
    assert data["averaged"] == 150  # all of them: averages are not taken from the explorer's choice
    assert [row["kind"] for row in data["kinds"]] == ["self", "hop", "structure", "content"]
    assert sum(row["attention"] for row in data["kinds"]) == pytest.approx(1, abs=1e-5)
    assert [row["name"] for row in data["criteria"]["rows"]][-1] == "all tokens"
    assert set(data["rewiring"]) == {"structure", "content"}
    assert sum(data["rewiring"]["structure"]["histogram"]["counts"]) == len(run.split.test)
    assert {"structure ranking", "hop features", "train", "predict"} <= {row["name"] for row in data["stages"]}


def test_the_explorer_holds_the_sample(run: Run, data: dict[str, Any]) -> None:
    explorer = data["explorer"]
    nodes = unpack(explorer["nodes"], "<i4")
    assert len(nodes) == 60
    assert explorer["sampled"]
    assert explorer["total"] == 150
    layout = explorer["layout"]
    assert layout == {"hop": 2, "structure": 3, "content": 3}
    ids = unpack(explorer["ids"], "<i4").reshape(60, -1)
    assert (ids[:, 0] == nodes).all()
    np.testing.assert_array_equal(ids[:, 3:6], run.store.ids("structure")[nodes])
    also = unpack(explorer["also"], "<i4").reshape(60, -1)  # bit 0: content, the kind after the first
    np.testing.assert_array_equal(also[:, 3:6], np.asarray(run.store.shared("content"))[nodes] != 0)
    assert not also[:, [0, 1, 2, 6, 7, 8]].any()
    assert explorer["groups"] == ["hop", "structure", "content", "neighbours"]
    looked = run.attributions(nodes)
    effects = unpack(explorer["group_effect"], "<f4").reshape(60, 4)
    np.testing.assert_allclose(effects, np.stack(list(looked.kind_effects.values()), 1), atol=1e-6)
    alone = looked.without["neighbours"]
    np.testing.assert_array_equal(unpack(explorer["alone"], "<i2"), alone.argmax(1))
    np.testing.assert_allclose(unpack(explorer["alone_confidence"], "<f4"), alone.max(1), atol=1e-6)
    confidence = unpack(explorer["confidence"], "<f4")
    np.testing.assert_allclose(confidence, run.predict(nodes).probabilities.max(1), atol=1e-6)
    # Half of the places are kept for test nodes that were classified wrongly.
    wrong = run.split.test[run.predict(run.split.test).labels != np.asarray(run.graph.labels)[run.split.test]]
    assert len(np.intersect1d(nodes, wrong)) >= min(len(wrong), 30)
    mentioned = {str(node) for node in ids[(ids >= 0) & (ids < 150)]}
    assert set(explorer["names"]) == mentioned
    labels = unpack(explorer["token_label"], "<i2").reshape(60, -1)
    assert (labels[:, 0] == -1).all()
    is_train = np.isin(ids, run.split.train) & (ids >= 0)
    assert (labels[:, 1:][is_train[:, 1:]] >= 0).all()
    assert (labels[:, 1:][~is_train[:, 1:]] == -1).all()


def test_the_search_of_a_run(graph: Graph, data: dict[str, Any], tmp_path: Path) -> None:
    assert "tuning" not in data
    split = vcr.Split.random(graph.labels, seed=0)
    short = plain_config(training=train_config(epochs=4))
    run = vcr.tune(graph, split, 60, tmp_path / "run", short, recipes=["features", "hops"], trials=5, device="cpu")
    found, shown = vcr.Tuning.open(run.path), collect(run, nodes=10)["tuning"]
    scores = [entry.score for entry in found.entries]
    assert (shown["metric"], shown["scores"], shown["skipped"]) == ("accuracy", scores, {})
    short_best = [max(score or 0 for score in scores[: place + 1]) for place in range(3)]
    assert shown["best"] == [*short_best, scores[3], max(scores[3] or 0, scores[4] or 0)]  # those in full count first
    assert [row["trial"] for row in shown["rows"]] == [entry.number for entry in found.ranked]
    assert [row["recipe"] for row in shown["rows"]] == [entry.recipe for entry in found.ranked]
    step = next(row for row in shown["rows"] if row["trial"] == 5)
    assert step["changes"].count(" = ") == len(found.changes(found.entries[4])) > 0


def test_no_text_breaks_out_of_the_page(data: dict[str, Any]) -> None:
    page = render(data | {"title": EVIL, "classes": [EVIL, "NaN", "\u2028"], "worst": float("nan")})
    assert EVIL not in page
    start = page.index(">", page.index('id="data"')) + 1
    inside = json.loads(page[start : page.index("</script>", start)])
    assert inside["title"] == EVIL
    assert inside["worst"] is None
    assert inside["explorer"]["nodes"] == data["explorer"]["nodes"]


def test_the_page_asks_for_nothing(data: dict[str, Any]) -> None:
    page = render(data)
    assert not re.search(r"""(src|href)\s*=\s*["'](https?:)?//""", page)
    assert "@import" not in page
    assert not re.search(r"url\((?!['\"]?data:)", page)


def test_files(run: Run, tmp_path: Path) -> None:
    page = write_report(run, nodes=20)
    assert page == run.path / "report.html"
    other = write_explanation(run, 3, describe_rewiring(run, 3), tmp_path / "node.html")
    assert '"title":"generated, node 3"' in other.read_text()
    assert page.stat().st_size < 200_000


def test_other_tasks(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    plain = vcr.generate(nodes=80, edges=300, classes=3, features=8, seed=0)
    wanted = random.normal(size=(80, 2)).astype(np.float32)
    graph = Graph.from_scipy(plain.to_scipy(), features=plain.features, labels=wanted, task="regression")
    split = vcr.Split(np.arange(40), np.arange(40, 60), np.arange(60, 80))
    run = vcr.train(graph, split, CONFIG, tmp_path / "run", device="cpu")
    data = collect(run, nodes=30)
    assert "confusion" not in data
    assert data["headline"]["metric"] == "rmse"
    assert "<!doctype html>" in render(data).lower()
    assert data["neighbours"]["mean_change"] > 0
    text = write_explanation(run, 3, {}, tmp_path / "node.html", "1").read_text()
    start = text.index(">", text.index('id="data"')) + 1
    second = json.loads(text[start : text.index("</script>", start)])
    assert second["chosen"] == 1
    nodes = unpack(second["explorer"]["nodes"], "<i4")
    np.testing.assert_array_equal(unpack(second["explorer"]["target"], "<f4"), wanted[nodes, 1])
    np.testing.assert_allclose(
        unpack(second["explorer"]["value"], "<f4"), run.predict(nodes).probabilities[:, 1], atol=1e-5
    )
