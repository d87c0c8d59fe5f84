"""The commands that make token lists and runs: tokenize, train."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .options import Chosen, Machine, Scheduler, Threads, say_error

if TYPE_CHECKING:
    from ..data.graph import Graph
    from ..data.split import Split
    from ..runs.config import Config


@contextmanager
def show_progress(epochs: int, writer: Any = None) -> Iterator[tuple[Callable[..., None], Callable[..., None]]]:
    """Bars for the stages of tokenization, then one for the epochs, with loss and validation metric."""
    from .console import EpochProgress, StageProgress

    with StageProgress() as progress:
        on_epoch = EpochProgress(epochs, progress)

        def note(row: dict[str, float]) -> None:
            on_epoch(row)
            if writer is not None:
                for name in ("loss", "val_loss", "val", "learning_rate"):
                    writer.add_scalar(name, row[name], int(row["epoch"]))

        yield progress, note


def train(
    data: Chosen,
    machine: Machine,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The run folder (default: runs/DATASET).")] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Train with seeds 0 to N-1 and show mean and deviation.")
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Token lists to share between runs; made if they are not there."),
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Continue an interrupted run.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that is in the folder.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard too.")] = False,
) -> None:
    """Make token lists, train, evaluate. Leaves a run folder with settings, weights, metrics and predictions."""
    from ..data.datasets import load_labelled
    from ..runs.launch import SEEDS_FILE, Watched, train_loaded
    from ..runs.launch import resume as resume_run
    from ..runs.run import Run
    from ..training.processes import Processes
    from .console import print_history

    def choose() -> tuple[Path, Config]:
        if resume is not None:
            if data.given or any((out, seeds, tokens, force)):
                raise ConfigError("--resume takes the settings of the run: leave out the other options")
            if (resume / SEEDS_FILE).is_file():
                raise ConfigError(f"{resume} holds the runs of several seeds: give the same train command again")
            return resume, Run.open(resume, machine.device).config
        chosen = data.load()
        if seeds is not None and (tokens is not None or tensorboard):
            raise ConfigError("--tokens and --tensorboard are for one run: leave them out with --seeds")
        if seeds is not None and processes.size > 1:
            raise ConfigError(
                "--seeds trains one seed after another in one process: under torchrun leave it out and give each seed "
                "a command of its own (--set training.seed=N --set data.seed=N --out RUN-N)"
            )
        return out or Path("runs") / Path(chosen.data.dataset).resolve().name, chosen

    def load() -> tuple[Graph, Split]:
        graph, split = load_labelled(chosen.data)
        typer.echo(repr(graph))
        return graph, split

    processes = Processes.join()
    with processes.guarded():
        folder, chosen = processes.agree(choose)
    if seeds is not None:
        _train_seeds(chosen, seeds, folder, machine, force)
        return
    writer = _tensorboard(folder) if tensorboard else None
    try:
        with show_progress(chosen.training.epochs, writer) as (progress, on_epoch):
            watched: Watched = {"threads": machine.threads, "progress": progress, "on_epoch": on_epoch}
            if resume is not None:
                run = resume_run(folder, machine.device, **watched)
            else:
                run = train_loaded(
                    load, chosen, out=folder, tokens=tokens, device=machine.device, force=force, **watched
                )
    except KeyboardInterrupt:
        begun = (folder / "config.toml").is_file()
        way = f"; continue with: vcr-graphormer train --resume {shlex.quote(str(folder))}" if begun else ""
        if processes.is_first:
            say_error(f"stopped{way}")
        raise typer.Exit(130) from None
    if processes.is_first:
        print_history(run)
        typer.echo(f"the run lies in {run.path}")
        typer.echo(f"next: vcr-graphormer predict {run.path} --out predictions.csv")


def _train_seeds(chosen: Config, seeds: int, folder: Path, machine: Machine, force: bool) -> None:
    from ..runs.launch import Watched
    from ..runs.run import Run
    from ..runs.seeds import train_seeds
    from .console import print_summary

    def tell(seed: int, run: Run) -> None:
        typer.echo(f"seed {seed}: {run.metrics['metric']} val {run.metrics['val']:.4f} test {run.metrics['test']:.4f}")

    try:
        with show_progress(chosen.training.epochs) as (progress, on_epoch):
            watched: Watched = {"threads": machine.threads, "progress": progress, "on_epoch": on_epoch}
            summary = train_seeds(chosen, seeds, folder, machine.device, force, tell, **watched)
    except KeyboardInterrupt:
        say_error("stopped; the same command continues")
        raise typer.Exit(130) from None
    print_summary(summary)
    typer.echo(f"the runs and summary.json lie in {folder}")


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError("--tensorboard needs the package tensorboard: pip install tensorboard") from error

    class Late:
        """The writer is made with its first value: the run folder must be made by the run."""

        made: Any = None

        def add_scalar(self, *values: Any) -> None:
            self.made = self.made or SummaryWriter(str(folder / "tensorboard"))
            self.made.add_scalar(*values)

    return Late()


def tokenize(
    data: Chosen,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the token lists go.")] = Path("tokens"),
    threads: Threads = None,
    scheduler: Scheduler = None,
) -> None:
    """Compute every node's token list once and store it. Interrupted, the same command resumes where it was."""
    from ..data.datasets import load_data
    from ..tokens.build import tokenize as make_tokens
    from ..tokens.dask import connect
    from .console import StageProgress, print_stages

    chosen = data.load()
    try:
        # First the workers, then the data: whoever is missing is missed at once.
        with nullcontext() if scheduler is None else connect(scheduler) as executor:
            graph, split = load_data(chosen.data)
            typer.echo(repr(graph))
            train = None if split is None else split.train
            with StageProgress() as progress:
                store = make_tokens(graph, train, chosen.tokens, out, threads, progress, executor)
    except KeyboardInterrupt:
        say_error(f"stopped; the same command resumes what is finished in {out}")
        raise typer.Exit(130) from None
    print_stages(store.path / "stages.json")
    typer.echo(repr(store))
