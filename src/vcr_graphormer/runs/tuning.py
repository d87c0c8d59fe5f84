"""`tune`: find good settings for a graph by validation nodes alone, then train with the best of them.

A portfolio of recipes comes first, by successive halving: all with a quarter of their epochs, the better half with half
of them, the better half of those in full. Small steps around the best follow until the time is over.

Which trial comes next depends on the results of the earlier ones and on the seed, never on the clock. So a search that
was killed goes on as if nothing had happened.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from ..base.checks import check_seed, is_number, is_whole, without_removed
from ..base.files import claim, read_json, read_npz, write_json
from ..base.folders import digest
from ..data.datasets import DataConfig
from ..data.graph import Graph
from ..data.metrics import LOWER_IS_BETTER
from ..data.split import PARTS, Split
from ..data.tasks import TASKS, choose_metric
from ..errors import ConfigError, StoreError, TrainingError, VCRError
from ..training.devices import find_device
from ..training.processes import Processes
from ..training.trainer import OnEpoch, Trainer
from .adapt import Tables, adapt, with_epochs
from .baselines import NONE, QUICK
from .config import Config
from .launch import check_data, make_room, resume, train_loaded, without_nan
from .recipes import SECTIONS, can_fit, changed, differences, fit_recipe, load_recipes
from .run import RUN_FILE, Run
from .steps import has_optuna, make_space, steps
from .trials import Workbench

ABOUT_FILE, TRIALS_FILE, MEMBERS = "tuning.json", "tuning.jsonl", "members"
ENSEMBLE_FILE, ENSEMBLE_PREDICTIONS = "ensemble.json", "ensemble.npz"
_KEPT = (ABOUT_FILE, TRIALS_FILE, MEMBERS, ENSEMBLE_FILE, ENSEMBLE_PREDICTIONS)
_VERSION = 2  # 1: settings that differed from the defaults of then
_DIVISORS = (4, 2, 1)  # of the epochs, on the rungs of successive halving
_FULL = len(_DIVISORS)  # the rung on which recipes are judged in full; steps around the best are one rung higher
_ATTEMPTS = 100  # to find a step that was not tried before, after which the search ends
_DERIVED = ("warmup_steps", "patience")  # settings that follow from others and that no table shows


@dataclass(frozen=True)
class TuningTrial:
    """One finished trial: a line of `tuning.jsonl`.

    Attributes
    ----------
    number : int
        Its place in the search, from 1 on.
    recipe : str
        The recipe, or that from which the steps came.
    rung : int
        1 to 3: a recipe with a quarter, a half, all of its epochs. 4: a step around the best.
    settings : dict
        All settings of tokens, model and training, by section and name.
    score : float or None
        Validation score; None if it could not be trained.
    halves : list of float or None
        The metric of both halves of the validation nodes, if the score is crossed.
    epochs, seconds, token_seconds
        Epochs trained, seconds in all, and seconds of these for token lists.
    error : str or None
        Why it could not be trained.
    """

    number: int
    recipe: str
    rung: int
    settings: dict[str, dict[str, Any]]
    score: float | None = None
    halves: list[float] | None = None
    epochs: int = 0
    seconds: float = 0.0
    token_seconds: float = 0.0
    error: str | None = None

    @property
    def full(self) -> bool:
        """Return whether it was judged with all of its epochs."""
        return self.rung >= _FULL


@dataclass(frozen=True)
class Tuning:
    """What a folder knows about its search: metric, finished trials, recipes that were skipped with the reason."""

    metric: str
    entries: tuple[TuningTrial, ...]
    skipped: dict[str, str]

    @classmethod
    def open(cls, folder: str | Path) -> Tuning:
        """Read the search of a folder, finished or not."""
        if not (Path(folder) / ABOUT_FILE).is_file():
            raise StoreError(f"{folder} holds no search: {ABOUT_FILE} is missing")
        about = read_json(Path(folder) / ABOUT_FILE)
        if about.get("version") != _VERSION or not {"metric", "skipped", "identity"} <= about.keys():
            raise StoreError(f"{Path(folder) / ABOUT_FILE} has another format: search again in another folder")
        return cls(about["metric"], tuple(_read_entries(Path(folder) / TRIALS_FILE)), about["skipped"])

    @property
    def lower(self) -> bool:
        """Return whether a lower score is better."""
        return self.metric in LOWER_IS_BETTER

    @property
    def ranked(self) -> list[TuningTrial]:
        """Return the trials, best first: those judged in full before the others, failed ones last."""
        return rank_entries(self.entries, self.lower)

    def best(self, count: int) -> list[TuningTrial]:
        """Return the best trials whose settings differ in more than the number of epochs."""
        different: dict[str, TuningTrial] = {}
        for entry in self.ranked:
            training = {**entry.settings.get("training", {}), **dict.fromkeys(("epochs", *_DERIVED))}
            settings = json.dumps({**entry.settings, "training": training}, sort_keys=True)
            if entry.score is not None:
                different.setdefault(settings, entry)
        return list(different.values())[:count]

    def changes(self, entry: TuningTrial) -> dict[str, Any]:
        """Return how the settings of a step differ from its recipe, as `section.name` and value."""
        if entry.rung <= _FULL:
            return {}
        recipe = next(one for one in self.entries if (one.recipe, one.rung) == (entry.recipe, _FULL))
        tables = differences(changed(Config(), entry.settings), changed(Config(), recipe.settings))
        named = {f"{section}.{name}": value for section, names in tables.items() for name, value in names.items()}
        return {name: value for name, value in named.items() if name.removeprefix("training.") not in _DERIVED}


@dataclass(frozen=True)
class TuningState:
    """What `progress` of `tune` is called with, after every epoch and every trial.

    Attributes
    ----------
    doing : str
        The training in progress, such as `trial 3: hops`.
    epoch, epochs : int
        How far it is.
    tuning : Tuning
        Metric and finished trials.
    seconds_left : float
        Until the time for trials is over.
    """

    doing: str
    epoch: int
    epochs: int
    tuning: Tuning
    seconds_left: float


Watch = Callable[[TuningState], None]


class TuneOptions(TypedDict, total=False):
    """What `tune` takes by name.

    Attributes
    ----------
    device : str
        auto, cpu, cuda or cuda:N.
    seed : int
        Seed of every training and of the steps.
    trials : int or None
        Largest number of trials; default: as many as the time allows.
    ensemble : int
        How many of the best settings to train in the end; predictions of more than one are averaged.
    recipes : sequence of str or None
        Names of the recipes to try; default: all.
    progress : callable
        Called with a `TuningState`.
    """

    device: str
    seed: int
    trials: int | None
    ensemble: int
    recipes: Sequence[str] | None
    progress: Watch | None


def tune(
    graph: Graph,
    split: Split,
    minutes: float = 10,
    out: str | Path = "runs/tuned",
    config: Config | None = None,
    **options: Unpack[TuneOptions],
) -> Run:
    """Search for good settings, train with the best of them, and write all results to a run folder.

    Only validation nodes judge; test labels are read once, after the last training. After an interruption, the same
    call continues.

    Parameters
    ----------
    graph, split
        As in `train`.
    minutes
        Time for all trials and the last training. One trial is always finished.
    out
        The run folder. It also holds the trials, `tuning.jsonl`.
    config
        Settings that differ from `Config()` hold in every trial. The data section says what features need, as in
        `train`.
    **options
        `device`, `seed`, `trials`, `ensemble`, `recipes` and `progress`, as in `TuneOptions`.
    """
    given = config or Config()
    base = replace(Config(), data=given.data)
    return tune_fixed(graph, split, minutes=minutes, out=out, base=base, fixed=differences(given, base), **options)


def tune_fixed(
    graph: Graph,
    split: Split,
    *,
    minutes: float,
    out: str | Path,
    base: Config,
    fixed: Tables,
    **options: Unpack[TuneOptions],
) -> Run:
    """Search like `tune`; the settings in `fixed` hold in every trial, and `base` says where the graph came from."""
    ensemble, trials = options.get("ensemble", 1), options.get("trials")
    if not (is_number(minutes, plain=True) and minutes > 0):
        raise ConfigError(f"minutes is {minutes!r}; it must be more than 0")
    for name, value in (("ensemble", ensemble), ("trials", 1 if trials is None else trials)):
        if not is_whole(value) or value < 1:
            raise ConfigError(f"{name} is {value!r}; it must be 1 or more")
    if Processes.join().size > 1:
        raise ConfigError("tune trains in one process, not under torchrun")
    check_data(graph, split, base.data.features)
    names, seed = options.get("recipes"), options.get("seed", 0)
    search = Search.prepare(graph, split, data=base.data, fixed=fixed, seed=seed, recipes=names)
    folder, device = Path(out), options.get("device", "auto")
    find_device(device)
    search.begin(folder)
    with claim(folder / ABOUT_FILE):
        budget = Budget(60 * minutes, trials or math.inf, ensemble)
        watch = options.get("progress") or (lambda state: None)
        if not (folder / "config.toml").is_file():  # else the last training has begun
            search.run(folder, budget, device=device, watch=watch)
        return search.finish(folder, budget, base=base, device=device, watch=watch)


@dataclass(frozen=True)
class Budget:
    """How long a search may take: seconds, trials, and trainings in the end."""

    seconds: float
    trials: float
    ensemble: int

    def left(self, tuning: Tuning) -> float:
        """Return the seconds for further trials: those not used by trials, less those of the last trainings."""
        # Trials share token lists, the last trainings make their own.
        tokens = max((entry.token_seconds for entry in tuning.entries), default=0.0)
        last = sum(entry.seconds - entry.token_seconds + tokens for entry in tuning.best(self.ensemble))
        return self.seconds - sum(entry.seconds for entry in tuning.entries) - last


@dataclass(frozen=True)
class Plan:
    """The next trial."""

    number: int
    recipe: str
    rung: int
    config: Config

    @property
    def title(self) -> str:
        """Return what the progress display calls it."""
        return f"trial {self.number}: {self.recipe}" + ("" if self.rung <= _FULL else ", changed")

    def seconds(self, entries: Sequence[TuningTrial]) -> float:
        """Return how long it will take, as far as earlier trials can tell."""
        same = [entry for entry in entries if entry.recipe == self.recipe and entry.epochs]
        if not same:
            return min((entry.seconds for entry in entries), default=0.0)
        last = same[-1]
        return (last.seconds - last.token_seconds) * self.config.training.epochs / last.epochs


class _TimeOverError(Exception):
    """The time for trials is over in the middle of one."""


@dataclass(frozen=True)
class Search:
    """One search: which trial follows from the results of earlier ones.

    Attributes
    ----------
    given, graph, split
        Where to search: the graph as it was given, and with prepared features.
    configs : dict
        The settings of every recipe that can be trained here.
    skipped : dict
        Why other recipes cannot.
    fixed : dict
        Settings that hold in every trial.
    seed : int
        Seed of every training and of the steps.
    """

    given: Graph
    graph: Graph
    split: Split
    configs: dict[str, Config]
    skipped: dict[str, str]
    fixed: Tables
    seed: int

    @classmethod
    def prepare(
        cls,
        given: Graph,
        split: Split,
        *,
        data: DataConfig,
        fixed: Tables,
        seed: int,
        recipes: Sequence[str] | None,
    ) -> Search:
        """Prepare the features of a graph and fit the recipes to it; refuse to search if none can be trained."""
        graph = adapt(Config(data=data), given, split).graph
        configs, skipped = dict[str, Config](), dict[str, str]()
        fixed = {**fixed, "training": {"seed": check_seed(seed), **fixed.get("training", {})}}
        for recipe in load_recipes(recipes):
            try:
                configs[recipe.name] = fit_recipe(recipe, graph, split, fixed)
            except VCRError as error:
                skipped[recipe.name] = str(error)
        if not configs:
            raise ConfigError(f"no recipe can be trained here: {next(iter(skipped.values()), 'name at least one')}")
        return cls(given, graph, split, configs, skipped, fixed, seed)

    @property
    def metric(self) -> str:
        """Return the name of the metric that judges."""
        return choose_metric(next(iter(self.configs.values())).training.metric, TASKS[self.graph.task])

    @property
    def identity(self) -> dict[str, str]:
        """Return what the trials depend on."""
        settings = json.dumps({name: asdict(config) for name, config in self.configs.items()}, sort_keys=True)
        return {
            "graph": self.graph.fingerprint,
            "split": digest(self.split.train, self.split.val, self.split.test),
            "seed": str(self.seed),
            "recipes": ", ".join(self.configs),
            "settings of the recipes": hashlib.blake2b(settings.encode(), digest_size=16).hexdigest(),
        }

    def begin(self, folder: Path) -> None:
        """Make the folder of the search; refuse one that holds something else."""
        file = folder / ABOUT_FILE
        if not file.is_file():
            make_room(folder, force=False)
            about = {"version": _VERSION, "metric": self.metric, "skipped": self.skipped, "identity": self.identity}
            write_json(file, about)
            return
        Tuning.open(folder)
        before = read_json(file)["identity"]
        other = [name for name, value in self.identity.items() if before.get(name) != value]
        if other:
            had = f" (it has seed {before['seed']})" if other == ["seed"] else ""
            raise StoreError(
                f"{folder} holds a search with another {', '.join(other)}{had}: choose another folder, or give what it "
                f"was begun with"
            )

    def next(self, entries: Sequence[TuningTrial]) -> Plan | None:
        """Return the trial that follows finished ones; None if there is nothing left to try."""
        number, lower = len(entries) + 1, self.metric in LOWER_IS_BETTER
        names, start = list(self.configs), 0
        for rung, divisor in enumerate(_DIVISORS, start=1):
            done = entries[start : start + len(names)]
            if len(done) < len(names):
                name = names[len(done)]
                config = self.configs[name]
                return Plan(number, name, rung, self._with_epochs(config, max(1, config.training.epochs // divisor)))
            start += len(names)
            names = [entry.recipe for entry in rank_entries(done, lower)[: math.ceil(len(done) / 2)]]
        best = rank_entries(entries, lower)[0]
        if best.score is None or not has_optuna():
            return None
        judged = [(self.config_of(entry), entry.score) for entry in entries if entry.full and entry.score is not None]
        tried = [self.config_of(entry) for entry in entries]
        space = make_space(self.graph, self.configs[best.recipe], self.fixed)
        near = steps(space, self.config_of(best), judged, seed=(self.seed, number), lower=lower) if space else iter(())
        for _, step in zip(range(_ATTEMPTS), near, strict=False):
            config = self._with_epochs(step, step.training.epochs)
            if config not in tried and can_fit(config, self.graph, self.split):
                return Plan(number, best.recipe, _FULL + 1, config)
        return None

    def _with_epochs(self, config: Config, epochs: int) -> Config:
        return with_epochs(config, epochs, len(self.split.train), fixed=self.fixed)

    @staticmethod
    def config_of(entry: TuningTrial) -> Config:
        """Return the settings of a finished trial."""
        return changed(Config(), entry.settings)

    def run(self, folder: Path, budget: Budget, *, device: str, watch: Watch) -> None:
        """Do trials until the budget is used up; each one that is finished becomes a line of the file."""
        cut_half_line(folder / TRIALS_FILE)
        tuning = Tuning.open(folder)
        bench = Workbench(self.graph, find_device(device), next(iter(self.configs.values())).training.precision)
        while len(tuning.entries) < budget.trials:
            plan, left = self.next(tuning.entries), budget.left(tuning)
            # A search without any result would be of no use, so the first trial takes the time it needs.
            limit = left if tuning.best(1) else math.inf
            if plan is None and not has_optuna():
                text = "optuna is not installed, so the search ends with the recipes: pip install optuna"
                warnings.warn(text, UserWarning, stacklevel=2)
            if plan is None or plan.seconds(tuning.entries) > limit:
                break
            try:
                entry = self._judge(bench, plan, self._watcher(plan, tuning, left=left, limit=limit, watch=watch))
            except _TimeOverError:
                break
            append_line(folder / TRIALS_FILE, json.dumps(asdict(entry)))
            tuning = replace(tuning, entries=(*tuning.entries, entry))
            watch(TuningState(plan.title, entry.epochs, entry.epochs, tuning, budget.left(tuning)))

    def _watcher(
        self, plan: Plan, tuning: Tuning, *, left: float, limit: float, watch: Watch
    ) -> Callable[[Trainer], None]:
        """Return a function that reports every epoch of a trial, and stops it when the time is over."""
        start = time.monotonic()

        def on_epoch(trainer: Trainer) -> None:
            seconds = time.monotonic() - start
            if seconds > limit and not trainer.finished:
                raise _TimeOverError
            watch(TuningState(plan.title, trainer.epoch, trainer.config.epochs, tuning, left - seconds))

        return on_epoch

    def _judge(self, bench: Workbench, plan: Plan, on_epoch: Callable[[Trainer], None]) -> TuningTrial:
        """Train and judge once. Settings that cannot be trained, such as those whose loss is infinite, get no score."""
        start = time.monotonic()
        entry = TuningTrial(plan.number, plan.recipe, plan.rung, settings_of(plan.config))
        try:
            judged = bench.judge(self.split, plan.config, on_epoch=on_epoch)
        except VCRError as error:
            return replace(entry, seconds=round(time.monotonic() - start, 3), error=str(error))
        trial = judged.trial
        return replace(
            entry,
            score=judged.score,
            halves=None if judged.halves is None else list(judged.halves),
            epochs=trial.epochs,
            seconds=round(trial.seconds, 3),
            token_seconds=round(trial.token_seconds, 3),
        )

    def finish(self, folder: Path, budget: Budget, *, base: Config, device: str, watch: Watch) -> Run:
        """Train with the best settings, unless that is done; return the run of the winner."""
        tuning = Tuning.open(folder)
        best = tuning.best(budget.ensemble)
        if not best:
            raise TrainingError(f"no trial could be trained: {tuning.entries[0].error}")
        runs = []
        for place, entry in enumerate(best, start=1):
            config = changed(base, entry.settings)
            title = "training the winner" if place == 1 else f"training member {place} of {len(best)}"

            def on_epoch(row: dict[str, float], title: str = title, epochs: int = config.training.epochs) -> None:
                watch(TuningState(title, int(row["epoch"]), epochs, tuning, 0.0))

            where = folder if place == 1 else folder / MEMBERS / str(place)
            baselines = QUICK if place == 1 else NONE
            runs.append(self._train(where, config, device=device, on_epoch=on_epoch, baselines=baselines))
        if len(runs) > 1:
            write_ensemble(folder, runs)
        return runs[0]

    def _train(self, folder: Path, config: Config, *, device: str, on_epoch: OnEpoch, baselines: str) -> Run:
        """Train into a folder, or continue a training there."""
        if (folder / "config.toml").is_file():
            return resume(folder, device, on_epoch=on_epoch)
        for leftover in folder.glob(".*.tmp"):  # of a process that was killed while it made the run folder
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        begun = (folder / RUN_FILE).is_file()
        return train_loaded(
            lambda: (self.given, self.split),
            config,
            out=folder,
            device=device,
            force=begun,
            keep=_KEPT,
            baselines=baselines,
            on_epoch=on_epoch,
        )


def settings_of(config: Config) -> dict[str, dict[str, Any]]:
    """Return all settings of tokens, model and training, by section and name."""
    return {name: asdict(getattr(config, name)) for name in SECTIONS}


def rank_entries(entries: Sequence[TuningTrial], lower: bool) -> list[TuningTrial]:
    """Return trials, best first: those judged in full before the others, failed ones last, ties by number."""

    def key(entry: TuningTrial) -> tuple[bool, bool, float, int]:
        score = math.inf if entry.score is None else entry.score if lower else -entry.score
        return entry.score is None, not entry.full, score, entry.number

    return sorted(entries, key=key)


def write_ensemble(folder: Path, runs: Sequence[Run]) -> None:
    """Write the mean of the predictions of several runs, and its metrics."""
    first = runs[0]
    members = [read_npz(run.path / "predictions.npz")["probabilities"] for run in runs]
    predicted: NDArray[np.float32] = np.stack(members).mean(axis=0, dtype=np.float64).astype(np.float32)
    first.wrap(np.arange(len(predicted)), predicted).save(folder / ENSEMBLE_PREDICTIONS, overwrite=True)
    scores = {}
    for part in PARTS:
        nodes = getattr(first.split, part)
        scores[part] = without_nan(first.score(predicted[nodes], nodes))
    metric = first.metrics["metric"]
    about = {"metric": metric, "members": [os.path.relpath(run.path, folder) for run in runs]}
    write_json(folder / ENSEMBLE_FILE, {**about, **{part: scores[part][metric] for part in PARTS}, "scores": scores})


def append_line(file: Path, line: str) -> None:
    """Append a line to a file, whole unless the machine stops meanwhile, and wait until it is on disk."""
    with file.open("ab", buffering=0) as handle:
        handle.write(line.encode() + b"\n")
        os.fsync(handle.fileno())


def cut_half_line(file: Path) -> None:
    """Remove a last line that a killed process has not finished."""
    if file.is_file():
        content = file.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(file, whole)


def _read_entries(file: Path) -> list[TuningTrial]:
    """Return the trials in a file; a half-written last line is left out."""
    if not file.is_file():
        return []
    lines = file.read_bytes().split(b"\n")[:-1]
    how: dict[str, Any] = {"subject": f"{file} has", "way": "begin the search again", "error": StoreError}
    entries = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = TuningTrial(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise StoreError(f"{file} line {number} is damaged: delete it and all lines after it") from error
        if entry.number != number:
            raise StoreError(f"{file} line {number} is trial {entry.number}: delete it and all lines after it")
        tables = {name: without_removed(name, table, **how) for name, table in entry.settings.items()}
        entries.append(replace(entry, settings=tables))
    return entries
