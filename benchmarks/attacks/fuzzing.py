"""Run many damaged files through the readers, by batches in forked processes that cost no imports and no compiling.

The parent imports, compiles and writes the samples once. Each child runs a batch of cases. It notes the case it is at
in memory that it shares with the parent, so that a crash or a hang is known by its case.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import random
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vcr_graphormer as vcr
from benchmarks.attacks.damage import Copy, damage, payloads
from benchmarks.attacks.samples import SAMPLES, Sample
from benchmarks.attacks.served import SERVED

ALL: dict[str, Sample] = {**SAMPLES, **SERVED}
OUTCOMES = ("fine", "refused", "traceback", "payload ran", "crash", "hang")
BATCH = 500  # cases of one child
SECONDS_TO_HANG = 60  # for one case, which takes milliseconds
MOST_LISTED = 50  # failures in the result file
MOST_MEMORY = 8 << 30  # address space that a child may add; a file that asks for more gets a MemoryError


def write_samples(folder: Path, names: Iterable[str] = tuple(ALL)) -> None:
    """Write every sample and use it once, sound as it is: this compiles all loops."""
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in names:
        (folder / name).mkdir(parents=True)
        ALL[name].write(folder / name)
        before = Copy(folder / name)
        if name != "requests":  # its server has a thread, which a fork would lose
            ALL[name].use(folder / name)
        if ALL[name].changes:
            before.restore_folders()


@dataclass
class Findings:
    """What a campaign of cases found.

    Attributes
    ----------
    counts : array
        How often each sample (row) had each outcome (column), in memory that children share.
    bad : list of dict
        Each case that was not survived: its seed, sample, way of damage and error.
    """

    names: tuple[str, ...] = tuple(ALL)
    counts: Any = field(init=False)
    now: Any = field(init=False)
    bad: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = (len(self.names) + 1) * len(OUTCOMES)
        shared = np.frombuffer(mmap.mmap(-1, 8 * (size + 3)), np.float64)
        self.counts = shared[: size - len(OUTCOMES)].reshape(len(self.names), len(OUTCOMES))
        self.now = shared[size:]  # case, sample, time it began

    def result(self) -> dict[str, Any]:
        """Return the counts by sample and outcome, and the first cases that were not survived."""
        rows = zip(self.names, self.counts.tolist(), strict=True)
        counts = {name: dict(zip(OUTCOMES, map(int, row), strict=True)) for name, row in rows}
        return {"counts": counts, "not survived": self.bad[:MOST_LISTED]}


def fuzz(folder: Path, findings: Findings, cases: range, *, end: float) -> None:
    """Run cases until all are done or the time is over."""
    log = folder / "bad.jsonl"
    first = cases.start
    while first < cases.stop and time.monotonic() < end:
        stop = min(first + BATCH, cases.stop)
        status = _in_a_child(
            lambda start=first, stop=stop: _run_cases(folder, findings, range(start, stop), log),
            findings,
            folder / "stderr.txt",
        )
        case, sample = int(findings.now[0]), int(findings.now[1])
        if status == 0:
            first = stop
            continue
        outcome = "hang" if status == -signal.SIGALRM else "crash"
        findings.counts[sample, OUTCOMES.index(outcome)] += 1
        entry = {"case": case, "sample": findings.names[sample], outcome: status}
        with log.open("a") as handle:
            handle.write(json.dumps(entry) + "\n")
        for name in findings.names:  # the child had no time to tidy up
            _restore(folder, name)
        first = case + 1
    if log.is_file():
        findings.bad += [json.loads(line) for line in log.read_text().splitlines()]
        log.unlink()


def attack_by_programs(folder: Path, findings: Findings) -> int:
    """Put every payload into every file of every sample; return how many that were."""
    log, count = folder / "bad.jsonl", 0
    victim = folder / "ran"
    for place, name in enumerate(findings.names):
        status = _in_a_child(
            lambda n=name, p=place: _run_programs(folder, findings, n, p, log), findings, folder / "stderr.txt"
        )
        count += len(files(folder, name)) * len(payloads(str(victim)))
        if status:
            findings.counts[place, OUTCOMES.index("crash")] += 1
            findings.bad.append({"sample": name, "crash": status, "way": "payload"})
            _restore(folder, name)
    if log.is_file():
        findings.bad += [json.loads(line) for line in log.read_text().splitlines()]
        log.unlink()
    return count


_originals: dict[Path, Copy] = {}


def remember(folder: Path, names: Iterable[str] = tuple(ALL)) -> None:
    """Read all samples into memory, to bring them back after each case; in the parent, so that children share it."""
    for name in names:
        _originals[folder / name] = Copy(folder / name)


def _restore(folder: Path, name: str) -> None:
    _originals[folder / name].restore_folders()


def files(folder: Path, name: str) -> list[Path]:
    """Return the files of a sample that are damaged."""
    inside, only = folder / name / ALL[name].inside, ALL[name].only
    found = [file for file in _originals[folder / name].contents if file.is_relative_to(inside)]
    return sorted(file for file in found if not only or file.name in only)


def _in_a_child(work: Any, findings: Findings, crashes: Path) -> int:
    """Run a function in a forked process; return 0, or the negative signal that ended it, SIGALRM for a hang.

    What the child writes to stderr goes to the file `crashes`.
    """
    findings.now[2] = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(crashes, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            faulthandler.enable()
            used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
            resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY,) * 2)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        if time.monotonic() - findings.now[2] > SECONDS_TO_HANG:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGALRM
        time.sleep(0.01)


def _run_cases(folder: Path, findings: Findings, cases: range, log: Path) -> None:
    shares = [ALL[name].share for name in findings.names]
    victim = folder / "ran"
    for case in cases:
        dice = random.Random(case)
        [place] = dice.choices(range(len(shares)), shares)
        name = findings.names[place]
        findings.now[:] = case, place, time.monotonic()
        file = dice.choice(files(folder, name))
        way = damage(file, dice, victim)
        _use(folder, findings, {"case": case, "sample": name, "file": file.name, "way": way}, place, log)


def _run_programs(folder: Path, findings: Findings, name: str, place: int, log: Path) -> None:
    for file in files(folder, name):
        for kind, program in payloads(str(folder / "ran")).items():
            findings.now[2] = time.monotonic()
            file.unlink()
            file.write_bytes(program)
            about = {"sample": name, "file": file.name, "way": f"payload {kind}"}
            _use(folder, findings, about, place, log)


def _use(folder: Path, findings: Findings, about: dict[str, Any], place: int, log: Path) -> None:
    """Use a damaged sample, count how that ends, and bring it back."""
    name = about["sample"]
    where, victim, error = folder / name, folder / "ran", ""
    try:
        ALL[name].use(where)
        outcome = "fine"
    except vcr.VCRError:
        outcome = "refused"
    except BaseException as unexpected:  # safetensors panics with one that is no Exception
        outcome, error = "traceback", f"{type(unexpected).__name__}: {unexpected}"[:300]
        about = {**about, "at": [f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in _frames(unexpected)]}
    if victim.exists():
        victim.unlink()
        outcome = "payload ran"
    findings.counts[place, OUTCOMES.index(outcome)] += 1
    if outcome not in ("fine", "refused"):
        with log.open("a") as handle:
            handle.write(json.dumps({**about, outcome: error}) + "\n")
    if ALL[name].changes:
        _originals[where].restore_folders()
    else:
        _originals[where].restore()


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return traceback.extract_tb(error.__traceback__)[-4:]
