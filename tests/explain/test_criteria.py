"""The four criteria on graphs where they can be counted by hand."""

from pathlib import Path

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.graphs import star
from tests.support.plain import token_config
from vcr_graphormer.base.files import read_json
from vcr_graphormer.explain.criteria import COLUMNS, Criteria, measure_criteria, same_label_neighbours


def measure(graph: vcr.Graph, config: vcr.TokenConfig, train: list[int], folder: Path) -> list[Criteria]:
    store = vcr.tokenize(graph, np.array(train), config, folder)
    return measure_criteria(graph, store, np.arange(graph.num_nodes), read_json(store.path / "stages.json"))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Criteria]:
    graph = vcr.generate(nodes=500, edges=1500, classes=4, communities=8, homophily=0.2, features=6, seed=0)
    config = token_config(hops=3, clusters=8, structure_tokens=6, content_tokens=6)
    train = vcr.Split.random(graph.labels, seed=0).train
    return measure(graph, config, train.tolist(), tmp_path_factory.mktemp("tokens") / "store")


def test_a_path_by_hand(tmp_path: Path) -> None:
    """0 - 1 - 2 - 3 - 4, every node with two plain PageRank tokens, which are its nearest nodes."""
    graph = vcr.Graph.from_edges(
        [[0, 1, 2, 3], [1, 2, 3, 4]], features=np.eye(5, dtype=np.float32), labels=[0, 1, 0, 1, 0]
    )
    config = token_config(hops=3, clusters=0, structure_tokens=2, content_tokens=0)
    hops, plain, whole = measure(graph, config, [0, 1], tmp_path / "tokens")
    assert (hops.name, hops.neighbourhood, hops.clusters) == ("hops only", 1.0, None)
    assert hops.beyond == pytest.approx(1 / 3)  # the third of three hops
    # Odd hops hold only the other label, even ones only the own, the node itself not counted.
    assert hops.same_label == pytest.approx(1 / 3)
    # Ends see their only neighbour, all others both of theirs; the second token of an end is two hops away.
    assert plain.neighbourhood == 1.0
    assert plain.beyond == 0.0
    assert plain.same_label == pytest.approx(2 / 10)
    assert whole.neighbourhood == 1.0
    assert whole.beyond == pytest.approx((3 * (1 / 3) + 2 * 0) / 5)
    assert same_label_neighbours(graph, np.arange(5)) == 0


def test_what_super_nodes_are_for(rows: list[Criteria]) -> None:
    hops, plain, whole = rows
    assert [row.name for row in rows] == ["hops only", "PageRank without super nodes", "all tokens"]
    assert whole.clusters is not None
    assert hops.clusters is not None
    assert plain.clusters is not None
    assert whole.clusters >= max(hops.clusters, plain.clusters) - 1e-12
    assert whole.neighbourhood == 1.0
    assert all(0 <= value <= 1 for row in rows for value in row.values[:4] if value is not None)
    assert all(value is not None and value > 0 for row in rows for value in row.values[4:])
    assert len(whole.values) == len(COLUMNS)


def test_without_labels_or_neighbours(tmp_path: Path) -> None:
    graph = vcr.Graph.from_scipy(star(6).to_scipy(), features=np.eye(7, dtype=np.float32))
    config = token_config(hops=1, clusters=2, structure_tokens=0, content_tokens=0)
    found = measure(graph, config, [], tmp_path / "a")
    assert [row.name for row in found] == ["hops only"]
    assert found[0].same_label is None
    assert same_label_neighbours(graph, np.arange(7)) is None
