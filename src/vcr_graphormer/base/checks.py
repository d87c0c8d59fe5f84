"""Checks of numbers, arrays and node ids that a caller gives: the value, the rule, the way out."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, GraphError

Array: TypeAlias = NDArray[Any]
LARGEST_ID = np.iinfo(np.int32).max


def to_numpy(value: Any, name: str) -> Array:
    """A NumPy array of a NumPy, torch or nested-list value; ragged input is refused."""
    if value is None:
        raise GraphError(f"{name} is None; give an array")
    if hasattr(value, "detach"):  # a torch tensor, without importing torch
        value = value.detach().cpu()
        if "sparse" in str(value.layout):
            raise GraphError(f"{name} is a sparse tensor; it must be dense")
        value = value.float().numpy() if "bfloat16" in str(value.dtype) else value.numpy()
    if isinstance(value, np.ma.MaskedArray):
        raise GraphError(f"{name} is a masked array: fill or drop the masked entries first")
    try:
        array: Array = value if isinstance(value, np.memmap) else np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise GraphError(f"{name} is ragged: its rows have different lengths ({error})") from error
    if array.dtype == object:
        raise GraphError(f"{name} has mixed, missing or too large entries (dtype object): give plain numbers")
    return array


def to_whole_numbers(array: Array, name: str) -> NDArray[np.integer[Any]]:
    """Integers from integers, or from floats that are whole; anything else is refused with its place."""
    largest = np.iinfo(np.int64).max
    if array.dtype == np.uint64 and array.size and array.max() > largest:
        raise GraphError(f"{name} holds {array.max()}, which is too large: numbers must be below 2**63")
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind != "f":
        if array.size == 0:
            return array.astype(np.int64)
        raise GraphError(f"{name} has type {array.dtype}; it must hold whole numbers")
    whole = np.isfinite(array)
    whole &= np.where(whole, array, 0.5) == np.floor(np.where(whole, array, 0.0))
    whole &= np.abs(np.where(whole, array, 0.0)) < float(largest)
    if not whole.all():
        place = tuple(int(i) for i in np.argwhere(~whole)[0])
        raise GraphError(f"{name}{list(place)} is {array[place]}; it must be a whole number")
    return array.astype(np.int64)


def check_count(value: Any, name: str) -> int:
    """A whole number from 0 to the largest node id we can store (int32)."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise GraphError(f"{name} is {value!r}; it must be a whole number")
    if value < 0 or value > LARGEST_ID:
        raise GraphError(f"{name} is {value}; it must be between 0 and {LARGEST_ID}")
    return int(value)


def check_seed(seed: Any) -> int:
    """A whole number of 0 or more."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed is {seed!r}; it must be a whole number of 0 or more")
    return int(seed)


def check_sources(sources: Any, num_nodes: int, name: str = "sources") -> NDArray[np.int64]:
    """Node ids as int64 [m], every one within the graph; a boolean mask [n] names its nodes."""
    array = to_numpy(sources, name)
    if array.dtype.kind == "b" and array.shape == (num_nodes,):
        return np.flatnonzero(array)
    if array.dtype.kind == "b" or array.ndim != 1:
        raise GraphError(f"{name} is {array.dtype} of shape {list(array.shape)}; it must be a list of node ids")
    nodes = to_whole_numbers(array, name).astype(np.int64)
    if nodes.size and not 0 <= int(nodes.min()) <= int(nodes.max()) < num_nodes:
        wrong = nodes.min() if nodes.min() < 0 else nodes.max()
        raise GraphError(f"{name} contains node {wrong} but the graph has nodes 0 to {num_nodes - 1}")
    return nodes


def setting(default: Any, text: str) -> Any:
    """Make a field of a settings dataclass, with the text that `vcr-graphormer settings` shows."""
    return field(default=default, metadata={"help": text})


def check_whole(config: Any, section: str, name: str, least: int) -> None:
    """Refuse a setting that is no whole number of at least `least`."""
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{section}.{name} is {value!r}; it must be a whole number of {least} or more")


def check_fraction(config: Any, section: str, name: str) -> None:
    """Refuse a setting that is no number from 0 to below 1."""
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ConfigError(f"{section}.{name} is {value!r}; it must be at least 0 and less than 1")


def check_choice(config: Any, section: str, name: str, allowed: tuple[str, ...]) -> None:
    """Refuse a setting that is not one of the allowed texts."""
    if getattr(config, name) not in allowed:
        raise ConfigError(f"{section}.{name} is {getattr(config, name)!r}; it must be {' or '.join(allowed)}")
