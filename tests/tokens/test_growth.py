"""Lists of a graph that has grown: hops to the bit, lists close to a fresh start, old rows untouched where promised."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.damage import edited_manifest
from tests.support.plain import token_config
from vcr_graphormer import ConfigError, Graph, GraphError, StoreError, TokenStore, generate, tokenize
from vcr_graphormer.base.patched import Patched
from vcr_graphormer.data.growth import Growth
from vcr_graphormer.tokens.growth import Update, choose_refresh, update
from vcr_graphormer.tokens.hops import Step

CONFIG = token_config(hops=2, clusters=4, structure_tokens=4, content_tokens=4, distinct=True)
NEW = 6


@pytest.fixture(scope="module")
def graphs() -> tuple[Graph, Graph]:
    """A graph without its last nodes, and with them."""
    return shrink(generate(nodes=300, edges=1200, classes=3, features=8, seed=0))


def shrink(graph: Graph) -> tuple[Graph, Graph]:
    count = graph.num_nodes - NEW
    part = graph.to_scipy()[:count][:, :count].tocoo()
    features: Any = graph.features
    before = Graph.from_edges(
        np.stack([part.row, part.col]), count, features=features[:count], labels=np.asarray(graph.labels)[:count]
    )
    return before, graph


@pytest.fixture(scope="module")
def store(graphs: tuple[Graph, Graph], tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    return tokenize(graphs[0], np.arange(0, 200, 2), CONFIG, tmp_path_factory.mktemp("growth") / "tokens")


def overlap(first: TokenStore, second: TokenStore) -> float:
    ids = [np.concatenate([one.ids(kind) for kind in ("structure", "content")], 1) for one in (first, second)]
    return float((ids[0][:, :, None] == ids[1][:, None, :]).any(1).mean())


def test_all_is_a_fresh_start(store: TokenStore, graphs: tuple[Graph, Graph], tmp_path: Path) -> None:
    before, graph = graphs
    ours = update(store, graph, tmp_path / "all", before=before, refresh="all")
    fresh = tokenize(graph, np.arange(0, 200, 2), CONFIG, tmp_path / "fresh")
    files = {file.name: file.read_bytes() for file in fresh.path.iterdir() if file.name != "stages.json"}
    assert files == {file.name: file.read_bytes() for file in ours.path.iterdir() if file.name != "stages.json"}


def test_new_leaves_old_rows(store: TokenStore, graphs: tuple[Graph, Graph], tmp_path: Path) -> None:
    before, graph = graphs
    ours = update(store, graph, tmp_path / "new", before=before, refresh="new")
    assert ours.num_nodes == graph.num_nodes
    for name, array in store.arrays.items():
        np.testing.assert_array_equal(ours.arrays[name][: before.num_nodes], array)
    assert (np.asarray(ours.assignment("content"))[before.num_nodes :] == -1).all()
    assert (np.asarray(ours.assignment("structure"))[before.num_nodes :] >= 0).all()
    assert ours.growth == {
        "nodes": 294,
        "new": 6,
        "changed": len(Growth(*graphs).changed),
        "updates": 1,
        "refresh": "new",
    }


def test_affected_has_the_hops_of_a_fresh_start(store: TokenStore, graphs: tuple[Graph, Graph], tmp_path: Path) -> None:
    before, graph = graphs
    ours = update(store, graph, tmp_path / "affected", before=before)
    fresh = tokenize(graph, np.arange(0, 200, 2), CONFIG, tmp_path / "fresh")
    for number in (1, 2):
        np.testing.assert_array_equal(np.asarray(ours.hop(number)), np.asarray(fresh.hop(number)))
    few = update(store, graph, tmp_path / "new", before=before, refresh="new")
    assert overlap(ours, fresh) > max(0.9, overlap(few, fresh) - 0.01)


def test_the_next_update_goes_on_from_the_last(store: TokenStore, graphs: tuple[Graph, Graph], tmp_path: Path) -> None:
    before, graph = graphs
    half = graph.num_nodes - NEW // 2
    part, features = graph.to_scipy()[:half][:, :half].tocoo(), np.asarray(graph.features)
    between = Graph.from_edges(
        np.stack([part.row, part.col]), half, features=features[:half], labels=np.asarray(graph.labels)[:half]
    )
    first = update(store, between, tmp_path / "1", before=before)
    second = update(first, graph, tmp_path / "2", before=between)
    assert (tmp_path / "1" / "rankers" / "structure").is_dir()
    assert second.growth["updates"] == 2 and second.growth["new"] == NEW and second.growth["nodes"] == 294
    once = update(store, graph, tmp_path / "once", before=before)
    np.testing.assert_array_equal(np.asarray(second.hop(2)), np.asarray(once.hop(2)))
    assert overlap(second, once) > 0.95
    assert update(first, graph, tmp_path / "2", before=between).identity == second.identity  # opened, not made


@pytest.mark.parametrize(
    "change",
    [
        {"content": "features", "content_clusters": 3},
        {"content": "links"},
        {"nearest_tokens": 3, "link_tokens": 2},
        {"nearest_tokens": 3, "link_tokens": 2, "distinct": False},
        {"content": "links", "distinct": False},
        {"content_tokens": 0},
        {"self_loops": True},
        {"hop_type": "float16"},
    ],
)
def test_every_kind(graphs: tuple[Graph, Graph], change: dict[str, Any], tmp_path: Path) -> None:
    before, graph = graphs
    config = replace(CONFIG, **change)
    store = tokenize(before, np.arange(0, 200, 2), config, tmp_path / "tokens")
    fresh = tokenize(graph, np.arange(0, 200, 2), config, tmp_path / "fresh")
    ours = update(store, graph, tmp_path / "grown", before=before)
    assert ours.layout.counts == fresh.layout.counts
    np.testing.assert_array_equal(np.asarray(ours.hop(2)), np.asarray(fresh.hop(2)))
    if not config.distinct:  # the others depend on structure neighbours, whose clusters are made anew by a fresh start
        for kind in ("content",) if config.content == "links" else ("links", "nearest"):
            np.testing.assert_array_equal(ours.ids(kind), fresh.ids(kind))
            np.testing.assert_array_equal(ours.scores(kind), fresh.scores(kind))


@pytest.mark.parametrize("change", [{}, {"content": "links"}])
def test_a_long_reserve_repairs_to_a_fresh_start(
    graphs: tuple[Graph, Graph], change: dict[str, Any], tmp_path: Path
) -> None:
    """With all nodes in reserve, lists by links and features are those of ranking all nodes anew, to the bit."""
    before, graph = graphs
    config = replace(CONFIG, link_tokens=2, nearest_tokens=3, **change)
    store = tokenize(before, np.arange(0, 200, 2), config, tmp_path / "tokens")
    others = np.array([np.delete(np.arange(before.num_nodes), u) for u in range(before.num_nodes)], dtype=np.int32)
    kinds = [kind for kind in ("content", "links", "nearest") if f"{kind}_reserve" in store.arrays]
    store.arrays.update({f"{kind}_reserve": others for kind in kinds})
    growth = Growth(before, graph)
    ours, slow = Update(store, growth, "affected"), Slow(store, growth, "affected")
    assert all(ours.is_repaired(slow.rankers[kind][0]) for kind in kinds)
    for kind in kinds:
        which, ranker, _ = slow.rankers[kind]
        found, wanted = (job._rank(which, ranker, more=4) for job in (ours, slow))
        np.testing.assert_array_equal(found.ids, wanted.ids)
        np.testing.assert_array_equal(found.scores, wanted.scores)


class Slow(Update):
    """Ranks all nodes anew."""

    @property
    def rows(self) -> Any:
        return np.arange(self.graph.num_nodes)

    def is_repaired(self, kind: Any) -> bool:
        return False


def test_stores_keep_the_longer_ranking(graphs: tuple[Graph, Graph], tmp_path: Path) -> None:
    before, graph = graphs
    config = replace(CONFIG, link_tokens=2, nearest_tokens=3)
    store = tokenize(before, np.arange(0, 200, 2), config, tmp_path / "tokens")
    wide = {name: array.shape[1] for name, array in store.arrays.items() if name.endswith("_reserve")}
    assert wide == {"links_reserve": 2 + 8, "nearest_reserve": 3 + 10}
    ours = update(store, graph, tmp_path / "grown", before=before)
    fresh = tokenize(graph, np.arange(0, 200, 2), config, tmp_path / "fresh")
    for name in wide:
        assert ours.arrays[name].shape == fresh.arrays[name].shape
    first, second = (np.asarray(one.arrays["nearest_reserve"])[:, :4] for one in (ours, fresh))
    assert (first[:, :, None] == second[:, None, :]).any(1).mean() > 0.95


def test_hops_of_a_directed_graph(tmp_path: Path) -> None:
    """A new arc into an old node changes the hops of all that link to that node, though their own arcs stay."""
    random = np.random.default_rng(0)
    arcs, features = random.integers(0, 60, (2, 240)), random.random((60, 4))
    before = Graph.from_edges(arcs, 60, features=features, directed=True)
    graph = before.extend(features=random.random((2, 4)), edges=([60, 60, 3], [5, 7, 60]))
    config = replace(CONFIG, clusters=2, content="features", content_clusters=2)
    store = tokenize(before, None, config, tmp_path / "tokens")
    ours = update(store, graph, tmp_path / "grown", before=before)
    fresh = tokenize(graph, None, config, tmp_path / "fresh")
    for number in (1, 2):
        np.testing.assert_array_equal(np.asarray(ours.hop(number)), np.asarray(fresh.hop(number)))


def test_changes_are_found(graphs: tuple[Graph, Graph]) -> None:
    before, _ = graphs
    (u, v) = (0, int(before.indices[0]))
    lost = before.extend(remove_edges=([u], [v]))
    growth = Growth(before, lost)
    assert growth.changed.tolist() == growth.old_to_old.tolist() == sorted([u, v])
    assert growth.other_features.tolist() == [] and growth.new.tolist() == []
    features = np.array(before.features)
    features[7] += 1
    assert Growth(before, replace(before, features=features)).other_features.tolist() == [7]
    grown = before.extend(features=features[:1], edges=([before.num_nodes], [5]))
    growth = Growth(before, grown)
    assert (growth.changed.tolist(), growth.old_to_old.tolist(), growth.new.tolist()) == ([5], [], [before.num_nodes])


def test_a_bare_store_needs_no_graph_of_before(store: TokenStore, graphs: tuple[Graph, Graph], tmp_path: Path) -> None:
    before, graph = graphs
    ours = update(store, graph, tmp_path / "bare")
    given = update(store, graph, tmp_path / "given", before=before)
    for name, array in given.arrays.items():
        np.testing.assert_array_equal(ours.arrays[name], array)
    # Where edges or features of old nodes changed, they are needed, but not for `all`.
    lost = graph.extend(remove_edges=([0], [int(graph.indices[0])]))
    with pytest.raises(StoreError, match="first 294 nodes are no longer those .*: their adjacency differ. Give the"):
        update(store, lost, tmp_path / "x")
    with pytest.raises(StoreError, match="adjacency and features differ"):
        update(store, generate(nodes=100, edges=300, features=8, classes=3), tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert update(store, lost, tmp_path / "lost", before=before).num_nodes == 300
    assert update(store, lost, tmp_path / "all", refresh="all").growth == {}


def test_a_store_that_cannot_be_written(store: TokenStore, graphs: tuple[Graph, Graph], tmp_path: Path) -> None:
    before, graph = graphs
    locked = shutil.copytree(store.path, tmp_path / "locked", ignore=shutil.ignore_patterns("rankers"))
    (locked / "rankers").write_text("in the way of the folder of rankers")
    ours = update(TokenStore.open(locked), graph, tmp_path / "ours", before=before, refresh="new")
    other = update(store, graph, tmp_path / "other", before=before, refresh="new")
    for name, array in other.arrays.items():
        np.testing.assert_array_equal(ours.arrays[name], array)
    assert (locked / "rankers").is_file()


def test_affected_becomes_all_where_most_lists_are(
    store: TokenStore, graphs: tuple[Graph, Graph], tmp_path: Path
) -> None:
    before, graph = graphs
    features = np.asarray(graph.features)[:20]
    many = graph.extend(features=features, edges=(np.arange(300, 320), np.arange(20)))
    growth = Growth(before, many)
    assert [choose_refresh(growth, refresh) for refresh in ("new", "affected", "all")] == ["new", "all", "all"]
    assert choose_refresh(Growth(*graphs), "affected") == "affected"
    ours = update(store, many, tmp_path / "many", before=before)
    assert ours.growth == {} and "refresh" not in ours.identity


def test_hops_of_few_and_of_most_rows_have_the_same_bits(store: TokenStore, graphs: tuple[Graph, Graph]) -> None:
    """All rows are computed where most of them change, else those that change."""
    before, graph = graphs
    features = np.asarray(graph.features)
    little = before.extend(features=features[:1], edges=([294], [5]))
    for now, kind in ((graph, np.ndarray), (little, Patched)):
        growth, every = Growth(before, now), np.arange(now.num_nodes)
        current = np.asarray(now.features)
        for (_, hop), near in zip(Update(store, growth, "affected").hops(), growth.around(2), strict=True):
            assert isinstance(hop, kind) and (2 * len(near) > now.num_nodes) == (kind is np.ndarray)
            whole = hop.take(every) if isinstance(hop, Patched) else hop
            np.testing.assert_array_equal(whole, Step.of(now).matrix @ current)
            current = whole


def test_patched_rows() -> None:
    patched = Patched(np.arange(6).reshape(3, 2), np.array([1, 3]), np.array([[9, 9], [8, 8]]), 4)
    assert patched.take(np.arange(4)).tolist() == [[0, 1], [9, 9], [4, 5], [8, 8]]
    assert np.concatenate(list(patched.blocks())).tolist() == patched.take(np.arange(4)).tolist()


def test_what_is_refused(store: TokenStore, graphs: tuple[Graph, Graph], tmp_path: Path) -> None:
    before, graph = graphs
    with pytest.raises(ConfigError, match="refresh is 'some'"):
        update(store, graph, tmp_path / "x", before=before, refresh="some")
    with pytest.raises(GraphError, match="fewer than the 300 before"):
        update(store, before, tmp_path / "x", before=graph)
    with pytest.raises(StoreError, match="was not made from this graph"):
        update(store, graph, tmp_path / "x", before=graph)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("content", [None, "colours"])
def test_lists_that_do_not_say_how_they_were_asked_for(
    content: str | None, store: TokenStore, graphs: tuple[Graph, Graph], tmp_path: Path
) -> None:
    before, graph = graphs
    folder = Path(shutil.copytree(store.path, tmp_path / "tokens"))
    with edited_manifest(folder) as manifest:
        del manifest["meta"]["identity"]["setting content"]
        if content is not None:
            manifest["meta"]["identity"]["setting content"] = content
    with pytest.raises(StoreError, match=r"does not say which tokens\.content .* Tokenize again"):
        update(TokenStore.open(folder), graph, tmp_path / "x", before=before)
