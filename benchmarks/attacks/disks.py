"""Run commands on a disk that is nearly full: each ends in one line, what was there stays, and it can be continued."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.attacks.jobs import JOBS, lost_bytes, run, snapshot
from benchmarks.attacks.kills import Losses

# Commands that write; those as processes of their own do nothing else.
NAMES = tuple(name for name in JOBS if name not in ("evaluate", "train, its own process", "export"))
PAGE, LARGE = 4096, 64 << 20


def small_disk(folder: Path, size: int) -> bool:
    """Mount a file system of some bytes; return whether that is allowed."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def fill_disks(made: Path, losses: Losses, count: int, *, end: float, seed: int = 0) -> str:
    """Run commands with too little room, in turn; return how the room was limited."""
    dice, disk = random.Random(seed), made.with_name("disk")
    sizes = {name: _written(made, name) for name in NAMES}
    by_mount = small_disk(disk, 1 << 20)
    if by_mount:
        subprocess.run(["umount", str(disk)], check=True)
    for number in range(count):
        if time.monotonic() > end:
            break
        name = NAMES[number % len(NAMES)]
        room = dice.randrange(max(PAGE, sizes[name]))
        if by_mount:
            small_disk(disk, LARGE)
            try:
                _try(made, name, losses, disk / "work", disk=disk, room=room)
            finally:
                subprocess.run(["umount", "--lazy", str(disk)], check=True)
        else:
            _try(made, name, losses, made.with_name("work"), largest=dice.randrange(20_000))
    return "a small tmpfs" if by_mount else "a limit on the size of files; mounting is not allowed here"


def _written(made: Path, name: str) -> int:
    """Return about how many bytes a job needs on disk, whole pages counted."""
    work = Path(shutil.copytree(made, made.with_name("measured")))
    before = sum((file.stat().st_size // PAGE + 1) * PAGE for file in work.rglob("*"))
    run(JOBS[name].words, work)
    after = sum((file.stat().st_size // PAGE + 1) * PAGE for file in work.rglob("*"))
    shutil.rmtree(work)
    return max(PAGE, after - before)


def _try(
    made: Path, name: str, losses: Losses, work: Path, *, disk: Path | None = None, room: int = 0, largest: int = 0
) -> None:
    job, label = JOBS[name], "full disk"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(made, work)
    if disk is not None:
        _resize(disk, shutil.disk_usage(disk).used + room)
    before = snapshot(work, without=job.out)
    limit: Any = None if disk is not None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    status, text = run(job.words, work, prepare=limit)
    losses.judge(label, status, text, allowed=(0, 2))
    lines = [line for line in text.splitlines() if line.startswith("error: ")]
    losses.add(label, "ended in one line" if status == 2 and len(lines) == 1 else "had room enough")
    if status == 2 and len(lines) != 1:
        losses.add(label, "tracebacks")
        losses.bad.append({"job": f"{name} on a full disk", "text": text[-600:]})
    losses.add(label, "lost bytes", lost_bytes(before, snapshot(work, without=job.out)))
    if disk is not None:
        _resize(disk, LARGE)
    words = job.words if job.again is None else job.again(work)
    out = work / job.out
    if out.is_file():
        out.unlink()
    elif name == "datasets" and out.is_dir():
        shutil.rmtree(out)
    status, text = run(words, work)
    if status != 0:
        losses.add(label, "not continued")
        losses.bad.append({"job": f"{name} after a full disk", "status": status, "text": text[-600:]})
    losses.add(label, "lost bytes", lost_bytes(before, snapshot(work, without=job.out)))


def _resize(disk: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
