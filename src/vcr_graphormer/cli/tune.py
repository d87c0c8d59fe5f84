"""The command `tune`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .options import INTERRUPTED, Device, Named, show_reading
from .output import quoted, say, say_error

if TYPE_CHECKING:
    from ..runs.config import Config


@dataclass(frozen=True)
class Limits:
    """The options that say how far to search."""

    minutes: Annotated[float, typer.Option(metavar="MINUTES", help="Time for all trials and the last training.")] = 10
    trials: Annotated[int | None, typer.Option(metavar="N", help="Stop after N trials.")] = None
    recipes: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Recipes to try, with commas between them (default: all that can work)."),
    ] = None
    ensemble: Annotated[
        int, typer.Option(metavar="N", help="Train the best N settings in the end and average their predictions.")
    ] = 1
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Trials that run side by side (default: up to 4, by cores and memory)."),
    ] = None
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the search and of every training.")] = 0


def tune(
    data: Named,
    limits: Limits,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The run folder (default: runs/DATASET).")] = None,
    show: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Print the leaderboard of a search, finished or not.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Find good settings for your graph, then train with the best. After an interruption, the same command continues.

    Trials are judged by validation nodes only. Settings given by --set or --config hold in every trial.
    """
    from ..data.datasets import load_labelled
    from ..runs.launch import check_unseen
    from ..runs.recipes import changed
    from ..runs.tuning import Tuning, tune_fixed
    from .console import TuningProgress, print_history, print_leaderboard

    if show is not None:
        if data.given or out is not None:
            raise ConfigError("--show prints the search of a folder: leave out the other options")
        print_leaderboard(Tuning.open(show))
        return
    chosen, fixed = _settings(data)
    check_unseen(changed(chosen, fixed))
    folder = out or Path("runs") / Path(chosen.data.dataset).resolve().name
    names = None
    if limits.recipes is not None:
        names = [name.strip() for name in limits.recipes.split(",") if name.strip()]
    try:
        with show_reading() as reading:
            graph, split = load_labelled(chosen.data, **reading)
        say(graph)
        with TuningProgress() as progress:
            run = tune_fixed(
                graph,
                split,
                minutes=limits.minutes,
                out=folder,
                base=chosen,
                fixed=fixed,
                recipes=names,
                trials=limits.trials,
                ensemble=limits.ensemble,
                seed=limits.seed,
                workers=limits.workers,
                device=device,
                progress=progress,
            )
    except KeyboardInterrupt:
        say_error("stopped; continue with the same command")
        raise typer.Exit(INTERRUPTED) from None
    tuning = Tuning.open(folder)
    print_leaderboard(tuning)
    _print_contest(folder, tuning.metric, run.config.model.members)
    _print_ensemble(folder)
    print_history(run)
    say(f"the run lies in {run.path}")
    say(f"next: vcr-graphormer report {quoted(run.path)}")


def _print_contest(folder: Path, metric: str, members: int) -> None:
    from ..runs.contest import DEFAULT, WINNER, default_wins, read_scores

    scores = read_scores(folder)
    if scores is not None:
        better = DEFAULT if default_wins(scores, metric) else WINNER
        text = ", ".join(f"{name} {score:.4f}" for name, score in scores.items())
        say(f"validation scores with {members} models each: {text}; trained: {better}")


def _print_ensemble(folder: Path) -> None:
    from ..base.files import read_json
    from ..runs.tuning import ENSEMBLE_FILE
    from .console import print_scores

    if (folder / ENSEMBLE_FILE).is_file():
        about = read_json(folder / ENSEMBLE_FILE)
        say(f"mean of the predictions of the best {len(about['members'])} settings:")
        print_scores(about["scores"])


def _settings(data: Named) -> tuple[Config, dict[str, Any]]:
    """Return where the data comes from, and the settings that hold in every trial.

    Of a preset only the data section counts: the rest would leave nothing to search for.
    """
    from ..runs.config import build_config, build_tables

    tables = data.tables()
    fixed = {section: values for section, values in build_tables(tables).items() if section != "data"}
    return build_config({"data": tables.get("data", {})}), fixed
