"""A real scheduler and real workers: the same bytes, whoever is killed on the way; clear refusals otherwise."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import run
from tests.support.dask_cluster import Cluster
from tests.support.runs import all_bytes
from tests.tokens.test_shards import CONFIG
from vcr_graphormer import ConfigError, DaskError, Graph, TokenStore, tokenize
from vcr_graphormer.tokens import build as tokens
from vcr_graphormer.tokens import dask as cluster
from vcr_graphormer.tokens.dask import connect

distributed = pytest.importorskip("distributed", reason="needs dask.distributed: pip install 'vcr-graphormer[dask]'")

SHARDS = 12


@pytest.fixture(scope="module")
def local(graph: Graph, train: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return all_bytes(tokenize(graph, train, CONFIG, tmp_path_factory.mktemp("local") / "t"))


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(autouse=True)
def _twelve_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "SOURCES_AT_ONCE", 130)


def test_the_same_bytes_and_a_second_attempt_is_a_new_one(
    two_workers: Cluster, graph: Graph, train: np.ndarray, local: dict[str, bytes], tmp_path: Path
) -> None:
    saved = graph.save(tmp_path / "graph")
    opened = Graph.open(saved)
    with distributed.Client(two_workers.address, timeout=200, set_as_default=False) as client:
        executor = client.get_executor()
        # While `info` keeps the failed tasks alive dask would answer equal ones with the same failure.
        saved.rename(tmp_path / "hidden")
        with pytest.raises(DaskError, match="does not see .*graph: graph and store must lie on a filesystem") as info:
            tokenize(opened, train, CONFIG, tmp_path / "t", executor=executor)
        (tmp_path / "hidden").rename(saved)
        assert all_bytes(tokenize(opened, train, CONFIG, tmp_path / "t", executor=executor)) == local
        assert "0 of 12 shards are kept" in str(info.value)


def test_the_command(two_workers: Cluster, tmp_path: Path) -> None:
    settings = ("--set", "tokens.hops=1", "--set", "tokens.clusters=5")
    run("tokenize", "--out", "local", *settings, cwd=tmp_path)
    text = run("tokenize", "--out", "by_workers", "--scheduler", two_workers.address, *settings, cwd=tmp_path)
    assert "structure ranking: done" in text
    assert "1,797 nodes" in text
    first, second = (TokenStore.open(tmp_path / name) for name in ("local", "by_workers"))
    assert all_bytes(first) == all_bytes(second)


def test_a_killed_worker_changes_nothing(
    graph: Graph, train: np.ndarray, local: dict[str, bytes], tmp_path: Path
) -> None:
    held: list[int] = []
    with (
        Cluster(tmp_path / "cluster") as started,
        distributed.Client(started.address, timeout=200, set_as_default=False) as client,
    ):
        names = {str(worker["name"]): address for address, worker in client.scheduler_info()["workers"].items()}

        def kill(stage: str, done: int, total: int) -> None:
            if (stage, done) == ("structure ranking", 0):
                started.freeze(0)  # so that it holds shards when it dies
            if (stage, done) == ("structure ranking", 1):
                held.append(len(client.processing()[names["0"]]))
                started.workers[0].kill()
                started.workers[0].wait()

        store = tokenize(graph, train, CONFIG, tmp_path / "t", progress=kill, executor=client.get_executor())
    assert held[0] > 0
    assert all_bytes(store) == local


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_lost_scheduler_is_told_and_the_store_resumes(
    end: signal.Signals, graph: Graph, train: np.ndarray, local: dict[str, bytes], tmp_path: Path
) -> None:
    with Cluster(tmp_path / "cluster") as started:

        def kill(stage: str, done: int, total: int) -> None:
            if (stage, done) == ("structure ranking", 0):
                started.freeze(0)  # so that not all shards are done before the scheduler is gone
            if (stage, done) == ("structure ranking", 1):
                started.scheduler.send_signal(end)
                started.scheduler.wait()

        with pytest.raises(DaskError) as info, connect(started.address) as executor:
            tokenize(graph, train, CONFIG, tmp_path / "t", progress=kill, executor=executor)
    assert str(info.value).startswith(f"the scheduler at {started.address} was lost: the ranking was cancelled: ")
    assert "and the same command resumes with them" in str(info.value)
    kept = len(list((tmp_path / "t" / "parts").glob("*.npz")))
    assert 0 < kept < SHARDS
    rows: list[tuple[str, int, int]] = []
    store = tokenize(graph, train, CONFIG, tmp_path / "t", progress=lambda *row: rows.append(row))
    assert next(row for row in rows if row[0] == "structure ranking") == ("structure ranking", kept, SHARDS)
    assert all_bytes(store) == local


def test_a_scheduler_lost_before_the_first_shard(
    graph: Graph, train: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks given to a client that tries to reconnect must not wait for ever."""
    with Cluster(tmp_path / "cluster", workers=1) as started:

        def kill(stage: str, done: int, total: int) -> None:
            if (stage, done) == ("structure connections", 0):
                started.scheduler.kill()
                started.scheduler.wait()

        monkeypatch.setattr(cluster, "SECONDS_TO_ANSWER", 5)
        with pytest.raises(DaskError, match="was lost: .* 0 of 12 shards"), connect(started.address) as executor:
            tokenize(graph, train, CONFIG, tmp_path / "t", progress=kill, executor=executor)


