"""What links and features say of the classes of training nodes, and whether directions of edges are kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import vcr_graphormer as vcr
from vcr_graphormer import ConfigError, Graph
from vcr_graphormer.base.checks import AUTO
from vcr_graphormer.data import agreement
from vcr_graphormer.data.agreement import Agreement, keeps_directions, label_agreement, links_of, nearest_agreement
from vcr_graphormer.data.datasets import DataConfig, load_data
from vcr_graphormer.runs.config import load_config


def slow_guess(rows: Any, labels: Any, train: Any) -> list[int]:
    """The class of the most similar other training node, one pair after the other; -1 where none is similar."""
    guessed = []
    for u in train:
        scores = []
        for v in train:
            lengths = np.linalg.norm(rows[u]) * np.linalg.norm(rows[v])
            scores.append(-1.0 if u == v else 0.0 if lengths == 0 else float(rows[u] @ rows[v] / lengths))
        best = int(np.argmax(scores))
        guessed.append(int(labels[train[best]]) if scores[best] > 0 else -1)
    return guessed


def pages(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """240 pages of three classes and 60 hubs. A page points to four of its class's targets; hubs point to any page.

    Targets and hubs are pages, too. Without directions a page is linked to the hubs that point to it as well.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(3, size=300)
    targets = [np.arange(20 * c, 20 * c + 20) for c in range(3)]
    edges = [(page, to) for page in range(60, 240) for to in random.choice(targets[labels[page]], 4, replace=False)]
    edges += [(hub, page) for page in range(240) for hub in random.choice(np.arange(240, 300), 30, replace=False)]
    ends = np.array([*edges, (0, 60)]).T  # one leads to a larger id, else the order of ends would count as the writer's
    return ends[:, ends[0] != ends[1]], labels


def read(config: DataConfig) -> tuple[Graph, Any]:
    """The graph and its split, without its notes."""
    return load_data(config, tell=lambda note: None)


def both(edges: Any, labels: Any, **keywords: Any) -> tuple[Graph, Graph]:
    """The directed and the undirected graph."""
    first, second = (Graph.from_edges(edges, labels=labels, directed=way, **keywords) for way in (True, False))
    return first, second


@pytest.mark.parametrize("sparse", [True, False])
def test_the_nearest_training_node_is_that_of_the_slow_twin(sparse: bool) -> None:
    random = np.random.default_rng(1)
    rows = random.integers(0, 3, size=(60, 9)) * (random.random((60, 9)) < 0.4)
    rows[7] = 0  # similar to nobody
    labels, train = random.integers(3, size=60), np.sort(random.permutation(60)[:40])
    given = sp.csr_matrix(rows.astype(np.float32)) if sparse else rows.astype(np.float32)
    truth, guessed = agreement._guess(given, labels, train)
    assert truth.tolist() == labels[train].tolist()
    slow = np.array(slow_guess(rows.astype(float), labels, train))
    ties = guessed != slow  # rounding may break a tie otherwise
    assert ties.mean() < 0.1
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    for place in np.flatnonzero(ties):
        similar = unit[train] @ unit[train[place]]
        similar[place] = -1
        assert labels[train[np.isclose(similar, similar.max())]].tolist().count(guessed[place]) > 0


def test_few_queries_and_small_blocks_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, labels = pages()
    rows, train = links_of(Graph.from_edges(edges, labels=labels, directed=True)), np.arange(60, 300)
    truth, guessed = agreement._guess(rows, labels, train)
    monkeypatch.setattr(agreement, "PRODUCTS_AT_ONCE", 1000)  # four rows at a time
    assert agreement._guess(rows, labels, train)[1].tolist() == guessed.tolist()
    monkeypatch.setattr(agreement, "MOST_QUERIES", 100)  # every third
    assert agreement._guess(rows, labels, train)[1].tolist() == guessed[::3].tolist()
    monkeypatch.setattr(agreement, "MOST_COMPARED", 120)  # every other training node is all there is
    assert agreement._guess(rows, labels, train)[0].tolist() == truth[::2][::2].tolist()


