"""The only place that reads pickles: published datasets, by an unpickler that can build arrays and nothing else."""

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

from ...errors import GraphError, StoreError
from ..contract import to_csr

SPARSE = ("csr", "csc", "coo")


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
        return _ArrayUnpickler(stream).load()
    except Exception as error:  # a hostile or damaged pickle can raise anything
        raise StoreError(
            f"{path} was not read: as a pickle {error}. Only arrays, sparse matrices, lists and dictionaries are "
            f"read from pickles; convert it to .npy or .npz"
        ) from error


class _ArrayUnpickler(pickle.Unpickler):
    """A pickle is a program that calls functions by name and sets attributes of what it gets.

    So each load gets fresh stand-ins for everything written in Python: what it does to them dies with the load.
    """

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, encoding="latin1")
        # Built anew by type(): a pickle may set attributes of a class it was handed.
        self.sparse = {kind: type(f"{kind}_parts", (_SparseParts,), {"kind": kind}) for kind in SPARSE}

    def find_class(self, module: str, name: str) -> Any:
        kind = name.removesuffix("_matrix")
        if module.startswith("scipy.sparse") and kind in SPARSE and name != kind:
            return self.sparse[kind]
        allowed = _ALLOWED.get((module, name))
        if allowed is None:
            raise pickle.UnpicklingError(f"it calls {module}.{name}, which could run code")
        # A class written in C cannot be changed by a pickle; a function can, so each load gets a wrapper of its own.
        return allowed if isinstance(allowed, type) else partial(allowed)

    def load(self) -> Any:
        return _finish(super().load())


class _SparseParts:
    """What a pickled scipy matrix consists of, before it is checked and built."""

    kind = ""


def _finish(value: Any) -> Any:
    """Replace the stand-ins of sparse matrices by real, checked ones."""
    if isinstance(value, _SparseParts):
        return _build_sparse(value)
    if isinstance(value, dict):
        return {key: _finish(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_finish(item) for item in value)
    return value


def _build_sparse(parts: _SparseParts) -> sp.csr_matrix:
    fields = vars(parts)
    shape = fields.get("_shape", fields.get("shape"))
    if parts.kind == "coo":
        coordinates = fields["coords"] if "coords" in fields else (fields["row"], fields["col"])
        return to_csr(sp.coo_matrix((fields["data"], coordinates), shape=shape), "a pickled matrix")
    kind = sp.csr_matrix if parts.kind == "csr" else sp.csc_matrix
    return to_csr(kind((fields["data"], fields["indices"], fields["indptr"]), shape=shape), "a pickled matrix")


def _reconstruct(kind: type, base: type, state: Any) -> Any:
    """The first step of unpickling an object of old protocols: only sparse stand-ins are made so."""
    if not issubclass(kind, _SparseParts) or base is not object:
        raise GraphError(f"it makes a {kind.__name__}")
    return kind()


def _load_tensor_storage(content: bytes) -> Any:
    """Some split files hold torch tensors, whose bytes are a pickle again: torch reads it by its own safe rule."""
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
