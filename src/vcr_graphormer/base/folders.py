"""Folders of memory-mapped `.npy` files and a manifest, which exist whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import GraphError, StoreError
from .checks import Array, is_whole
from .files import _cannot_write, read_json, read_text, replace_file, to_path, write_array, write_json
from .mapping import MapMode, map_array

MANIFEST = "manifest.json"
CHECKED = ".checked.json"  # what `check_once` remembers
_MANIFEST_KEYS = ("kind", "version", "meta", "arrays", "checksum")  # the last is younger than the first folders
# Elements hashed at once: `digest` of a memory-mapped array copies at most 32 MiB of 8-byte numbers.
_HASH_BLOCK = 1 << 22
# Folders with fewer bytes are checked faster than a note is written.
_WORTH_A_NOTE = 1 << 25
_CHECKS = 3  # version of the checks: raise it when they get stricter, and all folders are checked again
_HEADER_TEXT = 10  # where the text of a `.npy` header begins: after six bytes of magic, two of version, two of length
# Folders that this process has checked, with the state of their files.
_checked: dict[Path, dict[str, list[int]]] = {}


def digest(*arrays: Array | None) -> str:
    """Return a hash of the dtype, shape and content of arrays, the same on every machine.

    >>> digest(np.arange(3, dtype=np.int32)) == digest(np.arange(3, dtype=np.int32))
    True
    >>> digest(np.arange(3, dtype=np.int32)) == digest(np.arange(3, dtype=np.int64))
    False
    """
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        if array is None:
            state.update(b"none;")
            continue
        if array.dtype.hasobject:
            raise StoreError(f"an array of type {array.dtype} cannot be hashed: convert it to a plain dtype first")
        state.update(_form(array.dtype, array.shape))
        flat = array.reshape(-1)
        for start in range(0, flat.size, _HASH_BLOCK):
            state.update(_hashed(flat[start : start + _HASH_BLOCK]))
    return state.hexdigest()


class Digest:
    """The hash that `digest` returns of one array, computed from its parts in their order.

    >>> half = Digest(np.dtype(np.int32), (4,))
    >>> for part in np.arange(4, dtype=np.int32).reshape(2, 2):
    ...     half.add(part)
    >>> half.text() == digest(np.arange(4, dtype=np.int32))
    True
    """

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._state = hashlib.blake2b(_form(dtype, shape), digest_size=16)

    def add(self, part: Array) -> None:
        """Add the next part. Other threads can work meanwhile."""
        self._state.update(_hashed(part))

    def text(self) -> str:
        """Return the hash of all parts so far."""
        return self._state.hexdigest()


def _form(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    return f"{dtype.newbyteorder('<').str}{shape};".encode()


def _hashed(part: Array) -> memoryview:
    """Return the bytes of an array, the same on every machine."""
    return np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the sorted keys whose values differ, or that only one of the two dictionaries has."""
    return sorted(name for name in {**first, **second} if first.get(name) != second.get(name))


