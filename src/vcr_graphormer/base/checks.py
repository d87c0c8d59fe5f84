"""Check numbers, arrays, node ids and settings that a caller gives. Errors name the value and the rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, GraphError, VCRError

Array: TypeAlias = NDArray[Any]
LARGEST_ID = np.iinfo(np.int32).max  # node ids are stored as int32
# Settings that older versions had, by section, at the value that does what this version always does (docs/log.md).
REMOVED: Mapping[str, Mapping[str, Any]] = {
    "tokens": {"super_tokens": "drop", "leave_own_label_out": True},
    "model": {"feedforward": 2},
}
# Values that older versions had, of settings that are left.
REMOVED_VALUES: Mapping[str, Mapping[str, Any]] = {"model": {"readout": "sum"}, "training": {"schedule": "constant"}}
AUTO = -1  # a number that is chosen from the graph and the training nodes; "auto" in TOML and on the command line


def to_numpy(value: Any, name: str) -> Array:
    """Return a NumPy array of a NumPy array, a torch tensor or nested lists; refuse anything but plain numbers."""
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
    """Return integers as they are and whole floats as int64; refuse the rest with the index of the first."""
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
        index = tuple(int(i) for i in np.argwhere(~whole)[0])
        raise GraphError(f"{name}{list(index)} is {array[index]}; it must be a whole number")
    return array.astype(np.int64)


def is_whole(value: Any, *, plain: bool = False) -> bool:
    """Return whether a value is a whole number; `plain` refuses NumPy's types, which TOML cannot hold.

    >>> is_whole(3), is_whole(np.int64(3)), is_whole(np.int64(3), plain=True), is_whole(True), is_whole(3.0)
    (True, True, False, False, False)
    """
    return isinstance(value, int if plain else int | np.integer) and not isinstance(value, bool)


def is_number(value: Any, *, plain: bool = False) -> bool:
    """Return whether a value is a whole number or a float; `plain` as in `is_whole`."""
    return is_whole(value, plain=plain) or isinstance(value, float if plain else float | np.floating)


def misfit(value: Any, form: Any, name: str = "it") -> str | None:
    """Return in words where a JSON value has another form than expected; None if it fits.

    A form is a type, a list with the form of its entries, or a dictionary of forms. There a key with `?` at its end may
    be missing, and the key `*` gives the form of all values. `float` takes whole numbers too, and `true` only `bool`.
    Whole numbers of more than 64 bits fit nothing, since NumPy cannot compare them.

    >>> misfit({"val": "x"}, {"val": float, "note?": str}, "metrics")
    "metrics.val is 'x'"
    """
    if isinstance(form, dict) and isinstance(value, dict):
        if "*" in form:
            pairs = [(key, form["*"]) for key in value]
        else:
            pairs = [(key.removesuffix("?"), inner) for key, inner in form.items()]
            missing = [key for key in form if not key.endswith("?") and key not in value]
            if missing:
                return f"{name}.{missing[0]} is missing"
        found = (misfit(value[key], inner, f"{name}.{key}") for key, inner in pairs if key in value)
        return next((text for text in found if text is not None), None)
    if isinstance(form, list) and isinstance(value, list):
        found = (misfit(item, form[0], f"{name}[{place}]") for place, item in enumerate(value))
        return next((text for text in found if text is not None), None)
    if isinstance(form, tuple):
        return None if any(misfit(value, one) is None for one in form) else f"{name} is {value!r:.50}"
    fits = value is None if form is None else is_number(value) if form is float else is_whole(value)
    fits = fits and (not is_whole(value) or -(2**63) <= value < 2**63)
    if form not in (None, float, int):
        fits = isinstance(form, type) and isinstance(value, form)
    return None if fits else f"{name} is {value!r:.50}"


def check_count(value: Any, name: str) -> int:
    """Return a whole number from 0 to the largest node id; refuse any other value."""
    if not is_whole(value):
        raise GraphError(f"{name} is {value!r}; it must be a whole number")
    if value < 0 or value > LARGEST_ID:
        raise GraphError(f"{name} is {value}; it must be between 0 and {LARGEST_ID}")
    return int(value)


def check_seed(seed: Any) -> int:
    """Return a whole number of 0 or more; refuse any other value."""
    if not is_whole(seed) or seed < 0:
        raise ConfigError(f"seed is {seed!r}; it must be a whole number of 0 or more")
    return int(seed)


def seed_within(seed: int, largest: int) -> int:
    """Return a seed that a library takes: the seed itself, or its remainder if it is above the library's largest.

    >>> seed_within(7, 2**31 - 1), seed_within(2**31 + 7, 2**31 - 1)
    (7, 7)
    """
    return int(seed) if seed <= largest else int(seed) % (largest + 1)


def check_sources(sources: Any, num_nodes: int, name: str = "sources") -> NDArray[np.int64]:
    """Return node ids as int64 [m], each within the graph, from a list of ids or a boolean mask [n]."""
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


def may_be_auto(settings: Any, name: str) -> bool:
    """Return whether a setting can be AUTO. All numbers that can are so by default."""
    default = next(item.default for item in fields(settings) if item.name == name)
    return is_whole(default) and default == AUTO


def unresolved(settings: Any) -> list[str]:
    """Return the names of the settings that are still AUTO."""
    return [
        item.name
        for item in fields(settings)
        if may_be_auto(settings, item.name) and getattr(settings, item.name) == AUTO
    ]


def check_resolved(settings: Any, section: str) -> None:
    """Refuse settings with an AUTO among them, which only a graph can resolve."""
    if names := unresolved(settings):
        raise ConfigError(
            f"{section}.{names[0]} is auto, which depends on the graph: give a number, or resolve all settings by "
            f"vcr.adapt(config, graph, split)"
        )


def check_whole(config: Any, section: str, name: str, least: int) -> None:
    """Refuse a setting that is not a whole number of at least `least`; AUTO passes where it is the default."""
    value = getattr(config, name)
    if may_be_auto(config, name) and value == AUTO:
        return
    if not is_whole(value, plain=True) or value < least:
        raise ConfigError(f"{section}.{name} is {value!r}; it must be a whole number of {least} or more")


def check_fraction(config: Any, section: str, name: str) -> None:
    """Refuse a setting that is not a number from 0 to below 1; AUTO passes where it is the default."""
    value = getattr(config, name)
    if may_be_auto(config, name) and value == AUTO:
        return
    if not is_number(value, plain=True) or not 0 <= value < 1:
        raise ConfigError(f"{section}.{name} is {value!r}; it must be at least 0 and less than 1")


def check_choice(config: Any, section: str, name: str, allowed: tuple[str, ...]) -> None:
    """Refuse a setting that is not one of the allowed texts."""
    if getattr(config, name) not in allowed:
        raise ConfigError(f"{section}.{name} is {getattr(config, name)!r}; it must be {' or '.join(allowed)}")


def without_removed(
    section: str, values: Mapping[str, Any], *, subject: str, way: str, error: type[VCRError] = ConfigError
) -> dict[str, Any]:
    """Return settings of a file without those that were removed; refuse values that this version cannot follow.

    >>> without_removed("model", {"layers": 1, "feedforward": 2}, subject="the run has", way="train again")
    {'layers': 1}
    """
    kept, gone = REMOVED.get(section, {}), REMOVED_VALUES.get(section, {})
    for name, value in values.items():
        if (name in kept and value != kept[name]) or (name in gone and value == gone[name]):
            raise error(f"{subject} {section}.{name} = {value!r}, which was removed: {way}")
    return {name: value for name, value in values.items() if name not in kept}
