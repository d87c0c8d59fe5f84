"""Clusters that no settings make again: written first, never cut twice, read by all that needs them."""

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.serving.test_scoring import NAMES, extended, make_config, read, request, slowly
from tests.runs.serving.test_scoring import train as train_run
from tests.support.damage import put_array
from tests.support.plain import token_config
from tests.support.runs import all_bytes, named_graph
from tests.tokens.test_growth import shrink
from vcr_graphormer import Graph, Run, StoreError, TokenStore, generate, make_lists, tokenize, update
from vcr_graphormer.base.folders import digest
from vcr_graphormer.data.growth import Growth
from vcr_graphormer.explain.criteria import measure_criteria
from vcr_graphormer.ranking import partitioners
from vcr_graphormer.ranking.growth import join_clusters
from vcr_graphormer.report.numbers import rewiring
from vcr_graphormer.runs.serving.scoring import Scorer
from vcr_graphormer.tokens import build as tokens
from vcr_graphormer.tokens.growth import Rankers, Update

CONFIG = token_config(hops=2, clusters=4, structure_tokens=5, content_tokens=6, distinct=True, partitioner="kaminpar")
COARSE = "coarse_clusters"


class Cuts:
    """A partitioner that finds other clusters every time, as KaMinPar with several threads does."""

    def __init__(self, cut: Callable[..., Any]) -> None:
        self.cut, self.number, self.threads = cut, 0, list[int]()
        self.found = list[Any]()

    def __call__(self, graph: Graph, count: int, seed: int = 0, *, threads: int = 1) -> Any:
        self.number += 1
        self.threads.append(threads)
        self.found.append(self.cut(graph, count, seed + self.number))
        return self.found[-1]


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> Cuts:
    """Every graph counts as large, and shards are small."""
    made = Cuts(partitioners.cut_by_kaminpar)
    monkeypatch.setattr(partitioners, "SEVERAL_THREADS_FROM", 0)
    monkeypatch.setattr(partitioners, "cut_by_kaminpar", made)
    monkeypatch.setattr(tokens, "SOURCES_AT_ONCE", 130)
    return made


@pytest.fixture
def no_cuts(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, nothing may cut the graph."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the graph was cut again")

    return lambda: monkeypatch.setattr(partitioners, "cut_by_kaminpar", refuse)


class AtOnce(Executor):
    """Runs tasks in this process but gets them as workers of other processes do: with paths."""

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **keywords))
        return future


def stop_at(stage: str, done: int) -> Callable[[str, int, int], None]:
    def stop(name: str, now: int, total: int) -> None:
        if (name, now) == (stage, done):
            raise InterruptedError(stage)

    return stop


def test_a_store_has_the_clusters_that_ranked_it(graph: Graph, train: np.ndarray, tmp_path: Path, cuts: Cuts) -> None:
    store = tokenize(graph, train, CONFIG, tmp_path / "t", threads=3)
    assert cuts.threads == [3, 3]
    np.testing.assert_array_equal(store.assignment("structure"), cuts.found[0])
    np.testing.assert_array_equal(store.arrays[COARSE], cuts.found[1])
    np.testing.assert_array_equal(store.coarse_clusters(graph), cuts.found[1])
    assert all_bytes(tokenize(graph, train, CONFIG, tmp_path / "t")) == all_bytes(store)
    store.verify()


