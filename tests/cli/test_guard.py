"""Whatever goes wrong, the command ends with one line: what, where, and the way out. What was there stays."""

import errno
import importlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.command import run
from tests.support.runs import CONFIG
from vcr_graphormer import Run, Split
from vcr_graphormer.base import files, machine
from vcr_graphormer.runs.config import to_toml


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    graph = vcr.generate(120, 500, classes=3, features=8, homophily=0.8, seed=0)
    graph.save(folder / "graph")
    (folder / "settings.toml").write_text(to_toml(CONFIG).replace('dataset = "digits"', f'dataset = "{folder}/graph"'))
    vcr.train(graph, Split.random(graph.labels, seed=0), CONFIG, folder / "run", device="cpu", baselines="none")
    return folder


main_module = importlib.import_module("vcr_graphormer.cli.main")  # the package has a function of that name


def one_line(*words: str, code: int = 2) -> str:
    """The one line that the command prints."""
    text = run(*words, code=code)
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, text
    assert "Traceback" not in text
    return errors[0]


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = 3", "data is 3; it must be a section"),
        ("[data]\nseed = [1]", r"data.seed is \[1\]; it must be a whole number"),
        ("[data]\nseed = " + "9" * 5000, "is not valid TOML"),
        ("[data]\nseed = " + "9" * 300, "data.seed is a number of 1e.300; it must be between"),
        ("[data]\ntrain = " + "9" * 300, "data.train is a number of"),
        ("[data]\nseed = " + "[" * 50_000, "is not valid TOML"),
        ("[model]\nhidden_channels = 4000000000", "need more than .* of memory"),
        ("[model]\nlayers = 4000000000\nhidden_channels = 64", "need more than .* of memory"),
        ("[training]\nlearning_rate = nan", "training.learning_rate is nan"),
        ("[training]\nlearning_rate = true", "training.learning_rate is True; it must be a number"),
        ("[tokens]\nrestart = inf", "restart is inf"),
        ("[tokens]\nstructure_tokens = 4000000000000", "GiB|TiB"),
        ("[tokens]\nhops = 9000000000000000000", "GiB|TiB"),
        ("[tokens]\nhops = 1979-05-27", "tokens.hops is .*it must be a whole number"),
        ("[data]\ntrain = 1e300", "train|ask for more"),
        ("\x00", "is not valid TOML"),
    ],
)
def test_settings_out_of_range(made: Path, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    data = ("--dataset", str(made / "graph"))
    line = one_line("train", "--config", str(file), *data, "--out", str(tmp_path / "run"), "--device", "cpu")
    assert re.search(message, line), line
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_settings_by_option(made: Path, tmp_path: Path) -> None:
    for override in ("data.seed=" + "9" * 5000, "data.seed=" + "[" * 50_000, "training.epochs=1e400"):
        line = one_line("train", "--set", override, "--out", str(tmp_path / "run"))
        assert len(line) < 300
    assert "there is no node" in one_line("predict", str(made / "run"), "--nodes", "9" * 5000, "--device", "cpu")
    assert "there is no node" in one_line("explain", str(made / "run"), "--node", "id:" + "9" * 5000, "--device", "cpu")


def test_settings_that_are_no_text_file(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_bytes(b"\xff\xfe\x00")
    assert "is not a UTF-8 text file" in one_line("train", "--config", str(tmp_path / "settings.toml"))
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbf[data]\nseeed = 1")
    assert "unknown key in [data] 'seeed'" in one_line("train", "--config", str(tmp_path / "bom.toml"))


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system takes only UTF-8")
def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    vcr.generate(120, 300, seed=0).save(folder)
    command = [sys.executable, "-m", "vcr_graphormer", "train", "--dataset", folder, "--out", str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, check=False)
    assert result.returncode == 2
    assert b"is not valid UTF-8: rename the file" in result.stderr
    assert result.stderr.count(b"\n") == 1


# ---------------------------------------------------------------- files that cannot be read


@pytest.mark.parametrize("name", ["run.json", "config.toml", "split.npz", "model.safetensors", "metrics.json"])
def test_folders_in_place_of_files(made: Path, tmp_path: Path, name: str) -> None:
    import shutil

    folder = Path(shutil.copytree(made / "run", tmp_path / "run"))
    (folder / name).unlink()
    (folder / name).mkdir()
    one_line("evaluate", str(folder), "--device", "cpu")


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_unreadable_files(made: Path, error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system is made to refuse each file of a run in turn."""
    names = sorted(file.name for file in (made / "run").rglob("*") if file.is_file())
    real = Path.open
    refused: list[str] = []

    def refuse(self: Path, *arguments: Any, **keywords: Any) -> Any:
        if self.name == name and str(self).startswith(str(made)):
            refused.append(name)
            raise type(error)(error.errno, error.strerror, str(self))
        return real(self, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr("vcr_graphormer.base.folders._checked", {})
    for name in names:
        before = len(refused)
        text = run("verify", str(made / "run"), code=2)
        assert "Traceback" not in text
        assert f"{error.strerror}" in text, (name, text)
        assert len(refused) > before, name


def test_a_zip_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", edge_index=np.zeros((2, 4_000_000), np.int64))
    assert (tmp_path / "bomb.npz").stat().st_size < 100_000
    monkeypatch.setattr(files, "available_memory", lambda: 1 << 24)
    line = one_line("datasets", str(tmp_path / "bomb.npz"))
    assert "bomb.npz, unpacked, needs 61.0 MiB of memory, 16.0 MiB are free" in line


def test_a_header_that_asks_for_terabytes(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.zeros((2, 3), np.int64))
    content = (tmp_path / "edges.npy").read_bytes().replace(b"(2, 3)", b"(2, 9999999999999)"[:18])
    (tmp_path / "edges.npy").write_bytes(content)
    assert "edges.npy is not a readable .npy file" in one_line("datasets", str(tmp_path))


# ---------------------------------------------------------------- full disks


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """As on a full disk, the system itself refuses to write more than this to a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("size", [0, 100, 1000, 2500, 5000, 12_000])
def test_a_disk_that_is_full_at_any_file(made: Path, tmp_path: Path, size: int) -> None:
    out = tmp_path / "run"
    words = ("train", "--config", str(made / "settings.toml"), "--out", str(out), "--device", "cpu")
    with no_file_larger_than(size):
        line = one_line(*words, "--baselines", "none", "--set", "training.checkpoint_every=1")
    assert "cannot write" in line
    assert "File too large" in line or "os error 27" in line
    assert not [name for name in snapshot(tmp_path) if name.endswith(".tmp")]
    if (out / "config.toml").is_file():
        again = vcr.resume(out, "cpu", baselines="none")
        expected = Run.open(made / "run", "cpu").predict([0]).probabilities
        assert again.predict([0]).probabilities.shape == expected.shape


def test_a_full_disk_at_every_single_write(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The k-th file that is written does not fit, for every k. The run is continued each time and ends like another."""
    out, real, count = tmp_path / "run", os.fsync, 0

    def fail_at(k: int) -> Any:
        def fsync(descriptor: int) -> None:
            nonlocal count
            count += 1
            if count == k:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(descriptor)

        return fsync

    settings = ("--config", str(made / "settings.toml"), "--set", "training.checkpoint_every=1")
    begin = ("train", *settings, "--out", str(out), "--device", "cpu", "--baselines", "none")
    for k in range(1, 200):
        count = 0
        monkeypatch.setattr(os, "fsync", fail_at(k))
        started = (out / "config.toml").is_file()
        words = ("train", "--resume", str(out), "--device", "cpu") if started else (*begin, "--force")
        try:
            text = run(*words, code=2)
        except AssertionError:
            break  # it came through: fewer than k files are left to write
        assert "No space left on device" in text
        assert "Traceback" not in text
    monkeypatch.setattr(os, "fsync", real)
    assert k > 5
    assert "every file is as it was written" in run("verify", str(out))
    expected, found = snapshot(made / "run"), snapshot(out)
    for name in ("model.safetensors", "predictions.npz", "split.npz"):
        assert found[name] == expected[name], name


def test_a_full_disk_while_saving_keeps_what_was_there(tmp_path: Path) -> None:
    saved = vcr.generate(100, 300, seed=0).save(tmp_path / "graph")
    before = snapshot(saved)
    with no_file_larger_than(300), pytest.raises(vcr.StoreError, match="cannot write"):
        vcr.generate(100, 300, seed=1).save(saved, overwrite=True)
    assert snapshot(saved) == before
    assert [path.name for path in tmp_path.iterdir()] == ["graph"]


# ---------------------------------------------------------------- signals and bugs


def test_sigterm_inside_metis_is_one_line(tmp_path: Path) -> None:
    script = (
        "import importlib, pymetis, vcr_graphormer as vcr\n"
        "main = importlib.import_module('vcr_graphormer.cli.main')\n"
        "graph = vcr.generate(30_000, 600_000, features=4, seed=0)\n"
        "part_graph = pymetis.part_graph\n"
        "def entered(*arguments, **keywords):\n"
        "    print('inside', flush=True)\n"
        "    return part_graph(*arguments, **keywords)\n"
        "pymetis.part_graph = entered\n"
        "main.app = lambda **_: vcr.structure_connections(graph, 2000)\n"
        "main.main()\n"
    )
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", script], **pipes)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    time.sleep(0.3)  # METIS has begun by then; it takes seconds
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors.count("\n")) == (143, 1), errors
    assert "error: stopped by SIGTERM" in errors


def test_sigterm_is_left_as_it_was() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    run("datasets")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert threading.active_count() < 20


def test_metis_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import pymetis

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("Caught an unknown exception!")

    monkeypatch.setattr(pymetis, "part_graph", fail)
    with pytest.raises(vcr.GraphError, match="METIS was ended by a signal .* the same command continues"):
        vcr.structure_connections(vcr.generate(100, 300, seed=0), 5)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (RuntimeError("boom\nin two lines"), 70, "this is a bug: RuntimeError: boom in two lines; please report it"),
        (KeyError("x" * 10_000), 70, "this is a bug: KeyError: 'xxx"),
        (MemoryError(), 2, "there is not enough memory"),
        (FileNotFoundError(2, "No such file or directory", "gone.npy"), 2, "gone.npy: No such file or directory"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "a file: No space left on device"),
    ],
)
def test_the_last_guard(error: Exception, code: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise error

    monkeypatch.setattr(main_module, "app", fail)
    text = run("datasets", code=code)
    assert text.count("\n") == 1
    assert message in text
    if code == 70:
        file = Path(text.rpartition(" ")[2].strip())
        assert "Traceback (most recent call last)" in file.read_text()
        assert len(text) < 600
        file.unlink()


COMMAND = (sys.executable, "-m", "vcr_graphormer")


def closed(*numbers: int) -> Callable[[], None]:
    """What closes standard streams before the command begins."""

    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


@pytest.mark.parametrize("numbers", [(1,), (2,), (0, 1, 2)])
def test_closed_streams_stop_no_work(made: Path, tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """Nor does a file that is written get their number, and with it what was to be printed."""
    out = tmp_path / "predictions.csv"
    arguments = ("predict", str(made / "run"), "--device", "cpu", "--out", str(out))
    done = subprocess.run([*COMMAND, *arguments], preexec_fn=closed(*numbers), timeout=120, check=False)
    assert done.returncode == 0
    lines = out.read_text().splitlines()
    assert len(lines) == 121
    assert all(line.count(",") == lines[0].count(",") for line in lines)


def test_a_reader_that_went_away_stops_no_work(made: Path, tmp_path: Path) -> None:
    out, (reader, writer) = tmp_path / "run", os.pipe()
    os.close(reader)
    arguments = ("train", "--config", str(made / "settings.toml"), "--out", str(out), "--device", "cpu")
    done = subprocess.run([*COMMAND, *arguments], stdout=writer, stderr=writer, timeout=120, check=False)
    os.close(writer)
    assert done.returncode == 0
    assert Run.open(out).metrics["test"] >= 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_what_is_printed_to_a_full_disk_is_an_error(made: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        printed = subprocess.run(
            [*COMMAND, "settings"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
        assert (printed.returncode, printed.stderr) == (2, "error: standard output: No space left on device\n")
        out = tmp_path / "predictions.csv"
        arguments = ("predict", str(made / "run"), "--device", "cpu", "--out", str(out))
        assert subprocess.run([*COMMAND, *arguments], stderr=full, timeout=120, check=False).returncode == 0
    assert len(out.read_text().splitlines()) == 121


def test_a_bug_without_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("boom")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(main_module, "app", fail)
    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    text = run("datasets", code=70)
    assert "please report it with the traceback above" in text
    assert "RuntimeError: boom" in text


def test_free_memory_is_known() -> None:
    assert machine.available_memory() > 0


def test_threads_wait_passively_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, expected in (
        ({}, {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}),
        ({"GOMP_SPINCOUNT": "9"}, {"GOMP_SPINCOUNT": "9"}),
    ):
        monkeypatch.setattr(os, "environ", dict(given))
        main_module.wait_passively()
        assert os.environ == expected
