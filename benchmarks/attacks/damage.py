"""Change one file in one of many ways; much of the damage keeps the format, and checksums are made to fit."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from vcr_graphormer.base.checksums import CHECKSUMS_FILE, _digest
from vcr_graphormer.base.files import checksum, json_text
from vcr_graphormer.base.folders import MANIFEST, _manifest_text, _own_checksum, digest

VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 59, 60, 2**31, 2**63, -(2**63), 10**30, 1.5, -0.0, 1e308, "x", "", None, [], {}, True, False),
    *("../x", "/etc/passwd", [[[]]], {"a": {"b": 1}}, "9" * 99, "nan", "\u0000", "\ud800", "=1+1", "<script>"),
)
TEXTS = (
    *(b"", b"-1", b"0", b"nan", b"inf", b"1e999", b"9" * 30, b"9" * 5000, b"1.5", b'"', b"'", b"\x00", b"\xff\xfe"),
    *(b"\xef\xbb\xbf", b"\r\n", b"\n\n", b",", b"\t", b";", b"{}", b"[]", b"null", b"=1+1", b"\x1b[2J", b"x" * 200_000),
    *(b"true", b"__index_level_0__", b"label", b"source", b"../..", b"\xc3\x28", b"1_000", b"0x10", b"\xe2\x80\xae"),
)
NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE]-?\d+)?")
Dice = random.Random


class Program:
    """A pickle of this runs a command: it makes a file."""

    def __init__(self, victim: str) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.victim}",)


@cache
def payloads(victim: str) -> dict[str, bytes]:
    """Return programs that make the file `victim`, in every wrapping that a reader might open."""
    import torch

    program, objects = Program(victim), np.array([Program(victim)], dtype=object)
    tensors, array, archive = (io.BytesIO() for _ in range(3))
    torch.save(program, tensors)
    np.save(array, objects, allow_pickle=True)
    names = ("adj_data", "data", "format", "feature", "features", "label", "labels", "node_features", "train_mask")
    more = ("train", "row", "edge_index", "edges", "x", "y", "nodes", "probabilities", "train_masks", "node_types")
    with zipfile.ZipFile(archive, "w") as content:
        for name in (*names, *more):
            content.writestr(f"{name}.npy", array.getvalue())
    plain = pickle.dumps(program)
    return {
        "pickle": plain,
        "old pickle": pickle.dumps(program, 0),
        "torch": tensors.getvalue(),
        "npy": array.getvalue(),
        "npz": archive.getvalue(),
        "gzip": gzip.compress(plain),
        "text": f"!!python/object/apply:os.system ['touch {victim}']\n=cmd|' /C touch {victim}'!A0\n".encode(),
    }


# ---------------------------------------------------------------- any bytes


def _flip(content: bytearray, dice: Dice) -> None:
    for _ in range(dice.choice((1, 1, 1, 8, 100))):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)


def _cut(content: bytearray, dice: Dice) -> None:
    del content[dice.randrange(len(content)) :]


def _cut_out(content: bytearray, dice: Dice) -> None:
    start = dice.randrange(len(content))
    del content[start : start + dice.choice((1, 2, 8, 64, 512))]


def _lengthen(content: bytearray, dice: Dice) -> None:
    content += dice.randbytes(dice.choice((1, 8, 4096)))


def _noise(content: bytearray, dice: Dice) -> None:
    start = dice.randrange(len(content))
    content[start : start + 64] = dice.randbytes(64)


def _same_bytes(content: bytearray, dice: Dice) -> None:
    start, length = dice.randrange(len(content)), dice.choice((1, 4, 8, 64))
    content[start : start + length] = bytes([dice.choice((0, 255, 127, 128))]) * length


def _repeat(content: bytearray, dice: Dice) -> None:
    start, target = dice.randrange(len(content)), dice.randrange(len(content))
    content[target:target] = content[start : start + dice.choice((1, 16, 256, 4096))] * dice.choice((1, 2, 50))


def _insert(content: bytearray, dice: Dice) -> None:
    start = dice.randrange(len(content))
    content[start : start + dice.choice((0, 0, 1, 4))] = dice.choice(TEXTS)


def _number(content: bytearray, dice: Dice) -> None:
    """Replace a number in a text; in binary files, some digits."""
    start = dice.randrange(len(content))
    if match := NUMBER.search(content, start) or NUMBER.search(content):
        content[match.start() : match.end()] = dice.choice(TEXTS)


def _line(content: bytearray, dice: Dice) -> None:
    """Repeat, remove, shorten or change a line of a text."""
    lines = bytes(content).split(b"\n")
    place = dice.randrange(len(lines))
    cells = re.split(rb"([,\t; ])", lines[place])
    cells[dice.randrange(len(cells))] = dice.choice(TEXTS)
    choices: tuple[list[bytes], ...] = (
        [lines[place]] * 2,
        [],
        [lines[place][: len(lines[place]) // 2]],
        [b"".join(cells)],
        [b"".join(cells)],
    )
    lines[place : place + 1] = dice.choice(choices)
    content[:] = b"\n".join(lines)


ANY_BYTES: tuple[Callable[[bytearray, Dice], None], ...] = (
    *(_flip, _flip, _cut, _cut_out, _lengthen, _noise, _same_bytes, _repeat, _insert, _number, _line),
)


# ---------------------------------------------------------------- damage that keeps the format


def replace_value(content: Any, dice: Dice) -> Any:
    """Return JSON with a random value, at any depth, replaced, removed or repeated."""
    whole = content
    while isinstance(content, dict | list) and content:
        key = dice.choice(list(content)) if isinstance(content, dict) else dice.randrange(len(content))
        value = content[key]
        if not isinstance(value, dict | list) or not value or dice.random() < 0.15:
            if dice.random() < 0.15:
                del content[key]
            elif isinstance(content, dict) and dice.random() < 0.1:
                content[dice.choice(("x", "", "../x", "version"))] = value
            else:
                content[key] = dice.choice(VALUES)
            return whole
        content = value
    return dice.choice(VALUES)


def _json(content: bytes, dice: Dice) -> bytes:
    changed = replace_value(json.loads(content), dice)
    return json.dumps(changed).encode()


def _json_lines(content: bytes, dice: Dice) -> bytes:
    lines = content.splitlines()
    place = dice.randrange(len(lines))
    lines[place] = _json(lines[place], dice)
    return b"\n".join(lines) + b"\n"


def _toml(content: bytes, dice: Dice) -> bytes:
    lines = content.splitlines()
    places = [place for place, line in enumerate(lines) if b"=" in line]
    place = dice.choice(places)
    new = dice.choice((json.dumps(dice.choice(VALUES)).encode(), dice.choice(TEXTS), b"1979-05-27", b"inf", b"{a=1}"))
    lines[place] = lines[place].split(b"=")[0] + b"= " + new
    return b"\n".join(lines) + b"\n"


def change_array(array: Any, dice: Dice) -> Any:
    """Return an array with another entry, type, shape or order."""
    way = dice.choice(("entry", "entry", "entry", "type", "shape", "order"))
    if way == "entry" and array.size and array.dtype.kind in "iufb":
        changed = np.array(array)
        values: list[float] = [-1, 0, 1, 2, NODES - 1, NODES, 2**31 - 1, -(2**31), 10**6, dice.randrange(300)]
        values += [np.nan, np.inf, -1e30, 1e-30, 1e38] if array.dtype.kind == "f" else []
        for _ in range(dice.choice((1, 1, 1, 5))):
            changed.reshape(-1)[dice.randrange(array.size)] = np.array(dice.choice(values)).astype(array.dtype)
        return changed
    if way == "type":
        with suppress(ValueError, TypeError):
            return array.astype(
                dice.choice((">i4", "<i8", "<f4", ">f8", "|i1", "|S4", "<U3", "?", "<u8", "<c16", "<f2"))
            )
    if way == "order":
        return np.asfortranarray(array[::-1]) if array.ndim else array
    if array.ndim:
        other = (
            array[:-1],
            np.concatenate([array, array]),
            array[None],
            array[:0],
            array.reshape(-1),
            array[..., None],
        )
        return dice.choice(other)
    return np.array([array, array])


NODES = 60


def _npy(content: bytes, dice: Dice) -> bytes:
    stream = io.BytesIO()
    np.save(stream, change_array(np.load(io.BytesIO(content)), dice))
    return stream.getvalue()


def _npz(content: bytes, dice: Dice) -> bytes:
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    name = dice.choice(list(arrays))
    if dice.random() < 0.15:
        del arrays[name]
    elif dice.random() < 0.1:
        arrays[dice.choice(("x", "train", "labels", "nodes", "weight"))] = arrays.pop(name)
    else:
        arrays[name] = change_array(arrays[name], dice)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def _columns(content: bytes, dice: Dice, *, parquet: bool) -> bytes:
    """Change a column of a parquet or feather file: a value, its type, its name; or take it away."""
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    read = pa.parquet.read_table if parquet else pa.feather.read_table
    columns: dict[Any, Any] = read(pa.BufferReader(content)).to_pydict()
    name = dice.choice(list(columns))
    values, count = columns[name], len(columns[name])
    types: tuple[Any, ...] = (pa.string(), pa.float16(), pa.decimal128(38, 3), pa.binary(), pa.date32(), pa.bool_())
    way = dice.choice(("value", "value", "nulls", "gone", "name", "nested", "type", "none"))
    if way == "value":
        kind = type(values[0])
        others = {str: ("", "=1", "\x00", "x" * 3000), int: (-1, 10**12, 60), float: (float("nan"), 1e308, -1.0)}
        columns[name] = [*values[:-1], dice.choice(others.get(kind, (None,)))]
    elif way == "nulls":
        columns[name] = [None] * count
    elif way == "gone":
        del columns[name]
    elif way == "name":
        columns[dice.choice(("", "node", "label", "source", "__index_level_0__", "x\x1b[2J"))] = columns.pop(name)
    elif way == "nested":
        columns[name] = [[value] for value in values]
    elif way == "type":
        with suppress(pa.ArrowException, TypeError, ValueError):
            columns[name] = pa.array(values).cast(dice.choice(types))
    else:
        columns = {one: list(column)[:0] for one, column in columns.items()}
    sink = pa.BufferOutputStream()
    write = pa.parquet.write_table if parquet else pa.feather.write_feather
    write(pa.table(columns), sink)
    return bytes(sink.getvalue())


def _safetensors(content: bytes, dice: Dice) -> bytes:
    """Change a tensor, or the header."""
    from safetensors import numpy as tensors

    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    about = header.get("__metadata__", {})
    if dice.random() < 0.5:
        changed = json.dumps(replace_value(header, dice)).encode()
        return len(changed).to_bytes(8, "little") + changed + content[8 + length :]
    arrays = tensors.load(content)
    name = dice.choice(list(arrays))
    if dice.random() < 0.2:
        del arrays[name]
    else:
        changed_array = np.ascontiguousarray(change_array(arrays[name], dice))
        known = changed_array.dtype.kind in "iufb" and changed_array.dtype.isnative
        arrays[name] = changed_array if known else arrays[name][:0]
    if dice.random() < 0.3 and "about" in about:
        about = {**about, "about": json.dumps(replace_value(json.loads(about["about"]), dice))}
    return tensors.save(arrays, metadata=about)


def _pickled(content: bytes, dice: Dice) -> bytes:
    """Change an array, a matrix or a dictionary in a pickle that we wrote."""
    value: Any = pickle.loads(content)  # noqa: S301 - written by `raw.py` a moment ago
    if isinstance(value, dict):
        key = dice.choice(list(value))
        value[dice.choice((key, -1, 10**9, "x"))] = dice.choice(([10**9], [-1], "x", [1.5], None, [[1]], {}))
    elif isinstance(value, np.ndarray):
        value = change_array(value, dice)
    else:
        part = dice.choice(("data", "indices", "indptr"))
        setattr(value, part, change_array(getattr(value, part), dice))
    return pickle.dumps(value, dice.choice((2, 4)))


def _object_array(content: bytes, dice: Dice) -> bytes:
    """Change a part of LINKX's splits, which are dictionaries in an array."""
    splits = np.load(io.BytesIO(content), allow_pickle=True)
    part = dice.choice(("train", "valid", "test"))
    splits[0] = {**splits[0], part: dice.choice((change_array(splits[0][part], dice), None, "x", [[]], -1))}
    stream = io.BytesIO()
    np.save(stream, splits, allow_pickle=True)
    return stream.getvalue()


