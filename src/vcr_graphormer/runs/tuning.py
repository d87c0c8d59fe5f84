"""`tune`: find good settings for a graph by validation nodes alone, then train with the best of them.

A portfolio of recipes comes first, by successive halving: all with a quarter of their epochs, the better half with half
of them, the better half of those in full. Small steps around the best follow until the time is over. Each trial trains
one model; the last training has as many members as the default. Before it, the winner is compared with the default,
both with their members (`contest.py`).

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from ..base.checks import check_seed, is_number, is_whole, misfit, without_removed
from ..base.files import claim, read_json, read_npz, write_json
from ..base.folders import digest
from ..base.progress import Bars, bars
from ..base.workers import Do, Workers
from ..data.datasets import DataConfig
from ..data.graph import Graph
from ..data.metrics import LOWER_IS_BETTER
from ..data.split import PARTS, Split
from ..data.tasks import TASKS, choose_metric
from ..errors import ConfigError, StoreError, TrainingError, VCRError
from ..tokens.kinds import resolve
from ..tokens.lists import longest_rankings
from ..training.devices import find_device
from ..training.processes import Processes
from ..training.trainer import OnEpoch, Trainer
from .adapt import Tables, adapt, with_epochs
from .baselines import NONE, QUICK
from .config import MOST_NUMBER, Config, build_tables
from .contest import CONTEST_FILE, DEFAULT, WINNER, default_wins, judge_rivals, read_scores, with_members
from .launch import check_data, make_room, resume, train_loaded, without_nan
from .recipes import SECTIONS, can_fit, changed, differences, fit_recipe, load_recipes
from .run import RUN_FILE, Run
from .steps import has_optuna, make_space, steps
from .trials import Workbench, choose_workers

ABOUT_FILE, TRIALS_FILE, MEMBERS = "tuning.json", "tuning.jsonl", "members"
ENSEMBLE_FILE, ENSEMBLE_PREDICTIONS = "ensemble.json", "ensemble.npz"
_KEPT = (ABOUT_FILE, TRIALS_FILE, MEMBERS, ENSEMBLE_FILE, ENSEMBLE_PREDICTIONS, CONTEST_FILE)
_DEFAULT_RECIPE = "full"
_VERSION = 3  # 1: settings that differed from the defaults of then; 2: every trial judged on one split
_DIVISORS = (4, 2, 1)  # of the epochs, on the rungs of successive halving
# Fewer validation nodes judge on several splits: of 500 the standard error of 80 % is 1.8 points, of 37 it is 6.6.
FEW_FOR_ONE_SPLIT = 500
MOST_NODES_REDRAWN = 5000  # of the whole graph: more would make a trial take minutes on two cores
_SPLITS = (2, 3, 5)  # on the rungs, where validation nodes are few; the first is the user's own
_FULL = len(_DIVISORS)  # the rung on which recipes are judged in full; steps around the best are one rung higher
_MOST_CONTEST = 0.5  # fraction of the time of a search that its last comparison may take
_ATTEMPTS = 100  # to find a step that was not tried before, after which the search ends
_COUNTS = ("structure_tokens", "content_tokens", "link_tokens", "nearest_tokens")
_MOST_GROUP = 10_000  # more steps side by side than any machine has processes for
_ABOUT = {"metric": str, "skipped": {"*": str}, "identity": {"*": str}, "group": int}  # forms of the two files
_ENTRY = {
    **{"number": int, "recipe": str, "rung": int, "settings": {"*": dict}, "score": (float, None), "scores": [float]},
    **{"epochs": int, "seconds": float, "token_seconds": float, "wall_seconds": float, "error": (str, None)},
}
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
    scores : list of float
        The scores on several splits whose mean it is, the user's own first. One if validation nodes are many.
    epochs, seconds, token_seconds
        Epochs of the first training, seconds of all trainings, and seconds of these for token lists.
    wall_seconds : float
        Seconds of the search since the trial before: fewer than `seconds` if several run side by side.
    error : str or None
        Why it could not be trained.
    """

    number: int
    recipe: str
    rung: int
    settings: dict[str, dict[str, Any]]
    score: float | None = None
    scores: list[float] = field(default_factory=list)
    epochs: int = 0
    seconds: float = 0.0
    token_seconds: float = 0.0
    wall_seconds: float = 0.0
    error: str | None = None

    @property
    def full(self) -> bool:
        """Return whether it was judged with all of its epochs."""
        return self.rung >= _FULL

    @property
    def training_seconds(self) -> float:
        """Return the seconds of one training, without token lists."""
        return (self.seconds - self.token_seconds) / max(1, len(self.scores))

    @property
    def full_seconds(self) -> float:
        """Return the seconds of one training with all epochs, without token lists."""
        return self.training_seconds * _DIVISORS[min(self.rung, _FULL) - 1]


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
        if about.get("version") != _VERSION or not _ABOUT.keys() <= about.keys():
            raise StoreError(f"{Path(folder) / ABOUT_FILE} has another format: search again in another folder")
        problem = misfit(about, _ABOUT, ABOUT_FILE)
        if problem or not 1 <= about["group"] <= _MOST_GROUP:
            problem = problem or f"{ABOUT_FILE}.group is {about['group']}"
            raise StoreError(f"{folder} is damaged: {problem}. Search again in another folder")
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
        recipe = next((one for one in self.entries if (one.recipe, one.rung) == (entry.recipe, _FULL)), None)
        if recipe is None:
            raise StoreError(f"trial {entry.number} is a step from '{entry.recipe}', which was not tried: search again")
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

    def __str__(self) -> str:
        best = self.tuning.best(1)
        text = f"best {best[0].score:.4f} ({best[0].recipe})  " if best else ""
        left = f"{max(0.0, self.seconds_left) / 60:.1f} min left" if self.seconds_left else ""
        return f"{self.doing}  {text}{left}".rstrip()


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
    workers : int or None
        Processes that train trials side by side; default: up to 4, by cores and free memory.
    progress : callable, bool or None
        Called with a `TuningState`. By default a bar shows it on a terminal and in a notebook; False turns it off.
    """

    device: str
    seed: int
    trials: int | None
    ensemble: int
    recipes: Sequence[str] | None
    workers: int | None
    progress: Watch | bool | None


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
        `device`, `seed`, `trials`, `ensemble`, `recipes`, `workers` and `progress`, as in `TuneOptions`.
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
    ensemble, trials, count = options.get("ensemble", 1), options.get("trials"), options.get("workers")
    if not (is_number(minutes, plain=True) and minutes > 0):
        raise ConfigError(f"minutes is {minutes!r}; it must be more than 0")
    for option, value in (("ensemble", ensemble), ("trials", trials), ("workers", count)):
        if value is not None and (not is_whole(value) or value < 1):
            raise ConfigError(f"{option} is {value!r}; it must be 1 or more")
    if Processes.join().size > 1:
        raise ConfigError("tune trains in one process, not under torchrun")
    if base.data.inductive:
        raise ConfigError(
            "data.inductive is true, but tune searches on the whole graph: train with what it finds there"
        )
    check_data(graph, split, base.data.features)
    names, seed = options.get("recipes"), options.get("seed", 0)
    search = Search.prepare(graph, split, data=base.data, fixed=fixed, seed=seed, recipes=names)
    folder, name = Path(out), options.get("device", "auto")
    device = find_device(name)
    workers = options.get("workers") or choose_workers(search.graph, device)
    search = replace(search, group=workers).begin(folder)
    with claim(folder / ABOUT_FILE), watching(options.get("progress")) as watch:
        # Given by the user, trials have them as well.
        default = adapt(replace(Config(), data=base.data), graph, split).config
        members = 1 if "members" in fixed.get("model", {}) else default.model.members
        budget = Budget(60 * minutes, trials or math.inf, ensemble, members, len(search.splits(1)))
        if not (folder / "config.toml").is_file():  # else the last training has begun
            search.run(folder, budget, device=device, workers=workers, watch=watch)
        return search.finish(folder, budget, base=base, device=name, watch=watch)


@contextmanager
def watching(progress: Watch | bool | None) -> Iterator[Watch]:
    """Yield what to call with a `TuningState`: the caller's function, or one that draws a bar where we show bars."""
    if callable(progress):
        yield progress
        return
    with bars(progress) as show:

        def watch(state: TuningState) -> None:
            if isinstance(show, Bars):
                show.show("search", state.epoch, state.epochs, text=str(state))

        yield watch


