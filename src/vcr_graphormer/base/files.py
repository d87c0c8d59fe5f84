"""Write single files whole or not at all; read arrays, JSON and text lines with clear errors and bounded memory."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import secrets
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreError
from .checks import Array
from .machine import available_memory, format_bytes
from .mapping import map_array, read_header

try:
    import fcntl
except ImportError:  # Windows has no fcntl: there the user must keep two processes out of one folder
    fcntl = None  # type: ignore[assignment]


# Larger than any JSON file that this package writes: a million class names have some 20 MB.
_MOST_JSON = 1 << 26
_HASHED_AT_ONCE = 1 << 22  # bytes
_LONGEST_HEADER = 1 << 16  # bytes of a `.npy` file; numpy itself refuses headers of more than 10,000


def to_path(path: Any) -> Path:
    """Return the path that a caller gives; refuse what is none, and names that no disk takes."""
    if not isinstance(path, str | os.PathLike):
        raise StoreError(f"the path is {path!r}; it must be a text or a Path")
    if "\0" in os.fspath(path):
        raise StoreError(f"the path {os.fspath(path)!r} holds a null character: take another name")
    try:
        Path(path).exists()
    except OSError as error:
        raise StoreError(f"cannot use {path}: {error.strerror or error}") from error
    return Path(path)


def claim(file: Path, *, create: bool = False) -> BinaryIO:
    """Lock this file, and so its folder, until the returned handle is closed; raise if another process holds it."""
    try:
        handle = file.open("ab+" if create else "rb+")  # NFS grants a lock only on a file that is open for writing
    except OSError as error:
        raise _cannot_write(file, error) from error
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
        synchronize(temporary)
        temporary.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def synchronize(file: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with file.open("rb+") as handle:
        os.fsync(handle.fileno())


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """Write a dictionary as JSON; an existing file is replaced whole."""
    with replace_file(file) as temporary:
        temporary.write_text(json_text(content), encoding="utf-8")


def append_text(file: Path, text: str) -> None:
    """Add a text to the end of a file; an error may leave a part of it there."""
    try:
        with file.open("a", encoding="utf-8") as handle:
            handle.write(text)
    except OSError as error:
        raise _cannot_write(file, error) from error


def json_text(content: Mapping[str, Any]) -> str:
    """Return the text that `write_json` writes."""
    return json.dumps(content, indent=1) + "\n"


def read_json(file: Path) -> dict[str, Any]:
    """Read a dictionary from a JSON file; refuse one that is too long, too deep or no dictionary."""
    try:
        content = json.loads(read_text(file, most=_MOST_JSON))
    except (ValueError, RecursionError) as error:  # not JSON, numbers of thousands of digits, lists in lists in lists
        raise StoreError(f"{file} is damaged ({error}): delete {file.parent} and start again") from error
    if not isinstance(content, dict):
        raise StoreError(f"{file} is damaged: delete {file.parent} and start again")
    return content


def read_text(file: Path, most: int | None = None) -> str:
    """Return the content of a UTF-8 text file, without a byte-order mark; refuse one of more than `most` bytes."""
    with _reading(file):
        size = file.stat().st_size
        check_memory(size, str(file))
        if most is not None and size > most:
            raise StoreError(f"{file} has {format_bytes(size)}, more than the {format_bytes(most)} that are read")
        try:
            return file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise StoreError(f"{file} is not a UTF-8 text file: {error}") from error


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn the errors of the system into one that names the file."""
    try:
        if not file.is_file():
            raise StoreError(f"{file} does not exist" if not file.exists() else f"{file} is not a file")
        yield
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error.strerror or error}") from error


def read_bytes(file: Path) -> bytes:
    """Return the content of a file; refuse one that does not fit into memory."""
    with _reading(file):
        check_memory(file.stat().st_size, str(file))
        return file.read_bytes()


def check_memory(size: int, what: str) -> None:
    """Refuse something that needs more memory than is free, before any of it is allocated."""
    free = available_memory()
    if size > free:
        raise StoreError(f"{what} needs {format_bytes(size)} of memory, {format_bytes(free)} are free")


def checksum(file: Path) -> str:
    """Return a hash of the bytes of a file."""
    state = hashlib.blake2b(digest_size=16)
    with _reading(file), file.open("rb") as handle:
        while block := handle.read(_HASHED_AT_ONCE):
            state.update(block)
    return state.hexdigest()


def _cannot_write(path: Path, error: OSError) -> StoreError:
    return error if isinstance(error, StoreError) else StoreError(f"cannot write {path}: {error.strerror or error}")


def write_array(file: Path, array: Array) -> None:
    """Write an array to a `.npy` file, which exists whole or not at all."""
    with replace_file(file) as temporary, temporary.open("wb") as handle:
        np.lib.format.write_array(handle, np.asanyarray(array), allow_pickle=False)


def read_npz(file: Path, only: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` file by name; refuse pickled ones, and more than fits into memory.

    Parameters
    ----------
    only
        The arrays to read, where they are there; default: all.
    """
    with _reading(file):
        try:
            with file.open("rb") as handle, zipfile.ZipFile(handle) as archive:
                members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
                members = {name: info for name, info in members.items() if only is None or name in only}
                # A few kilobytes can unpack to terabytes; `_read_member` takes no more than the directory says.
                check_memory(sum(info.file_size for info in members.values()), f"{file}, unpacked,")
                return {name: _read_member(archive, info) for name, info in members.items()}
        except StoreError:
            raise
        except Exception as error:  # zipfile, zlib, struct and numpy raise different errors for a damaged file
            raise StoreError(f"{file} is not a readable .npz file of plain arrays: {error}") from error


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Return one array of an archive, unpacked into memory of the size that the archive's directory gives."""
    content = bytearray(info.file_size)
    with archive.open(info) as opened:
        member: Any = opened
        if member.readinto(content) != len(content) or member.read(1):
            raise ValueError(f"{info.filename} is shorter or longer than it says")
    with io.BytesIO(memoryview(content)[:_LONGEST_HEADER]) as stream:
        shape, fortran_order, dtype = read_header(stream)
        start, count = stream.tell(), math.prod(shape)
    if start + count * dtype.itemsize != len(content):
        raise ValueError(f"{info.filename} does not have the {count} entries of its header")
    flat = np.frombuffer(content, dtype, count, start) if count else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran_order else "C")


def check_unpacked(file: Path) -> None:
    """Refuse an `.npz` file that unpacks to more than fits into memory, for readers that unpack it themselves."""
    with _reading(file):
        try:
            with zipfile.ZipFile(file) as archive:
                size = sum(info.file_size for info in archive.infolist())
        except OSError:
            raise
        except Exception:  # zipfile raises many errors for a damaged file, which its reader will tell
            return
        check_memory(size, f"{file}, unpacked,")


def read_lines(file: Path) -> list[str]:
    """Return the lines of a UTF-8 text file, without the byte-order mark that some editors write at its start."""
    return read_text(file).splitlines()


def read_npy(file: Path) -> NDArray[Any]:
    """Memory-map the array of a `.npy` file; refuse a pickled one."""
    with _reading(file):
        return map_array(file)