def write_folder(
    path: str | Path,
    kind: str,
    version: int,
    arrays: Mapping[str, Array],
    meta: Mapping[str, Any],
    overwrite: bool,
    *,
    like: Iterable[Path] = (),
) -> Path:
    """Write `arrays` and a manifest to a temporary folder beside `path`, then rename it to `path`.

    After a crash there is either no folder of that name or the complete one.

    Parameters
    ----------
    like
        Folders that may hold some of the same arrays. Their files become hard links where the disk can, so that the
        content is stored once; deleting one of the folders leaves the other whole.
    """
    target = to_path(path)
    if target.exists() and not overwrite:
        raise StoreError(f"{target} exists: choose another name, delete it, or pass overwrite=True")
    if target.exists() and not is_folder_of(target, kind):
        raise StoreError(f"{target} exists and is not a saved {kind}: refusing to replace it")
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        temporary.chmod(0o755)
        checksums = {name: digest(array) for name, array in arrays.items()}
        stored = _find_arrays(like, checksums)
        for name, array in arrays.items():
            if not (name in stored and _link(stored[name], temporary / f"{name}.npy")):
                write_array(temporary / f"{name}.npy", array)
        write_manifest(temporary, kind, version, arrays, meta, checksums)
        if target.exists():
            previous = temporary.with_suffix(".old")
            target.rename(previous)
            try:
                temporary.rename(target)
            except OSError:
                previous.rename(target)
                raise
            shutil.rmtree(previous)
        else:
            temporary.rename(target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _find_arrays(folders: Iterable[Path], checksums: Mapping[str, str]) -> dict[str, Path]:
    """Return files in saved folders that hold these arrays; each is read, so that no damage is passed on."""
    stored: dict[str, Path] = {}
    for folder in folders:
        with suppress(StoreError, OSError):
            for name, entry in read_manifest(folder)["arrays"].items():
                file, wanted = folder / f"{name}.npy", name not in stored and entry["checksum"] == checksums.get(name)
                if wanted and digest(open_array(file, entry)) == checksums[name]:
                    stored[name] = file
        if stored.keys() == checksums.keys():
            break
    return stored


def _link(file: Path, target: Path) -> bool:
    """Make a hard link; return False where that is not possible: on another disk, or on one without such links."""
    try:
        target.hardlink_to(file)
    except (OSError, NotImplementedError):
        return False
    return True


def write_manifest(
    folder: Path,
    kind: str,
    version: int,
    arrays: Mapping[str, Array],
    meta: Mapping[str, Any],
    checksums: Mapping[str, str] | None = None,
) -> None:
    """Write the manifest of the arrays in a folder. A folder opens only if it has one, so write it last.

    Parameters
    ----------
    checksums
        Checksums that the caller has computed already; the others are computed here.
    """
    entries = {
        name: {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "bytes": (folder / f"{name}.npy").stat().st_size,
            "checksum": (checksums or {}).get(name) or digest(array),
        }
        for name, array in arrays.items()
    }
    manifest = {"kind": kind, "version": version, "meta": dict(meta), "arrays": entries}
    manifest["checksum"] = _own_checksum(manifest)
    with replace_file(folder / MANIFEST) as temporary:
        temporary.write_text(_manifest_text(manifest), encoding="utf-8")


def _manifest_text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=1, sort_keys=True)


def _own_checksum(manifest: Mapping[str, Any]) -> str:
    """Return the hash of a manifest without its entry `checksum`."""
    content = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def verify_folder(path: str | Path) -> None:
    """Read every array of a saved folder and raise for the first that does not match its checksum."""
    if sentences := folder_problems(path):
        raise StoreError(sentences[0])


def folder_problems(path: str | Path) -> list[str]:
    """Return a sentence for each file of a saved folder that does not match its checksum; none if all do."""
    manifest_file, sentences = Path(path) / MANIFEST, []
    try:
        manifest = read_manifest(path)
        # Its own checksum is of what the text means: \u00e9 and \u00E9 are the same letter.
        if read_text(manifest_file) != _manifest_text(manifest):
            sentences.append(f"{manifest_file} is not as it was written: its text was changed, but not what it says")
    except StoreError as error:
        return [str(error)]
    for name, entry in manifest["arrays"].items():
        file = Path(path) / f"{name}.npy"
        try:
            array = open_array(file, entry)
            if digest(array) != entry["checksum"] or not _has_usual_header(file, array):
                sentences.append(f"{file} does not match its checksum: it was changed or damaged after it was written")
        except StoreError as error:
            sentences.append(str(error))
    return sentences


def _has_usual_header(file: Path, array: Array) -> bool:
    """Return whether the bytes before the array are those that `write_array` writes; they are in no checksum.

    Versions of NumPy differ only in the number of spaces that they put behind the text.
    """
    with io.BytesIO() as stream:
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(array))
        usual = stream.getvalue()
    with file.open("rb") as handle:
        start = handle.read(file.stat().st_size - array.nbytes)
    text, wanted = (header[_HEADER_TEXT:-1].rstrip(b" ") for header in (start, usual))
    return start[: _HEADER_TEXT - 2] == usual[: _HEADER_TEXT - 2] and start[-1:] == b"\n" and text == wanted


def is_intact(path: Path) -> bool:
    """Return whether `path` is a saved folder in which every array matches its checksum."""
    try:
        verify_folder(path)
    except StoreError:
        return False
    return True


