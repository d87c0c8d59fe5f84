"""`Config`: the settings of a run, read from TOML and from `--set section.key=value`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ..base.checks import AUTO, may_be_auto, without_removed
from ..base.files import read_text
from ..data.datasets import DataConfig
from ..errors import ConfigError, StoreError, unknown_name
from ..model.config import ModelConfig
from ..tokens.config import YOUNGER, TokenConfig
from ..training.config import TrainConfig
from .presets import load_preset

Section = TypeVar("Section")
MOST_NUMBER = 2**63 - 1  # larger whole numbers fit into no array
_MOST_TOML = 1 << 24  # bytes of a file of settings
_MOST_LETTERS = 100  # of a value in an error
# Settings that are younger than the first runs and results, by section: what those did. New ones have other defaults.
BEFORE: Mapping[str, Mapping[str, Any]] = {
    "data": {"scale": "none"},
    "tokens": YOUNGER,
    "model": {
        "combine": "joint",
        "members": 1,
        "own_hops": False,
        "rank_embedding": False,
        "rich_labels": False,
        "neighbour_dropout": 0.0,
        "own_dropout": 0.0,
    },
}


@dataclass(frozen=True)
class Config:
    """All settings of a run, one field per TOML section.

    Attributes
    ----------
    data : DataConfig
        Where the graph and its split come from.
    tokens : TokenConfig
        What is in a token list.
    model : ModelConfig
        The transformer that reads a token list.
    training : TrainConfig
        How the model is trained.
    """

    data: DataConfig = field(default_factory=DataConfig)
    tokens: TokenConfig = field(default_factory=TokenConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainConfig = field(default_factory=TrainConfig)


def load_config(
    file: str | Path | None = None,
    overrides: Sequence[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    variant: str = "default",
) -> Config:
    """Read a TOML file or the preset of the dataset, then apply `options[section][key]` and `section.key=value`.

    >>> load_config(overrides=["data.seed=3"]).data.seed
    3
    >>> load_config(overrides=["data.dataset=Physics"], variant="paper").tokens.clusters
    50
    """
    return build_config(read_tables(file, overrides, options, variant))


def read_tables(
    file: str | Path | None = None,
    overrides: Sequence[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    variant: str = "default",
    *,
    sections_of_preset: Collection[str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the settings that `load_config` is given, by section; settings that nobody names are left out.

    Parameters
    ----------
    sections_of_preset
        The sections of the preset that count; default: all.
    """
    if file is not None and variant != "default":
        raise ConfigError(f"a file says everything: leave out either {file} or variant {variant}")
    values = read_toml(file) if file is not None else _preset(overrides, options, variant=variant)
    sections = get_type_hints(Config)
    _check_sections(values)
    if file is None and sections_of_preset is not None:
        values = {name: table for name, table in values.items() if name in sections_of_preset}
    for section, given in (options or {}).items():
        values.setdefault(section, {}).update(given)
    for text in overrides:
        section, key, value = parse_override(text)
        if section not in sections:
            raise unknown_name("section", section, sections)
        values.setdefault(section, {})[key] = value
    if isinstance(values.get("data"), dict):
        values["data"] = _absolute_tables(values["data"], None if file is None else Path(file).parent)
    way = "leave it out"
    return {name: without_removed(name, table, subject="the settings have", way=way) for name, table in values.items()}


