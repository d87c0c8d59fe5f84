"""Folders that earlier versions wrote open forever, and give what they gave; see `tests/support/samples.py`."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.command import run as command
from tests.support.damage import edited_manifest
from tests.support.samples import make_graph
from vcr_graphormer import FeatureRanker, Graph, LinkRanker, Ranker, Run, StoreError, TokenStore

SAMPLES = sorted((Path(__file__).parent / "samples").iterdir())
# The best three neighbours of nodes 0 and 5, by each ranker.
RANKED: dict[str, list[list[int]]] = {
    "ranker": [[1, 33, 2], [0, 6, 16]],
    "links": [[1, 10, 3], [6, 4, 16]],
    "nearest": [[14, 13, 9], [1, 6, 17]],
}


def test_the_samples_are_small() -> None:
    assert [folder.name for folder in SAMPLES] == ["1-first", "2-checksums"]
    assert sum(file.stat().st_size for folder in SAMPLES for file in folder.rglob("*") if file.is_file()) < 200_000


@pytest.mark.parametrize("folder", SAMPLES, ids=lambda folder: folder.name)
def test_graph_and_tokens(folder: Path) -> None:
    graph = Graph.open(folder / "graph")
    Graph.verify(folder / "graph")
    assert graph.fingerprint == make_graph().fingerprint == "5faf704fa23930a509f833ba1058b6b6"
    assert (graph.num_nodes, graph.num_edges, graph.class_names) == (34, 78, ("Hi", "Officer"))
    assert graph.names is not None
    assert graph.names[33] == "member 33"
    store = TokenStore.open(folder / "tokens")
    store.verify()
    assert store.layout.counts == {"structure": 2, "content": 2, "links": 1}
    assert store.ids("structure")[:3].tolist() == [[1, 2], [0, 2], [0, 1]]


@pytest.mark.parametrize("folder", SAMPLES, ids=lambda folder: folder.name)
@pytest.mark.parametrize(("name", "ranker"), [("ranker", Ranker), ("links", LinkRanker), ("nearest", FeatureRanker)])
def test_rankers(folder: Path, name: str, ranker: Any) -> None:
    graph = make_graph(directed=True) if name == "links" else Graph.open(folder / "graph")
    assert ranker.open(folder / name, graph).rank([0, 5], k=3).ids.tolist() == RANKED[name]


@pytest.mark.parametrize("folder", SAMPLES, ids=lambda folder: folder.name)
def test_runs(folder: Path) -> None:
    run = Run.open(folder / "run", "cpu")
    np.testing.assert_allclose(run.predict().probabilities, np.load(folder / "expected.npy"), atol=1e-5)
    assert run.metrics["epochs"] == 2
    assert not run.preparation.empty
    assert set(run.evaluate("test")) >= {"accuracy"}
    verified = folder.name != "1-first"
    text = command("verify", str(folder / "run"), code=0 if verified else 2)
    assert ("every file is as it was written" if verified else "has no checksums.json") in text


@pytest.mark.parametrize("name", ["graph", "tokens", "ranker", "links", "nearest"])
def test_a_later_version_is_refused_with_the_way_out(name: str, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES[-1] / name, tmp_path / name)
    with edited_manifest(tmp_path / name) as manifest:
        manifest["version"] = 99
    openers: dict[str, Any] = {
        "graph": Graph.open,
        "tokens": TokenStore.open,
        "ranker": lambda path: Ranker.open(path, make_graph()),
        "links": lambda path: LinkRanker.open(path, make_graph(directed=True)),
        "nearest": lambda path: FeatureRanker.open(path, make_graph()),
    }
    with pytest.raises(StoreError, match="has format version 99; this package reads version 1: make it again, or use"):
        openers[name](tmp_path / name)
