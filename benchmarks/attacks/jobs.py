"""The commands that are killed or run on a full disk: what lies there before, and what must be there at the end.

A command runs in a forked child of a process that has imported everything: it starts at once, so that nearly all of its
time is work. Some run as processes of their own too.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr
from benchmarks.attacks.samples import CONFIG, graph, interrupted, split
from vcr_graphormer.runs.config import to_toml

# Files that tell when and how long, not what.
VOLATILE = (
    "stages.json",
    "metrics.json",
    "checksums.json",
    "history.jsonl",
    "run.json",
    "config.toml",
    "baselines.json",
)
SECONDS_TO_HANG = 180
HERE = ("--device", "cpu")
Check = Callable[[Path, Path], list[str]]


@dataclass(frozen=True)
class Job:
    """A command, in a folder that holds `graph`, `run`, `half`, `grown` and `settings.toml`.

    Attributes
    ----------
    words : tuple of str
        The command.
    out : str
        The file or folder that it writes; everything else must stay as it is.
    again : callable
        The command that finishes the work after a kill, by the state of the folder; default: the same.
    check : callable
        Gets the folder and that of an uninterrupted job; returns what is wrong in the end, in sentences.
    apart : bool
        Whether it runs as a process of its own, imports included.
    kills : int
        How many kills it gets, relative to the others.
    """

    words: tuple[str, ...]
    out: str
    again: Callable[[Path], Sequence[str]] | None = None
    check: Check = lambda folder, whole: []
    apart: bool = False
    kills: int = 10


def make_workspace(folder: Path) -> None:
    """Write what the commands read: a graph, the same a night later, a run, and one that was interrupted."""
    folder.mkdir(parents=True)
    named = graph(named=True)
    named.save(folder / "graph")
    grown = named.extend(["x0", "x1"], features=np.ones((2, 5)), edges=(["x0", "x1", "x0"], ["n5", "n7", "n9"]))
    grown.save(folder / "grown")
    config = replace(CONFIG, data=replace(CONFIG.data, dataset="graph"))
    (folder / "settings.toml").write_text(to_toml(config))
    how: dict[str, Any] = {"device": "cpu", "threads": 1, "baselines": "none"}
    vcr.train(named, split(), config, folder / "run", **how)
    interrupted(folder / "half", config, named)


def snapshot(folder: Path, without: str = "") -> dict[str, bytes]:
    """Return the content of every file, but for those below one name and temporary ones."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    names = {file.relative_to(folder).as_posix(): file for file in files}
    return {
        name: file.read_bytes()
        for name, file in names.items()
        if not (without and (name == without or name.startswith(f"{without}/"))) and ".tmp" not in name
    }


def lost_bytes(before: dict[str, bytes], after: dict[str, bytes]) -> int:
    """Return the bytes of files that are gone or have another content."""
    return sum(max(1, len(content)) for name, content in before.items() if after.get(name) != content)


# ---------------------------------------------------------------- how to run them


def log_of(folder: Path) -> Path:
    """Return the file for what commands print: not beside the folder, whose disk may be full."""
    return _logs() / f"{folder.name}.log"


@cache
def _logs() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="robustness-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def start(words: Sequence[str], folder: Path, *, apart: bool = False, prepare: Callable[[], None] | None = None) -> int:
    """Start the command in a folder, in a group of processes of its own; return its process id.

    What it prints goes to the file `log_of(folder)`.
    """
    log = log_of(folder)
    if apart:
        command = [sys.executable, "-m", "vcr_graphormer", *words]
        return start_process(command, folder)
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.chdir(folder)
        if prepare is not None:
            prepare()
        sys.argv = ["vcr-graphormer", *words]
        from vcr_graphormer.cli.main import main

        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        status = 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return 0


