"""A dask scheduler and its workers as processes on this machine, and an executor that runs tasks here and now."""

import json
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from types import TracebackType
from typing import Any


class Cluster:
    """`dask scheduler` and some `dask worker`, each a process that a test may stop or kill."""

    def __init__(self, folder: Path, workers: int = 2, **preload: Path) -> None:
        self.folder, self.count, self.preload = folder, workers, preload  # by command: worker, scheduler
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Cluster":
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start_all()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start_all(self) -> None:
        from distributed import Client

        file = self.folder / "scheduler.json"
        where = ("--host", "127.0.0.1", "--no-dashboard")
        self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", str(file), "--no-show", *where)
        while not (file.is_file() and file.read_text().strip()):
            assert self.scheduler.poll() is None, (self.folder / "scheduler.log").read_text()
            time.sleep(0.05)
        self.address = str(json.loads(file.read_text())["address"])
        more: tuple[str, ...] = (
            "--nthreads",
            "1",
            "--memory-limit",
            "0",
            "--local-directory",
            str(self.folder),
            "--no-nanny",
        )
        for number in range(self.count):
            self.workers.append(self._start("worker", self.address, "--name", str(number), *where, *more))
        if self.workers:  # a test that stops one of two wants both to be there
            with Client(self.address, timeout=300, set_as_default=False) as client:
                client.wait_for_workers(self.count, timeout=300)

    def _start(self, command: str, *arguments: str) -> subprocess.Popen[bytes]:
        if command in self.preload:
            arguments += ("--preload", str(self.preload[command]))
        with (self.folder / f"{command}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{command}", *arguments], stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def freeze(self, worker: int) -> None:
        """Let a worker take tasks and do nothing."""
        self.workers[worker].send_signal(signal.SIGSTOP)


class Here(Executor):
    """Runs each task as it is submitted, in this process, on copies of its arguments such as a worker would get."""

    def __init__(self, before: Callable[[int], None] = lambda number: None) -> None:
        self.before, self.submitted = before, 0
        self.largest = 0

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        self.before(self.submitted)
        self.submitted += 1
        future: Future[Any] = Future()
        task = pickle.dumps((function, arguments, keywords))
        self.largest = max(self.largest, len(task))
        function, arguments, keywords = pickle.loads(task)
        try:
            future.set_result(function(*arguments, **keywords))
        except Exception as error:
            future.set_exception(pickle.loads(pickle.dumps(error)))
        return future