@dataclass(frozen=True)
class Budget:
    """How long a search may take: seconds, trials, and trainings in the end, each of so many members.

    `splits` are those that the contest of winner and default judges on.
    """

    seconds: float
    trials: float
    ensemble: int
    members: int = 1
    splits: int = 1

    def left(self, tuning: Tuning) -> float:
        """Return the seconds for further trials: those not used by trials, less those of the last trainings."""
        # Trials share token lists, the last trainings make their own.
        tokens = max((entry.token_seconds for entry in tuning.entries), default=0.0)
        last = sum(self.members * entry.training_seconds + tokens for entry in tuning.best(self.ensemble))
        last += self.contest_seconds(tuning) if self.holds_contest(tuning) else 0.0
        return self.seconds - sum(entry.wall_seconds for entry in tuning.entries) - last

    def contest_seconds(self, tuning: Tuning) -> float:
        """Return how long winner and default will train once more; one that was not tried counts like the other."""
        winner = tuning.best(1)
        default = [entry for entry in tuning.entries if entry.recipe == _DEFAULT_RECIPE and entry.epochs][-1:]
        rivals = [*winner, *(default or winner)]
        return sum(self.members * self.splits * entry.full_seconds for entry in rivals)

    def holds_contest(self, tuning: Tuning) -> bool:
        """Return whether winner and default are compared once more: with members, in half of the time at most."""
        return self.members > 1 and self.contest_seconds(tuning) <= _MOST_CONTEST * self.seconds