def test_agreement_by_rows_is_a_kappa_of_known_values() -> None:
    labels = np.array([0, 0, 0, 1, 1, 1])
    # The nearest others are 1, 0, 0, 4, 3, 3: all have the same class.
    rows = np.array([[1, 0], [1, 0], [2, 1], [0, 1], [0, 1.0], [1, 2]])
    assert nearest_agreement(rows, labels, np.arange(6)) == 1.0
    # With other rows they are 1, 0, 3, 2, 2, 2.
    rows[2], rows[5] = [0, 1], [0, 3]
    assert agreement._guess(rows, labels, np.arange(6))[1].tolist() == [0, 0, 1, 0, 0, 0]
    # 2 of 6 are right; by chance 3/6 · 5/6 + 3/6 · 1/6 = 1/2.
    assert nearest_agreement(rows, labels, np.arange(6)) == pytest.approx((2 / 6 - 1 / 2) / (1 - 1 / 2))
    assert nearest_agreement(np.eye(6), labels, np.arange(6)) == pytest.approx(0)  # nobody is similar
    assert nearest_agreement(rows, np.zeros(6, dtype=int), np.arange(6)) == 0.0  # one class


def test_nothing_to_compare_agrees_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "MOST_LINKS", 3)  # so that every column of a complete graph is left out
    edges = np.array([(u, v) for u in range(6) for v in range(6) if u != v]).T
    complete = Graph.from_edges(edges, features=np.zeros((6, 0)), labels=[0, 0, 0, 1, 1, 1])
    assert links_of(complete).shape == (6, 0)
    found = Agreement.of(complete, np.arange(6))
    assert (found.features, found.links) == (0, 0)
    assert Agreement.of(complete, np.arange(0)) == Agreement()


def test_who_is_linked_by_too_many_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    star = Graph.from_edges([[0, 1, 2, 3], [4, 4, 4, 5]], labels=[0, 0, 0, 1, 1, 1], directed=True)
    assert links_of(star).shape == (6, 6)
    monkeypatch.setattr(agreement, "MOST_LINKS", 2)
    assert links_of(star).toarray()[:, -1].tolist() == [0, 0, 0, 1, 0, 0]
    assert links_of(star).shape == (6, 5)


def test_directions_are_kept_where_outgoing_links_tell_the_class() -> None:
    edges, labels = pages()
    train = np.arange(60, 240)
    assert keeps_directions(*both(edges, labels), train)
    # Turned round, outgoing links say less than all of them.
    assert not keeps_directions(*both(edges[::-1], labels), train)
    # Only labels of training nodes count.
    changed = labels.copy()
    changed[240:] = 0
    changed[:60] = 0
    assert keeps_directions(*both(edges, changed), train)


def test_directions_that_the_writer_of_a_list_has_chosen_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids are sorted by class, and the smaller end of each edge comes first: only the order of ends tells the class."""
    plain = vcr.generate(1500, 30_000, classes=3, features=8, homophily=1 / 3, seed=0)
    order = np.argsort(np.asarray(plain.labels), kind="stable")
    new_ids = np.empty(1500, dtype=np.int64)
    new_ids[order] = np.arange(1500)
    ends = new_ids[np.stack(plain.to_scipy().tocoo().coords)]
    smaller_first, labels, train = ends[:, ends[0] < ends[1]], np.asarray(plain.labels)[order], np.arange(0, 1500, 2)
    for once in (smaller_first, smaller_first[::-1]):
        assert not keeps_directions(*both(once, labels, num_nodes=1500), train)
    turned = np.random.default_rng(0).random(smaller_first.shape[1]) < 0.5
    random_order = np.where(turned, smaller_first, smaller_first[::-1])
    assert not keeps_directions(*both(random_order, labels, num_nodes=1500), train)
    # Without looking at the ids, sorted ends would be kept.
    monkeypatch.setattr(agreement, "_sorted_ends", lambda graph: False)
    assert keeps_directions(*both(smaller_first, labels, num_nodes=1500), train)
    assert not keeps_directions(*both(random_order, labels, num_nodes=1500), train)


@pytest.mark.parametrize("rarer", [0.5, 0.2, 0.1])
@pytest.mark.parametrize("portals", [1, 3, 10])
def test_directions_that_say_nothing_are_not_kept(portals: int, rarer: float) -> None:
    """Pages of a portal all guess one class, which is right more often than a mixed guess if that is frequent."""
    kept = 0
    for seed in range(10):
        random = np.random.default_rng(seed)
        labels = (random.random(1000) < rarer).astype(np.int64)
        pages = np.arange(100, 1000)
        hubs = np.stack([random.integers(50, 100, 9000), random.choice(pages, 9000)])
        edges = np.concatenate([np.stack([pages, random.integers(portals, size=900)]), hubs], 1)
        kept += keeps_directions(*both(edges, labels), pages[:600])
    assert kept <= 1


def write_pages(folder: Path) -> None:
    """The pages as files of one's own, with a feature that says nothing."""
    edges, labels = pages()
    folder.mkdir(exist_ok=True)
    lines = [f"{source},{target}" for source, target in edges.T]
    (folder / "edges.csv").write_text("\n".join(["source,target", *lines]) + "\n")
    rows = [f"{node},{node % 7},{'abc'[label]}" for node, label in enumerate(labels)]
    (folder / "nodes.csv").write_text("\n".join(["id,size,label", *rows]) + "\n")


