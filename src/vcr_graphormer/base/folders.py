"""Folders of memory-mapped `.npy` files and a manifest, which exist whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import StoreError
from .checks import Array
from .files import _cannot_write, replace_file, write_array

MANIFEST = "manifest.json"
# Elements hashed at once: `digest` of a memory-mapped array copies at most 32 MiB of 8-byte numbers.
_HASH_BLOCK = 1 << 22
MapMode = Literal["r", "c"]


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
        state.update(f"{array.dtype.newbyteorder('<').str}{array.shape};".encode())
        flat = array.reshape(-1)
        for start in range(0, flat.size, _HASH_BLOCK):
            block = flat[start : start + _HASH_BLOCK]
            state.update(np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<")).view(np.uint8).data)
    return state.hexdigest()


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
    target = Path(path)
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
    with replace_file(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(manifest, indent=1, sort_keys=True), encoding="utf-8")


def verify_folder(path: str | Path) -> None:
    """Read every array of a saved folder and raise for the first that does not match its checksum."""
    for name, entry in read_manifest(path)["arrays"].items():
        file = Path(path) / f"{name}.npy"
        if digest(open_array(file, entry)) != entry["checksum"]:
            raise StoreError(f"{file} does not match its checksum: it was changed or damaged after it was written")


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
    file = Path(path) / MANIFEST
    if not file.is_file():
        raise StoreError(f"{path} is not a saved folder: {MANIFEST} is missing")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{file} is damaged: {error}") from error
    if not isinstance(manifest, dict) or not {"kind", "version", "meta", "arrays"} <= manifest.keys():
        raise StoreError(f"{file} is not a manifest of ours: it needs kind, version, meta and arrays")
    if not isinstance(manifest["meta"], dict) or not isinstance(manifest["arrays"], dict):
        raise StoreError(f"{file} is damaged: meta and arrays must be tables")
    types = {"dtype": str, "shape": list, "bytes": int, "checksum": str}
    for name, entry in manifest["arrays"].items():
        if not isinstance(entry, dict) or any(not isinstance(entry.get(key), type_) for key, type_ in types.items()):
            raise StoreError(f"{file} is damaged: the entry of '{name}' needs dtype, shape, bytes and checksum")
    return manifest


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
        raise StoreError(f"{path} has format version {manifest['version']}; this package reads version {version}")
    return manifest["meta"], {
        name: open_array(Path(path) / f"{name}.npy", entry, mode) for name, entry in manifest["arrays"].items()
    }


def open_array(file: Path, entry: Mapping[str, Any], mode: MapMode = "r") -> Array:
    """Memory-map one array and check its size, dtype and shape against its entry in the manifest."""
    if not file.is_file():
        raise StoreError(f"{file} is missing, but the manifest lists it")
    size = file.stat().st_size
    if size != entry["bytes"]:
        raise StoreError(f"{file} has {size} bytes but the manifest says {entry['bytes']}: it was cut short or changed")
    try:
        # An array without elements cannot be memory-mapped.
        empty = 0 in entry["shape"]
        array: Array = np.load(file, mmap_mode=None if empty else mode, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise StoreError(f"{file} is not a readable .npy file: {error}") from error
    if array.dtype.str != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise StoreError(
            f"{file} holds {array.dtype.str}{list(array.shape)} but the manifest says {entry['dtype']}{entry['shape']}"
        )
    return array
