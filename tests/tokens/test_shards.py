"""Shards by path: the same bytes as by threads, little that travels, failures that name the shard and keep the rest."""

import multiprocessing
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.dask_cluster import Here
from tests.support.plain import token_config
from tests.support.runs import all_bytes
from vcr_graphormer import (
    ConfigError,
    DaskError,
    Graph,
    Ranker,
    StoreError,
    TokenStore,
    generate,
    tokenize,
)
from vcr_graphormer.tokens import build as tokens
from vcr_graphormer.tokens import shards
from vcr_graphormer.tokens.shards import SavedRanker, Shard, rank_shard, rank_shards

CONFIG = token_config(hops=1, clusters=4, structure_tokens=5, content_tokens=6)


@pytest.fixture(scope="module")
def local(graph: Graph, train: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return all_bytes(tokenize(graph, train, CONFIG, tmp_path_factory.mktemp("local") / "t"))


@pytest.fixture(autouse=True)
def _twelve_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "SOURCES_AT_ONCE", 130)


def test_every_executor_makes_the_same_bytes(
    graph: Graph, train: np.ndarray, local: dict[str, bytes], tmp_path: Path
) -> None:
    with ThreadPoolExecutor(2) as pool:
        assert all_bytes(tokenize(graph, train, CONFIG, tmp_path / "threads", executor=pool)) == local
        assert pool.submit(int).result() == 0  # it is the caller's, and still open
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert all_bytes(tokenize(graph, train, CONFIG, tmp_path / "processes", executor=pool)) == local
    opened = Graph.open(graph.save(tmp_path / "graph"))
    assert all_bytes(tokenize(opened, train, CONFIG, tmp_path / "opened", executor=Here())) == local


