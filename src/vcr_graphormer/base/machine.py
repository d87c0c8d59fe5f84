"""What this machine has: free memory, peak memory, cores; and bytes in words."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..errors import ConfigError


def available_memory() -> int:
    """Bytes of main memory that can be had without swapping, within the limits of this process's control group."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return min([free, *_left_in_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def _left_in_groups(membership: Path, root: Path) -> Iterator[int]:
    """What the limit of each control group above this process leaves, versions 1 and 2; page cache can be reclaimed."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in lines:
        base, names = root, ("memory.max", "anon")
        if controllers:
            base, names = root / "memory", ("memory.limit_in_bytes", "total_rss")
        if controllers and "memory" not in controllers.split(","):
            continue
        group = base / path.strip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, KeyError, ValueError):  # no such file, or "max"
                limit = int((folder / names[0]).read_text())
                used = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield limit - int(used[names[1]])
            if folder == base:
                break


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


def format_bytes(count: float) -> str:
    """Bytes for people.

    >>> format_bytes(1536), format_bytes(3 * 2**30)
    ('1.5 KiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def default_threads(threads: int | None) -> int:
    """The number asked for, or all cores this process may use."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise ConfigError(f"threads is {threads!r}; it must be a whole number of at least 1")
    return int(threads)
