"""A job's folder: claimed once, trusted only where checksums match, clean when done."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vcr_graphormer import StoreError
from vcr_graphormer.base import files
from vcr_graphormer.base.folders import Digest, digest
from vcr_graphormer.base.jobs import JobFolder


def test_arrays_and_their_checksums(tmp_path: Path) -> None:
    with JobFolder(tmp_path / "job", {"a": "1"}) as job:
        job.write("whole", np.arange(5))
        job.write_blocks("blocks", (4, 2), "float32", [np.ones((3, 2)), np.zeros((1, 2))])
        job.write_blocks("nothing", (3, 0), "int32", [np.empty((3, 0))])
        with pytest.raises(StoreError, match=r"short\.npy got 1 rows instead of 2"):
            job.write_blocks("short", (2, 2), "float32", [np.ones((1, 2))])
    (tmp_path / "job" / ".left.npy.99.tmp").write_bytes(b"")
    with JobFolder(tmp_path / "job", {"a": "1"}) as again:
        whole, blocks = again.open("whole"), again.open("blocks")
        assert whole is not None
        assert blocks is not None
        assert (whole.tolist(), blocks.tolist()) == ([0, 1, 2, 3, 4], [[1, 1], [1, 1], [1, 1], [0, 0]])
        assert again.open("short") is None
        assert again.open("never") is None
        assert not (tmp_path / "job" / ".left.npy.99.tmp").exists()
        again.end()
    assert sorted(file.name for file in (tmp_path / "job").iterdir()) == [
        "blocks.npy",
        "nothing.npy",
        "short.npy",
        "whole.npy",
    ]


def test_blocks_are_hashed_and_written_by_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(0).integers(0, 99, (60, 3), dtype=np.int32)
    names = [f"number {name}" for name in range(4)]
    with JobFolder(tmp_path / "job", {"a": "1"}) as job:
        with ThreadPoolExecutor(4) as pool:  # several arrays at once
            list(pool.map(lambda name: job.write_blocks(name, (60, 3), "int32", np.split(numbers, 20)), names))
        assert job.waited == 0  # the thread that holds the folder did something else
        assert {job.checksums[name] for name in names} == {digest(numbers)}
        job.write_blocks("here", (60, 3), "float16", (part for part in np.split(numbers, 6)))
        assert job.waited > 0
        assert job.checksums["here"] == digest(numbers.astype("float16"))
        monkeypatch.setattr(Digest, "add", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StoreError, match=r"cannot write .*full\.npy: No space left on device"):
            job.write_blocks("full", (60, 3), "int32", np.split(numbers, 20))
    assert not list((tmp_path / "job").glob("*full*"))


def test_other_jobs_and_foreign_folders(tmp_path: Path) -> None:
    with JobFolder(tmp_path / "job", {"a": "1"}):
        pass
    for other, message in (({"a": "2"}, "another a:"), ({"a": "1", "b": "1"}, "another b:")):
        with pytest.raises(StoreError, match=f"holds unfinished work of {message}"), JobFolder(tmp_path / "job", other):
            pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    with pytest.raises(StoreError, match="is not a token store"), JobFolder(tmp_path / "mine", {}):
        pass


@pytest.mark.parametrize("first", [True, False])
def test_of_two_that_come_together_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    """The other comes after this one has found an empty folder, before or after it has locked it."""
    outcomes: list[str] = []
    real = files.claim

    def claim(*file: Any, **how: Any) -> Any:
        monkeypatch.setattr("vcr_graphormer.base.jobs.claim", real)
        handle = None if first else real(*file, **how)
        try:
            other.__enter__()
            outcomes.append("the other works")
        except StoreError as error:
            outcomes.append(f"the other: {error}")
        return handle or real(*file, **how)

    one, other = JobFolder(tmp_path / "job", {"a": "1"}), JobFolder(tmp_path / "job", {"a": "1"})
    monkeypatch.setattr("vcr_graphormer.base.jobs.claim", claim)
    try:
        one.__enter__()
        outcomes.append("this one works")
    except StoreError as error:
        outcomes.append(f"this one: {error}")
    message = f"another process is working in {tmp_path / 'job'}: wait for it, or stop it"
    assert outcomes == (
        ["the other works", f"this one: {message}"] if first else [f"the other: {message}", "this one works"]
    )
    (other if first else one).__exit__(None, None, None)
    with JobFolder(tmp_path / "job", {"a": "1"}):  # what is left is whole
        pass


def test_of_many_that_come_together_one_works(tmp_path: Path) -> None:
    for number in range(40):
        barrier, done = threading.Barrier(4), threading.Barrier(4)

        def enter(barrier: Any = barrier, done: Any = done, path: Path = tmp_path / str(number)) -> str:
            work = JobFolder(path, {"a": "1"})
            barrier.wait()
            try:
                work.__enter__()
            except StoreError as error:
                done.wait()
                return str(error)
            done.wait()
            work.__exit__(None, None, None)
            return "works"

        with ThreadPoolExecutor(4) as pool:
            outcomes = [future.result() for future in [pool.submit(enter) for _ in range(4)]]
        assert outcomes.count("works") == 1
        assert all(outcome == "works" or "another process is working in" in outcome for outcome in outcomes)


def test_a_job_that_ends_while_another_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is deleted then: a lock on that holds nobody back."""
    real = files.claim

    def claim(*file: Any, **how: Any) -> Any:
        monkeypatch.setattr("vcr_graphormer.base.jobs.claim", real)
        one.end()
        one.__exit__(None, None, None)
        return real(*file, **how)

    with JobFolder(tmp_path / "job", {"a": "1"}) as one:
        one.write("array", np.arange(5))
        (tmp_path / "job" / "manifest.json").write_text("{}")
        monkeypatch.setattr("vcr_graphormer.base.jobs.claim", claim)
        with pytest.raises(StoreError, match="has been finished meanwhile: call the same again to open it"):
            JobFolder(tmp_path / "job", {"a": "1"}).__enter__()
    assert not (tmp_path / "job" / "job.json").exists()


