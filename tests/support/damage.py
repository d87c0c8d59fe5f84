"""Saved folders that someone has changed on purpose: checksums are made to fit, so only the content is wrong."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vcr_graphormer.base.folders import MANIFEST, _manifest_text, _own_checksum, digest


@contextmanager
def edited_manifest(folder: Path) -> Iterator[dict[str, Any]]:
    """The manifest, to be changed; it is written back with a checksum of its own that fits."""
    manifest = json.loads((folder / MANIFEST).read_text())
    yield manifest
    (folder / MANIFEST).write_text(_manifest_text({**manifest, "checksum": _own_checksum(manifest)}))


def put_array(folder: Path, name: str, array: Any) -> None:
    """Replace an array, with the entry in the manifest that belongs to it."""
    values = np.asarray(array)
    np.save(folder / f"{name}.npy", values)
    with edited_manifest(folder) as manifest:
        manifest["arrays"][name] = {
            "dtype": values.dtype.str,
            "shape": list(values.shape),
            "bytes": (folder / f"{name}.npy").stat().st_size,
            "checksum": digest(values),
        }


def flip_bit(file: Path, bit: int) -> None:
    """Change one bit, counted from the start of the file; the time of the file stays as it was."""
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