def _gzipped(content: bytes, dice: Dice) -> bytes:
    text = bytearray(gzip.decompress(content))
    dice.choice((_number, _line, _insert, _cut_out))(text, dice)
    return gzip.compress(bytes(text), mtime=0)


BY_ENDING: dict[str, Callable[[bytes, Dice], bytes]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".toml": _toml,
    ".npy": _npy,
    ".npz": _npz,
    ".parquet": lambda content, dice: _columns(content, dice, parquet=True),
    ".feather": lambda content, dice: _columns(content, dice, parquet=False),
    ".safetensors": _safetensors,
    ".pkl": _pickled,
    ".gz": _gzipped,
}


def _keeps_format(file: Path) -> Callable[[bytes, Dice], bytes] | None:
    if file.name == "arxiv-year-splits.npy":
        return _object_array
    if file.name.startswith("ind.") and not file.name.endswith("index"):
        return _pickled
    return BY_ENDING.get(file.suffix)


def damage(file: Path, dice: Dice, victim: Path) -> str:
    """Change a file in one of many ways, and the checksums that belong to it; return which way."""
    content = file.read_bytes()
    chance, keeping = dice.random(), _keeps_format(file)
    if chance < 0.03:
        way, program = dice.choice(list(payloads(str(victim)).items()))
        _put(file, program)
        return f"payload {way}"
    if chance < 0.05:
        other = dice.choice([one for one in file.parent.iterdir() if one.is_file()])
        _put(file, other.read_bytes())
        return "another file"
    if chance < 0.06:
        _put(file, b"")
        return "empty"
    changed_well = _change(content, keeping, dice) if keeping is not None and chance < 0.6 and content else None
    if keeping is not None and changed_well is not None:
        _put(file, changed_well)
        if dice.random() < 0.9:
            fit_checksums(file)
        return keeping.__name__
    changed, change = bytearray(content), dice.choice(ANY_BYTES)
    if changed:
        change(changed, dice)
    _put(file, bytes(changed))
    if dice.random() < 0.5:
        fit_checksums(file)
    return change.__name__