def test_workers_of_another_version_are_refused(graph: Graph, train: np.ndarray, tmp_path: Path) -> None:
    preload = tmp_path / "older.py"
    preload.write_text("import vcr_graphormer\nvcr_graphormer.__version__ = '0.0.1'\n")
    with Cluster(tmp_path / "cluster", workers=1, worker=preload) as started:
        with (
            pytest.raises(DaskError, match=r"the worker tcp://.* has vcr-graphormer 0\.0\.1, this is "),
            connect(started.address),
        ):
            pytest.fail("connected")
        # One that comes later is refused by its first shard, before it writes anything.
        with distributed.Client(started.address, timeout=200, set_as_default=False) as client:
            with pytest.raises(DaskError, match=r"failed: the worker on .* has vcr-graphormer 0\.0\.1, the job was"):
                tokenize(graph, train, CONFIG, tmp_path / "t", executor=client.get_executor())
            assert not list((tmp_path / "t" / "parts").glob("*.npz"))


@pytest.mark.parametrize("who", ["scheduler", "worker"])
def test_who_lacks_the_package_is_noticed_before_the_work(who: str, tmp_path: Path) -> None:
    preload = tmp_path / "older.py"
    preload.write_text("import sys\nsys.modules['vcr_graphormer.tokens.dask'] = None\n")
    with (
        Cluster(tmp_path / "cluster", workers=1, **{who: preload}) as started,
        pytest.raises(DaskError, match=rf"the {who} .*tcp://.* cannot load vcr-graphormer: .*vcr_graphormer"),
        connect(started.address),
    ):
        pytest.fail("connected")


def test_nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SECONDS_TO_ANSWER", 1)
    for address in ("nonsense", "tcp://host", "host:8786", "tcp://:x"):
        text = run("tokenize", "--out", str(tmp_path / "t"), "--scheduler", address, code=2)
        assert f"--scheduler is '{address}'; it must be an address such as tcp://host:8786" in text
    for address in ("tcp://127.0.0.1:1", "nonsense://x:1"):
        text = run("tokenize", "--out", str(tmp_path / "t"), "--scheduler", address, code=2)
        assert f"no scheduler answers at '{address}' within 1 s: start one with 'dask scheduler'" in text
    with Cluster(tmp_path / "cluster", workers=0) as started:
        text = run("tokenize", "--out", str(tmp_path / "t"), "--scheduler", started.address, code=2)
        assert f"has no workers: start some on each machine with 'dask worker {started.address}'" in text
    assert not (tmp_path / "t").exists()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'vcr-graphormer\[dask\]'"), connect("tcp://127.0.0.1:1"):
        pytest.fail("connected")
