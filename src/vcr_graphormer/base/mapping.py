"""Map `.npy` files into memory. A map needs no file descriptor, and no array is made before its size is checked."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import weakref
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

import numpy as np

from ..errors import StoreError
from .checks import Array

MapMode = Literal["r", "c"]
_READ_ONLY, _COPY_ON_WRITE = mmap.ACCESS_READ, mmap.ACCESS_COPY


def map_array(file: Path, mode: MapMode = "r") -> Array:
    """Memory-map the array of a `.npy` file; refuse pickled ones and headers that do not fit the file.

    Parameters
    ----------
    mode : "r" or "c"
        `r` maps read-only. `c` maps copy-on-write: the array is writable, but changes never reach the file.
    """
    try:
        with file.open("rb") as handle:
            shape, fortran_order, dtype = read_header(handle)
            start, size = handle.tell(), os.fstat(handle.fileno()).st_size
            if start + math.prod(shape) * dtype.itemsize != size:
                raise ValueError(f"its header asks for {dtype}{list(shape)}, which {size - start} bytes are not")
            if size == start:  # nothing to map
                return np.empty(shape, dtype)
            buffer = _map(handle, size, mode)
        flat = np.frombuffer(buffer, dtype, math.prod(shape), start)
        return flat.reshape(shape, order="F" if fortran_order else "C").view(np.memmap)
    except FileNotFoundError as error:
        raise StoreError(f"{file} does not exist") from error
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error.strerror or error}") from error
    except Exception as error:  # a damaged header makes numpy and Python's parser raise nearly anything
        raise StoreError(f"{file} is not a readable .npy file of plain numbers: {error}") from error


def read_header(handle: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and dtype of a `.npy` file; its position is then the first byte of the array."""
    version = np.lib.format.read_magic(handle)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it has version {version} of the format; 1.0 and 2.0 are read")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran_order, dtype = read(handle)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which could run code")
    if any(size < 0 for size in shape):
        raise ValueError(f"its shape is {list(shape)}")
    return shape, fortran_order, dtype


def _map(handle: BinaryIO, size: int, mode: MapMode) -> Any:
    """Return the whole file as a buffer that stays mapped until the last array on it is gone.

    Python keeps a descriptor open for each map, and a run has a dozen; so the system is asked directly. From 3.13 on
    Python can do without.
    """
    access = _READ_ONLY if mode == "r" else _COPY_ON_WRITE
    if sys.version_info >= (3, 13):
        return mmap.mmap(handle.fileno(), size, access=access, trackfd=False)
    if sys.platform == "win32":
        return mmap.mmap(handle.fileno(), size, access=access)
    protection = mmap.PROT_READ if mode == "r" else mmap.PROT_READ | mmap.PROT_WRITE
    system = _system()
    address = system.mmap(None, size, protection, mmap.MAP_PRIVATE, handle.fileno(), 0)
    if address in (None, ctypes.c_void_p(-1).value):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    buffer = (ctypes.c_char * size).from_address(address)
    # Not at exit: threads may still read, and the system unmaps everything then anyway.
    weakref.finalize(buffer, system.munmap, address, size).atexit = False
    return memoryview(buffer).toreadonly() if mode == "r" else buffer


def _system() -> Any:
    """Return the C library, with the types of the two functions that are called."""
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    system.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_int64)
    system.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return system


class Closed:
    """What is left of an array after `close`: every use says that it is closed."""

    def __init__(self, where: str) -> None:
        object.__setattr__(self, "_where", where)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StoreError(f"{object.__getattribute__(self, '_where')} is closed: open it again")

    __getattr__ = __getitem__ = __len__ = __iter__ = __array__ = _refuse
