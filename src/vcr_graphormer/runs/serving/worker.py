"""One thread that answers all questions about a run, in order; known nodes of waiting requests go in one batch."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import VCRError
from ..predictions import Predictions
from .scoring import Scorer

MOST_WAITING = 1000  # requests; more are refused at once, so that a client does not wait for minutes
MOST_NODES = 1024  # known nodes that are predicted together


class TooBusyError(VCRError):
    """Too many requests wait for an answer."""


@dataclass(frozen=True, eq=False)
class _Job:
    """A question and the place for its answer: either known nodes to predict, or anything else."""

    future: Future[Any] = field(default_factory=Future)
    nodes: list[Any] | None = None
    ask: Callable[[Scorer], Any] | None = None


class Worker:
    """The thread, its queue and its scorer.

    Attributes
    ----------
    scorer : Scorer
        What answers. `swap` puts another one in its place between two questions.
    batches, batched : int
        Passes for known nodes so far, and the requests that these answered.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.batches, self.batched = scorer, 0, 0
        self.started = time.time()
        self._jobs: queue.Queue[_Job | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="vcr-scorer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Return about how many requests wait."""
        return self._jobs.qsize()

    def predict(self, nodes: list[Any]) -> Future[Predictions]:
        """Predict known nodes, together with those of other requests that wait."""
        return self._put(_Job(nodes=nodes))

    def ask(self, ask: Callable[[Scorer], Any]) -> Future[Any]:
        """Ask the scorer anything; no other question is answered meanwhile."""
        return self._put(_Job(ask=ask))

    def swap(self, make: Callable[[Scorer], Scorer]) -> Future[None]:
        """Put another scorer in place, made from the old one. Requests before get the old one, those after the new."""

        def change(old: Scorer) -> None:
            self.scorer = make(old)

        return self.ask(change)

    def close(self) -> None:
        """Answer what waits, then end."""
        self._jobs.put(None)
        self._thread.join()
        self.scorer.close()

    def _put(self, job: _Job) -> Future[Any]:
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise TooBusyError(f"{MOST_WAITING:,} requests wait already: try again later") from None
        return job.future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            # Whatever waits by now; nobody waits for a batch to fill.
            while sum(len(one.nodes or ()) for one in jobs) < MOST_NODES and not self._jobs.empty():
                following = self._jobs.get()
                if following is None:
                    self._answer(jobs)
                    return
                jobs.append(following)
            self._answer(jobs)

    def _answer(self, jobs: list[_Job]) -> None:
        """Answer jobs in their order; neighbours that ask for known nodes share a batch."""
        together: list[_Job] = []
        for job in jobs:
            if job.nodes is not None:
                together.append(job)
                continue
            self._predict(together)
            together = []
            ask = job.ask
            assert ask is not None  # a job has nodes or a question
            _fulfil(job.future, lambda ask=ask: ask(self.scorer))  # type: ignore[misc]
        self._predict(together)

    def _predict(self, jobs: list[_Job]) -> None:
        found = []
        for job in jobs:
            try:
                found.append((job, self.scorer.find(job.nodes or ())))
            except Exception as error:  # of this request alone
                _fail(job.future, error)
        if not found:
            return
        self.batches, self.batched = self.batches + 1, self.batched + len(found)
        try:
            joined = self.scorer.outputs(np.concatenate([ids for _, ids in found]))
        except Exception as error:
            for job, _ in found:
                _fail(job.future, error)
            return
        start = 0
        for job, ids in found:
            part = slice(start, start + len(ids))
            start += len(ids)
            _fulfil(job.future, lambda part=part: joined.part(part))  # type: ignore[misc]


def _fulfil(future: Future[Any], answer: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return  # the client is gone
    try:
        future.set_result(answer())
    except Exception as error:
        future.set_exception(error)


def _fail(future: Future[Any], error: Exception) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
