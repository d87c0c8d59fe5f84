"""Options that several commands share, and how they become settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError, StoreError

if TYPE_CHECKING:
    from ..runs.config import Config

ConfigFile = Annotated[Path | None, typer.Option("--config", help="TOML file with the sections of a run.")]


Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Override one value; repeatable. See: vcr-graphormer settings"
    ),
]


DataRoot = Annotated[
    str | None,
    typer.Option("--data", metavar="ROOT", help="Folder of the published datasets' raw files (default: data)."),
]


DatasetName = Annotated[
    str | None, typer.Option("--dataset", help="A known name, or the path of your own data (default: digits).")
]


Variant = Annotated[
    str,
    typer.Option(
        "--variant", help="Preset of a known dataset: default (ours), paper, hops (only), pagerank (no super nodes)."
    ),
]


Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, made by train.")]


Nodes = Annotated[
    str | None, typer.Option("--nodes", help="Node ids or names, separated by commas; @FILE: one per line.")
]


Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="tcp://HOST:PORT",
        help="Rank on the workers of a dask scheduler; graph and --out lie on a filesystem that all machines share.",
    ),
]


Threads = Annotated[int | None, typer.Option("--threads", help="For the token lists; default: all cores.")]


def read_config(file: Path | None, settings: list[str] | None, variant: str = "default", **given: str | None) -> Config:
    """The TOML file or the dataset's preset, then the command's own options, then `--set`, later ones winning."""
    from ..runs.config import load_config

    data = {key: value for key, value in given.items() if value is not None}
    return load_config(file, settings or [], {"data": data}, variant)


def say_error(text: str) -> None:
    """One line in red on the error stream."""
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(text, err=True)


def read_nodes(text: str | None) -> list[str] | None:
    """The nodes of `--nodes`: a list of texts, or None for all."""
    if text is None:
        return None
    if text.startswith("@"):
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"cannot read the nodes from {text[1:]}: {error}") from error
        return [line.strip() for line in lines if line.strip()]
    nodes = [part.strip() for part in text.split(",") if part.strip()]
    if not nodes:
        raise ConfigError("--nodes is empty: give ids or names, or leave it out for all nodes")
    return nodes


def check_output(file: Path | None, endings: tuple[str, ...]) -> None:
    """Refuse before the work, not after."""
    if file is None:
        return
    if file.suffix not in endings:
        raise ConfigError(f"{file} must end in {' or '.join(endings)}")
    if file.exists():
        raise StoreError(f"{file} exists: choose another name or delete it")
