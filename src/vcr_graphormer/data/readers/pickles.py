"""Read pickles of published datasets with an unpickler that can build only arrays; no other module reads pickles."""

from __future__ import annotations

import codecs
import collections
import io
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...base.files import read_bytes
from ...base.mapping import map_array
from ...errors import GraphError, StoreError
from ..contract import to_csr

SPARSE = ("csr", "csc", "coo")


def read_pickle(file: str | Path) -> Any:
    """Read a pickle of arrays, sparse matrices, lists and dictionaries; refuse anything else before it can run."""
    path = Path(file)
    if not path.is_file():
        raise StoreError(f"{path} does not exist")
    return _load(path, io.BytesIO(read_bytes(path)))


def read_object_array(file: str | Path) -> Any:
    """Read a `.npy` file of Python objects, as LINKX's split files are; its body is a pickle, read as safely."""
    path = Path(file)
    if not path.is_file():
        raise StoreError(f"{path} does not exist")
    stream = io.BytesIO(read_bytes(path))
    try:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
    except Exception as error:  # a damaged header makes numpy and Python's parser raise nearly anything
        raise StoreError(f"{path} is not a .npy file: {error}") from error
    if not dtype.hasobject:
        return map_array(path)
    try:
        return np.asarray(_load(path, stream), dtype=object).reshape(shape)
    except ValueError as error:
        raise StoreError(f"{path} does not have the {list(shape)} entries of its header") from error


def _load(path: Path, stream: io.BytesIO) -> Any:
    try:
        return _ArrayUnpickler(stream).load()
    except Exception as error:  # a hostile or damaged pickle can raise anything
        raise StoreError(
            f"{path} was not read: as a pickle {error}. Only arrays, sparse matrices, lists and dictionaries are "
            f"read from pickles; convert it to .npy or .npz"
        ) from error


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that gives the pickle only the few functions in `_ALLOWED`.

    A pickle is a program: it calls functions by name and sets attributes of what it gets. So each load gets fresh
    stand-ins for everything written in Python, and changes to them end with the load.
    """

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, encoding="latin1")
        # New classes for each load: a pickle may set attributes of a class that it gets.
        self.sparse = {layout: type(f"{layout}_fields", (_SparseFields,), {"layout": layout}) for layout in SPARSE}

    def find_class(self, module: str, name: str) -> Any:
        layout = name.removesuffix("_matrix")
        if module.startswith("scipy.sparse") and layout in SPARSE and name != layout:
            return self.sparse[layout]
        allowed = _ALLOWED.get((module, name))
        if allowed is None:
            raise pickle.UnpicklingError(f"it calls {module}.{name}, which could run code")
        # A pickle cannot change a class written in C. It can change a function, so each load gets its own wrapper.
        return allowed if isinstance(allowed, type) else partial(allowed)

    def load(self) -> Any:
        return _build_matrices(super().load())


class _SparseFields:
    """The attributes of a pickled scipy matrix, before it is checked and built."""

    layout = ""


def _build_matrices(value: Any) -> Any:
    """Replace the stand-ins for sparse matrices by checked matrices."""
    if isinstance(value, _SparseFields):
        return _build_sparse(value)
    if isinstance(value, dict):
        return {key: _build_matrices(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_build_matrices(item) for item in value)
    return value


def _build_sparse(matrix: _SparseFields) -> sp.csr_matrix:
    fields = vars(matrix)
    shape = fields.get("_shape", fields.get("shape"))
    if matrix.layout == "coo":
        coordinates = fields["coords"] if "coords" in fields else (fields["row"], fields["col"])
        return to_csr(sp.coo_matrix((fields["data"], coordinates), shape=shape), "a pickled matrix")
    build = sp.csr_matrix if matrix.layout == "csr" else sp.csc_matrix
    return to_csr(build((fields["data"], fields["indices"], fields["indptr"]), shape=shape), "a pickled matrix")


def _reconstruct(cls: type, base: type, state: Any) -> Any:
    """Make an empty object, the first step of old pickle protocols; allowed only for stand-ins of sparse matrices."""
    if not issubclass(cls, _SparseFields) or base is not object:
        raise GraphError(f"it makes a {cls.__name__}")
    return cls()


def _load_tensor_storage(content: bytes) -> Any:
    """Read the bytes of a torch tensor, a pickle inside the pickle of some split files, by torch's safe loader."""
    import torch

    return torch.load(io.BytesIO(content), weights_only=True)


def _rebuild_tensor(*arguments: Any) -> Any:
    from torch._utils import _rebuild_tensor_v2

    return _rebuild_tensor_v2(*arguments)  # type: ignore[no-untyped-call]


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: Any) -> Any:
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order)


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): codecs.encode,
    ("builtins", "object"): object,
    ("__builtin__", "object"): object,
    ("builtins", "list"): list,
    ("__builtin__", "list"): list,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("copyreg", "_reconstructor"): _reconstruct,
    ("copy_reg", "_reconstructor"): _reconstruct,
    ("torch.storage", "_load_from_bytes"): _load_tensor_storage,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
}


for _core in ("numpy.core", "numpy._core"):
    _ALLOWED[_core + ".multiarray", "_reconstruct"] = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    _ALLOWED[_core + ".multiarray", "scalar"] = np._core.multiarray.scalar  # type: ignore[attr-defined]
    _ALLOWED[_core + ".numeric", "_frombuffer"] = _frombuffer
