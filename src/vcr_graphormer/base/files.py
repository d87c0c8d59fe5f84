"""Write single files whole or not at all; read arrays, JSON and text lines with clear errors."""

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
except ImportError:  # Windows has no fcntl: there the user must keep two processes out of one folder
    fcntl = None  # type: ignore[assignment]


def claim(file: Path) -> BinaryIO:
    """Lock this file, and so its folder, until the returned handle is closed; raise if another process holds it."""
    handle = file.open("rb+")  # NFS grants a lock only on a file that is open for writing
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.close()
            raise StoreError(f"another process is working in {file.parent}: wait for it, or stop it") from error
    return handle


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` if the block succeeds, remove it if it fails."""
    # Two machines may have a process of the same number: the random part keeps their temporary files apart.
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
    """Write a dictionary as JSON; an existing file is replaced whole."""
    with replace_file(file) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_json(file: Path) -> dict[str, Any]:
    """Read a dictionary from a JSON file."""
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
    """Write an array to a `.npy` file, which exists whole or not at all."""
    with replace_file(file) as temporary, temporary.open("wb") as handle:
        np.lib.format.write_array(handle, np.asanyarray(array), allow_pickle=False)


def open_array_file(file: Path) -> Array:
    """Memory-map a `.npy` file that this package wrote; an array without elements cannot be mapped and is read."""
    try:
        array: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    except ValueError:
        array = np.load(file, allow_pickle=False)
    return array


def read_npz(file: Path) -> dict[str, NDArray[Any]]:
    """Return all arrays of an `.npz` file by name; refuse pickled ones."""
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    try:
        with file.open("rb") as handle, np.load(handle, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib, struct and numpy raise different errors for a damaged file
        raise StoreError(f"{file} is not a readable .npz file of plain arrays: {error}") from error


def read_lines(file: Path) -> list[str]:
    """Return the lines of a UTF-8 text file, without the byte-order mark that some editors write at its start."""
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise StoreError(f"{file} is not a UTF-8 text file: {error}") from error


def read_npy(file: Path) -> NDArray[Any]:
    """Memory-map the array of a `.npy` file; refuse a pickled one."""
    if not file.is_file():
        raise StoreError(f"{file} does not exist")
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise StoreError(f"{file} is not a readable .npy file of plain numbers: {error}") from error
    return array