def _absolute_tables(data: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """Return the section `[data]` with whole paths of tables, so that a run can be repeated from any folder.

    Paths are relative to `data.dataset` if it is a folder, else to the folder of the TOML file. Dates become texts.
    """
    dates = {
        key: value for key in ("train_until", "val_until") if isinstance(value := data.get(key), date | float | int)
    }
    data = {**data, **{key: str(value) for key, value in dates.items()}}
    mapped = [key for key in ("nodes", "edges") if data.get(key)]
    if not mapped:
        return data
    dataset = data.get("dataset")
    base = Path(dataset) if isinstance(dataset, str) and Path(dataset).is_dir() else folder or Path()
    for key in mapped:
        if not isinstance(data[key], dict | list):
            continue  # refused later
        tables = data[key] if isinstance(data[key], list) else [data[key]]
        for table in tables:
            if isinstance(table, dict) and "\0" in str(table.get("file")):
                raise ConfigError(f"data.{key}.file is {table['file']!r}, which cannot be the name of a file")
        data[key] = [
            {**table, "file": str((base / table["file"]).resolve())}
            if isinstance(table, dict) and isinstance(table.get("file"), str) and table["file"]
            else table
            for table in tables
        ]
    return data if dataset is not None or folder is None else {"dataset": str(folder.resolve()), **data}


def load_run_config(file: str | Path) -> Config:
    """Read the settings that a run wrote; those that are younger than the run are what it did without them.

    Settings that were removed since are left out; a run that is different without them is refused.
    """
    values = read_toml(file)
    _check_sections(values)
    how: dict[str, Any] = {"subject": f"{file} has", "way": "train again", "error": StoreError}
    values = {name: without_removed(name, table, **how) for name, table in values.items()}
    return build_config(values | {name: {**given, **values.get(name, {})} for name, given in BEFORE.items()})


def _check_sections(values: Mapping[str, Any]) -> None:
    sections = get_type_hints(Config)
    for section in values:
        if section not in sections:
            raise unknown_name("section", section, sections)
        if not isinstance(values[section], dict):
            raise ConfigError(f"{section} is {values[section]!r}; it must be a section: [{section}]")


def build_config(values: Mapping[str, Any]) -> Config:
    """Return settings from their tables, after checking every name and type."""
    sections = get_type_hints(Config)
    return Config(**{name: build(settings, values.get(name, {}), name) for name, settings in sections.items()})


def _preset(
    overrides: Sequence[str], options: Mapping[str, Mapping[str, Any]] | None, *, variant: str
) -> dict[str, Any]:
    """Return the preset of the dataset named by options or overrides; the last name counts."""
    name = (options or {}).get("data", {}).get("dataset", DataConfig().dataset)
    for section, key, value in map(parse_override, overrides):
        if (section, key) == ("data", "dataset"):
            name = value
    return dict(load_preset(str(name), variant))


def read_toml(file: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file."""
    path = Path(file)
    if not path.is_file():
        raise StoreError(f"{path} does not exist: give a TOML file")
    try:
        return tomllib.loads(read_text(path, most=_MOST_TOML))
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, lists in lists in lists
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def parse_override(text: str) -> tuple[str, str, Any]:
    """Split `section.key=value`; the value is read as TOML, or as text where it is no TOML.

    >>> parse_override("data.seed=3"), parse_override("data.dataset=PubMed")
    (('data', 'seed', 3), ('data', 'dataset', 'PubMed'))
    """
    path, equals, value = text.partition("=")
    section, dot, key = path.strip().partition(".")
    if not (equals and dot and section and key):
        raise ConfigError(f"--set {text!r}: write section.key=value, for example data.seed=1")
    try:
        return section, key, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return section, key, value


def build_tables(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return tables of settings after checking every name and type, with AUTO for `auto`."""
    config = build_config(values)
    return {name: {key: getattr(getattr(config, name), key) for key in table} for name, table in values.items()}


def build(kind: type[Section], values: Mapping[str, Any], section: str) -> Section:
    """Make a settings dataclass from a mapping after checking every name and type."""
    types = get_type_hints(kind)
    checked = {}
    for key, value in values.items():
        if key not in types:
            raise unknown_name(f"key in [{section}]", key, types)
        if isinstance(value, str) and value == "auto" and may_be_auto(kind, key):
            checked[key] = AUTO
        else:
            checked[key] = _check_type(f"{section}.{key}", value, expected=types[key], auto=may_be_auto(kind, key))
    return kind(**checked)


def _check_type(name: str, value: Any, *, expected: type, auto: bool = False) -> Any:
    """Return the value if it has the expected type; whole numbers become floats where a float is expected."""
    if auto and value == AUTO:
        raise ConfigError(f'{name} is {value}; write "auto" where the graph is to decide')
    if get_origin(expected) is tuple:
        return _check_list(name, value, kind=get_args(expected)[0])
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    if expected is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_NUMBER:
        return float(value)
    if expected in words and (not isinstance(value, expected) or (expected is int and isinstance(value, bool))):
        raise ConfigError(f"{name} is {_short(value)}; it must be {words[expected]}{' or auto' * auto}")
    if isinstance(value, int) and abs(value) > MOST_NUMBER:
        raise ConfigError(f"{name} is {_short(value)}; it must be between -{MOST_NUMBER} and {MOST_NUMBER}")
    if isinstance(value, str) and not _is_unicode(value):
        raise ConfigError(f"{name} is {value!r}, which is not valid UTF-8: rename the file")
    return value


def _check_list(name: str, value: Any, *, kind: type) -> tuple[Any, ...]:
    """Return a list of texts, or of tables of settings; a single table is a list of one."""
    if is_dataclass(kind):
        tables = [value] if isinstance(value, dict) or is_dataclass(value) else value
        if not isinstance(tables, list | tuple) or not all(isinstance(table, dict | kind) for table in tables):
            raise ConfigError(f"{name} is {value!r}; it must be a section: [{name}], or several: [[{name}]]")
        return tuple(table if isinstance(table, kind) else build(kind, table, name) for table in tables)
    if not isinstance(value, list | tuple) or not all(isinstance(entry, kind) for entry in value):
        raise ConfigError(f'{name} is {value!r}; it must be a list of texts: ["…", "…"]')
    return tuple(value)


def _short(value: Any) -> str:
    """Return a value as errors show it: not thousands of letters of it."""
    text = repr(value) if not isinstance(value, int) or abs(value) <= MOST_NUMBER else f"a number of {value:.0e}"
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def _is_unicode(text: str) -> bool:
    """Return whether a text can be written to a file; names of files that are no UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_toml(config: Any) -> str:
    """Return every setting of a config as TOML, defaults included.

    >>> load_config().data == build(DataConfig, tomllib.loads(to_toml(Config()))["data"], "data")
    True
    """
    lines = []
    for section in fields(config):
        lines.append(f"[{section.name}]")
        values = getattr(config, section.name)
        tables = [item.name for item in fields(values) if _holds_tables(getattr(values, item.name))]
        settings = [item.name for item in fields(values) if item.name not in tables]
        lines += [f"{name} = {_toml_value(shown(values, name))}" for name in settings]
        lines.append("")
        for name in tables:
            for table in getattr(values, name):
                lines.append(f"[[{section.name}.{name}]]")
                lines += [f"{item.name} = {_toml_value(getattr(table, item.name))}" for item in fields(table)]
                lines.append("")
    return "\n".join(lines)


def _holds_tables(value: Any) -> bool:
    return isinstance(value, tuple) and any(is_dataclass(entry) for entry in value)


def shown(settings: Any, name: str) -> Any:
    """Return a setting as people see it: AUTO as `auto`."""
    value = getattr(settings, name)
    return "auto" if may_be_auto(settings, name) and value == AUTO else value


def _toml_value(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)  # Python and TOML write inf and nan alike
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_value(str(key))} = {_toml_value(item)}" for key, item in value.items()) + "}"
    # JSON escapes text as TOML does, except for DEL. TOML refuses the surrogates that JSON would write beyond ASCII.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
