"""`train` a model on a graph and its split into a run folder; `resume` it after an interruption."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from .. import __version__
from ..base.checks import Array
from ..base.checksums import record, run_files
from ..base.files import checksum, claim, json_text, read_json, replace_file, write_json
from ..base.folders import MANIFEST, digest
from ..base.jobs import Progress
from ..base.progress import Bars, bars
from ..data.columns.matching import schema_of
from ..data.columns.schema import SCHEMA_FILE
from ..data.datasets import data_paths, is_published, with_absolute_paths
from ..data.graph import Graph
from ..data.inductive import Seen
from ..data.split import PARTS, Split
from ..data.tasks import CLASSIFICATION, TASKS, Target, choose_metric
from ..errors import ConfigError, GraphError, StoreError, TrainingError
from ..model.inputs import make_inputs, model_sizes
from ..tokens.build import check_tokens, tokenize
from ..tokens.kinds import Kind, resolve
from ..tokens.store import TokenStore
from ..training.checkpoint import save_tensors
from ..training.devices import find_device, torch_threads
from ..training.inference import compute
from ..training.processes import Processes, agent_name
from ..training.trainer import Examples, OnEpoch, Trainer
from .adapt import Adapted, adapt
from .baselines import NONE, QUICK, baseline_names, check_choice, run_baseline
from .config import Config, to_toml
from .run import BASELINES_FILE, METRICS_FILE, RUN_FILE, RUN_VERSION, Run, versions
from .serving.journal import check_kept

SEEN_TOKENS = "training-tokens"  # lists without validation and test nodes, while an inductive run is trained
SEEDS_FILE = "seeds.toml"  # the settings of a folder that holds one run per seed


class Watched(TypedDict, total=False):
    """Number of threads, and functions that are called during long work.

    Attributes
    ----------
    threads : int or None
        Threads that make token lists, and that train on a CPU; default: all cores, in training only as many as its
        steps are worth. Their number decides how sums are rounded in training.
    progress : callable, bool or None
        Called with (stage, done, total), in the first process only. By default bars show stages and epochs on a
        terminal and in a notebook; False turns them off.
    on_start : callable
        Called with the run before its token lists are made, in the first process only; `run.notes` and `run.config`
        say what was chosen for the graph.
    on_epoch : callable
        Called with the history row of each epoch, in the first process only.
    """

    threads: int | None
    progress: Progress | bool | None
    on_start: Callable[[Run], None] | None
    on_epoch: OnEpoch | None


class Options(Watched, total=False):
    """What `train` takes by name.

    Attributes
    ----------
    tokens : path or None
        Folder of a token store to use or to make; default: inside the run folder.
    device : str
        auto, cpu, cuda or cuda:N.
    force : bool
        Whether to replace a run that is in the folder.
    kinds : sequence of Kind
        Kinds of neighbours beside those in the settings; give them to `resume` too.
    baselines : str
        Baselines to compute after training: none, quick (scikit-learn, seconds; the default) or all (also PyG's).
    """

    tokens: str | Path | None
    device: str
    force: bool
    kinds: Sequence[Kind]
    baselines: str


def train(
    graph: Graph,
    split: Split,
    config: Config | None = None,
    out: str | Path = "runs/run",
    **options: Unpack[Options],
) -> Run:
    """Make token lists, train a model on them, and write all results to a run folder.

    After an interruption, continue with `resume(out)`. Test labels are read once, after training. Processes that
    torchrun starts train one model together; the first one writes. A restart continues from the last checkpoint.

    Parameters
    ----------
    graph, split
        Read in the first process only.
    config
        All settings; those that are AUTO are chosen for the graph by `adapt`. Of the data section only `features` and
        `scale` count; the rest describes where the graph came from.
    out
        The run folder; an existing run is refused unless `force`.
    **options
        `tokens`, `device`, `force`, `kinds` and `baselines`, as in `Options`; `threads`, `progress`, `on_start` and
        `on_epoch`, as in `Watched`.
    """
    return train_loaded(lambda: (graph, split), config or Config(), out=out, **options)


def train_loaded(
    load: Callable[[], tuple[Graph, Split]],
    config: Config,
    *,
    out: str | Path,
    keep: Collection[str] = (),
    **options: Unpack[Options],
) -> Run:
    """Train like `train`; only the first process calls `load`, and none does after a restart by torchrun.

    `keep` names files and folders that may lie in the run folder before.
    """
    if unknown := options.keys() - Options.__annotations__.keys():
        raise TypeError(f"train() got an unexpected keyword argument '{min(unknown)}'")
    tokens, kinds, baselines = options.get("tokens"), options.get("kinds", ()), options.get("baselines", QUICK)
    device, force = options.get("device", "auto"), options.get("force", False)

    def prepare() -> None:
        restarted = _is_restart(Path(out), config)
        if not restarted or not (Path(out) / "config.toml").is_file():  # the last file that `_prepare` writes
            graph, split = load()
            check_data(graph, split, config.data.features)
            adapted = adapt(config, graph, split)
            check_settings(adapted.graph, split, adapted.config, kinds=kinds)
            check_choice(baselines)
            if tokens is not None:
                check_tokens(adapted.graph, split.train, adapted.config.tokens, tokens, kinds)
            more: dict[str, Any] = {"baselines": baselines, "asked": _digest(config)}
            if agents:
                more |= {"agents": agents, "process": os.getpid()}
            if kinds:
                more["kinds"] = [kind.name for kind in kinds]
            again = force or restarted
            _prepare(graph, split, adapted, folder=Path(out), tokens=tokens, force=again, more=more, keep=keep)

    processes = Processes.join()
    with processes.guarded():
        device = processes.device(device)
        find_device(device)
        agents = [name for name in dict.fromkeys(processes.gather(agent_name())) if name is not None]
        processes.first(prepare)
        watched = {name: options[name] for name in Watched.__annotations__ if name in options}  # type: ignore[literal-required]
        return resume(out, device, kinds, **watched)


def _is_restart(folder: Path, config: Config) -> bool:
    """Return whether an earlier attempt of this torchrun made the run, so that it may be continued.

    Attempts are known by the names of torchrun's agents, for each agent has its own count of restarts. Settings are
    compared too: in a container, a later torchrun may have the same name.
    """
    if agent_name() is None or not (folder / RUN_FILE).is_file():
        return False
    about = read_json(folder / RUN_FILE)
    if about.get("asked") != _digest(config):
        return False
    return agent_name() in about.get("agents", []) and about.get("process") != os.getpid()


def _digest(config: Config) -> str:
    """Return a hash of settings before they are adapted to a graph."""
    return digest(np.array([to_toml(config)]))


def _prepare(
    graph: Graph,
    split: Split,
    adapted: Adapted,
    *,
    folder: Path,
    tokens: str | Path | None,
    force: bool,
    more: dict[str, Any],
    keep: Collection[str],
) -> None:
    """Write a run folder that `resume` can train; `more` goes to `run.json`. The graph is kept as it was given."""
    store = folder / "tokens" if tokens is None else Path(tokens)
    given = (graph.folder, None if tokens is None else store, *data_paths(adapted.config.data))
    check_outside(folder, [path for path in given if path is not None])
    scale = TASKS[graph.task].scale(np.asarray(graph.labels), split.train)
    about = {
        "kind": "run",
        "version": RUN_VERSION,
        "package": __version__,
        "graph": _pointer(graph.folder or folder / "graph", folder),
        "tokens": _pointer(store, folder),
        "fingerprint": graph.fingerprint,
        "task": graph.task,
        "scale": None if scale is None else [values.tolist() for values in scale],
        "notes": adapted.notes,
        **model_sizes(adapted.graph),
        **more,
    }
    make_room(folder, force, keep)
    write_json(folder / RUN_FILE, about)  # first, so that an interrupted folder is recognized as a run
    if graph.folder is None:
        graph.save(folder / "graph", like=_neighbouring_graphs(folder))
    split.save(folder / "split.npz")
    adapted.preparation.save(folder)
    write_json(folder / SCHEMA_FILE, schema_of(graph).to_dict())
    with replace_file(folder / "config.toml") as temporary:
        config = replace(adapted.config, data=with_absolute_paths(adapted.config.data))
        temporary.write_text(to_toml(config), encoding="utf-8")


def _neighbouring_graphs(folder: Path) -> list[Path]:
    """Return the graphs of runs beside this one, and of the run it is a member of: often the same graph.

    Links to their files keep it on disk once, and no run depends on another.
    """
    beside = (file.parent for file in folder.parent.glob(f"*/graph/{MANIFEST}"))
    return [*sorted(beside), folder.parent.parent / "graph"]


def resume(
    path: str | Path,
    device: str = "auto",
    kinds: Sequence[Kind] = (),
    baselines: str | None = None,
    **watched: Unpack[Watched],
) -> Run:
    """Continue an interrupted run from its last checkpoint, or open a finished one.

    Baselines that are missing are computed: those the run was begun with, or those of `baselines`.
    """
    processes = Processes.join()
    with processes.guarded():
        device = processes.device(device)
        # The first process opens the run before the others, so that an error is reported once.
        run = processes.first(lambda: Run.open(path, device)) or Run.open(path, device)
        missing = processes.agree(lambda: _missing_baselines(run, baselines))
        finished = processes.agree(lambda: run.finished)
        if finished and not missing:
            return run
        if not finished and run.about.get("kinds", []) != [kind.name for kind in kinds]:
            raise ConfigError(f"{path} was begun with kinds={run.about.get('kinds', [])}: give these to resume")
        if not finished:
            processes.first(lambda: check_data(run.graph, run.split))
        lock = processes.first(lambda: claim(run.path / RUN_FILE))
        try:
            own = watched if processes.is_first else Watched(threads=watched.get("threads"), progress=False)
            with bars(own.get("progress")) as show, torch_threads(watched.get("threads")):
                if not processes.agree(lambda: run.finished):  # another process may have finished it meanwhile
                    with torch.random.fork_rng(devices=[run.device] if run.device.type == "cuda" else []):
                        _execute(run, processes, kinds=kinds, watched=own, progress=show)
                processes.first(lambda: _add_baselines(run, missing, show))
        finally:
            if lock is not None:
                lock.close()
    return run


def _missing_baselines(run: Run, choice: str | None) -> list[str]:
    """Return the names of baselines to compute; one that could not be computed only counts if asked for again."""
    names = baseline_names(TASKS[run.task], str(run.about.get("baselines", NONE)) if choice is None else choice)
    done = {row["name"] for row in run.baselines if choice is None or "val" in row}
    return [name for name in names if name not in done]


def _add_baselines(run: Run, names: Sequence[str], progress: Progress) -> None:
    """Compute baselines of a finished run and write each as soon as it is there."""
    rows = {row["name"]: row for row in run.baselines}
    training, metric = run.config.training, run.metrics["metric"]
    how: dict[str, Any] = {"metric": metric, "training": training, "device": str(run.device)}
    how["inductive"] = run.config.data.inductive
    for number, name in enumerate(names, start=1):
        try:
            row = run_baseline(name, run.graph, run.split, **how)
        except Exception as error:  # whatever it is: the run has its results, and the note says what happened
            row = {"name": name, "note": f"failed: {type(error).__name__}: {error}"}
        rows[name] = row
        write_json(run.path / BASELINES_FILE, {"metric": metric, "baselines": list(rows.values())})
        record(run.path, [BASELINES_FILE])
        progress("baselines", number, len(names))


def check_unseen(config: Config) -> None:
    """Refuse settings that cannot work with the data that they name, before that is loaded."""
    config.tokens.check()
    config.model.check(config.tokens.hops)
    task = config.data.task
    if task not in TASKS and is_published(config.data.dataset):
        task = CLASSIFICATION.name
    config.training.check(task if task in TASKS else CLASSIFICATION.name)
    if task in TASKS:
        choose_metric(config.training.metric, TASKS[task])


def check_data(graph: Graph, split: Split, features: str = "auto") -> None:
    """Refuse a graph or a split that cannot be trained on, before anything is computed or written.

    `features` is the setting `data.features`: unless they must be given, a graph may have none.
    """
    if graph.labels is None:
        raise GraphError("the graph has no labels to learn from")
    if graph.features is None and features == "given":
        raise GraphError("the graph has no features: use graph.with_features('degree') or 'identity'")
    split.check(graph.num_nodes, graph.labels, graph.class_names)


def check_settings(graph: Graph, split: Split, config: Config, *, kinds: Sequence[Kind] = ()) -> None:
    """Refuse settings that cannot be trained on this graph."""
    resolve(config.tokens, graph, split.train, kinds)
    if config.data.inductive:
        seen = Seen.of(graph, split)
        resolve(config.tokens, seen.graph, seen.train, kinds)
        if config.training.consistency and len(seen.nodes) == len(seen.train):
            raise ConfigError(
                "training.consistency needs nodes without a label, but data.inductive hides all of them: set it to 0"
            )
    config.model.check(config.tokens.hops)
    config.training.check(graph.task)
    choose_metric(config.training.metric, TASKS[graph.task])


def check_outside(folder: Path, paths: Iterable[Path]) -> None:
    """Refuse a run folder that holds what the run is made from: it would be deleted with an earlier run."""
    for path in paths:
        if path.resolve().is_relative_to(folder.resolve()):
            raise StoreError(f"{path} lies in {folder}, which the run would fill: choose another folder for the run")


def make_room(folder: Path, force: bool, keep: Collection[str] = ()) -> None:
    """Make a folder that holds nothing but `keep`; with `force`, delete the run in it.

    Other content is refused, and a run with nodes that a server keeps or has kept.
    """
    content = [path for path in folder.iterdir() if path.name not in keep] if folder.is_dir() else []
    if content or (folder.exists() and not folder.is_dir()):
        run_files = [folder / name for name in (RUN_FILE, SEEDS_FILE) if (folder / name).is_file()]
        if not run_files:
            raise StoreError(f"{folder} exists and is not a run: choose another folder")
        if not force:
            raise StoreError(
                f"{folder} holds a run already: choose another folder, continue it (train --resume, vcr.resume) or "
                f"replace it (--force, force=True)"
            )
        claim(run_files[0]).close()
        check_kept(folder)
        for path in content:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror or error}") from error


def _pointer(target: Path, folder: Path) -> str:
    """Return the path of a folder as the run stores it: relative if in or beside the run, so that both can move."""
    target, folder = target.resolve(), folder.resolve()
    near = target.is_relative_to(folder.parent)
    return os.path.relpath(target, folder) if near else str(target)


def _execute(run: Run, processes: Processes, *, kinds: Sequence[Kind], watched: Watched, progress: Progress) -> None:
    """Make the token lists, train, predict every node and write the results."""
    clock, on_start, on_epoch = [time.perf_counter()], watched.get("on_start"), watched.get("on_epoch")
    if on_start is not None:
        on_start(run)

    seen = Seen.of(run.graph, run.split) if run.config.data.inductive else None
    stores = [] if seen is None else [(seen.graph, seen.train, run.path / SEEN_TOKENS)]

    def make_tokens() -> None:
        for graph, train, folder in (*stores, (run.graph, run.split.train, run.tokens_folder)):
            tokenize(
                graph,
                train,
                config=run.config.tokens,
                out=folder,
                threads=watched.get("threads"),
                progress=progress,
                kinds=kinds,
                device=str(run.device),
            )

    processes.first(make_tokens)
    clock.append(time.perf_counter())
    trainer = Trainer.of(
        run.graph,
        run.split,
        inputs=run.inputs,
        model=run.config.model,
        training=run.config.training,
        folder=run.path,
        processes=processes,
        seen=None if seen is None else _seen_examples(run, seen),
    )
    trainer.restore()
    shown = _with_bar(progress, on_epoch, epochs=run.config.training.epochs)
    trainer.fit(shown, threads=watched.get("threads"))
    clock.append(time.perf_counter())
    model = trainer.best_model()
    nodes = np.arange(run.graph.num_nodes)
    own = nodes[processes.share(len(nodes))]
    logits = processes.collect(compute(model, run.inputs, own, run.batch_size, progress=progress), len(nodes))
    processes.first(lambda: _write_results(run, trainer, logits=logits, clock=clock))


def _seen_examples(run: Run, seen: Seen) -> Examples:
    """Return the training nodes of an inductive run, to be read from the graph without the hidden ones."""
    store = TokenStore.open(run.path / SEEN_TOKENS)
    how: dict[str, Any] = {"model": run.config.model, "train": seen.train, "device": run.device, "dtype": run.precision}
    return Examples(seen.train, np.asarray(seen.graph.labels)[seen.train], make_inputs(seen.graph, store, **how))


def _with_bar(progress: Progress, on_epoch: OnEpoch | None, *, epochs: int) -> OnEpoch | None:
    """Return what to call after an epoch: the caller's function and, where we show bars, the bar of the training."""
    if not isinstance(progress, Bars):
        return on_epoch

    def show(row: dict[str, float]) -> None:
        progress.show_epoch(row, epochs)
        if on_epoch is not None:
            on_epoch(row)

    return show


def _write_results(run: Run, trainer: Trainer, *, logits: Array, clock: list[float]) -> None:
    """Write weights, predictions and, last, the metrics, which mark the run as finished."""
    graph, split, config, best, processes = run.graph, run.split, run.config, trainer.best, trainer.processes.size
    save_tensors(run.path / "model.safetensors", best.state, {"best_epoch": best.epoch})
    predicted = run.target.outputs(logits)
    if not np.isfinite(predicted).all():
        raise TrainingError("predictions are infinite or not a number: look for extreme values in features and scores")
    target = run.with_threshold(predicted)
    run.wrap(np.arange(graph.num_nodes), predicted, target).save(run.path / "predictions.npz", overwrite=True)
    clock.append(time.perf_counter())
    scores = {part: run.score(predicted[getattr(split, part)], getattr(split, part), target) for part in PARTS}
    seconds = dict(zip(("tokenize", "train", "predict"), np.diff(clock).round(3).tolist(), strict=True))
    results = json_text(
        {
            "dataset": graph.name,
            "metric": trainer.metric,
            **({"inductive": True} if config.data.inductive else {}),
            **{part: scores[part][trainer.metric] for part in PARTS},
            "scores": {part: without_nan(row) for part, row in scores.items()},
            **_about_classes(run, predicted, target),
            "seed": config.training.seed,
            "split_seed": config.data.seed,
            "epochs": trainer.epoch,
            "best_epoch": best.epoch,
            "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
            "device": _device_name(run.device, trainer.threads) + (f", {processes} processes" if processes > 1 else ""),
            "precision": str(run.precision).removeprefix("torch."),
            # Training time includes that before interruptions; the others are of this process only.
            "timings": {**seconds, "train": round(trainer.seconds, 3)},
            "versions": versions(),
            "weights": checksum(run.path / "model.safetensors"),
        }
    )
    manifests = [f"{run.about[name]}/{MANIFEST}" for name in ("graph", "tokens")]  # they may lie outside
    record(run.path, {*run_files(run.path), *manifests}, texts={METRICS_FILE: results})
    with replace_file(run.path / METRICS_FILE) as temporary:
        temporary.write_text(results, encoding="utf-8")
    for folder in ("checkpoint", SEEN_TOKENS):
        shutil.rmtree(run.path / folder, ignore_errors=True)


def _about_classes(run: Run, predicted: NDArray[np.float32], target: Target) -> dict[str, Any]:
    """Return the scores of each class, for two classes also the curve and the threshold, where there are any."""
    about: dict[str, Any] = {}
    parts = {part: getattr(run.split, part) for part in PARTS}
    rows = {part: run.score_classes(predicted[nodes], nodes, target) for part, nodes in parts.items()}
    if rows["test"]:
        about["classes"] = rows
    curve = run.precision_recall(predicted)
    if curve is not None:
        points = {name: values.tolist() for name, values in curve[1].thinned()._asdict().items()}
        about["precision_recall"] = {"class": run.class_names[curve[0]], "part": "val", **points}
    if target.threshold is not None:
        name = run.class_names[target.threshold.column]
        about["threshold"] = {"class": name, **asdict(target.threshold), "setting": run.config.training.threshold}
    return about


def without_nan(row: dict[str, float]) -> dict[str, float | None]:
    """Replace NaN by None, for JSON has no NaN; ROC-AUC of a single class is one such metric."""
    return {name: None if np.isnan(value) else value for name, value in row.items()}


def _device_name(device: torch.device, threads: int) -> str:
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"cpu, {threads} thread{'s' if threads > 1 else ''}"
    )
