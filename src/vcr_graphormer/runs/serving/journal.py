"""The nodes that a server keeps, in a file: one JSON line each time, on disk before the answer is sent."""

from __future__ import annotations

import json
import os
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
        content = self._handle.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):  # the process died while it wrote; nobody was told that this line is kept
            self._handle.truncate(len(whole))
        self._handle.seek(len(whole))
        lines = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                lines.append(json.loads(line))
                if number > 1:
                    _check_record(lines[-1])
            except (ValueError, RecursionError) as error:
                raise StoreError(f"{self.file} is damaged in line {number}: restore it, or move it away") from error
        if not lines:
            self._write({"format": _FORMAT, "graph": fingerprint})
            return fingerprint, []
        if not isinstance(lines[0], dict) or lines[0].get("format") != _FORMAT:
            raise StoreError(f"{self.file} is no journal of kept nodes of format {_FORMAT}: choose another --journal")
        return str(lines[0].get("graph")), lines[1:]

    def _write(self, record: dict[str, Any]) -> None:
        place = self._handle.tell()
        try:
            self._handle.write(json.dumps(record).encode() + b"\n")
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


def _check_record(record: Any) -> None:
    """Raise for a line that does not hold new nodes and edges; what they hold is checked when they are kept again."""
    for name, needed in {"nodes": {"id"}, "edges": {"source", "target"}}.items():
        items = record.get(name) if isinstance(record, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) and needed <= item.keys() for item in items):
            raise ValueError(f"{name} must be a list of objects with {', '.join(sorted(needed))}")
