"""The only place that reads pickles: published datasets, by an unpickler that can build arrays and nothing else."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from .errors import StoreError

# A pickle is a program. These are the only names it may call: they build arrays, sparse matrices and byte strings.
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
    ("copyreg", "_reconstructor"),
    ("copy_reg", "_reconstructor"),
    ("builtins", "object"),
    ("__builtin__", "object"),
    ("builtins", "list"),
    ("__builtin__", "list"),
    ("collections", "defaultdict"),
    ("collections", "OrderedDict"),
    ("torch._utils", "_rebuild_tensor_v2"),
} | {
    (f"scipy.sparse.{module}", f"{kind}_matrix")
    for kind in ("csr", "csc", "coo", "lil")
    for module in (kind, f"_{kind}")
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return _load_tensor_storage
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it calls {module}.{name}, which could run code")
        if module.startswith("scipy.sparse"):
            module = "scipy.sparse"  # the modules behind it moved between versions
        return super().find_class(module, name)


def _load_tensor_storage(content: bytes) -> Any:
    """Some split files hold torch tensors, whose bytes are a pickle again: torch reads it by its own safe rule."""
    import torch

    return torch.load(io.BytesIO(content), weights_only=True)


def read_pickle(file: str | Path) -> Any:
    """Read a pickle of arrays, sparse matrices, lists and dictionaries; anything else is refused, unexecuted."""
    path = Path(file)
    if not path.is_file():
        raise StoreError(f"{path} does not exist")
    return _load(path, io.BytesIO(path.read_bytes()))


def read_object_array(file: str | Path) -> Any:
    """Read a `.npy` file of Python objects (LINKX's split files), whose body is a pickle, by the same rule."""
    path = Path(file)
    if not path.is_file():
        raise StoreError(f"{path} does not exist")
    stream = io.BytesIO(path.read_bytes())
    try:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
    except ValueError as error:
        raise StoreError(f"{path} is not a .npy file: {error}") from error
    if not dtype.hasobject:
        return np.load(path, allow_pickle=False)
    return np.asarray(_load(path, stream), dtype=object).reshape(shape)


def _load(path: Path, stream: io.BytesIO) -> Any:
    try:
        return _ArrayUnpickler(stream, encoding="latin1").load()
    except Exception as error:  # a hostile or damaged pickle can raise anything
        raise StoreError(
            f"{path} was not read: as a pickle {error}. Only arrays, sparse matrices, lists and dictionaries are "
            f"read from pickles; convert it to .npy or .npz"
        ) from error
