"""Options that several commands share, and how settings are made from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..base.text import one_of
from ..errors import ConfigError, StoreError
from .output import Output, say

if TYPE_CHECKING:
    from ..runs.config import Config

# Exit statuses. Those of shells and of sysexits.h, where these have one.
FAILED = 2  # something the user can put right: one line says what
BUG = 70  # EX_SOFTWARE: a defect of this package; one line names the file with the traceback
INTERRUPTED = 130  # after Ctrl-C: 128 + SIGINT
TERMINATED = 143  # after SIGTERM: 128 + SIGTERM

_MOST_NODES = 1 << 28  # bytes of a file with nodes: more than 20 million ids

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file with the settings of a run.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Change one setting; can be given several times. For a list: vcr-graphormer settings",
    ),
]
DataRoot = Annotated[
    str | None,
    typer.Option("--data", metavar="ROOT", help="Folder with the raw files of published datasets (default: data)."),
]
DatasetName = Annotated[
    str | None,
    typer.Option(
        "--dataset",
        metavar="NAME|PATH",
        help="A published dataset by name, or the path of your own data (default: digits).",
    ),
]
Variant = Annotated[
    str,
    typer.Option(
        "--variant",
        metavar="NAME",
        help="Which settings to start from: default (the full method: a preset, or adapted to your data), "
        "adaptive (adapted to the data, whatever preset there is), no-neighbours (default without them), "
        "reduced (our best with parts left out), paper (the paper's model), "
        "hops (as paper, no neighbours), pagerank (as paper, no super nodes).",
    ),
]
Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="Where to compute: auto, cpu, cuda or cuda:N.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by train.")]
Nodes = Annotated[
    str | None,
    typer.Option(
        "--nodes",
        metavar="NODES",
        help="Node ids or names with commas between them, or @FILE with one per line (default: all nodes).",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="tcp://HOST:PORT",
        help="Rank nodes on the workers of this dask scheduler. All machines must share the disk of graph and --out.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Threads for token lists, and for training on a CPU (default: all cores; fewer where steps are small).",
    ),
]
Baselines = Annotated[
    str | None,
    typer.Option(
        "--baselines",
        metavar="CHOICE",
        help="Compare with baselines after training: none, quick (logistic regression and gradient boosting, seconds; "
        "the default) or all (also MLP, GCN, GraphSAGE and APPNP of PyG).",
    ),
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write curves for TensorBoard.")]


@dataclass(frozen=True)
class Named:
    """The options that name data and single settings."""

    dataset: DatasetName = None
    data: DataRoot = None
    config: ConfigFile = None
    override: Settings = None

    @property
    def given(self) -> bool:
        """Return whether any of these options was given."""
        return any((self.dataset, self.data, self.config, self.override))

    def tables(self) -> dict[str, dict[str, Any]]:
        """Return the settings that are named, by section; of a preset, those of the data section only."""
        from ..runs.config import read_tables

        _check_root(self.data)
        data = {name: value for name, value in (("dataset", self.dataset), ("root", self.data)) if value is not None}
        return read_tables(self.config, self.override or [], {"data": data}, sections_of_preset=("data",))


@dataclass(frozen=True)
class Chosen(Named):
    """The options that choose data and settings."""

    variant: Variant = "default"

    @property
    def given(self) -> bool:
        """Return whether any of these options was given."""
        return super().given or self.variant != "default"

    def load(self) -> Config:
        """Return the settings; refuse `--data` if no dataset is named."""
        from ..data.datasets import DataConfig

        config = read_config(self.config, self.override, self.variant, dataset=self.dataset, root=self.data)
        named = self.dataset or self.config or config.data.dataset != DataConfig().dataset
        if self.data is not None and not named:
            raise ConfigError(
                f"--data is the folder with the raw files of published datasets: say which one by --dataset NAME; for "
                f"your own data write --dataset {self.data}"
            )
        return config


@dataclass(frozen=True)
class Machine:
    """The options that say where to compute."""

    device: Device = "auto"
    threads: Threads = None


@dataclass(frozen=True)
class Extras:
    """The options for results beside those of the model."""

    baselines: Baselines = None
    tensorboard: TensorBoard = False


def with_groups(command: Callable[..., None], long: bool = False) -> Callable[..., None]:
    """Return the command with groups of options unfolded: a dataclass parameter becomes one option per field.

    A `long` command also gets the options of `Output`, which hold while it runs.

    >>> @with_groups
    ... def show(machine: Machine, name: str) -> None: ...
    >>> list(inspect.signature(show).parameters)
    ['device', 'threads', 'name']
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _unfold(groups[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
    parameters += _unfold(Output) if long else []

    def run(**values: Any) -> None:
        def take(group: type[Any]) -> Any:
            return group(**{item.name: values.pop(item.name) for item in fields(group)})

        with take(Output).in_force() if long else nullcontext():
            command(**{name: take(group) for name, group in groups.items()}, **values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _unfold(group: type[Any]) -> list[inspect.Parameter]:
    """Return one parameter per field of a group of options."""
    types, kind = get_type_hints(group, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(item.name, kind, default=item.default, annotation=types[item.name]) for item in fields(group)
    ]


def read_config(file: Path | None, settings: list[str] | None, variant: str = "default", **given: str | None) -> Config:
    """Return the settings of the TOML file or the preset, changed by the options `given`, then by `--set`."""
    from ..runs.config import load_config

    _check_root(given.get("root"))
    data = {key: value for key, value in given.items() if value is not None}
    return load_config(file, settings or [], {"data": data}, variant)


@contextmanager
def show_reading() -> Iterator[dict[str, Any]]:
    """Show progress while data is read; yield the callbacks of `load_data`. Notes follow when the bars are gone."""
    from .console import StageProgress

    notes: list[str] = []
    with StageProgress() as progress:
        yield {"progress": progress, "tell": notes.append}
    for note in notes:
        say(f"note: {note}")


def _check_root(root: str | None) -> None:
    """Refuse the name of a dataset after `--data`, which is easily confused with `--dataset`."""
    from ..data.catalogue import find_dataset

    if root is not None and find_dataset(root) is not None and not Path(root).is_dir():
        raise ConfigError(f"--data is the folder with the raw files: for the dataset write --dataset {root}")


def read_nodes(text: str | None) -> list[str] | None:
    """Return the nodes of `--nodes` as texts, or None for all."""
    if text is None:
        return None
    if text.startswith("@"):
        from ..base.files import read_text

        try:
            lines = read_text(Path(text[1:]), most=_MOST_NODES).splitlines()
        except StoreError as error:
            raise StoreError(f"cannot read the nodes from a file: {error}") from error
        return [line.strip() for line in lines if line.strip()]
    nodes = [part.strip() for part in text.split(",") if part.strip()]
    if not nodes:
        raise ConfigError("--nodes is empty: give ids or names, or leave it out for all nodes")
    return nodes


def check_output(file: Path | None, endings: tuple[str, ...]) -> None:
    """Refuse a file with another ending, or one that exists, before the work starts."""
    if file is None:
        return
    if file.suffix not in endings:
        raise ConfigError(f"{file} must end in {one_of(endings)}")
    if file.exists():
        raise StoreError(f"{file} exists: choose another name or delete it")