@pytest.mark.parametrize("kind", ["weighted", "directed"])
def test_other_graphs_by_path(kind: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    edges, weights = generator.integers(0, 900, (2, 6000)), generator.random(6000) + 0.1
    weight = weights if kind == "weighted" else None
    graph = Graph.from_edges(edges, num_nodes=900, edge_weight=weight, directed=kind == "directed")
    config = token_config(hops=0, content_tokens=0)
    first = tokenize(graph, None, config, tmp_path / "threads")
    assert all_bytes(tokenize(graph, None, config, tmp_path / "path", executor=Here())) == all_bytes(first)


def test_paths_travel_and_nothing_large(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved: list[Any] = []

    class Elsewhere(Here):
        def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
            saved.append(arguments)
            monkeypatch.chdir("/")  # a worker has a working directory of its own
            future = super().submit(function, *arguments, **keywords)
            monkeypatch.chdir(tmp_path)
            return future

    executor = Elsewhere()
    tokenize(graph, train, CONFIG, Path("relative"), executor=executor)
    assert executor.submitted == 24
    assert executor.largest < 1000 + 4 * len(str(tmp_path))
    shard, ranker = saved[0]
    assert (shard.start, shard.stop) == (0, 130)
    assert ranker.graph == tmp_path / "relative" / "parts" / "graph"


@pytest.mark.parametrize("victim", ["structure-ranker/values.npy", "graph/indices.npy"])
def test_a_file_that_disappears_fails_its_shard_and_keeps_the_rest(
    victim: str, graph: Graph, train: np.ndarray, local: dict[str, bytes], tmp_path: Path
) -> None:
    file = tmp_path / "t" / "parts" / victim

    def lose(number: int) -> None:
        if number == 3:
            file.unlink()

    with pytest.raises(StoreError) as info:
        tokenize(graph, train, CONFIG, tmp_path / "t", executor=Here(lose))
    text = str(info.value)
    assert text.startswith("structure-")
    assert f"failed: {file} is missing" in text
    assert f"3 of 12 shards are kept in {tmp_path / 't' / 'parts'}" in text
    assert len(list((tmp_path / "t" / "parts").glob("*.npz"))) == 3
    with pytest.raises(StoreError, match="unfinished"):
        TokenStore.open(tmp_path / "t")
    rows: list[tuple[str, int, int]] = []
    store = tokenize(graph, train, CONFIG, tmp_path / "t", progress=lambda *row: rows.append(row), executor=Here())
    assert next(done for stage, done, _ in rows if stage == "structure ranking") == 3
    assert all_bytes(store) == local


def test_a_graph_folder_that_was_replaced_is_noticed(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    opened = Graph.open(graph.save(tmp_path / "graph"))

    def swap(number: int) -> None:
        if number == 2:
            generate(1500, 6000, classes=3, seed=1, features=6).save(tmp_path / "graph", overwrite=True)

    with pytest.raises(StoreError, match="structure-ranker was prepared for another graph than .*2 of 12 shards"):
        tokenize(opened, train, CONFIG, tmp_path / "t", executor=Here(swap))


def note(stages: list[str], stage: str, done: int, total: int) -> None:
    stages.append(stage)


def test_what_was_saved_serves_again(graph: Graph, train: np.ndarray, local: dict[str, bytes], tmp_path: Path) -> None:
    """After a cluster is lost threads go on with its vectors, and make new ones only where these are damaged."""
    for damage in (False, True):
        folder = tmp_path / str(damage)
        with pytest.raises(DaskError):
            tokenize(graph, train, CONFIG, folder, executor=Broken(2))
        if damage:
            file = folder / "parts" / "structure-ranker" / "values.npy"
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(content)
            (folder / "parts" / "graph" / "manifest.json").unlink()
        stages: list[str] = []
        progress = partial(note, stages)
        store = tokenize(graph, train, CONFIG, folder, progress=progress, executor=Here() if damage else None)
        assert ("structure vectors" in stages) == damage
        assert all_bytes(store) == local


class Broken(Here):
    """Does some tasks, then refuses all others, as a pool does whose processes are gone."""

    def __init__(self, good: int) -> None:
        super().__init__(self.refuse)
        self.good = good

    def refuse(self, number: int) -> None:
        if number >= self.good:
            raise RuntimeError("cannot schedule new futures")


class Cancelling(Here):
    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (
            lambda: Broken(2),
            r"structure-260-390-.* \(nodes 260 to 389\) failed: RuntimeError: cannot schedule.*; 2 of 12",
        ),
        (Cancelling, "the ranking was cancelled: the scheduler or pool is lost; 0 of 12 shards are kept"),
    ],
)
def test_a_lost_pool(
    executor: Callable[[], Executor], message: str, graph: Graph, train: np.ndarray, tmp_path: Path
) -> None:
    with pytest.raises(DaskError, match=message):
        tokenize(graph, train, CONFIG, tmp_path / "t", executor=executor())


def test_mistakes_of_callers_and_settings_keep_their_kind(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(stage: str, done: int, total: int) -> None:
        if (stage, done) == ("structure ranking", 1):
            raise ZeroDivisionError("in the caller's own function")

    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        tokenize(graph, train, CONFIG, tmp_path / "t", progress=stumble, executor=pool)
    monkeypatch.setattr("vcr_graphormer.tokens.build.check_resources", lambda *_, **__: None)  # it would say so earlier
    with pytest.raises(ConfigError, match="lists of that length do not fit into memory"):
        tokenize(graph, train, replace(CONFIG, structure_tokens=10**12), tmp_path / "u", executor=Here())


def ready(graph: Graph, tmp_path: Path) -> tuple[Shard, SavedRanker]:
    saved = graph.save(tmp_path / "graph")
    folder = Ranker.prepare(graph).save(tmp_path / "ranker", graph)
    (tmp_path / "parts").mkdir()
    return Shard(tmp_path / "parts" / "x.npz", 0, 10, 5, {"tolerance": 0.2}, graph.num_nodes), SavedRanker(
        saved, folder, Ranker
    )


def test_refusals_of_a_worker(graph: Graph, tmp_path: Path) -> None:
    shard, ranker = ready(graph, tmp_path)
    with pytest.raises(DaskError, match=r"the worker on .* has vcr-graphormer .*, the job was started by 0\.0\.1"):
        rank_shard(shard, replace(ranker, version="0.0.1"))
    with pytest.raises(DaskError, match=r"does not see .*elsewhere: graph and store must lie on a filesystem"):
        rank_shard(shard, replace(ranker, graph=tmp_path / "elsewhere"))
    assert not list((tmp_path / "parts").iterdir())
    assert rank_shard(shard, ranker) > 0
    assert shard.is_whole()
    assert not replace(shard, tokens=6).is_whole()  # of another job
    # The job has ended while this worker was out of reach: its folder must not come back.
    shutil.rmtree(tmp_path / "parts")
    with pytest.raises(StoreError, match="parts is gone: the job was ended or deleted"):
        rank_shard(shard, ranker)
    assert not (tmp_path / "parts").exists()


def test_a_file_that_only_the_worker_sees(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Apart(Here):
        def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
            future = super().submit(function, *arguments, **keywords)
            for file in (tmp_path / "t" / "parts").glob("*.npz"):
                file.unlink()
            return future

    monkeypatch.setattr(shards, "SECONDS_UNTIL_SEEN", 0.0)
    with pytest.raises(DaskError, match=r"a worker has written .*\.npz, but it is not to be seen here"):
        tokenize(graph, train, CONFIG, tmp_path / "t", executor=Apart())


@pytest.mark.parametrize("stop", ["structure-ranker", "content-260-390-"])
def test_a_killed_coordinator_resumes(
    stop: str, graph: Graph, train: np.ndarray, local: dict[str, bytes], tmp_path: Path
) -> None:
    graph.save(tmp_path / "graph")
    np.save(tmp_path / "train.npy", train)
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from tests.support.dask_cluster import Here\n"
        "from tests.tokens.test_shards import CONFIG\n"
        "from vcr_graphormer import Graph, tokenize\nfrom vcr_graphormer.tokens import build as tokens\n"
        "tokens.SOURCES_AT_ONCE = 130\n"
        "def dying(move):\n"
        "    def die(self, target):\n"
        "        if Path(target).name.startswith(sys.argv[2]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return move(self, target)\n"
        "    return die\n"
        "Path.replace, Path.rename = dying(Path.replace), dying(Path.rename)\n"
        "root = Path(sys.argv[1])\n"
        "train = np.load(root / 'train.npy')\n"
        "tokenize(Graph.open(root / 'graph'), train, CONFIG, root / 't', threads=1, executor=Here())\n"
    )
    result = subprocess.run([sys.executable, "-c", script, str(tmp_path), stop], check=False)
    assert result.returncode == -signal.SIGKILL
    left = list((tmp_path / "t" / "parts").glob(".*.tmp"))
    assert len(left) == 1  # the folder, or the file, that was being written
    assert all_bytes(tokenize(graph, train, CONFIG, tmp_path / "t", executor=Here())) == local


class Waiting(Executor):
    """Fails the first task and begins no other."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        self.futures.append(Future())
        if len(self.futures) == 1:
            self.futures[0].set_exception(StoreError("first"))
        return self.futures[-1]


def test_a_failure_cancels_what_has_not_begun(graph: Graph, tmp_path: Path) -> None:
    shard, ranker = ready(graph, tmp_path)
    executor = Waiting()
    with pytest.raises(StoreError, match=r"x \(nodes 0 to 9\) failed: first; 5 of 8 shards are kept"):
        list(rank_shards(executor, [shard, shard, shard], ranker, before=5))
    assert [future.cancelled() for future in executor.futures] == [False, True, True]


def test_a_failure_waits_for_what_has_begun(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, _ = ready(graph, tmp_path)
    begun, ended = threading.Event(), threading.Event()

    def work(given: Shard, ranker: Ranker) -> int:
        if given.start == 0:
            begun.wait()
            raise StoreError("first")
        begun.set()
        time.sleep(0.2)
        ended.set()
        return 0

    monkeypatch.setattr(shards, "rank_shard", work)
    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(StoreError, match="first"):
            list(rank_shards(pool, [shard, replace(shard, start=5)], Ranker.prepare(graph)))
        assert ended.is_set()  # nobody writes any more
