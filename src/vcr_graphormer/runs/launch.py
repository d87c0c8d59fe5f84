"""`train`: graph and split → run folder; `resume` after an interruption."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import numpy as np
import torch

from .. import __version__
from ..base.checks import Array
from ..base.files import claim, read_json, replace_file, write_json
from ..base.jobs import Progress
from ..data.graph import Graph
from ..data.split import PARTS, Split
from ..data.tasks import TASKS, choose_metric
from ..errors import GraphError, StoreError
from ..model.inputs import model_sizes
from ..tokens.build import check_tokens, tokenize
from ..tokens.kinds import Kind, resolve
from ..training.checkpoint import save_tensors
from ..training.devices import find_device
from ..training.inference import compute
from ..training.processes import Processes, agent_name
from ..training.trainer import OnEpoch, Trainer
from .config import Config, to_toml
from .run import RUN_FILE, RUN_VERSION, Run, versions

SEEDS_FILE = "seeds.toml"  # in a folder of runs, one per seed


class Watched(TypedDict, total=False):
    """How long work is done and watched.

    Attributes
    ----------
    threads : int or None
        For the token lists; default: all cores.
    progress : callable
        Called with (stage, done, total), in the first process only.
    on_epoch : callable
        Called with each epoch's row of the history, in the first process only.
    """

    threads: int | None
    progress: Progress | None
    on_epoch: OnEpoch | None


def train(
    graph: Graph,
    split: Split,
    config: Config | None = None,
    out: str | Path = "runs/run",
    tokens: str | Path | None = None,
    device: str = "auto",
    force: bool = False,
    kinds: Sequence[Kind] = (),
    **watched: Unpack[Watched],
) -> Run:
    """Compute token lists, train the model on them, and leave a run folder that says everything.

    Interrupted at any moment, `resume(out)` continues. The test part is read once, after training. Started by torchrun,
    its processes train one model together and the first one writes; a restart goes on from the last checkpoint.

    Parameters
    ----------
    graph, split
        Only the first process's are read.
    config
        All settings; the data section only describes where the graph came from.
    out
        The run folder; an existing one is refused unless `force`.
    tokens
        Folder of a token store to use or to make; default: inside the run folder.
    device
        auto, cpu, cuda or cuda:N.
    kinds
        More kinds of neighbours than the settings name; give them to `resume` too.
    **watched
        `threads`, `progress` and `on_epoch`, as in `Watched`.
    """
    return train_loaded(
        lambda: (graph, split),
        config or Config(),
        out=out,
        tokens=tokens,
        device=device,
        force=force,
        kinds=kinds,
        **watched,
    )


def train_loaded(
    load: Callable[[], tuple[Graph, Split]],
    config: Config,
    *,
    out: str | Path,
    tokens: str | Path | None = None,
    device: str = "auto",
    force: bool = False,
    kinds: Sequence[Kind] = (),
    **watched: Unpack[Watched],
) -> Run:
    """Train as `train` does, on a graph that the first process alone loads; after a restart by torchrun none does."""

    def prepare() -> None:
        own = _is_ours(Path(out), config)
        if not own or not (Path(out) / "config.toml").is_file():  # the last of what `_prepare` writes
            graph, split = load()
            _check(graph, split, config)
            if tokens is not None:
                check_tokens(graph, split.train, config.tokens, tokens, kinds)
            _prepare(graph, split, config, folder=Path(out), tokens=tokens, force=force or own, agents=agents)

    processes = Processes.join()
    with processes.guarded():
        device = processes.device(device)
        find_device(device)
        agents = [name for name in dict.fromkeys(processes.gather(agent_name())) if name is not None]
        processes.first(prepare)
        return resume(out, device, kinds, **watched)


def _is_ours(folder: Path, config: Config) -> bool:
    """Whether an earlier attempt of the same torchrun made the run: then it is continued, never another one's.

    By its agents rather than by its count of restarts, which each agent keeps for itself; and by its settings, for in a
    container a later torchrun may have the same name.
    """
    if agent_name() is None or not (folder / RUN_FILE).is_file():
        return False
    about, settings = read_json(folder / RUN_FILE), folder / "config.toml"
    if settings.is_file() and settings.read_text(encoding="utf-8") != to_toml(config):
        return False
    return agent_name() in about.get("agents", []) and about.get("process") != os.getpid()


def _prepare(
    graph: Graph,
    split: Split,
    config: Config,
    *,
    folder: Path,
    tokens: str | Path | None,
    force: bool,
    agents: list[str],
) -> None:
    """Leave a run folder that `resume` can go on with."""
    store = folder / "tokens" if tokens is None else Path(tokens)
    for path in (graph.folder, None if tokens is None else store):
        if path is not None and path.resolve().is_relative_to(folder.resolve()):
            raise StoreError(f"{path} lies in {folder}, which the run would fill: choose another folder for the run")
    scale = TASKS[graph.task].scale(np.asarray(graph.labels), split.train)
    about = {
        "kind": "run",
        "version": RUN_VERSION,
        "package": __version__,
        "graph": _pointer(graph.folder or folder / "graph", folder),
        "tokens": _pointer(store, folder),
        "fingerprint": graph.fingerprint,
        "task": graph.task,
        "scale": None if scale is None else [part.tolist() for part in scale],
        **model_sizes(graph),
    }
    if agents:
        about |= {"agents": agents, "process": os.getpid()}
    make_room(folder, force)
    write_json(folder / RUN_FILE, about)  # first, so that what an interruption leaves is known for a run
    if graph.folder is None:
        graph.save(folder / "graph")
    split.save(folder / "split.npz")
    with replace_file(folder / "config.toml") as temporary:
        temporary.write_text(to_toml(config), encoding="utf-8")


def resume(path: str | Path, device: str = "auto", kinds: Sequence[Kind] = (), **watched: Unpack[Watched]) -> Run:
    """Go on with an interrupted run from its last checkpoint; open a finished one as it is."""
    processes = Processes.join()
    with processes.guarded():
        device = processes.device(device)
        # The first process opens it first: what is wrong with it is told once.
        run = processes.first(lambda: Run.open(path, device)) or Run.open(path, device)
        if processes.agree(lambda: run.finished):
            return run
        lock = processes.first(lambda: claim(run.path / RUN_FILE))
        try:
            if not processes.agree(lambda: run.finished):  # by another process, just now
                with torch.random.fork_rng(devices=[run.device] if run.device.type == "cuda" else []):
                    _execute(run, processes, kinds, watched if processes.is_first else {"threads": None})
        finally:
            if lock is not None:
                lock.close()
    return run


def _check(graph: Graph, split: Split, config: Config) -> None:
    """Find what is wrong before anything is computed or written."""
    if graph.labels is None:
        raise GraphError("the graph has no labels to learn from")
    if graph.features is None:
        raise GraphError("the graph has no features: use graph.with_features('degree') or 'identity'")
    split.check(graph.num_nodes, graph.labels, graph.class_names)
    resolve(config.tokens, graph, split.train)
    config.model.check(config.tokens.hops)
    config.training.check(graph.task)
    choose_metric(config.training.metric, TASKS[graph.task])


def make_room(folder: Path, force: bool) -> None:
    """An empty folder; what is there already is replaced only if it is a run and only if that was asked for."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        known = [folder / name for name in (RUN_FILE, SEEDS_FILE) if (folder / name).is_file()]
        if not known:
            raise StoreError(f"{folder} exists and is not a run: choose another folder")
        if not force:
            raise StoreError(
                f"{folder} holds a run already: choose another folder, continue it (train --resume, vcr.resume) or "
                f"replace it (--force, force=True)"
            )
        claim(known[0]).close()
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror or error}") from error


