"""`checksums.json` of a run: size and hash of each of its files, so that a changed bit is found.

Graphs and token lists may have one for the files beside their arrays, which are in no manifest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import StoreError
from .checks import is_whole
from .files import checksum, json_text, read_json, read_text, write_json
from .folders import MANIFEST, folder_problems, read_manifest

CHECKSUMS_FILE = "checksums.json"
_VERSION = 1
_NEVER = ("checkpoint", "training-tokens", "tensorboard")  # folders of a run that change or go
_BINARY = (".npz", ".safetensors")  # nobody edits these by hand


def record(folder: Path, names: Iterable[str], *, texts: Mapping[str, str] | None = None) -> None:
    """Write or replace the entries of some files of a run, named relative to its folder.

    Parameters
    ----------
    texts
        Contents of files that will be written next, by name.
    """
    entries = _read(folder) if (folder / CHECKSUMS_FILE).is_file() else {}
    for name in names:
        entries[name] = {"bytes": (folder / name).stat().st_size, "checksum": checksum(folder / name)}
    for name, text in (texts or {}).items():
        content = text.encode()
        entries[name] = {"bytes": len(content), "checksum": hashlib.blake2b(content, digest_size=16).hexdigest()}
    write_json(
        folder / CHECKSUMS_FILE,
        {"version": _VERSION, "files": entries, "checksum": _digest(entries)},
    )


def run_files(folder: Path) -> list[str]:
    """Return the names of the files of a run, without arrays: those have their checksums in manifests beside them."""
    files = []
    for file in sorted(folder.rglob("*")):
        inside = file.relative_to(folder).parts
        hidden = any(part.startswith(".") for part in inside)
        mapped = file.suffix == ".npy" and (file.parent / MANIFEST).is_file()
        if file.is_file() and not hidden and not mapped and inside[0] not in _NEVER and inside != (CHECKSUMS_FILE,):
            files.append("/".join(inside))
    return files


def check_sizes(folder: Path) -> None:
    """Refuse a run with a binary file of another size than it was written with; nothing is read but sizes."""
    if not (folder / CHECKSUMS_FILE).is_file():
        return  # younger than the first runs
    for name, entry in _read(folder).items():
        file = folder / name
        if file.suffix in _BINARY and file.is_file() and file.stat().st_size != entry["bytes"]:
            raise StoreError(
                f"{file} is damaged: it has {file.stat().st_size} bytes, but {entry['bytes']} were written. Bring it "
                f"back, or train again"
            )


def is_as_recorded(folder: Path, name: str) -> bool:
    """Return whether a file, named relative to the folder of a run, has the content that the run has recorded of it."""
    file = folder / name
    try:
        entry = _read(folder).get(name) if (folder / CHECKSUMS_FILE).is_file() else None
    except StoreError:
        return False
    return entry is not None and file.is_file() and checksum(file) == entry["checksum"]


def problems(folder: Path, saved: Iterable[Path]) -> list[str]:
    """Return a sentence for each file of a run that is not as it was written; none if all are.

    Parameters
    ----------
    saved
        The folders of graph and token lists, which have manifests.
    """
    if not (folder / CHECKSUMS_FILE).is_file():
        return [f"{folder} has no {CHECKSUMS_FILE}: it is not finished, or of a version before checksums"]
    return [*_own_problems(folder), *(sentence for path in saved for sentence in saved_problems(path))]


def _own_problems(folder: Path) -> list[str]:
    """Return a sentence for each file in `checksums.json` that is not as it was written, or for that file itself."""
    file, sentences = folder / CHECKSUMS_FILE, []
    try:
        entries = _read(folder)
        # The checksum of this file is of what its text means: \u00e9 and \u00E9 are the same letter.
        if read_text(file) != json_text(read_json(file)):
            sentences.append(f"{file} is not as it was written: its text was changed, but not what it says")
    except StoreError as error:
        return [str(error)]
    for name, entry in entries.items():
        file = folder / name
        if not file.is_file():
            sentences.append(f"{file} is missing")
        elif file.stat().st_size != entry["bytes"] or checksum(file) != entry["checksum"]:
            sentences.append(f"{file} does not match its checksum: it was changed or damaged after it was written")
    return sentences


def saved_problems(folder: Path) -> list[str]:
    """Return a sentence for each file of a graph or of token lists that is not as it was written; none if all are.

    Saved folders inside, such as the rankers of token lists, are compared too.
    """
    own = _own_problems(folder) if (folder / CHECKSUMS_FILE).is_file() else []
    inside = (sentence for path in _saved_inside(folder) for sentence in folder_problems(path))
    return [*folder_problems(folder), *own, *inside]


def _saved_inside(folder: Path) -> list[Path]:
    """Return the saved folders in a saved folder. Names that begin with a dot are of jobs that run, or were killed."""
    return [file.parent for file in _visible(folder) if file.name == MANIFEST and file.parent != folder]


def _visible(folder: Path) -> list[Path]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return [file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)]


def without_checksum(folder: Path) -> list[Path]:
    """Return files in the folder of a sound graph or of sound token lists that `saved_problems` does not compare."""
    known = {folder / CHECKSUMS_FILE}
    if (folder / CHECKSUMS_FILE).is_file():
        known |= {folder / name for name in _read(folder)}
    for path in (folder, *_saved_inside(folder)):
        known |= {path / MANIFEST, *(path / f"{name}.npy" for name in read_manifest(path)["arrays"])}
    return [file for file in _visible(folder) if file not in known]


def unrecorded(folder: Path, saved: Iterable[Path]) -> list[Path]:
    """Return files in a sound run folder, and in the folders of graph and token lists, that have no checksum."""
    recorded = {folder / name for name in _read(folder)}
    elsewhere = [path for path in saved if (path / MANIFEST).is_file()]
    own = [folder / name for name in run_files(folder)]
    own = [file for file in own if not any(file.is_relative_to(path) for path in elsewhere)]
    found = [*own, *(file for path in elsewhere for file in without_checksum(path))]
    return [file for file in found if file not in recorded]


def _read(folder: Path) -> dict[str, dict[str, Any]]:
    file = folder / CHECKSUMS_FILE
    content = read_json(file)
    if content.get("version") != _VERSION:
        raise StoreError(f"{file} has format {content.get('version')!r}; this package reads {_VERSION}")
    entries = content.get("files")
    if not isinstance(entries, dict) or content.get("checksum") != _digest(entries) or len(content) != 3:
        raise StoreError(f"{file} does not match its own checksum: it was changed or damaged after it was written")
    for name, entry in entries.items():
        if not isinstance(entry, dict) or entry.keys() != {"bytes", "checksum"} or not is_whole(entry["bytes"]):
            raise StoreError(f"{file} is damaged: the entry of {name!r} needs bytes and checksum")
    return entries


def _digest(entries: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(entries, sort_keys=True).encode(), digest_size=16).hexdigest()
