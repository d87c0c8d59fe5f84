"""Workers: processes that do tasks side by side, with results in the order of the tasks.

A worker is started as a program of its own, so scripts need no `if __name__ == "__main__"`. It reads tasks from its
input and writes reports and results to its output. If the parent dies, both end, and so does the worker.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, Self

from ..errors import ProcessError

Report = Callable[[Any], None]
Do = Callable[[Any, Report], Any]
_REPORT, _RESULT, _END = "report", "result", "end"


class Workers:
    """Some worker processes. As a context manager, they are ended at its end.

    Parameters
    ----------
    start
        Called once in every worker; returns the function that does a task and reports on it. Both go through pickle,
        as do tasks, reports and results.
    count
        Number of processes.
    """

    def __init__(self, start: Callable[[], Do], count: int) -> None:
        command = [sys.executable, "-m", __name__]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            for _ in range(count)
        ]
        self.messages: SimpleQueue[tuple[int, str, Any]] = SimpleQueue()
        self.listeners = [
            Thread(target=self._listen, args=(worker, process.stdout), daemon=True)
            for worker, process in enumerate(self.processes)
        ]
        for worker, listener in enumerate(self.listeners):
            listener.start()
            self._send(worker, start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, listener in zip(self.processes, self.listeners, strict=True):
            process.kill()
            listener.join()
            with suppress(BrokenPipeError), process:  # closes the pipes and waits
                pass

    def do(
        self, tasks: Sequence[Any], *, allow: Callable[[Any], bool], on_report: Callable[[Any, Any], None]
    ) -> Iterator[Any]:
        """Yield the results of tasks in their order.

        Parameters
        ----------
        allow
            Asked with a task before it is started. If it says no, only results of earlier tasks follow.
        on_report
            Called with a task and what its worker reports. An error that it raises ends the iteration.
        """
        waiting, free = deque(enumerate(tasks)), deque(range(len(self.processes)))
        running: dict[int, int] = {}
        results: dict[int, Any] = {}
        due = 0
        while True:
            while free and waiting and allow(waiting[0][1]):
                worker = free.popleft()
                running[worker], task = waiting.popleft()
                self._send(worker, task)
            if not running:
                return
            worker, what, message = self.messages.get()
            if what == _END:
                raise ProcessError("a worker ended: continue with the same call, with fewer workers if memory is short")
            if what == _REPORT:
                on_report(tasks[running[worker]], message)
                continue
            results[running.pop(worker)] = message
            free.append(worker)
            while due in results:
                yield results.pop(due)
                due += 1

    def _send(self, worker: int, message: Any) -> None:
        stream = self.processes[worker].stdin
        assert stream is not None  # it is a pipe
        with suppress(BrokenPipeError):  # the listener sees the end, too
            pickle.dump(message, stream)
            stream.flush()

    def _listen(self, worker: int, stream: BinaryIO) -> None:
        """Put what a worker says into the queue, and at last that it has ended."""
        try:
            while True:
                self.messages.put((worker, *_receive(stream)))
        except (EOFError, pickle.UnpicklingError):  # also in the middle of a message
            pass
        finally:
            self.messages.put((worker, _END, None))


def _receive(stream: BinaryIO) -> Any:
    return pickle.load(stream)  # noqa: S301 a pipe between our own processes


def work() -> None:
    """Do the tasks that the parent asks for until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its workers
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # which the command line leaves to one thread
    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed must not mix with the answers

    def answer(what: str, message: Any) -> None:
        pickle.dump((what, message), answers)
        answers.flush()

    try:
        do = _receive(given)()
        while True:
            answer(_RESULT, do(_receive(given), lambda message: answer(_REPORT, message)))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the parent is gone: nothing to flush


if __name__ == "__main__":
    work()
