"""What token lists need, and that too little of it is said before anything is written."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.plain import token_config
from vcr_graphormer import (
    ConfigError,
    Graph,
    Ranker,
    Split,
    StoreError,
    generate,
    make_lists,
    rank,
    structure_connections,
    tokenize,
)
from vcr_graphormer.base.machine import _left_in_groups, available_memory
from vcr_graphormer.ranking import ranker
from vcr_graphormer.ranking.pagerank import RANKER_PER_NODE
from vcr_graphormer.tokens import lists, resources
from vcr_graphormer.tokens.resources import needed_disk, needed_memory

CONFIG = token_config(content="features", hops=2, clusters=4, structure_tokens=3, content_tokens=5)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return generate(2000, 8000, classes=4, features=8, seed=0)


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_disk_is_counted_to_the_byte_for_dense_features(graph: Graph, tmp_path: Path) -> None:
    store = tokenize(graph, Split.random(graph.labels, seed=0).train, CONFIG, tmp_path / "tokens")
    parts = 2000 * (8 + 3) * 8  # ids and scores in shards, until they are joined; content ranks 3 nodes more
    assert needed_disk(graph, CONFIG) == store.num_bytes + parts
    plain = replace(CONFIG, distinct=False)
    store = tokenize(graph, Split.random(graph.labels, seed=0).train, plain, tmp_path / "plain")
    assert needed_disk(graph, plain) == store.num_bytes + 2000 * 8 * 8


def test_hops_of_sparse_features_are_estimated_from_a_sample(graph: Graph) -> None:
    sparse = Graph.from_edges([range(999), range(1, 1000)], 1000, features=sp.identity(1000, format="csr"))
    # Two neighbours with one entry each, but for the ends.
    assert needed_disk(
        sparse, token_config(content="labels", hops=1, structure_tokens=0, content_tokens=0)
    ) == pytest.approx(8 * 1000 + 8 * 1998, rel=0.01)


def test_memory_grows_with_arcs_unless_metis_is_left_out(graph: Graph) -> None:
    by_metis = needed_memory(graph, CONFIG, 2)
    without = needed_memory(graph, token_config(content="labels", partitioner="propagation", hops=2), 2)
    assert by_metis["clusters"] - without["clusters"] == 85 * graph.num_arcs - 200 * graph.num_nodes
    assert by_metis["rankings"] == without["rankings"]
    assert needed_memory(graph, token_config(content="labels", structure_tokens=0, content_tokens=0, hops=0), 2) == {}


@pytest.mark.parametrize(
    ("arguments", "stage", "hint"),
    [
        ({}, "clusters", "tokens.partitioner=propagation or a machine with more"),
        ({"partitioner": "propagation"}, "rankings", "fewer threads or a machine with more"),
        ({"structure_tokens": 0, "content_tokens": 0}, "hop features", "a machine with more"),
    ],
)
def test_too_little_memory_is_said_first(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], stage: str, hint: str
) -> None:
    needed = needed_memory(graph, token_config(**{"content": "labels", **arguments}), 2)[stage]
    monkeypatch.setattr(resources, "available_memory", lambda: needed - 1)
    expected = f"the {stage} of 2,000 nodes and 16,000 arcs need about .* of memory, .* are free: use {hint}"
    with pytest.raises(StoreError, match=expected):
        tokenize(graph, None, token_config(**arguments), tmp_path / "tokens", threads=2)
    assert not (tmp_path / "tokens").exists()
    monkeypatch.setattr(resources, "available_memory", lambda: needed)
    assert tokenize(graph, None, token_config(**arguments), tmp_path / "tokens", threads=2).num_nodes == 2000


def test_sparse_features_and_weights_need_more(graph: Graph) -> None:
    weighted = replace(graph, weights=np.ones(graph.num_arcs, dtype=np.float32))
    assert needed_memory(weighted, CONFIG, 2)["rankings"] == needed_memory(graph, CONFIG, 2)["rankings"] + 12 * 16_000
    sparse = replace(graph, features=sp.csr_matrix(np.asarray(graph.features)))
    more = needed_memory(sparse, CONFIG, 2)["hop features"] - needed_memory(graph, CONFIG, 2)["hop features"]
    assert more == 8 * 16_000 + 2 * 4 * 2000 * 8  # the first hop is dense already


def test_workers_need_the_graph_and_what_was_prepared(graph: Graph, tmp_path: Path) -> None:
    more = needed_disk(graph, CONFIG, by_path=True) - needed_disk(graph, CONFIG)
    assert more == 2 * 230 * 2000 + 4 * 16_000 + 8 * 2000
    saved = Graph.open(graph.save(tmp_path / "graph"))
    assert needed_disk(saved, CONFIG, by_path=True) - needed_disk(saved, CONFIG) == 2 * 230 * 2000


def test_too_little_disk_is_said_first(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def usage(path: Path) -> Usage:
        asked.append(path)
        return Usage(0, 0, 1000)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(StoreError, match=r"2,000 nodes need at least .* in .*tokens, 1000 B are free there"):
        tokenize(graph, None, CONFIG, tmp_path / "deep" / "tokens")
    assert asked == [tmp_path]
    assert not (tmp_path / "deep").exists()


def test_what_is_prepared_takes_that_much(tmp_path: Path) -> None:
    large = generate(50_000, 250_000, classes=5, communities=50, features=0, seed=0)
    folder = Ranker.prepare(large, structure_connections(large, 10)).save(tmp_path / "ranker", large)
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert 0.6 * size < RANKER_PER_NODE * 50_000 < 1.5 * size


def test_a_resumed_job_needs_only_the_rest(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(stage: str, done: int, total: int) -> None:
        if stage == "hop features":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tokenize(graph, None, CONFIG, tmp_path / "tokens", progress=stop)
    room = needed_disk(graph, CONFIG) // 2
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, room))
    assert tokenize(graph, None, CONFIG, tmp_path / "tokens").num_nodes == 2000


def make_group(folder: Path, limit: str, used: int, version: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")).write_text(f"{limit}\n")
    (folder / "memory.stat").write_text(f"{'anon' if version == 2 else 'total_rss'} {used}\nfile 500\n")


def test_limits_of_control_groups_count(tmp_path: Path) -> None:
    root, membership = tmp_path / "groups", tmp_path / "cgroup"
    membership.write_text("0::/job/step\n")
    assert list(_left_in_groups(membership, root)) == []
    make_group(root / "job", "1000", 400, 2)
    make_group(root / "job" / "step", "max", 300, 2)
    assert list(_left_in_groups(membership, root)) == [600]
    make_group(root, "5000", 4900, 2)  # a container sees its own limit here
    assert list(_left_in_groups(membership, root)) == [600, 100]
    membership.write_text("7:cpu:/other\n4:hugetlb,memory:/job\n")
    make_group(root / "memory" / "job", "2000", 500, 1)
    assert list(_left_in_groups(membership, root)) == [1500]
    assert list(_left_in_groups(tmp_path / "none", root)) == []


def test_available_memory_is_less_than_what_the_machine_has() -> None:
    assert 2**26 < available_memory() < 2**50


def test_lists_in_memory_are_refused_before_they_are_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    six = Graph.from_edges([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    few = {"content": "links", "hops": 0, "clusters": 0, "link_tokens": 0, "nearest_tokens": 0, "content_tokens": 0}
    with pytest.raises(StoreError, match=r"1,000,000,000,000 neighbours of each of 6 nodes need at least 43\.7 TiB of"):
        make_lists(six, config=token_config(**few, structure_tokens=10**12), threads=1)
    monkeypatch.setattr(lists, "available_memory", lambda: 8 * 6 * 3)
    make_lists(six, config=token_config(**few, structure_tokens=3), threads=1)
    with pytest.raises(
        StoreError, match=r"4 neighbours .* 192 B of memory, 144 B are free: set tokens\.structure_tokens"
    ):
        make_lists(six, config=token_config(**few, structure_tokens=4), threads=1)


def test_rankings_are_refused_before_they_are_allocated(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in (2**70, 10**9):
        with pytest.raises(ConfigError, match=rf"k is {k}: .* \(2,000 of them need .* are free\); take a smaller k"):
            rank(graph, k=k, threads=1)
    monkeypatch.setattr(ranker, "available_memory", lambda: (1 << 26) + 1)  # bytes: 2 lists of 12 bytes per entry
    with pytest.raises(ConfigError, match=r"2 of them need 64\.0 MiB, 64\.0 MiB are free"):
        rank(graph, k=(1 << 26) // 24 + 1, sources=[0, 1], threads=1)
