"""The numbers inside a run against loops over what was looked at."""

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.runs import CONFIG
from vcr_graphormer import Run
from vcr_graphormer.report.numbers import by_kind, describe_rewiring, rewiring, sample, stages_of_tokens, summarize


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    graph = vcr.generate(nodes=150, edges=600, classes=3, features=8, homophily=0.8, seed=0)
    split = vcr.Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, CONFIG, tmp_path_factory.mktemp("runs") / "run", device="cpu")


def test_kinds_equal_a_loop(run: Run) -> None:
    looked = run.attributions(np.arange(40))
    for row in by_kind(looked):
        number = looked.layout.names.index(row["kind"])
        effects = [
            abs(looked.effect[node, place])
            for node in range(40)
            for place in range(len(looked.kinds))
            if looked.kinds[place] == number and looked.shown[node, place]
        ]
        assert row["effect"] == pytest.approx(np.mean(effects))
        assert row["effect"] > 0
        assert row["tokens"] == pytest.approx(len(effects) / 40)
    assert sum(row["attention"] for row in by_kind(looked)) == pytest.approx(1)


def test_groups_add_up(run: Run) -> None:
    found = summarize(run, 40)
    assert found["nodes"] == 40
    whole = {row["kind"]: row["effect"] for row in found["kinds"]}
    for rows in found["effects"].values():
        assert sum(row["count"] for row in rows) == 40
        assert sum(row["count"] * row["self"] for row in rows) / 40 == pytest.approx(whole["self"])


def test_the_rewiring_of_one_node_and_of_many(run: Run) -> None:
    one = describe_rewiring(run, 5)
    many = rewiring(run, np.array([5]))
    for kind in ("structure", "content"):
        assert one[kind]["moved"] == pytest.approx(many[kind]["mean"])
        assert one[kind]["moved"] > 0
        assert many[kind]["estimate_elsewhere"] == pytest.approx(many[kind]["elsewhere"], rel=0.5)
        assert len(one[kind]["exact_scores"]) == (run.store.ids(kind)[5] >= 0).sum()


def test_samples_and_stages(run: Run) -> None:
    random = np.random.default_rng(0)
    assert sample(np.array([3, 1]), 5, random).tolist() == [1, 3]
    drawn = sample(np.arange(1000), 10, random)
    assert len(np.unique(drawn)) == 10
    assert drawn.max() > 500
    assert "hop features" in stages_of_tokens(run)
