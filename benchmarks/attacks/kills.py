"""Kill commands by SIGKILL at random times, run them again, and count what is lost."""

from __future__ import annotations

import json
import random
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.attacks.jobs import (
    JOBS,
    Job,
    fresh,
    kill,
    log_of,
    lost_bytes,
    run,
    snapshot,
    start,
    start_process,
    wait,
)

MOST_LISTED = 50  # failures in the result file
COUNTED = ("kills that hit", "too late", "lost bytes", "tracebacks", "hangs", "crashes", "not continued")


@dataclass
class Losses:
    """What kills have cost, by kind of job.

    Attributes
    ----------
    counts : dict
        By job: kills that hit a running process, kills that came too late, and what went wrong.
    bad : list of dict
        Each kill that was not survived.
    """

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    bad: list[dict[str, Any]] = field(default_factory=list)

    def add(self, job: str, what: str, number: int = 1) -> None:
        """Count something about a job."""
        self.counts.setdefault(job, Counter(dict.fromkeys(COUNTED, 0)))[what] += number

    def result(self) -> dict[str, Any]:
        """Return the counts by job, and the first kills that were not survived."""
        counts = {name: dict(counter) for name, counter in self.counts.items()}
        return {"counts": counts, "not survived": self.bad[:MOST_LISTED]}

    def judge(self, job: str, status: int | None, text: str, *, allowed: tuple[int, ...] = (0,)) -> None:
        """Count how a command ended that was not killed."""
        what = ""
        if status is None:
            what = "hangs"
        elif "Traceback" in text or "this is a bug" in text or status == 70:
            what = "tracebacks"
        elif status < 0:
            what = "crashes"
        elif status not in allowed:
            what = "not continued"
        if what:
            self.add(job, what)
            self.bad.append({"job": job, what: status, "text": text[-600:]})


def kill_jobs(made: Path, losses: Losses, kills: int, *, end: float, seed: int = 0, names: Any = tuple(JOBS)) -> None:
    """Kill each command at random times, in proportion to its share, until there are so many hits."""
    whole, seconds = {}, {}
    for name in names:
        whole[name], seconds[name] = _uninterrupted(made, JOBS[name], name, losses)
    shares = sum(JOBS[name].kills for name in names)
    wanted = {name: max(1, round(kills * JOBS[name].kills / shares)) for name in names}
    dice, attempt = random.Random(seed), 0
    while wanted and time.monotonic() < end:
        attempt += 1
        name = dice.choice(list(wanted))
        hit = kill_once(made, JOBS[name], whole[name], losses, name=name, moment=dice.uniform(0, seconds[name]))
        wanted[name] -= hit or attempt > 10 * kills
        wanted = {one: count for one, count in wanted.items() if count > 0}


def _uninterrupted(made: Path, job: Job, name: str, losses: Losses) -> tuple[Path, float]:
    """Run a job to its end; return its folder and the seconds of a second run, which has nothing to compile."""
    folder = made.with_name(f"whole {name}")
    for _ in range(2):
        fresh(made, folder)
        begin = time.monotonic()
        losses.judge(name, *run(job.words, folder, apart=job.apart))
    return folder, time.monotonic() - begin


def kill_once(made: Path, job: Job, whole: Path, losses: Losses, *, name: str, moment: float) -> bool:
    """Kill a job at a moment, look at what is there, and run it again; return whether it still ran then."""
    folder = fresh(made, made.with_name("killed"))
    before = snapshot(folder, without=job.out)
    process = start(job.words, folder, apart=job.apart)
    hit = wait(process, moment) is None
    if hit:
        kill(process)
    losses.add(name, "kills that hit" if hit else "too late")
    losses.add(name, "lost bytes", lost_bytes(before, snapshot(folder, without=job.out)))
    out = folder / job.out
    if out.is_file() and job.check(folder, whole):  # it is there, so it must be whole
        losses.add(name, "lost bytes", out.stat().st_size)
        losses.bad.append({"job": name, "moment": moment, "wrong": job.check(folder, whole)})
    words = job.words if job.again is None else job.again(folder)
    if out.is_file():
        out.unlink()  # these commands never replace a file
    elif name == "datasets" and out.is_dir():
        shutil.rmtree(out)
    losses.judge(name, *run(words, folder, apart=job.apart))
    losses.add(name, "lost bytes", lost_bytes(before, snapshot(folder, without=job.out)))
    try:
        wrong = job.check(folder, whole)
    except Exception as error:  # a file that cannot be read is lost
        wrong = [f"{type(error).__name__}: {error}"]
    if wrong:
        losses.add(name, "lost bytes", max(1, sum(map(len, snapshot(folder / job.out).values()))))
        losses.bad.append({"job": name, "moment": moment, "wrong": wrong[:5]})
    return hit


# ---------------------------------------------------------------- the server


def kill_servers(made: Path, losses: Losses, kills: int, *, end: float) -> None:
    """Kill a server while it keeps nodes; all nodes that it has acknowledged must be there afterwards."""
    folder, kept, dice = fresh(made, made.with_name("served")), list[str](), random.Random(1)
    for number in range(kills):
        if time.monotonic() > end:
            break
        port, process = _serve(folder)
        moment = time.monotonic() + dice.uniform(0, 0.5)
        while time.monotonic() < moment:
            name = f"k{number}-{len(kept)}"
            status, answer = post(port, _new_node(name))
            if status == 200:
                kept.append(name)
            else:
                losses.judge("serve", 70, f"status {status}: {answer!r}")
                break
        losses.add("serve", "kills that hit" if wait(process, 0) is None else "crashes")
        kill(process)
    port, process = _serve(folder)
    for name in kept:
        status, _ = post(port, {"nodes": [name]})
        if status != 200:
            losses.add("serve", "lost bytes", len(json.dumps(_new_node(name)["graph"])))
            losses.bad.append({"job": "serve", "lost": name, "status": status})
    kill(process)
    losses.counts.setdefault("serve", Counter())["kept nodes"] = len(kept)


