"""Workers give the results in order, stop where they are told to, and never outlive their parent."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vcr_graphormer import ProcessError
from vcr_graphormer.base.workers import Report, Workers

ROOT = Path(__file__).parent.parent.parent
SCRIPT = """
from tests.base.test_workers import start
from vcr_graphormer.base.workers import Workers
workers = Workers(start, 2)
print(*(process.pid for process in workers.processes), flush=True)
list(workers.do([1e9], allow=lambda task: True, on_report=lambda *_: None))  # one is busy, the other waits
"""


def start() -> Callable[[float, Report], float]:
    return wait


def wait(seconds: float, report: Report) -> float:
    """Report ten times a second for so long; negative numbers are an error of the task."""
    print("this is no answer")
    if seconds < 0:
        raise ValueError("less than no time")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        report(seconds)
        time.sleep(0.1)
    return seconds


def test_results_come_in_order() -> None:
    tasks, reports = [0.5, 0.0, 0.3, 0.1], list[tuple[Any, Any]]()
    with Workers(start, 2) as workers:
        for _ in range(2):
            found = list(workers.do(tasks, allow=lambda task: True, on_report=lambda *said: reports.append(said)))
            assert found == tasks
        # From the first task that is not allowed on, none is started.
        assert list(workers.do(tasks, allow=lambda task: task != 0.3, on_report=lambda *_: None)) == [0.5, 0.0]
    assert set(reports) == {(task, task) for task in tasks if task}
    assert all(process.poll() is not None for process in workers.processes)


def test_errors_end_the_work() -> None:
    def refuse(task: float, said: float) -> None:
        raise InterruptedError

    with Workers(start, 2) as workers, pytest.raises(InterruptedError):
        list(workers.do([60.0], allow=lambda task: True, on_report=refuse))
    with Workers(start, 2) as workers, pytest.raises(ProcessError, match="a worker ended: continue"):
        list(workers.do([0.0, -1.0], allow=lambda task: True, on_report=lambda *_: None))


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_workers_end_with_their_parent() -> None:
    parent: Any = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    with parent:
        workers = [int(number) for number in parent.stdout.readline().split()]
        assert len(workers) == 2
        time.sleep(1)
        assert all(map(alive, workers))
        parent.kill()
    end = time.monotonic() + 60
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, workers))
