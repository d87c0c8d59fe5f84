"""Long jobs that can be resumed: a folder of finished arrays with checksums, and measurements per stage."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from .. import __version__
from ..errors import StoreError
from .checks import Array, is_number
from .files import (
    _cannot_write,
    claim,
    json_text,
    read_json,
    read_npz,
    replace_file,
    synchronize,
    write_array,
    write_json,
)
from .folders import MANIFEST, Digest, differences, digest
from .machine import peak_memory, reset_peak_memory
from .mapping import map_array

_BLOCKS_WAITING = 2  # to be hashed and written while the next one is computed

Progress = Callable[[str, int, int], None]


class JobFolder:
    """A folder that holds the finished arrays of one job, so that an interrupted job can continue.

    Each array is written whole and recorded with its checksum; `open` returns it only if the checksum still matches.
    Use it as a context manager: entering locks the folder for this process and refuses unfinished work of another job.

    Parameters
    ----------
    identity
        What the job computes, as texts; a folder with another identity is refused.
    """

    def __init__(self, path: Path, identity: Mapping[str, str]) -> None:
        self.path, self.parts = path, path / "parts"
        self.identity = {**identity, "package version": __version__}
        self.checksums: dict[str, str] = {}
        self.waited = 0.0  # seconds that the job could not go on before arrays were hashed and written
        self._lock: Any = None
        self._changing, self._owner = threading.Lock(), threading.get_ident()

    def __enter__(self) -> JobFolder:
        job = self.path / "job.json"
        self._lock = self._claim(job)
        try:
            if not job.stat().st_size and self._names() == {job.name}:
                self._begin(job)
            self._resume(job)
        except BaseException:
            self._lock.close()
            raise
        return self

    def _claim(self, job: Path) -> BinaryIO:
        """Lock the file of the job, which is made empty if the folder is; raise if another process works here.

        Two processes may come together, so no lock counts but that on the file which then has this name: the file is
        written in place under its lock, never replaced, and a job that ends meanwhile deletes it.
        """
        while True:
            names = self._names()  # before a look at the file: a job makes it first, and deletes it last
            if names and not job.is_file():
                if MANIFEST in names:
                    raise StoreError(f"{self.path} has been finished meanwhile: call the same again to open it")
                raise StoreError(f"{self.path} exists and is not a token store: choose another folder")
            try:
                lock = claim(job, create=not names)
            except StoreError as error:
                if names and isinstance(error.__cause__, FileNotFoundError):
                    continue
                raise
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock.fileno()), job.stat()):
                    return lock
            lock.close()

    def _names(self) -> set[str]:
        """Return the names of what is in the folder, which is made if need be."""
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(f"{self.path} exists and is not a token store: choose another folder")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return {file.name for file in self.path.iterdir()}
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def _begin(self, job: Path) -> None:
        """Write what the job computes into its file; an error leaves none."""
        try:
            self._lock.write(json_text(self.identity).encode())
            self._lock.flush()
            os.fsync(self._lock.fileno())
        except OSError as error:
            job.unlink(missing_ok=True)
            raise _cannot_write(job, error) from error

    def _resume(self, job: Path) -> None:
        changed = differences(self.identity, read_json(job))
        if changed:
            raise StoreError(
                f"{self.path} holds unfinished work of another {', '.join(changed)}: finish it, delete it, or choose "
                f"another folder"
            )
        # A process that was killed while it wrote leaves these.
        remnants = (folder.glob(name) for folder in (self.parts, self.parts / "made") for name in (".*.tmp", ".*.old"))
        for remnant in (*self.path.glob(".*.tmp"), *chain(*remnants)):
            if remnant.is_dir():
                shutil.rmtree(remnant, ignore_errors=True)
            else:
                remnant.unlink(missing_ok=True)
        finished = self.parts / "finished.json"
        self.checksums = read_json(finished) if finished.is_file() else {}

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.close()

    def forget(self) -> None:
        """Count nothing as finished any more, as if the job had just begun."""
        self.checksums = {}
        (self.parts / "finished.json").unlink(missing_ok=True)  # first: the rest may be interrupted
        shutil.rmtree(self.parts, ignore_errors=True)

    def end(self) -> None:
        """Delete what only an unfinished job needs; the result stays."""
        shutil.rmtree(self.parts, ignore_errors=True)
        with suppress(OSError):  # what cannot be deleted, as on a read-only disk, harms nobody
            (self.path / "job.json").unlink(missing_ok=True)

    def write(self, name: str, array: Array) -> Array:
        """Write one array of the result and return it memory-mapped."""
        with self.waiting():
            write_array(self._file(name), array)
            return self._remember(name, digest(map_array(self._file(name))))

    def write_blocks(self, name: str, shape: tuple[int, ...], dtype: str, blocks: Iterable[Any]) -> Array:
        """Write one array in blocks of rows, so that it never lies in memory whole, and return it memory-mapped.

        Two threads hash and write a block while the next ones are computed. Several arrays can be written at once.
        """
        numbers = np.dtype(dtype)
        checksum, rows = Digest(numbers, tuple(map(int, shape))), 0
        waiting: deque[list[Future[None]]] = deque()

        def settle(most: int) -> None:
            with self.waiting():
                while len(waiting) > most:
                    for future in waiting.popleft():
                        future.result()

        with replace_file(self._file(name)) as temporary, ExitStack() as stack:
            file = stack.enter_context(temporary.open("wb"))
            header = {"descr": np.lib.format.dtype_to_descr(numbers), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            hasher, writer = (stack.enter_context(ThreadPoolExecutor(1, f"vcr-{work}")) for work in ("hash", "write"))
            for block in blocks:
                part = np.ascontiguousarray(block, dtype=dtype)
                waiting.append([hasher.submit(checksum.add, part), writer.submit(part.tofile, file)])
                rows += len(block)
                settle(_BLOCKS_WAITING)
            settle(0)
            stack.close()
            with self.waiting():  # `replace_file` would do so, but its time would not count
                synchronize(temporary)
        if rows != shape[0]:
            raise StoreError(
                f"{self._file(name)} got {rows} rows instead of {shape[0]}: delete {self.path}, start again"
            )
        return self._remember(name, checksum.text())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Add the time of a block of code to `waited`, if it runs in the thread that holds the folder."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if threading.get_ident() == self._owner:
                self.waited += time.perf_counter() - start

    def open(self, name: str) -> Array | None:
        """Return a finished array of the result; None if it is not finished or has changed since."""
        file = self._file(name)
        if name not in self.checksums or not file.is_file():
            return None
        try:
            return self.map(name) if digest(self.map(name)) == self.checksums[name] else None
        except StoreError:
            return None

    def map(self, name: str) -> Array:
        """Map a finished array anew. Pages that are read count as memory of this process until the map is gone."""
        return map_array(self._file(name))

    def _remember(self, name: str, checksum: str) -> Array:
        with self._changing:
            self.checksums[name] = checksum
            write_json(self.parts / "finished.json", self.checksums)
        return self.map(name)

    def once(
        self, name: str, make: Callable[[], dict[str, Any]], fits: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        """Return small arrays that an interrupted job left; make and keep them if there are none, or none that fit.

        They are no part of the result. Zip archives carry checksums of their own.
        """
        file = self.parts / "made" / f"{name}.npz"
        with suppress(StoreError):
            kept = dict(read_npz(file))
            if fits(kept):
                return kept
        arrays = make()
        with replace_file(file) as temporary, temporary.open("wb") as handle:
            np.savez(handle, **arrays)
        return arrays

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npy"


def _is_measured(row: Any) -> bool:
    """Return whether a value read from a file is a row of measurements."""
    values: list[Any] = (
        [row.get(name) for name in ("seconds", "visits", "peak_bytes")] if isinstance(row, dict) else [None]
    )
    return all(is_number(value) and 0 <= value <= sys.float_info.max for value in values)


class Stages:
    """Time, that of the processor, edge visits and peak memory per stage; a resumed job adds to its earlier numbers."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: dict[str, dict[str, float]] = {}
        if file.is_file():
            with suppress(StoreError):  # a damaged file of measurements must not stop the job
                rows = read_json(file)
                self.rows = {stage: row for stage, row in rows.items() if _is_measured(row)}

    @contextmanager
    def measure(self, stage: str) -> Iterator[dict[str, Any]]:
        """Measure a block of code; add `visits`, and `writing` if it is there, of the yielded dictionary to the row."""
        reset_peak_memory()
        start, processor = time.perf_counter(), time.process_time()
        extra: dict[str, Any] = {}
        try:
            yield extra
        finally:  # work before an interruption counts too
            row = self.rows.setdefault(stage, {"seconds": 0.0, "visits": 0, "peak_bytes": 0})
            row["seconds"] += time.perf_counter() - start
            busy = row.get("processor_seconds", 0.0)  # younger than the first stores
            row["processor_seconds"] = time.process_time() - processor + (busy if is_number(busy) else 0.0)
            row["visits"] += int(extra.get("visits", 0))
            if "writing" in extra:
                before = row.get("writing", 0.0)
                row["writing"] = extra["writing"] + (before if is_number(before) else 0.0)
            row["peak_bytes"] = max(row["peak_bytes"], peak_memory())
            with suppress(StoreError), replace_file(self.file) as temporary:
                temporary.write_text(json.dumps(self.rows, indent=1))
