"""The commands about runs: train, evaluate, predict, embed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .options import (
    ConfigFile,
    DataRoot,
    DatasetName,
    Device,
    Nodes,
    RunFolder,
    Settings,
    Threads,
    Variant,
    check_output,
    read_config,
    read_nodes,
    say_error,
)

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
    dataset: DatasetName = None,
    data: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="The run folder (default: runs/DATASET).")] = None,
    config: ConfigFile = None,
    variant: Variant = "default",
    override: Settings = None,
    seeds: Annotated[int | None, typer.Option(help="Repeat with seeds 0 to N-1: mean and deviation.")] = None,
    device: Device = "auto",
    tokens: Annotated[Path | None, typer.Option(help="A token store to share between runs; made if missing.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Continue an interrupted run.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in the folder.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard.")] = False,
    threads: Threads = None,
) -> None:
    """Tokenize, train, evaluate: leaves a run folder with settings, weights, metrics and predictions."""
    from ..data.datasets import load_labelled
    from ..runs.launch import SEEDS_FILE, Watched, train_loaded
    from ..runs.launch import resume as resume_run
    from ..runs.run import Run
    from ..training.processes import Processes
    from .console import print_history

    def choose() -> tuple[Path, Config]:
        if resume is not None:
            given = (dataset, data, out, config, override, seeds, tokens, force)
            if any(given) or variant != "default":
                raise ConfigError("--resume takes the settings of the run: leave out the other options")
            if (resume / SEEDS_FILE).is_file():
                raise ConfigError(f"{resume} holds the runs of several seeds: give the same train command again")
            return resume, Run.open(resume, device).config
        chosen = read_config(config, override, variant, dataset=dataset, root=data)
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
        _train_seeds(chosen, seeds, folder, device, force, threads)
        return
    writer = _tensorboard(folder) if tensorboard else None
    try:
        with show_progress(chosen.training.epochs, writer) as (progress, on_epoch):
            watched: Watched = {"threads": threads, "progress": progress, "on_epoch": on_epoch}
            if resume is not None:
                run = resume_run(folder, device, **watched)
            else:
                run = train_loaded(load, chosen, out=folder, tokens=tokens, device=device, force=force, **watched)
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


def _train_seeds(chosen: Config, seeds: int, folder: Path, device: str, force: bool, threads: int | None) -> None:
    from ..runs.run import Run
    from ..runs.seeds import train_seeds
    from .console import print_summary

    def tell(seed: int, run: Run) -> None:
        typer.echo(f"seed {seed}: {run.metrics['metric']} val {run.metrics['val']:.4f} test {run.metrics['test']:.4f}")

    try:
        with show_progress(chosen.training.epochs) as (progress, on_epoch):
            summary = train_seeds(
                chosen, seeds, folder, device, force, tell, threads=threads, progress=progress, on_epoch=on_epoch
            )
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


def evaluate(
    run: RunFolder,
    part: Annotated[str, typer.Option(help="train, val, test, or all three.")] = "all",
    device: Device = "auto",
) -> None:
    """Compute every metric of a run anew, from its weights."""
    from ..data.split import PARTS
    from ..runs.run import Run
    from .console import StageProgress, print_scores

    if part not in (*PARTS, "all"):
        raise ConfigError(f"--part is {part!r}; it must be {', '.join(PARTS)} or all")
    opened = Run.open(run, device)
    opened.check_finished()
    with StageProgress() as progress:
        scores = {name: opened.evaluate(name, progress) for name in (PARTS if part == "all" else (part,))}
    print_scores(scores)


def predict(
    run: RunFolder,
    out: Annotated[Path | None, typer.Option(help="A .csv or .npz file; without it a table is printed.")] = None,
    nodes: Nodes = None,
    device: Device = "auto",
) -> None:
    """Predict nodes, all by default, with the probability of every class."""
    from ..runs.run import Run
    from .console import StageProgress, print_predictions

    opened = Run.open(run, device)
    opened.check_finished()
    check_output(out, (".csv", ".npz"))
    with StageProgress() as progress:
        found = opened.predict(read_nodes(nodes), progress)
    if out is None:
        print_predictions(found)
    else:
        typer.echo(f"{len(found):,} predictions written to {found.save(out)}")


def embed(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="A .npy file, a row per node.")],
    nodes: Nodes = None,
    device: Device = "auto",
) -> None:
    """Write the vectors behind the predictions, for plots, search or another model."""
    from ..base.files import write_array
    from ..runs.run import Run
    from .console import StageProgress

    opened = Run.open(run, device)
    opened.check_finished()
    check_output(out, (".npy",))
    with StageProgress() as progress:
        vectors = opened.embed(read_nodes(nodes), progress)
    write_array(out, vectors)
    typer.echo(f"{vectors.shape[0]:,} vectors of {vectors.shape[1]} numbers written to {out}")