def test_own_data_keeps_its_directions_by_itself(tmp_path: Path) -> None:
    write_pages(tmp_path / "pages")
    config = DataConfig(dataset=str(tmp_path / "pages"))
    assert config.directed == AUTO
    graph, split = read(config)
    assert graph.directed and split is not None
    for directed in (True, False):
        given, again = read(replace(config, directed=directed))
        assert given.directed == directed
        assert again is not None and again.train.tolist() == split.train.tolist()
    assert read(replace(config, directed=True))[0].fingerprint == graph.fingerprint
    assert read(replace(config, inductive=True))[0].directed
    degrees = replace(config, features="degree")
    assert read(degrees)[0].fingerprint == read(replace(degrees, directed=True))[0].fingerprint
    # A saved graph is as it was saved, and values have no class.
    graph.save(tmp_path / "directed")
    notes: list[str] = []
    kept, _ = load_data(replace(config, dataset=str(tmp_path / "directed"), directed=False), tell=notes.append)
    assert kept.directed
    assert any(
        note.endswith("a saved graph with directions: data.directed = false does not change it") for note in notes
    )
    assert read(replace(config, dataset=str(tmp_path / "directed")))[0].directed
    assert not read(replace(config, task="regression", dataset=str(numbers(tmp_path))))[0].directed
    read(replace(config, directed=False))[0].save(tmp_path / "saved")
    assert not read(replace(config, dataset=str(tmp_path / "saved")))[0].directed


def numbers(folder: Path) -> Path:
    """The same pages with numbers for labels."""
    write_pages(folder / "numbers")
    file = folder / "numbers" / "nodes.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], *(f"{line[:-1]}{place % 5}.5" for place, line in enumerate(lines[1:]))]))
    return folder / "numbers"


def test_only_a_graph_with_training_nodes_decides() -> None:
    with pytest.raises(ConfigError, match="directed is -1; it must be True or False: a graph and its training nodes"):
        vcr.load_dataset("digits", directed=AUTO)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="data.directed is 'auto'; it must be true, false or auto"):
        read(DataConfig(directed="auto"))  # type: ignore[arg-type]
    assert not read(DataConfig())[0].directed


def test_large_graphs_are_not_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pages(tmp_path / "pages")
    monkeypatch.setattr("vcr_graphormer.data.agreement.MOST_NODES_COMPARED", 299)
    assert not read(DataConfig(dataset=str(tmp_path / "pages")))[0].directed


def test_published_graphs(data_root: Path) -> None:
    kept = {}
    for name in ("Squirrel", "Actor", "Texas", "Cora"):
        options = {"data": {"dataset": name, "root": str(data_root)}}
        kept[name] = load_data(load_config(options=options, variant="adaptive").data)[0].directed
    assert kept == {"Squirrel": True, "Actor": False, "Texas": False, "Cora": False}


def test_edges_agree_where_ends_have_one_class() -> None:
    alike, mixed = (vcr.generate(400, 2000, classes=3, features=8, homophily=part, seed=0) for part in (0.9, 1 / 3))
    train = np.arange(200)
    assert label_agreement(alike, train) > 0.8 and abs(label_agreement(mixed, train)) < 0.2