def _serve(folder: Path) -> tuple[int, int]:
    """Start a server on a free port and wait until it answers; return port and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    process = start(("serve", "run", "--port", str(port), "--journal", "kept.jsonl"), folder)
    for _ in range(6000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return port, process
        if (status := wait(process, 0)) is not None:
            text = log_of(folder).read_text(errors="replace")
            raise RuntimeError(f"the server ended with {status}: {text[-300:]}")
        time.sleep(0.01)
    raise RuntimeError("the server does not listen")


def _new_node(name: str) -> dict[str, Any]:
    node = {"id": name, "features": [0.5, 1.0, -1.0, 0.25, 2.0]}
    return {"graph": {"nodes": [node], "edges": [{"source": name, "target": "n5"}]}, "keep": True}


def post(port: int, content: dict[str, Any]) -> tuple[int, bytes]:
    """Ask a server for predictions; return status and body of its answer."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", json.dumps(content).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


# ---------------------------------------------------------------- several processes


def kill_torchrun(made: Path, losses: Losses, kills: int, *, end: float) -> None:
    """Kill two processes that train together, by torchrun, and resume them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    command += ["vcr_graphormer"]
    job, dice = JOBS["train"], random.Random(2)
    whole = fresh(made, made.with_name("whole torchrun"))
    begin = time.monotonic()
    losses.judge("torchrun", *_finish(start_process([*command, *job.words], whole), whole))
    seconds = time.monotonic() - begin
    hits = attempts = 0
    while hits < kills and attempts < 2 * kills and time.monotonic() < end:
        folder, attempts = fresh(made, made.with_name("killed")), attempts + 1
        before = snapshot(folder, without=job.out)
        process = start_process([*command, *job.words], folder)
        hit = wait(process, dice.uniform(0.3, 1) * seconds) is None
        if hit:
            kill(process)
        hits += hit
        losses.add("torchrun", "kills that hit" if hit else "too late")
        assert job.again is not None
        losses.judge("torchrun", *_finish(start_process([*command, *job.again(folder)], folder), folder))
        _compare("torchrun", job, folder, whole, before, losses)


def kill_dask(made: Path, losses: Losses, kills: int, *, end: float) -> None:
    """Kill a tokenization that dask's workers do, and now and then a worker, and do it again."""
    job, dice = JOBS["tokenize"], random.Random(3)
    home = made.with_name("dask")
    home.mkdir()
    file = home / "scheduler.json"
    where = ("--host", "127.0.0.1", "--no-dashboard")
    options = ("--nthreads", "1", "--memory-limit", "0", "--no-nanny", "--local-directory", str(home))

    def dask(command: str, *arguments: str) -> int:
        return start_process([sys.executable, "-m", f"distributed.cli.dask_{command}", *arguments, *where], home)

    scheduler = dask("scheduler", "--port", "0", "--scheduler-file", str(file), "--no-show")
    while not (file.is_file() and file.read_text().strip()):
        time.sleep(0.05)
    address = str(json.loads(file.read_text())["address"])
    workers = [dask("worker", address, *options) for _ in range(2)]
    try:
        words = (*job.words, "--scheduler", address)
        whole = fresh(made, made.with_name("whole dask"))
        begin = time.monotonic()
        losses.judge("dask", *run(words, whole, apart=True))
        seconds = time.monotonic() - begin
        hits = attempts = 0
        while hits < kills and attempts < 2 * kills and time.monotonic() < end:
            folder, attempts = fresh(made, made.with_name("killed")), attempts + 1
            before = snapshot(folder, without=job.out)
            process = start(words, folder, apart=True)
            hit = wait(process, dice.uniform(0.3, 1) * seconds) is None
            if attempts % 3 == 0:  # a worker dies: the job goes on with the other, or ends in one line
                kill(workers.pop())
                status = wait(process) if hit else 0
                losses.judge("dask", status, log_of(folder).read_text(), allowed=(0, 2))
                workers.append(dask("worker", address, *options))
            elif hit:
                kill(process)
            hits += hit
            losses.add("dask", "kills that hit" if hit else "too late")
            losses.judge("dask", *run(words, folder, apart=True))
            _compare("dask", job, folder, whole, before, losses)
    finally:
        for process in (*workers, scheduler):
            kill(process)


def _finish(process: int, folder: Path) -> tuple[int | None, str]:
    status = wait(process)
    if status is None:
        kill(process)
    return status, log_of(folder).read_text(errors="replace")


def _compare(name: str, job: Job, folder: Path, whole: Path, before: dict[str, bytes], losses: Losses) -> None:
    lost = lost_bytes(before, snapshot(folder, without=job.out))
    wrong = job.check(folder, whole)
    losses.add(name, "lost bytes", lost + len(wrong))
    if lost or wrong:
        losses.bad.append({"job": name, "wrong": wrong[:5], "lost": lost})
