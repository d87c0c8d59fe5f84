"""Read free memory, peak memory and cores of this machine; format bytes for people."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..errors import ConfigError
from .checks import is_whole

# Linux: writing "5" here sets VmHWM, the peak of resident memory, back to the present use (man proc_pid_clear_refs).
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_STATUS = Path("/proc/self/status")


def available_memory() -> int:
    """Return the bytes of main memory that are free without swapping, within the limits of our control groups."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024
    except (OSError, StopIteration):
        # Not Linux: nothing says how much is free, so count half of the memory that is installed.
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return min([free, *_left_in_groups(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def _left_in_groups(membership: Path, root: Path) -> Iterator[int]:
    """Yield the bytes left in each control group (version 1 or 2) above this process; page cache counts as free."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in lines:
        base, limit_file, used_key = root, "memory.max", "anon"
        if controllers:  # only version 1 names controllers
            base, limit_file, used_key = root / "memory", "memory.limit_in_bytes", "total_rss"
        if controllers and "memory" not in controllers.split(","):
            continue
        group = base / path.strip("/")
        for folder in (group, *group.parents):
            with suppress(OSError, KeyError, ValueError):  # the file is missing, or the limit is "max"
                limit = int((folder / limit_file).read_text())
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield limit - int(statistics[used_key])
            if folder == base:
                break


def reset_peak_memory() -> None:
    """Start a new measurement of peak memory; does nothing where the system cannot (it can on Linux)."""
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return


def peak_memory() -> int:
    """Return the peak of resident memory in bytes since the last reset, or since the start if none was possible."""
    try:
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, KiB elsewhere
        return peak if sys.platform == "darwin" else peak * 1024


def format_bytes(count: float) -> str:
    """Return bytes as a text for people.

    >>> format_bytes(1536), format_bytes(3 * 2**30)
    ('1.5 KiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def default_threads(threads: int | None) -> int:
    """Return the number asked for, or for None the number of cores this process may use."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not is_whole(threads) or threads < 1:
        raise ConfigError(f"threads is {threads!r}; it must be a whole number of at least 1")
    return int(threads)
