"""One shard of a ranking as a unit of work: the same function for threads, processes and other machines."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, as_completed, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..base.files import read_npz, replace_file
from ..data.graph import Graph
from ..errors import DaskError, StoreError, VCRError
from ..ranking.ranker import NodeRanker

# A network filesystem may keep the news of a file from other machines for as long as it keeps attributes (NFS: 60 s).
SECONDS_UNTIL_SEEN = 90.0


@dataclass(frozen=True)
class Shard:
    """The sources start … stop - 1, how many tokens each gets, the ranker's keywords, and the file of the result."""

    file: Path
    start: int
    stop: int
    tokens: int
    effort: Mapping[str, Any]

    def is_whole(self) -> bool:
        """Whether the file was finished and reads without damage (zip archives carry checksums of their own)."""
        try:
            found, shape = read_npz(self.file), (self.stop - self.start, self.tokens)
            return all(name in found and found[name].shape == shape for name in ("ids", "scores"))
        except StoreError:
            return False


@dataclass(frozen=True)
class SavedRanker:
    """Where a prepared ranker lies, for workers that share a filesystem with us and no memory: two paths travel.

    Attributes
    ----------
    ranker
        Its class.
    version
        Of this package: the bits of a ranking are those of one version.
    attempt
        Makes the tasks of this job unlike those of an earlier one; dask answers equal tasks with their old result.
    """

    graph: Path
    folder: Path
    ranker: type[NodeRanker]
    version: str = __version__
    attempt: str = field(default_factory=lambda: secrets.token_hex(8))

    def open(self) -> NodeRanker:
        """Map graph and vectors into memory; refused by another version of this package.

        Opened anew for every shard: 5 ms of the 110 that a shard takes (50,000 nodes), and a file that is gone or cut
        short is noticed by name, where a mapping kept from an earlier shard may end the process with a bus error.
        """
        if self.version != __version__:
            raise DaskError(
                f"the worker on {socket.gethostname()} has vcr-graphormer {__version__}, the job was started by "
                f"{self.version}: install the same version everywhere"
            )
        for folder in (self.graph, self.folder):
            if not folder.is_dir():
                raise DaskError(
                    f"the worker on {socket.gethostname()} does not see {folder}: graph and store must lie on a "
                    f"filesystem that all machines share, under the same path"
                )
        return self.ranker.open(self.folder, Graph.open(self.graph))


def rank_shard(shard: Shard, ranker: NodeRanker | SavedRanker) -> int:
    """Rank one shard and write its file, whole or not at all; returns the edge visits.

    It may run twice at a time, as when a machine was given up too early: the bytes are the same, the last one stays.
    """
    if isinstance(ranker, SavedRanker):
        ranker = ranker.open()
    sources = np.arange(shard.start, shard.stop)
    ranking = ranker.rank(sources, shard.tokens, threads=1, **shard.effort)
    if not shard.file.parent.is_dir():  # writing would make it: in a store that others have finished meanwhile
        raise StoreError(f"{shard.file.parent} is gone: the job was ended or deleted by another process")
    with replace_file(shard.file) as temporary, temporary.open("wb") as handle:
        np.savez(handle, ids=ranking.ids, scores=ranking.scores)
    return ranking.visits


def rank_shards(
    executor: Executor, shards: Sequence[Shard], ranker: NodeRanker | SavedRanker, before: int = 0
) -> Generator[int, None, None]:
    """Yield the edge visits of each shard, in the order in which they are finished.

    The first failure, and a caller that stops (`contextlib.closing`), keep what is finished and start nothing new.
    `before` is the number of shards that were finished earlier, for the message.
    """
    remote = isinstance(ranker, SavedRanker)
    futures: dict[Future[int], Shard] = {}
    current = shards[0]
    try:
        for current in shards:
            futures[executor.submit(rank_shard, current, ranker)] = current
        for future in as_completed(futures):
            current = futures[future]
            visits = future.result()
            if remote:
                _wait_until_seen(current.file)
            yield visits
    except Exception as error:
        _stop(futures)
        failure = _failure(current, shards, before, error, remote)
        if failure is error:
            raise
        raise failure from error
    finally:
        _stop(futures)


def _stop(futures: dict[Future[int], Shard]) -> None:
    """Cancel what has not begun and wait for what has: nobody may write once the folder is no longer claimed."""
    wait([future for future in futures if not future.cancel()])


def _wait_until_seen(file: Path) -> None:
    end = time.monotonic() + SECONDS_UNTIL_SEEN
    while not file.is_file():
        if time.monotonic() > end:
            raise DaskError(
                f"a worker has written {file}, but it is not to be seen here: the store must lie on a filesystem that "
                f"all machines share"
            )
        time.sleep(0.1)


def _failure(shard: Shard, shards: Sequence[Shard], before: int, error: Exception, remote: bool) -> Exception:
    """The error as it is told: which shard failed, what is kept, how to go on."""
    subject = f"{shard.file.stem} (nodes {shard.start} to {shard.stop - 1}) failed"
    if isinstance(error, StoreError | DaskError):
        kind, reason = type(error), str(error)
    elif isinstance(error, OSError):
        kind, reason = StoreError, str(error)
    elif isinstance(error, VCRError) or not remote:
        return error  # a setting that cannot be met, or a mistake of ours: nothing that another attempt would mend
    elif isinstance(error, CancelledError):
        subject, kind, reason = "the ranking was cancelled", DaskError, "the scheduler or pool is lost"
    else:
        kind, reason = DaskError, f"{type(error).__name__}: {error}"
    kept, total = before + sum(other.file.is_file() for other in shards), before + len(shards)
    return kind(
        f"{subject}: {reason}; {kept} of {total} shards are kept in {shard.file.parent}, and the same command resumes "
        f"with them"
    )
