"""What a long job cost: seconds, edge visits and peak memory of each stage, kept across interruptions."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import StoreError
from .storage import replace_file

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def reset_peak_memory() -> None:
    """Start measuring the peak anew, where the system allows it (Linux)."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return


def peak_memory() -> int:
    """Bytes of the largest resident memory since the last reset; since the start where there is no reset."""
    try:
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024


class Stages:
    """Rows of measurements by stage, written to a file after each, so that a resumed job adds to what it had."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: dict[str, dict[str, float]] = {}
        if file.is_file():
            with suppress(ValueError):  # damaged measurements are not worth losing the work for
                self.rows = json.loads(file.read_text())

    @contextmanager
    def measure(self, stage: str) -> Iterator[dict[str, Any]]:
        """Time a block; what it puts into the yielded dictionary (`visits`) is added to the stage's row."""
        reset_peak_memory()
        start = time.perf_counter()
        extra: dict[str, Any] = {}
        try:
            yield extra
        finally:  # what was done before an interruption counts
            row = self.rows.setdefault(stage, {"seconds": 0.0, "visits": 0, "peak_bytes": 0})
            row["seconds"] += time.perf_counter() - start
            row["visits"] += int(extra.get("visits", 0))
            row["peak_bytes"] = max(row["peak_bytes"], peak_memory())
            with suppress(StoreError), replace_file(self.file) as temporary:
                temporary.write_text(json.dumps(self.rows, indent=1))