def test_a_disk_that_is_full_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StoreError, match=r"cannot write .*job\.json: No space left on device"):
            JobFolder(tmp_path / "job", {"a": "1"}).__enter__()
    with JobFolder(tmp_path / "job", {"a": "1"}):
        pass
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "job.json").touch()  # by a process that was killed before it wrote
    with JobFolder(tmp_path / "killed", {"a": "1"}):
        pass
    with pytest.raises(StoreError, match="another a"), JobFolder(tmp_path / "killed", {"a": "2"}):
        pass


def test_what_an_interrupted_job_made_is_read_again_unless_it_does_not_fit(tmp_path: Path) -> None:
    calls: list[int] = []

    def make() -> dict[str, np.ndarray]:
        calls.append(len(calls))
        return {"clusters": np.array([0, 1, len(calls)])}

    def fits(arrays: dict[str, np.ndarray]) -> bool:
        return arrays.keys() == {"clusters"} and len(arrays["clusters"]) == 3

    file = tmp_path / "job" / "parts" / "made" / "clusters.npz"
    with JobFolder(tmp_path / "job", {"graph": "a"}) as work:
        assert work.once("clusters", make, fits)["clusters"].tolist() == [0, 1, 1]
        assert work.once("clusters", make, fits)["clusters"].tolist() == [0, 1, 1]
        file.write_bytes(file.read_bytes()[:-9])  # damaged
        assert work.once("clusters", make, fits)["clusters"].tolist() == [0, 1, 2]
        np.savez(file, clusters=np.arange(2))  # of another form
        assert work.once("clusters", make, fits)["clusters"].tolist() == [0, 1, 3]
        work.end()
    assert calls == [0, 1, 2] and not file.exists()