@dataclass(frozen=True)
class Plan:
    """The next trial."""

    number: int
    recipe: str
    rung: int
    config: Config
    splits: int = 1

    @staticmethod
    def title_of(number: int, recipe: str, *, rung: int) -> str:
        """Return what the progress display calls a trial."""
        return f"trial {number}: {recipe}" + ("" if rung <= _FULL else ", changed")

    @property
    def title(self) -> str:
        """Return what the progress display calls it."""
        return self.title_of(self.number, self.recipe, rung=self.rung)

    def seconds(self, entries: Sequence[TuningTrial]) -> float:
        """Return how long it will take, as far as earlier trials can tell."""
        same = [entry for entry in entries if entry.recipe == self.recipe and entry.epochs]
        if not same:
            return min((entry.seconds for entry in entries), default=0.0)
        last = same[-1]
        return self.splits * last.training_seconds * self.config.training.epochs / last.epochs


class Epoch(NamedTuple):
    """How far a trial is: epochs that are done of all its trainings, and whether the last training is finished."""

    done: int
    total: int
    finished: bool


class _TimeOverError(Exception):
    """The time for trials is over in the middle of one."""


class Journal:
    """The trials of a folder while a search is running: those that are finished, and the time that is left."""

    def __init__(self, folder: Path, budget: Budget, watch: Watch) -> None:
        self.file, self.budget, self.watch = folder / TRIALS_FILE, budget, watch
        self._take(Tuning.open(folder))

    def _take(self, tuning: Tuning) -> None:
        self.tuning, self.since, self.at_first = tuning, time.monotonic(), self.budget.left(tuning)
        # A search without any result would be of no use, so the first trial takes the time it needs.
        self.limited = bool(tuning.best(1))

    @property
    def left(self) -> float:
        """Return the seconds for further trials."""
        return self.at_first - (time.monotonic() - self.since)

    def allow(self, plan: Plan) -> bool:
        """Return whether there is time for a trial."""
        return not self.limited or plan.seconds(self.tuning.entries) <= self.left

    def on_epoch(self, plan: Plan, epoch: Epoch) -> None:
        """Report an epoch of a trial; stop it when the time is over."""
        left = self.left
        if self.limited and left < 0 and not epoch.finished:
            raise _TimeOverError
        self.watch(TuningState(plan.title, epoch.done, epoch.total, self.tuning, left))

    def add(self, entry: TuningTrial) -> None:
        """Write a finished trial as a line of the file."""
        entry = replace(entry, wall_seconds=round(time.monotonic() - self.since, 3))
        append_line(self.file, json.dumps(asdict(entry)))
        self._take(replace(self.tuning, entries=(*self.tuning.entries, entry)))
        title = Plan.title_of(entry.number, entry.recipe, rung=entry.rung)
        self.watch(TuningState(title, entry.epochs, entry.epochs, self.tuning, self.left))


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
    group : int
        Steps that are drawn from the same earlier trials, so that they can run side by side.
    """

    given: Graph
    graph: Graph
    split: Split
    configs: dict[str, Config]
    skipped: dict[str, str]
    fixed: Tables
    seed: int
    group: int = 1

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

    def begin(self, folder: Path) -> Search:
        """Make the folder of the search, or find it with its own size of groups; refuse one of another search."""
        file = folder / ABOUT_FILE
        if not file.is_file():
            make_room(folder, force=False)
            about = {"version": _VERSION, "metric": self.metric, "skipped": self.skipped, "identity": self.identity}
            write_json(file, {**about, "group": self.group})
            return self
        tuning, before = Tuning.open(folder), read_json(file)["identity"]
        other = [name for name, value in self.identity.items() if before.get(name) != value]
        if other:
            had = f" (it has seed {before['seed']})" if other == ["seed"] else ""
            raise StoreError(
                f"{folder} holds a search with another {', '.join(other)}{had}: choose another folder, or give what it "
                f"was begun with"
            )
        if unknown := [entry for entry in tuning.entries if entry.recipe not in self.configs]:
            raise StoreError(
                f"{folder / TRIALS_FILE} line {unknown[0].number} is of the recipe {unknown[0].recipe!r:.50}, which "
                f"this search does not have: delete it and all lines after it"
            )
        return replace(self, group=read_json(file)["group"])

    def plans(self, entries: Sequence[TuningTrial]) -> list[Plan]:
        """Return the trials that follow finished ones and can run side by side; none if nothing is left to try.

        These are the rest of a rung, or the rest of a group of steps. A step depends on what was finished before its
        group, so the search is the same for any number of workers.
        """
        names, start = list(self.configs), 0
        for rung, divisor in enumerate(_DIVISORS, start=1):
            done = entries[start : start + len(names)]
            if len(done) < len(names):
                return [
                    Plan(start + place, name, rung, self._shortened(name, divisor), len(self.splits(rung)))
                    for place, name in enumerate(names, start=1)
                ][len(done) :]
            start += len(names)
            names = [entry.recipe for entry in rank_entries(done, self.metric in LOWER_IS_BETTER)][: -(-len(done) // 2)]
        within = (len(entries) - start) % self.group
        return self._steps(entries[: len(entries) - within])[within:]

    def _steps(self, entries: Sequence[TuningTrial]) -> list[Plan]:
        """Return a group of steps around the best of these trials."""
        lower = self.metric in LOWER_IS_BETTER
        best = rank_entries(entries, lower)[0]
        space = make_space(self.graph, self.configs[best.recipe], self.fixed)
        if best.score is None or not has_optuna() or not space:
            return []
        judged = [(self.config_of(entry), entry.score) for entry in entries if entry.full and entry.score is not None]
        tried = [self.config_of(entry) for entry in entries]
        plans: list[Plan] = []
        for number in range(len(entries) + 1, len(entries) + self.group + 1):
            near = steps(space, self.config_of(best), judged, seed=(self.seed, number), lower=lower)
            drawn = (self._with_epochs(step, step.training.epochs) for step in islice(near, _ATTEMPTS))
            config = next((one for one in drawn if one not in tried and can_fit(one, self.graph, self.split)), None)
            if config is None:
                break
            plans.append(Plan(number, best.recipe, _FULL + 1, config, len(self.splits(_FULL + 1))))
            tried.append(config)
        return plans

    def _shortened(self, name: str, divisor: int) -> Config:
        config = self.configs[name]
        return self._with_epochs(config, max(1, config.training.epochs // divisor))

    def longest(self) -> dict[str, int]:
        """Return how many nodes each kind of neighbours ranks at most in any trial, recipe or step."""
        recipes = [resolve(config.tokens, self.graph, self.split.train) for config in self.configs.values()]
        space = make_space(self.graph, next(iter(self.configs.values())), self.fixed) if has_optuna() else {}
        counts = {name: max(values) for (_, name), values in space.items() if name in _COUNTS}
        largest = [
            replace(config, **{name: max(count, getattr(config, name)) for name, count in counts.items()})
            for config in recipes
        ]
        return longest_rankings(largest)

    def splits(self, rung: int) -> list[Split]:
        """Return the splits that judge on a rung: the own one, and redraws of it where validation nodes are few.

        A rule by numbers of nodes, not by the clock, so that the same trials follow on every machine.
        """
        few = len(self.split.val) < FEW_FOR_ONE_SPLIT and self.graph.num_nodes <= MOST_NODES_REDRAWN
        count = _SPLITS[min(rung, _FULL) - 1] if few else 1
        return [self.split, *(self.split.redraw(self.graph.labels, (self.seed, number)) for number in range(1, count))]

    def _with_epochs(self, config: Config, epochs: int) -> Config:
        return with_epochs(config, epochs, len(self.split.train), fixed=self.fixed)

    @staticmethod
    def config_of(entry: TuningTrial) -> Config:
        """Return the settings of a finished trial."""
        return changed(Config(), entry.settings)

    def run(self, folder: Path, budget: Budget, *, device: torch.device, workers: int, watch: Watch) -> None:
        """Do trials until the budget is used up; each one that is finished becomes a line of the file."""
        cut_half_line(folder / TRIALS_FILE)
        journal = Journal(folder, budget, watch)
        with ExitStack() as stack:
            # By the size of groups, which stays the same when the search goes on with other workers.
            threads = max(1, torch.get_num_threads() // (self.group if device.type == "cpu" else 1))
            start = partial(self.start, device, threads=threads)
            do = stack.enter_context(Workers(start, workers)).do if workers > 1 else partial(one_by_one, start())
            while len(journal.tuning.entries) < budget.trials:
                number = len(journal.tuning.entries)
                plans = [plan for plan in self.plans(journal.tuning.entries) if plan.number <= budget.trials]
                if not plans and not has_optuna():
                    text = "optuna is not installed, so the search ends with the recipes: pip install optuna"
                    warnings.warn(text, UserWarning, stacklevel=2)
                try:
                    for entry in do(plans, allow=journal.allow, on_report=journal.on_epoch):
                        journal.add(entry)
                except _TimeOverError:
                    return
                if not plans or len(journal.tuning.entries) < number + len(plans):
                    return

    def start(self, device: torch.device, *, threads: int) -> Do:
        """Return a function that judges a trial; all of its calls share a workbench."""
        torch.set_num_threads(threads)  # the same in all workers: threads decide how sums are rounded
        precision = next(iter(self.configs.values())).training.precision
        return partial(self.judge, Workbench(self.graph, device, precision, longest=self.longest()))

    def judge(self, bench: Workbench, plan: Plan, on_epoch: Callable[[Epoch], None]) -> TuningTrial:
        """Train and judge on every split of the rung.

        Settings that cannot be trained, such as those whose loss is infinite, get no score.
        """
        start = time.monotonic()
        entry = TuningTrial(plan.number, plan.recipe, plan.rung, settings_of(plan.config))

        def watch(trainer: Trainer, trained: int) -> None:
            epochs, last = trainer.config.epochs, trained + 1 == plan.splits
            on_epoch(Epoch(trained * epochs + trainer.epoch, plan.splits * epochs, last and trainer.finished))

        try:
            judged = [
                bench.judge(split, plan.config, on_epoch=partial(watch, trained=trained))
                for trained, split in enumerate(self.splits(plan.rung))
            ]
        except VCRError as error:
            return replace(entry, seconds=round(time.monotonic() - start, 3), error=str(error))
        scores, trials = [one.score for one in judged], [one.trial for one in judged]
        return replace(
            entry,
            score=float(np.mean(scores)),
            scores=scores,
            epochs=trials[0].epochs,
            seconds=round(sum(trial.seconds for trial in trials), 3),
            token_seconds=round(sum(trial.token_seconds for trial in trials), 3),
        )

    def finish(self, folder: Path, budget: Budget, *, base: Config, device: str, watch: Watch) -> Run:
        """Train with the best settings, unless that is done; return the run of the winner."""
        tuning = Tuning.open(folder)
        best = tuning.best(budget.ensemble)
        if not best:
            raise TrainingError(f"no trial could be trained: {tuning.entries[0].error}")
        if self.prefers_default(folder, budget, device=device, watch=watch):
            best = [replace(best[0], recipe=_DEFAULT_RECIPE, settings=settings_of(self._default)), *best[:-1]]
        runs = []
        for place, entry in enumerate(best, start=1):
            config = with_members(changed(base, entry.settings), budget.members)
            title = "training the winner" if place == 1 else f"training settings {place} of {len(best)}"

            def on_epoch(row: dict[str, float], title: str = title, epochs: int = config.training.epochs) -> None:
                watch(TuningState(title, int(row["epoch"]), epochs, tuning, 0.0))

            where = folder if place == 1 else folder / MEMBERS / str(place)
            baselines = QUICK if place == 1 else NONE
            runs.append(self._train(where, config, device=device, on_epoch=on_epoch, baselines=baselines))
        if len(runs) > 1:
            write_ensemble(folder, runs)
        return runs[0]

    @property
    def _default(self) -> Config:
        return self.configs[_DEFAULT_RECIPE]

    def prefers_default(self, folder: Path, budget: Budget, *, device: str, watch: Watch) -> bool:
        """Return whether the default is better than the winner, both with the members of the last training.

        Where these are one, the trials have compared them. Where it would take too long, the trials decide.
        """
        tuning = Tuning.open(folder)
        winner = self.config_of(tuning.best(1)[0])
        if _DEFAULT_RECIPE not in self.configs or winner == self._default:
            return False
        if read_scores(folder) is None and not budget.holds_contest(tuning):
            return False
        configs = {
            name: with_members(config, budget.members)
            for name, config in zip((WINNER, DEFAULT), (winner, self._default), strict=True)
        }

        def on_epoch(done: int, total: int) -> None:
            watch(TuningState("comparing the winner with the default", done, total, tuning, 0.0))

        bench = Workbench(self.graph, find_device(device), winner.training.precision)
        scores = judge_rivals(folder, bench, self.splits(1), configs, on_epoch=on_epoch)
        return default_wins(scores, self.metric)

    def _train(self, folder: Path, config: Config, *, device: str, on_epoch: OnEpoch, baselines: str) -> Run:
        """Train into a folder, or continue a training there."""
        if (folder / "config.toml").is_file():
            return resume(folder, device, on_epoch=on_epoch, progress=False)
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
            progress=False,
        )


def one_by_one(
    do: Do, tasks: Sequence[Any], *, allow: Callable[[Any], bool], on_report: Callable[[Any, Any], None]
) -> Iterator[Any]:
    """Yield the results of tasks in their order, as `Workers.do`, but in this process."""
    for task in tasks:
        if not allow(task):
            return
        yield do(task, partial(on_report, task))


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
    target = first.with_threshold(predicted)
    first.wrap(np.arange(len(predicted)), predicted, target).save(folder / ENSEMBLE_PREDICTIONS, overwrite=True)
    scores = {}
    for part in PARTS:
        nodes = getattr(first.split, part)
        scores[part] = without_nan(first.score(predicted[nodes], nodes, target))
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


def _check_entry(entry: TuningTrial) -> None:
    """Raise for a trial whose values are not of the types that a search writes, or whose settings nobody has."""
    if problem := misfit(asdict(entry), _ENTRY, "it"):
        raise ValueError(problem)
    values = [*asdict(entry).values(), *entry.scores]
    if any(is_whole(value) and abs(value) > MOST_NUMBER for value in values):
        raise ValueError("it holds a number that is too large")
    if other := entry.settings.keys() - set(SECTIONS):
        raise ValueError(f"it has settings of {min(other)!r}")


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
            _check_entry(entry)
            tables = {name: without_removed(name, table, **how) for name, table in entry.settings.items()}
            build_tables(tables)
        except StoreError:
            raise
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(f"{file} line {number} is damaged: delete it and all lines after it") from error
        if entry.number != number:
            raise StoreError(f"{file} line {number} is trial {entry.number}: delete it and all lines after it")
        entries.append(replace(entry, settings=tables))
    return entries
