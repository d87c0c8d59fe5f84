"""The nodes that a server keeps, in a file: one JSON line each time, on disk before the answer is sent."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ...base.files import claim
from ...errors import StoreError

JOURNAL = "kept.jsonl"
_FORMAT = 1


class Journal:
    """A file of kept nodes, locked by this process.

    Attributes
    ----------
    file : Path
        Where it lies.
    fingerprint : str
        The graph of the run that the first line was written for.
    records : list of dict
        The content of all lines: new nodes and their edges.
    """

    def __init__(self, file: Path, fingerprint: str) -> None:
        self.file = file
        try:
            file.touch(exist_ok=True)
            self._handle: BinaryIO = claim(file)
        except PermissionError as error:
            raise StoreError(f"cannot write {file}: {error.strerror}; choose another with --journal") from error
        try:
            self.fingerprint, self.records = self._read(fingerprint)
        except BaseException:
            self._handle.close()
            raise

    def _read(self, fingerprint: str) -> tuple[str, list[dict[str, Any]]]:
        """Return the graph and the lines; nothing of the file is changed before all of it is known to be ours."""
        header = {"format": _FORMAT, "graph": fingerprint}
        content = self._handle.read()
        whole = content[: content.rfind(b"\n") + 1]
        if _line(header).startswith(content):  # a new file, or the process died while it wrote the header
            self._cut(content, 0)
            self._write(header)
            return fingerprint, []
        lines = whole.splitlines()
        graph = _graph_of(lines[0]) if lines else None
        if graph is None:
            raise StoreError(f"{self.file} is no journal of kept nodes of format {_FORMAT}: choose another --journal")
        records = []
        for number, line in enumerate(lines[1:], 2):
            try:
                records.append(json.loads(line))
                _check_record(records[-1])
            except (ValueError, RecursionError) as error:
                raise StoreError(f"{self.file} is damaged in line {number}: restore it, or move it away") from error
        self._cut(content, len(whole))  # the process died while it wrote; nobody was told that this line is kept
        return graph, records

    def _cut(self, content: bytes, size: int) -> None:
        """Shorten the file, whose content was just read, and go to its end."""
        if size < len(content):
            self._handle.truncate(size)
        self._handle.seek(size)

    def _write(self, record: dict[str, Any]) -> None:
        place = self._handle.tell()
        try:
            self._handle.write(_line(record))
            self._handle.flush()
            os.fsync(self._handle.fileno())
        except OSError as error:
            with suppress(OSError):  # a device, which has no length
                self._handle.seek(place)
                self._handle.truncate(place)
            raise StoreError(f"cannot write {self.file}: {error.strerror or error}") from error

    def append(self, record: dict[str, Any]) -> None:
        """Write new nodes; they are on disk when this returns."""
        self._write(record)
        self.records.append(record)

    def is_at(self, file: Path) -> bool:
        """Return whether this is the file at a path; the folder may have been replaced by another one."""
        return file.exists() and os.path.samestat(os.fstat(self._handle.fileno()), file.stat())

    def close(self) -> None:
        """Give the file free for other processes."""
        self._handle.close()


def check_kept(folder: Path) -> None:
    """Refuse to delete a folder in which a server keeps nodes, or has kept some: no other file holds them."""
    for file in sorted(folder.rglob(JOURNAL)):  # the runs of several seeds lie in folders of their own
        if not file.is_file():
            continue
        with claim(file) as handle:
            handle.readline()  # the header, which holds no node
            if handle.read(1):
                raise StoreError(
                    f"{file} holds nodes that a server kept, which would be deleted: move it elsewhere (serve reads it "
                    f"there with --journal), or delete it yourself"
                )


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _graph_of(line: bytes) -> str | None:
    """Return the graph that a header names; None if this is no header of ours."""
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return None
    graph = header.get("graph") if isinstance(header, dict) and header.get("format") == _FORMAT else None
    return graph if isinstance(graph, str) else None


def _check_record(record: Any) -> None:
    """Raise for a line that does not hold new nodes and edges; what they hold is checked when they are kept again."""
    for name, needed in {"nodes": {"id"}, "edges": {"source", "target"}}.items():
        items = record.get(name) if isinstance(record, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) and needed <= item.keys() for item in items):
            raise ValueError(f"{name} must be a list of objects with {', '.join(sorted(needed))}")