def is_folder_of(path: Path, kind: str) -> bool:
    """Return whether `path` is a folder whose manifest names this kind of content."""
    try:
        return bool(read_manifest(path)["kind"] == kind)
    except StoreError:
        return False


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Return the manifest of a saved folder after checking that it has the fields and types of one."""
    file = to_path(path) / MANIFEST
    if not file.is_file():
        raise StoreError(f"{path} is not a saved folder: {MANIFEST} is missing")
    manifest = read_json(file)
    if not {"kind", "version", "meta", "arrays"} <= manifest.keys() <= {*_MANIFEST_KEYS}:
        raise StoreError(f"{file} is not a manifest of ours: it needs kind, version, meta and arrays")
    if not isinstance(manifest["meta"], dict) or not isinstance(manifest["arrays"], dict):
        raise StoreError(f"{file} is damaged: meta and arrays must be tables")
    if "checksum" in manifest and manifest["checksum"] != _own_checksum(manifest):
        raise StoreError(f"{file} does not match its own checksum: it was changed or damaged after it was written")
    types = {"dtype": str, "shape": list, "bytes": int, "checksum": str}
    for name, entry in manifest["arrays"].items():
        if not isinstance(entry, dict) or any(not isinstance(entry.get(key), type_) for key, type_ in types.items()):
            raise StoreError(f"{file} is damaged: the entry of '{name}' needs dtype, shape, bytes and checksum")
        if not all(is_whole(size) and size >= 0 for size in (entry["bytes"], *entry["shape"])):
            raise StoreError(f"{file} is damaged: the entry of '{name}' has a size that is not 0, 1, 2, …")
        if name.startswith(".") or not {"/", "\\", "\0"}.isdisjoint(name):
            raise StoreError(f"{file} is damaged: '{name}' would be a file outside of the folder")
    return manifest


def check_once(path: str | Path, check: Callable[[], None], *, beside: Path | None = None) -> None:
    """Call `check`, which reads the arrays of a saved folder, unless it passed before for the very same files.

    Files are the same if name, size, inode and both times of the system are. This process remembers that, and large
    folders have a note for other processes. A note that came with a copy or an archive is void: inodes and times
    differ. `check` raises a `GraphError` for arrays that do not fit together.

    Parameters
    ----------
    beside
        Another saved folder that `check` compares the arrays with.
    """
    folder = Path(path).resolve()
    try:
        state = _state(folder)
        if beside is not None:
            state |= {f"{beside.resolve()}/{name}": numbers for name, numbers in _state(beside).items()}
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    if _checked.get(folder) == state:
        return
    note = folder / CHECKED
    with suppress(StoreError):
        if note.is_file() and read_json(note) == {"version": _CHECKS, "files": state}:
            _checked[folder] = state
            return
    try:
        check()
    except (GraphError, StoreError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    _checked[folder] = state
    if sum(size for size, *_ in state.values()) >= _WORTH_A_NOTE:
        with suppress(StoreError):  # a disk that is full or read-only: the next process checks again
            write_json(note, {"version": _CHECKS, "files": state})


def _state(folder: Path) -> dict[str, list[int]]:
    """Return size, inode and times of every file that a manifest lists, and of the manifest."""
    stats = {file.name: file.stat() for file in (folder / MANIFEST, *folder.glob("*.npy"))}
    return {
        name: [stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns] for name, stat in sorted(stats.items())
    }


def open_folder(
    path: str | Path, kind: str, version: int, mode: MapMode = "r"
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the metadata and the memory-mapped arrays of a folder that `write_folder` wrote.

    Parameters
    ----------
    mode : "r" or "c"
        `r` maps read-only. `c` maps copy-on-write: the arrays are writable, but changes never reach the file.
    """
    manifest = read_manifest(path)
    if manifest["kind"] != kind:
        raise StoreError(f"{path} holds a {manifest['kind']}, not a {kind}")
    if manifest["version"] != version:
        raise StoreError(
            f"{path} has format version {manifest['version']}; this package reads version {version}: make it again, or "
            f"use the version of the package that wrote it"
        )
    return manifest["meta"], {
        name: open_array(Path(path) / f"{name}.npy", entry, mode) for name, entry in manifest["arrays"].items()
    }


def open_array(file: Path, entry: Mapping[str, Any], mode: MapMode = "r") -> Array:
    """Memory-map one array and check its size, dtype and shape against its entry in the manifest."""
    try:
        size = file.stat().st_size
    except OSError as error:
        raise StoreError(f"{file} is missing, but the manifest lists it") from error
    if size != entry["bytes"]:
        raise StoreError(f"{file} has {size} bytes but the manifest says {entry['bytes']}: it was cut short or changed")
    array = map_array(file, mode)
    if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise StoreError(
            f"{file} holds {array.dtype.str}{list(array.shape)} but the manifest says {entry['dtype']}{entry['shape']}"
        )
    return array
