"""Result files of the comparison: JSON lines that several processes append to, and who works on what."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

TRIAL, RUN = "trial", "run"
CUT_SHORT = 0.003  # what a trial that was not judged on all splits counts less


def append(file: Path, row: dict[str, Any]) -> None:
    """Append one line by one write, so that processes do not mix their lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, (json.dumps(row) + "\n").encode())
    finally:
        os.close(handle)


def read(file: Path) -> list[dict[str, Any]]:
    """Return all rows; a last line that was cut off, as by a full disk, is left out."""
    rows = []
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


@contextmanager
def claimed(file: Path, method: str) -> Iterator[bool]:
    """Yield whether this process may work on a method of a file. The claim ends with the process, however it ends."""
    name = hashlib.sha256(f"{file.resolve()} {method}".encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"vcr-baselines-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def trials_of(rows: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    """Return the trials of a method, in the order in which they were judged."""
    return [row for row in rows if row["method"] == method and row["stage"] == TRIAL]


def best_settings(trials: list[dict[str, Any]], splits: int) -> dict[str, Any] | None:
    """Return the settings of the best trial by the mean of its scores, None if none could be trained."""
    judged = [row for row in trials if row["val"]]
    if not judged:
        return None

    def worth(row: dict[str, Any]) -> float:
        return float(np.mean(row["val"])) - (CUT_SHORT if len(row["val"]) < splits else 0.0)

    settings: dict[str, Any] = max(judged, key=worth)["settings"]
    return settings


def runs_of(rows: list[dict[str, Any]], method: str) -> dict[int, dict[str, Any]]:
    """Return the runs of a method by seed: those with the settings of its newest run."""
    runs = [row for row in rows if row["method"] == method and row["stage"] == RUN and "test" in row]
    return {row["seed"]: row for row in runs if row["settings"] == runs[-1]["settings"]}
