"""Run whole commands on files of which one is damaged: each ends well, or in one line with exit code 2.

The other part that damages files, `fuzzing`, calls single readers and is a thousand times as fast. What only shows when
a damaged value has travelled through a whole command is found here.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vcr_graphormer as vcr
from benchmarks.attacks.damage import Copy, damage
from benchmarks.attacks.fuzzing import MOST_MEMORY, OUTCOMES, Findings
from benchmarks.attacks.jobs import HERE, fresh, kill, log_of, run, start, wait
from benchmarks.attacks.kills import post
from benchmarks.attacks.samples import CONFIG, graph, split, train_on_tables
from benchmarks.attacks.served import NEW
from vcr_graphormer.runs.tuning import ABOUT_FILE, TRIALS_FILE

FAILED = 2  # the exit code of a refusal
_TUNE = ("--device", "cpu", "--config", "settings.toml", "--trials", "2", "--recipes", "hops")
_SERVE = ("serve", "run", "--journal", "kept.jsonl", "--port")


@dataclass(frozen=True)
class Command:
    """A command, the files and folders below which one file is damaged, and how many cases it gets."""

    words: tuple[str, ...]
    reads: tuple[str, ...] = ("run",)
    share: float = 10


COMMANDS: dict[str, Command] = {
    "evaluate": Command(("evaluate", "run", *HERE)),
    "evaluate --json": Command(("evaluate", "run", "--json", *HERE)),
    "evaluate, tables": Command(("evaluate", "tables/run", *HERE), ("tables/run",)),
    "predict": Command(("predict", "run", "--out", "p.csv", *HERE)),
    "predict --nodes": Command(("predict", "run", "--nodes", "@nodes.txt", *HERE), ("run", "nodes.txt")),
    "predict --dataset": Command(
        ("predict", "run", "--dataset", "grown", "--out", "p.parquet", *HERE), ("run", "grown")
    ),
    "predict, tables": Command(("predict", "tables/run", "--dataset", "tables/later", "--all", *HERE), ("tables",)),
    "predict, pretrained": Command(("predict", "pretrained", "--dataset", "grown", *HERE), ("pretrained", "grown")),
    "embed": Command(("embed", "run", "--out", "e.parquet", *HERE)),
    "explain": Command(("explain", "run", "--json", *HERE)),
    "explain --node": Command(("explain", "run", "--node", "n3", "--html", "e.html", *HERE)),
    "report": Command(("report", "run", "--out", "r.html", *HERE), share=20),
    "report, search": Command(("report", "found", "--out", "r.html", *HERE), ("found",)),
    "export": Command(("export", "run", "--out", "model.onnx"), share=4),
    "export, torch": Command(("export", "run", "--out", "model.pt2"), share=4),
    "runs": Command(("runs", "."), ("run", "half", "found", "search")),
    "runs --json": Command(("runs", ".", "--json"), ("run", "half", "found", "search")),
    "verify": Command(("verify", "run")),
    "verify, tokens": Command(("verify", "tokens"), ("tokens",), share=4),
    "verify, graph": Command(("verify", "graph"), ("graph",), share=4),
    "verify, search": Command(("verify", "found"), ("found",), share=4),
    "update": Command(
        ("update", "run", "--dataset", "grown", "--out", "later", "--threads", "1"), ("run", "grown"), share=20
    ),
    "update, tokens": Command(
        ("update", "tokens", "--dataset", "grown", "--before", "graph", "--out", "later", "--threads", "1"),
        ("tokens", "grown", "graph"),
    ),
    "tokenize": Command(
        ("tokenize", "--config", "settings.toml", "--threads", "1", "--out", "new"), ("graph", "settings.toml")
    ),
    "tokenize, continued": Command(
        ("tokenize", "--config", "settings.toml", "--threads", "1", "--out", "parts"), ("parts",)
    ),
    "tokenize, finished": Command(
        ("tokenize", "--config", "settings.toml", "--threads", "1", "--out", "tokens"), ("tokens",)
    ),
    "train": Command(
        ("train", "--config", "settings.toml", "--threads", "1", "--out", "new", *HERE), ("graph", "settings.toml")
    ),
    "train --resume": Command(("train", "--resume", "half", *HERE, "--baselines", "none"), ("half",), share=20),
    "train, tables": Command(("train", "--config", "tables/run.toml", "--out", "new", *HERE), ("tables",), share=4),
    "tune, trials": Command(("tune", *_TUNE, "--out", "search"), ("search",), share=20),
    "tune, finished": Command(("tune", *_TUNE, "--out", "found"), ("found",)),
    "datasets": Command(("datasets", "graph", "--save", "saved"), ("graph",)),
    "datasets, tables": Command(("datasets", "--config", "tables/run.toml"), ("tables",)),
    "serve": Command(_SERVE, ("run",)),
    "serve, kept nodes": Command(_SERVE, ("kept.jsonl",), share=4),
}


class _StopError(Exception):
    """Ends a tokenization in the middle."""


def make_more(made: Path, folder: Path) -> None:
    """Write what the commands read: a copy of the workspace, token lists, searches, a run of tables, kept nodes."""
    fresh(made, folder)
    named = graph(named=True)
    vcr.tokenize(named, split().train, CONFIG.tokens, folder / "tokens", threads=1, progress=False)

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "hops":
            raise _StopError

    with suppress(_StopError):
        vcr.tokenize(named, split().train, CONFIG.tokens, folder / "parts", threads=1, progress=stop)
    status, text = run(("tune", *_TUNE, "--out", "found"), folder)
    assert status == 0, text
    (folder / "search").mkdir()
    for name in (ABOUT_FILE, TRIALS_FILE):
        shutil.copy(folder / "found" / name, folder / "search")
    (folder / "tables").mkdir()
    train_on_tables(folder / "tables")
    vcr.Run.open(folder / "run", "cpu").save_pretrained(folder / "pretrained", with_graph=True)
    (folder / "nodes.txt").write_text("n1\nn2\nid:3\n")
    fingerprint = json.loads((folder / "run" / "run.json").read_text())["fingerprint"]
    lines = [{"format": 1, "graph": fingerprint}, NEW]
    (folder / "kept.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def attack_commands(made: Path, findings: Findings, cases: range, *, end: float) -> None:
    """Damage one file for each case, run a command, and count how it ends; sound files first, which must work."""
    folder = made.with_name("commands")
    make_more(made, folder)
    copy = Copy(folder)
    for place, name in enumerate(findings.names):
        _try(folder, findings, {"attacked": name, "way": "none"}, place, allowed=(0,))
        copy.restore_folders()
    for case in cases:
        if time.monotonic() > end:
            break
        attack_once(folder, copy, findings, case)


def attack_once(folder: Path, copy: Copy, findings: Findings, case: int) -> None:
    """Run the case of this number and bring the files back."""
    dice = random.Random(case)
    [place] = dice.choices(range(len(findings.names)), [COMMANDS[name].share for name in findings.names])
    name = findings.names[place]
    roots = [folder / root for root in COMMANDS[name].reads]
    files = sorted(file for file in copy.contents if any(file.is_relative_to(root) for root in roots))
    file = dice.choice(files)
    way = damage(file, dice, folder / "ran")
    about = {"case": case, "attacked": name, "file": file.relative_to(folder).as_posix(), "way": way}
    _try(folder, findings, about, place)
    copy.restore_folders()


def _try(
    folder: Path, findings: Findings, about: dict[str, Any], place: int, *, allowed: Sequence[int] = (0, FAILED)
) -> None:
    """Run a command and count its outcome."""
    name = about["attacked"]
    words = COMMANDS[name].words
    status, text = _serve(words, folder) if words[0] == "serve" else run(words, folder, prepare=_limit)
    outcome = judge(status, text, allowed=allowed)
    if (folder / "ran").exists():
        outcome = "payload ran"
    findings.counts[place, OUTCOMES.index(outcome)] += 1
    if outcome not in ("fine", "refused"):
        findings.bad.append({**about, outcome: status, "text": text[-600:]})


def judge(status: int | None, text: str, *, allowed: Sequence[int] = (0, FAILED)) -> str:
    """Return the outcome of a command by its exit status, None for a hang, and by what it printed."""
    if status is None:
        return "hang"
    if status < 0:
        return "crash"
    errors = "error: " in text  # `verify` has a line for each file
    if status not in allowed or "Traceback" in text or "this is a bug" in text:
        return "traceback"
    if status == FAILED and not errors:
        return "traceback"
    return "refused" if status == FAILED else "fine"


def _limit() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY,) * 2)


def _serve(words: tuple[str, ...], folder: Path) -> tuple[int | None, str]:
    """Start a server; if it listens, ask for a known and for a new node. An answer of 5xx counts as status 70."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = start((*words, str(port)), folder, prepare=_limit)
    status: int | None = None
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                answers = [post(port, body) for body in ({"nodes": ["n3"]}, {"graph": NEW, "targets": ["x0", "n3"]})]
                kill(process)
                return (70, f"{answers}") if max(answers)[0] >= 500 else (0, "")
        if (status := wait(process, 0)) is not None:
            return status, log_of(folder).read_text(errors="replace")
        time.sleep(0.01)
    kill(process)
    return None, log_of(folder).read_text(errors="replace")