def _pointer(target: Path, folder: Path) -> str:
    """How the run names another folder: relative where it lies in or beside the run, so that both can move."""
    target, folder = target.resolve(), folder.resolve()
    near = target.is_relative_to(folder.parent)
    return os.path.relpath(target, folder) if near else str(target)


def _execute(run: Run, processes: Processes, kinds: Sequence[Kind], watched: Watched) -> None:
    """Make the token lists, train, predict every node and write the results."""
    clock, progress = [time.perf_counter()], watched.get("progress")

    def make_tokens() -> None:
        settings, threads = run.config.tokens, watched.get("threads")
        tokenize(run.graph, run.split.train, settings, run.tokens_folder, threads, progress, kinds=kinds)

    processes.first(make_tokens)
    graph, split, config = run.graph, run.split, run.config
    clock.append(time.perf_counter())
    trainer = Trainer.of(
        graph,
        split,
        inputs=run.inputs,
        model=config.model,
        training=config.training,
        folder=run.path,
        processes=processes,
    )
    trainer.restore()
    trainer.fit(watched.get("on_epoch"))
    clock.append(time.perf_counter())
    model = trainer.best_model()
    nodes = np.arange(graph.num_nodes)
    part = compute(model, run.inputs, nodes[processes.share(len(nodes))], run.batch_size, progress=progress)
    logits = processes.collect(part, len(nodes))
    processes.first(lambda: _write_results(run, processes, trainer, logits, clock))


def _write_results(run: Run, processes: Processes, trainer: Trainer, logits: Array, clock: list[float]) -> None:
    """Write weights, predictions and, last, the metrics that make the run a finished one."""
    graph, split, config, best = run.graph, run.split, run.config, trainer.best
    save_tensors(run.path / "model.safetensors", best.state, {"best_epoch": best.epoch})
    predicted = run.target.outputs(logits)
    run.wrap(np.arange(graph.num_nodes), predicted).save(run.path / "predictions.npz", overwrite=True)
    clock.append(time.perf_counter())
    scores = {part: run.score(predicted[getattr(split, part)], getattr(split, part)) for part in PARTS}
    seconds = dict(zip(("tokenize", "train", "predict"), np.diff(clock).round(3).tolist(), strict=True))
    write_json(
        run.path / "metrics.json",
        {
            "dataset": graph.name,
            "metric": trainer.metric,
            **{part: scores[part][trainer.metric] for part in PARTS},
            "scores": {part: _without_nan(row) for part, row in scores.items()},
            "seed": config.training.seed,
            "split_seed": config.data.seed,
            "epochs": trainer.epoch,
            "best_epoch": best.epoch,
            "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
            "device": _device_name(run.device) + (f", {processes.size} processes" if processes.size > 1 else ""),
            "precision": str(run.precision).removeprefix("torch."),
            # Training in all, across interruptions; the others as this process saw them.
            "timings": {**seconds, "train": round(trainer.seconds, 3)},
            "versions": versions(),
        },
    )
    shutil.rmtree(run.path / "checkpoint", ignore_errors=True)  # the run is finished: nothing to go on from


def _without_nan(row: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN: a metric that a part cannot have, such as ROC-AUC of a single class, is null."""
    return {name: None if np.isnan(value) else value for name, value in row.items()}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