def _change(content: bytes, keeping: Callable[[bytes, Dice], bytes], dice: Dice) -> bytes | None:
    """Return a content with damage that keeps the format; None for damage that the format cannot hold."""
    with np.errstate(all="ignore"), warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        return keeping(content, dice)
    return None


def _put(file: Path, content: bytes) -> None:
    """Write a new file in its place; the old one may be mapped, and must stay as it is for that."""
    temporary = file.with_name(f".{file.name}.new")
    temporary.write_bytes(content)
    temporary.replace(file)


def fit_checksums(file: Path) -> None:
    """Change the checksums that a file is listed under, as an attacker would; files that are no longer read stay."""
    with suppress(Exception):
        if file.suffix == ".npy" and (file.parent / MANIFEST).is_file():
            array = np.load(file)
            entry = {"dtype": array.dtype.str, "shape": list(array.shape), "bytes": file.stat().st_size}
            manifest = json.loads((file.parent / MANIFEST).read_text())
            manifest["arrays"][file.stem] = {**entry, "checksum": digest(array)}
            _put(file.parent / MANIFEST, json.dumps(manifest).encode())
            file = file.parent / MANIFEST
        if file.name == MANIFEST:
            manifest = json.loads(file.read_text())
            _put(file, _manifest_text({**manifest, "checksum": _own_checksum(manifest)}).encode())
        if file.name == "model.safetensors":
            metrics = json.loads((file.parent / "metrics.json").read_text())
            _put(file.parent / "metrics.json", json.dumps({**metrics, "weights": checksum(file)}).encode())
        folder = next(parent for parent in file.parents if (parent / CHECKSUMS_FILE).is_file())
        listed = json.loads((folder / CHECKSUMS_FILE).read_text())
        if file.name == CHECKSUMS_FILE:
            _put(file, json_text({**listed, "checksum": _digest(listed["files"])}).encode())
            return
        for name in listed["files"]:
            size = (folder / name).stat().st_size
            listed["files"][name] = {"bytes": size, "checksum": checksum(folder / name)}
        _put(folder / CHECKSUMS_FILE, json_text({**listed, "checksum": _digest(listed["files"])}).encode())


class Copy:
    """The files of a sample, in memory, so that a folder is as before after each case."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contents = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        self.states = {file: _state(file) for file in self.contents}

    def restore(self) -> None:
        """Bring back what has changed, and remove what has come."""
        for file in [file for file in self.folder.rglob("*") if file not in self.contents and not file.is_dir()]:
            file.unlink()
        for file, content in self.contents.items():
            if not file.is_file() or _state(file) != self.states[file]:
                file.parent.mkdir(parents=True, exist_ok=True)
                _put(file, content)
                self.states[file] = _state(file)

    def restore_folders(self) -> None:
        """The same, folders included."""
        shutil.rmtree(self.folder)
        for file, content in self.contents.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        self.states = {file: _state(file) for file in self.contents}


def _state(file: Path) -> tuple[int, int, int]:
    stat = file.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
