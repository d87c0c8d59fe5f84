"""The commands `tokenize` and `train`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from ..errors import ConfigError
from .options import INTERRUPTED, Chosen, Device, Extras, Machine, Scheduler, Threads, show_reading
from .output import quoted, say, say_error
from .update import keep_source

if TYPE_CHECKING:
    from ..data.graph import Graph
    from ..data.split import Split
    from ..runs.config import Config
    from ..runs.run import Run


class Shown(TypedDict):
    """The callbacks of `train` that show what it does."""

    progress: Callable[..., None]
    on_start: Callable[..., None]
    on_epoch: Callable[..., None]


@contextmanager
def show_progress(writer: Any = None) -> Iterator[Shown]:
    """Show notes and progress; yield the callbacks of `train`. A TensorBoard `writer` gets the epochs too."""
    from .console import EpochProgress, StageProgress

    with StageProgress() as progress:
        show_epoch = EpochProgress(progress)

        def on_start(run: Run) -> None:
            show_epoch.epochs = run.config.training.epochs
            for note in run.notes:
                say(note)

        def on_epoch(row: dict[str, float]) -> None:
            show_epoch(row)
            if writer is not None:
                for name in ("loss", "val_loss", "val", "learning_rate"):
                    writer.add_scalar(name, row[name], int(row["epoch"]))

        yield {"progress": progress, "on_start": on_start, "on_epoch": on_epoch}


def train(
    data: Chosen,
    machine: Machine,
    extras: Extras,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The run folder (default: runs/DATASET).")] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Train N times, with seeds 0 to N-1; show mean and deviation.")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Token lists that runs can share; made if the folder does not exist."),
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Continue an interrupted run.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in the folder.")] = False,
) -> None:
    """Make token lists, train a model and evaluate it. Writes settings, weights, metrics and predictions."""
    from ..data.datasets import load_labelled
    from ..runs.baselines import QUICK
    from ..runs.launch import SEEDS_FILE, Watched, check_unseen, train_loaded
    from ..runs.launch import resume as resume_run
    from ..runs.run import Run
    from ..training.processes import Processes
    from .console import print_baselines, print_history

    def choose() -> tuple[Path, Config]:
        if resume is not None:
            if data.given or any((out, seeds, tokens, force)):
                raise ConfigError("--resume takes the settings of the run: leave out the other options")
            if (resume / SEEDS_FILE).is_file():
                raise ConfigError(f"{resume} holds the runs of several seeds: give the same train command again")
            return resume, Run.open(resume, machine.device).config
        chosen = data.load()
        check_unseen(chosen)
        if seeds is not None and (tokens is not None or extras.tensorboard):
            raise ConfigError("--tokens and --tensorboard are for one run: leave them out with --seeds")
        if seeds is not None and processes.size > 1:
            raise ConfigError(
                "--seeds trains one seed after another in one process: under torchrun leave it out and give each seed "
                "a command of its own (--set training.seed=N --set data.seed=N --out RUN-N)"
            )
        return out or Path("runs") / Path(chosen.data.dataset).resolve().name, chosen

    def load() -> tuple[Graph, Split]:
        # The bars of training are live already, and a terminal can have only one live display.
        graph, split = load_labelled(chosen.data, progress=shown["progress"], tell=_tell)
        say(graph)
        return graph, split

    processes = Processes.join()
    with processes.guarded():
        folder, chosen = processes.agree(choose)
    if seeds is not None:
        _train_seeds(chosen, seeds, folder, machine, force=force, baselines=extras.baselines or QUICK)
        return
    writer = _tensorboard(folder) if extras.tensorboard else None
    try:
        with show_progress(writer) as shown:
            watched: Watched = {"threads": machine.threads, **shown}
            if resume is not None:
                run = resume_run(folder, machine.device, baselines=extras.baselines, **watched)
            else:
                run = train_loaded(
                    load,
                    chosen,
                    out=folder,
                    tokens=tokens,
                    device=machine.device,
                    force=force,
                    baselines=extras.baselines or QUICK,
                    **watched,
                )
    except KeyboardInterrupt:
        can_resume = (folder / "config.toml").is_file()
        hint = f"; continue with: vcr-graphormer train --resume {quoted(folder)}" if can_resume else ""
        if processes.is_first:
            say_error(f"stopped{hint}")
        raise typer.Exit(INTERRUPTED) from None
    if processes.is_first:
        print_history(run)
        print_baselines(run)
        say(f"the run lies in {run.path}")
        say(f"next: vcr-graphormer predict {quoted(run.path)} --out predictions.csv")


def _tell(note: str) -> None:
    say(f"note: {note}")


def _train_seeds(chosen: Config, seeds: int, folder: Path, machine: Machine, *, force: bool, baselines: str) -> None:
    from ..runs.launch import Watched
    from ..runs.seeds import train_seeds
    from .console import print_summary

    def print_seed(seed: int, run: Run) -> None:
        say(f"seed {seed}: {run.metrics['metric']} val {run.metrics['val']:.4f} test {run.metrics['test']:.4f}")

    try:
        with show_progress() as shown:
            watched: Watched = {"threads": machine.threads, **shown}
            summary = train_seeds(chosen, seeds, folder, machine.device, force, print_seed, baselines, **watched)
    except KeyboardInterrupt:
        say_error("stopped; the same command continues")
        raise typer.Exit(INTERRUPTED) from None
    print_summary(summary)
    say(f"the runs and summary.json lie in {folder}")


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError("--tensorboard needs the package tensorboard: pip install tensorboard") from error

    class LazyWriter:
        """A writer that makes its folder with the first value, after training has made the run folder."""

        writer: Any = None

        def add_scalar(self, *values: Any) -> None:
            self.writer = self.writer or SummaryWriter(str(folder / "tensorboard"))
            self.writer.add_scalar(*values)

    return LazyWriter()


def tokenize(
    data: Chosen,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the token lists.")] = Path("tokens"),
    device: Device = "auto",
    threads: Threads = None,
    scheduler: Scheduler = None,
) -> None:
    """Compute and store the token list of every node. After an interruption, the same command continues."""
    from ..data.datasets import load_data
    from ..runs.adapt import adapt
    from ..tokens.build import tokenize as make_tokens
    from ..tokens.dask import connect
    from .console import StageProgress, print_stages

    if device not in ("auto", "cpu"):
        from ..training.devices import find_device

        find_device(device)
    chosen = data.load()
    try:
        # Workers before data: if one cannot be reached, the command fails before it reads a large graph.
        with nullcontext() if scheduler is None else connect(scheduler) as executor:
            with show_reading() as reading:
                graph, split = load_data(chosen.data, **reading)
            say(graph)
            source = graph
            if split is not None:
                adapted = adapt(chosen, graph, split)
                graph, chosen = adapted.graph, adapted.config
            train = None if split is None else split.train
            with StageProgress() as progress:
                how: dict[str, Any] = {"threads": threads, "progress": progress, "executor": executor, "device": device}
                store = make_tokens(graph, train, chosen.tokens, out=out, **how)
    except KeyboardInterrupt:
        say_error(f"stopped; the same command continues from what is finished in {out}")
        raise typer.Exit(INTERRUPTED) from None
    keep_source(store.path, chosen, source=source, preparation=None if split is None else adapted.preparation)
    print_stages(store.path / "stages.json")
    say(store)