def start_process(command: Sequence[str], folder: Path) -> int:
    """Start any command in a folder, as `start` does."""
    source = str(Path(vcr.__file__).parent.parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    with log_of(folder).open("w") as log:
        options: dict[str, Any] = {"stdout": log, "stderr": log, "cwd": folder, "env": environment}
        return subprocess.Popen(command, start_new_session=True, **options).pid


def wait(process: int, seconds: float = SECONDS_TO_HANG) -> int | None:
    """Return the exit status of a child, negative for a signal; None if it still runs after some seconds."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.002)


def kill(process: int) -> None:
    """Kill a child and all that it started, also what has a session of its own, as the processes of torchrun have."""
    below = _descendants(process)
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:  # it has not made its group yet
        os.kill(process, signal.SIGKILL)
    for one in below:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    os.waitpid(process, 0)


def _descendants(process: int) -> list[int]:
    """Return the processes that a process started, and those that these started, as far as /proc tells."""
    parents: dict[int, int] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = file.read_text(errors="replace").rpartition(")")[2].split()  # the name before it may hold anything
            parents[int(file.parent.name)] = int(fields[1])
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def run(words: Sequence[str], folder: Path, *, apart: bool = False, prepare: Any = None) -> tuple[int | None, str]:
    """Run a command to its end; return exit status (None for a hang) and all that it printed."""
    process = start(words, folder, apart=apart, prepare=prepare)
    status = wait(process)
    if status is None:
        kill(process)
    return status, log_of(folder).read_text(errors="replace")


# ---------------------------------------------------------------- the commands


def _equal(*names: str) -> Check:
    """Compare files with those of an uninterrupted job; of a folder, all that do not tell the time."""

    def check(folder: Path, whole: Path) -> list[str]:
        wrong = []
        for name in names:
            found, expected = snapshot(folder / name), snapshot(whole / name)
            if (folder / name).is_file():
                found, expected = {"": (folder / name).read_bytes()}, {"": (whole / name).read_bytes()}
            parts = (part for part in found.keys() | expected.keys() if part.rpartition("/")[2] not in VOLATILE)
            differ = (part for part in parts if found.get(part) != expected.get(part))
            wrong += [f"{name}/{part} is not as without the kill" for part in differ]
        return wrong

    return check


def _ends_with(name: str, ending: bytes) -> Check:
    def check(folder: Path, whole: Path) -> list[str]:
        file = folder / name
        return [] if file.is_file() and file.read_bytes().rstrip().endswith(ending) else [f"{name} is not whole"]

    return check


def _same_trials(folder: Path, whole: Path) -> list[str]:
    from vcr_graphormer.runs.tuning import Tuning

    found, expected = (
        [(entry.number, entry.recipe, entry.score) for entry in Tuning.open(path / "found").entries]
        for path in (folder, whole)
    )
    return [] if found == expected else [f"the trials are {found}, without a kill {expected}"]


def _continue(out: str, begin: Sequence[str]) -> Callable[[Path], Sequence[str]]:
    """Resume a training that has begun; else begin it again."""

    def words(folder: Path) -> Sequence[str]:
        begun = (folder / out / "config.toml").is_file()
        return ("train", "--resume", out, *HERE, "--baselines", "none") if begun else (*begin, "--force")

    return words


_FAST = ("--config", "settings.toml", "--threads", "1")
_TRAIN = ("train", *_FAST, *HERE, "--baselines", "none", "--out")
_RESUME = ("train", "--resume", "half", *HERE, "--baselines", "none")
_TUNE = ("tune", "--config", "settings.toml", *HERE, "--out", "found", "--trials", "2", "--recipes", "hops")

JOBS: dict[str, Job] = {
    "train": Job((*_TRAIN, "new"), "new", _continue("new", (*_TRAIN, "new")), _equal("new"), kills=30),
    "train, its own process": Job(
        (*_TRAIN, "new"), "new", _continue("new", (*_TRAIN, "new")), _equal("new"), apart=True, kills=3
    ),
    "resume": Job(_RESUME, "half", check=_equal("half"), kills=20),
    "train --force": Job((*_TRAIN, "run", "--force"), "run", check=_equal("run"), kills=15),
    "tokenize": Job(("tokenize", *_FAST, "--out", "tokens"), "tokens", check=_equal("tokens"), kills=20),
    "tune": Job(_TUNE, "found", check=_same_trials, kills=6),
    "update": Job(
        ("update", "run", "--dataset", "grown", "--out", "later", "--threads", "1"),
        "later",
        check=_equal("later"),
        kills=15,
    ),
    "predict": Job(("predict", "run", "--out", "p.csv", *HERE), "p.csv", check=_equal("p.csv")),
    "embed": Job(("embed", "run", "--out", "e.parquet", *HERE), "e.parquet", check=_equal("e.parquet")),
    "explain": Job(
        ("explain", "run", "--node", "n3", "--html", "e.html", *HERE), "e.html", check=_ends_with("e.html", b"</html>")
    ),
    "report": Job(("report", "run", "--out", "r.html", *HERE), "r.html", check=_ends_with("r.html", b"</html>")),
    "evaluate": Job(("evaluate", "run", *HERE), "nothing"),
    "datasets": Job(("datasets", "graph", "--save", "saved"), "saved", check=_equal("saved")),
    "export": Job(
        ("export", "run", "--out", "model.onnx"), "model.onnx", check=_equal("model.onnx", "model.onnx.json"), kills=2
    ),
}


def fresh(made: Path, folder: Path) -> Path:
    """Make the folder anew, with what the commands read."""
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(made, folder))