def test_they_come_before_hops_that_are_written_in_the_background(
    graph: Graph, train: np.ndarray, tmp_path: Path, cuts: Cuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's hops are written while lists are ranked; lost clusters end what was finished before."""
    hops, order = tokens._Job.hops, list[int]()

    def begin(job: Any, device: str) -> Any:
        order.append(cuts.number)
        return hops(job, device)

    monkeypatch.setattr(tokens._Job, "hops", begin)
    tokenize(graph, train, CONFIG, tmp_path / "t")
    assert order == [2]


@pytest.mark.parametrize("several", [False, True])
def test_only_large_graphs_cut_by_kaminpar_keep_them(
    several: bool, graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With KaMinPar itself on two threads, which on a graph as small as this finds the same clusters or others."""
    if several:
        monkeypatch.setattr(partitioners, "SEVERAL_THREADS_FROM", graph.num_arcs)
    assert [partitioners.is_repeatable(graph, name) for name in ("metis", "kaminpar")] == [True, not several]
    store = tokenize(graph, train, CONFIG, tmp_path / "t", threads=2)
    assert (COARSE in store.arrays) == several
    metis = tokenize(graph, train, replace(CONFIG, partitioner="metis"), tmp_path / "metis", threads=2)
    links = tokenize(graph, train, replace(CONFIG, structure_tokens=0, content="links"), tmp_path / "links", threads=2)
    assert COARSE not in metis.arrays
    assert COARSE not in links.arrays  # no kind needs them
    if not several:
        lists = make_lists(graph, train, CONFIG)
        assert store.arrays.keys() == lists.arrays.keys()
        np.testing.assert_array_equal(store.ids("content"), lists.ids("content"))


@pytest.mark.parametrize(
    ("stage", "done", "by_path"),
    [
        ("structure vectors", 0, False),
        ("structure ranking", 5, False),
        ("structure ranking", 5, True),
        ("content vectors", 1, True),
        ("content ranking", 3, False),
        ("hop features", 1, False),
    ],
)
def test_a_resumed_job_does_not_cut_again(
    stage: str,
    done: int,
    by_path: bool,
    graph: Graph,
    train: np.ndarray,
    tmp_path: Path,
    cuts: Cuts,
    no_cuts: Callable[[], None],
) -> None:
    whole = tokenize(graph, train, CONFIG, tmp_path / "whole", threads=1)
    cuts.number = 0  # the same clusters once more
    executor = AtOnce() if by_path else None
    with pytest.raises(InterruptedError):
        tokenize(graph, train, CONFIG, tmp_path / "t", 3, stop_at(stage, done), executor)
    no_cuts()
    rows: list[tuple[str, int, int]] = []
    resumed = tokenize(graph, train, CONFIG, tmp_path / "t", 2, lambda *row: rows.append(row), executor)
    assert all_bytes(resumed) == all_bytes(whole)
    if stage.endswith("ranking"):  # finished shards are used
        assert min((now for name, now, _ in rows if name == stage), default=done) >= done


@pytest.mark.parametrize("name", ["structure_assignment", COARSE])
@pytest.mark.parametrize("by_path", [False, True])
def test_lists_of_lost_clusters_are_made_anew(
    name: str, by_path: bool, graph: Graph, train: np.ndarray, tmp_path: Path, cuts: Cuts
) -> None:
    executor = AtOnce() if by_path else None
    with pytest.raises(InterruptedError):
        tokenize(graph, train, CONFIG, tmp_path / "t", 2, stop_at("content ranking", 3), executor)
    file = tmp_path / "t" / f"{name}.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    # An interruption right after the new clusters must not leave lists of the old ones among the finished.
    with pytest.raises(InterruptedError):
        tokenize(graph, train, CONFIG, tmp_path / "t", 2, stop_at("structure vectors", 0), executor)
    resumed = tokenize(graph, train, CONFIG, tmp_path / "t", 2, None, executor)
    assert cuts.number == 4
    cuts.number = 2
    assert all_bytes(resumed) == all_bytes(tokenize(graph, train, CONFIG, tmp_path / "whole"))


def test_a_late_worker_of_another_attempt_is_not_heard(
    graph: Graph, train: np.ndarray, tmp_path: Path, cuts: Cuts
) -> None:
    """A job is deleted and begun again; a worker of the first attempt still writes a shard."""
    names = []
    for number in range(2):
        with pytest.raises(InterruptedError):
            tokenize(graph, train, CONFIG, tmp_path / str(number), 1, stop_at("structure ranking", 1))
        names.append({file.name for file in (tmp_path / str(number) / "parts").glob("structure-*.npz")})
    assert names[0] and names[0].isdisjoint(names[1])


@pytest.fixture
def grown(tmp_path: Path, cuts: Cuts) -> Iterator[tuple[Graph, Graph, TokenStore]]:
    before, graph = shrink(generate(nodes=300, edges=1200, classes=3, features=8, seed=0))
    yield before, graph, tokenize(before, np.arange(0, 200, 2), CONFIG, tmp_path / "tokens")


@pytest.mark.parametrize(("refresh", "frozen_up_to"), [("new", 0.02), ("affected", 0.02), ("affected", 0.0)])
def test_update_carries_them(
    refresh: str,
    frozen_up_to: float,
    grown: tuple[Graph, Graph, TokenStore],
    no_cuts: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, graph, store = grown
    no_cuts()
    monkeypatch.setattr("vcr_graphormer.tokens.growth.FROZEN_UP_TO", frozen_up_to)
    ours = update(store, graph, tmp_path / "grown", before=before, refresh=refresh)
    np.testing.assert_array_equal(ours.arrays[COARSE], join_clusters(graph, np.asarray(store.arrays[COARSE])))
    np.testing.assert_array_equal(ours.arrays[COARSE][: before.num_nodes], store.arrays[COARSE])
    in_memory = Update(store, Growth(before, graph), refresh).to_lists()
    np.testing.assert_array_equal(in_memory.arrays[COARSE], ours.arrays[COARSE])
    # Without the rankers that `update` kept, they are prepared from the stored clusters.
    shutil.rmtree(ours.path / "rankers")
    rankers = Rankers(TokenStore.open(ours.path), graph, None)
    for kind in rankers.kinds:
        assert rankers.open(kind).rank([0], 5).ids.shape == (1, 5)


def test_criteria_read_them(grown: tuple[Graph, Graph, TokenStore], no_cuts: Callable[[], None]) -> None:
    before, _, store = grown
    no_cuts()
    rows = measure_criteria(before, store, np.arange(20), {})
    assert [row.name for row in rows] == ["hops only", "PageRank without super nodes", "all tokens"]


def test_report_and_server_read_them(tmp_path: Path, cuts: Cuts, no_cuts: Callable[[], None]) -> None:
    run = train_run(named_graph(), make_config(partitioner="kaminpar"), tmp_path / "run")
    assert cuts.number == 2
    no_cuts()
    opened = Run.open(run.path)
    # The exact ranking has no clusters, so the estimate tells whether these are the right ones.
    for row in rewiring(opened, np.arange(20)).values():
        assert row["estimate_elsewhere"] == pytest.approx(row["elsewhere"], rel=0.2)
    scorer = Scorer.open(run.path)
    found = scorer.predict_new(read(run, request())).probabilities
    np.testing.assert_allclose(found, slowly(opened, extended(opened), NAMES).probabilities, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids - 1, "coarse_clusters holds -1; it must be 0 to 1499"),
        (lambda ids: ids + 1500, "coarse_clusters holds 15"),
        (lambda ids: ids.astype(np.int64), "coarse_clusters is <i8"),
        (lambda ids: ids[:5], r"coarse_clusters is <i4\[5\]"),
    ],
)
def test_damaged_clusters_are_refused(
    change: Any, message: str, graph: Graph, train: np.ndarray, tmp_path: Path, cuts: Cuts
) -> None:
    store = tokenize(graph, train, CONFIG, tmp_path / "tokens")
    put_array(store.path, COARSE, change(np.array(store.arrays[COARSE])))
    with pytest.raises(StoreError, match=f"tokens is damaged: {message}"):
        TokenStore.open(store.path)


@pytest.mark.parametrize("name", ["structure_assignment", COARSE])
@pytest.mark.parametrize("wrong", [np.array([7, 7], np.int32), None])
def test_foreign_clusters_with_a_fitting_checksum_are_not_used(
    name: str, wrong: np.ndarray | None, graph: Graph, train: np.ndarray, tmp_path: Path, cuts: Cuts
) -> None:
    whole = tokenize(graph, train, CONFIG, tmp_path / "whole", threads=1)
    cuts.number = 0
    with pytest.raises(InterruptedError):
        tokenize(graph, train, CONFIG, tmp_path / "t", 2, stop_at("structure ranking", 1))
    array = np.load(tmp_path / "t" / f"{name}.npy") if wrong is None else wrong
    array[0] = 1 << 30  # compiled loops would read far outside of their arrays
    np.save(tmp_path / "t" / f"{name}.npy", array)
    finished = tmp_path / "t" / "parts" / "finished.json"
    finished.write_text(json.dumps({**json.loads(finished.read_text()), name: digest(array)}))
    cuts.number = 0
    assert all_bytes(tokenize(graph, train, CONFIG, tmp_path / "t", 2)) == all_bytes(whole)
    assert cuts.number == 2  # cut anew
