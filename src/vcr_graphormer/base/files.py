"""Single files, written whole or not at all; arrays, JSON and text lines read with clear errors."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreError
from .checks import Array

try:
    import fcntl
except ImportError:  # not on Windows: there two processes must not share a folder
    fcntl = None  # type: ignore[assignment]


def claim(file: Path) -> BinaryIO:
    """Claim the folder of this file for the process until the returned handle is closed; refused if it is taken."""
    handle = file.open("rb+")  # on NFS a lock is refused to those who cannot write
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.close()
            raise StoreError(f"another process is working in {file.parent}: wait for it, or stop it") from error
    return handle


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; rename it to `path` when the block ends well, remove it when it does not."""
    # Process numbers repeat on other machines: two that write the same file must not meet in the temporary one.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write a table as JSON; the file is replaced whole."""
    with replace_file(file) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_json(file: Path) -> dict[str, Any]:
    """Read a table from JSON."""
    if not file.is_file():
        raise StoreError(f"{file} is missing")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:  # not JSON, or not text
        raise StoreError(f"{file} is damaged: delete {file.parent} and start again") from error
    if not isinstance(content, dict):
        raise StoreError(f"{file} is damaged: delete {file.parent} and start again")
    return content


def _cannot_write(path: Path, error: OSError) -> StoreError:
    return error if isinstance(error, StoreError) else StoreError(f"cannot write {path}: {error.strerror or error}")


def write_array(file: Path, array: Array) -> None:
    """Write one `.npy` file under a temporary name and rename it."""
    with replace_file(file) as temporary, temporary.open("wb") as handle:
        np.lib.format.write_array(handle, np.asanyarray(array), allow_pickle=False)


def open_array_file(file: Path) -> Array:
    """Memory-map a `.npy` file of our own making (an array without elements cannot be mapped and is read)."""
    try:
        array: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError:
        array = np.load(file, allow_pickle=False)
    return array


def read_npz(file: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an `.npz` file; pickled ones are refused."""
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    try:
        with file.open("rb") as handle, np.load(handle, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib, struct and numpy each have their own kinds for a damaged file
        raise StoreError(f"{file} is not a readable .npz file of plain arrays: {error}") from error


def read_lines(file: Path) -> list[str]:
    """Read the lines of a UTF-8 text file; a byte-order mark at its start, as some editors write it, is left out."""
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise StoreError(f"{file} is not a UTF-8 text file: {error}") from error


def read_npy(file: Path) -> NDArray[Any]:
    """A `.npy` array, memory-mapped where it can be; pickled ones are refused."""
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise StoreError(f"{file} is not a readable .npy file of plain numbers: {error}") from error
    return array
