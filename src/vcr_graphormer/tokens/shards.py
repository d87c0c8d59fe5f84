"""Shards of a ranking: one function ranks a shard in a thread, in a process or on another machine."""

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
from ..ranking.ranker import NodeRanker, check_ranking

SECONDS_UNTIL_SEEN = 90.0  # until a new file shows on other machines: NFS caches attributes for up to 60 s
_SECONDS_BETWEEN_LOOKS = 0.1
_ATTEMPT_BYTES = 8  # random bytes that tell the attempts at one job apart


@dataclass(frozen=True)
class Shard:
    """A part of a ranking: file of the result, sources start … stop - 1, tokens of each, keywords, limit of ids."""

    file: Path
    start: int
    stop: int
    tokens: int
    effort: Mapping[str, Any]
    limit: int

    def is_whole(self) -> bool:
        """Return whether the file is finished and undamaged (zip archives carry checksums of their own)."""
        try:
            arrays, shape = read_npz(self.file), (self.stop - self.start, self.tokens)
            return all(name in arrays and arrays[name].shape == shape for name in ("ids", "scores"))
        except StoreError:
            return False


@dataclass(frozen=True)
class SavedRanker:
    """The folders of a graph and a prepared ranker, for workers that share our filesystem but not our memory.

    Attributes
    ----------
    graph, folder : Path
        Where graph and ranker lie.
    ranker : type
        The class of the ranker.
    version : str
        Version of this package: two versions may rank with different bits.
    attempt : str
        A random text. Without it dask would answer a repeated task with its old result.
    """

    graph: Path
    folder: Path
    ranker: type[NodeRanker]
    version: str = __version__
    attempt: str = field(default_factory=lambda: secrets.token_hex(_ATTEMPT_BYTES))

    def open(self) -> NodeRanker:
        """Map graph and ranker into memory; refuse another version of this package.

        Every shard opens them anew, so that a file that is gone or cut short is noticed by name. Reading a mapping kept
        from an earlier shard may end the process with a bus error.
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
    """Rank one shard, write its file whole or not at all, and return the edge visits.

    Two workers may rank the same shard at a time: both write the same bytes, and the last file stays.
    """
    if isinstance(ranker, SavedRanker):
        ranker = ranker.open()
    sources = np.arange(shard.start, shard.stop)
    ranking = ranker.rank(sources, shard.tokens, threads=1, **shard.effort)
    check_ranking(ranking, shard.tokens, limit=shard.limit)
    if not shard.file.parent.is_dir():  # writing would make it again, in a store that others have finished
        raise StoreError(f"{shard.file.parent} is gone: the job was ended or deleted by another process")
    with replace_file(shard.file) as temporary, temporary.open("wb") as handle:
        np.savez(handle, ids=ranking.ids, scores=ranking.scores)
    return ranking.visits


def rank_shards(
    executor: Executor, shards: Sequence[Shard], ranker: NodeRanker | SavedRanker, before: int = 0
) -> Generator[int, None, None]:
    """Yield the edge visits of each shard, in the order in which the shards are finished.

    After a failure, or when the caller closes the generator, finished shards stay and no new ones start.
    `before` counts the shards that were finished earlier, for the message.
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
        failure = _failure(error, current, shards=shards, before=before, remote=remote)
        if failure is error:
            raise
        raise failure from error
    finally:
        _stop(futures)


def _stop(futures: dict[Future[int], Shard]) -> None:
    """Cancel shards that have not begun and wait for the others: none may write once the folder is unlocked."""
    wait([future for future in futures if not future.cancel()])


def _wait_until_seen(file: Path) -> None:
    end = time.monotonic() + SECONDS_UNTIL_SEEN
    while not file.is_file():
        if time.monotonic() > end:
            raise DaskError(
                f"a worker has written {file}, but it is not to be seen here: the store must lie on a filesystem that "
                f"all machines share"
            )
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _failure(error: Exception, shard: Shard, *, shards: Sequence[Shard], before: int, remote: bool) -> Exception:
    """Return an error that says which shard failed, what is kept and how to go on."""
    subject = f"{shard.file.stem} (nodes {shard.start} to {shard.stop - 1}) failed"
    if isinstance(error, StoreError | DaskError):
        error_type, reason = type(error), str(error)
    elif isinstance(error, OSError):
        error_type, reason = StoreError, str(error)
    elif isinstance(error, VCRError) or not remote:
        return error  # a setting that cannot be met, or a defect: another attempt would fail too
    elif isinstance(error, CancelledError):
        subject, error_type, reason = "the ranking was cancelled", DaskError, "the scheduler or pool is lost"
    else:
        error_type, reason = DaskError, f"{type(error).__name__}: {error}"
    kept, total = before + sum(other.file.is_file() for other in shards), before + len(shards)
    return error_type(
        f"{subject}: {reason}; {kept} of {total} shards are kept in {shard.file.parent}, and the same command resumes "
        f"with them"
    )
