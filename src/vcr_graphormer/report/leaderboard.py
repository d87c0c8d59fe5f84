"""List the runs below a folder, compare them, and delete those that nobody needs."""

from __future__ import annotations

import math
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..base.checks import is_whole
from ..base.files import claim, read_json
from ..data.metrics import LOWER_IS_BETTER
from ..errors import ConfigError, StoreError, VCRError, unknown_name
from ..runs.config import Config, load_run_config, shown
from ..runs.run import RUN_FILE, RUN_VERSION
from ..runs.serving.journal import check_kept
from ..runs.tuning import ABOUT_FILE

SORTS = ("val", "test", "seconds", "size", "run")
# Where the data lies is no difference in the settings, and the column `dataset` says which data it is.
_NOT_COMPARED = ("data.dataset", "data.root")
FINISHED, UNFINISHED, DAMAGED = "finished", "unfinished", "damaged"


@dataclass(frozen=True)
class ListedRun:
    """A run folder in the list; a field is None where it is not known.

    Attributes
    ----------
    path : Path
        The folder.
    state : str
        `finished`, `unfinished` or `damaged`.
    problem : str or None
        What is wrong with it.
    dataset, metric, val, test
        As in `metrics.json`.
    seconds : float or None
        Time for token lists, training and predictions.
    size : int
        Bytes of all files; a graph that several runs share counts in each of them.
    settings : dict
        All settings, such as `tokens.hops`.
    graph : str or None
        Fingerprint of the graph: only runs on one graph compare.
    uses : tuple of Path
        Folders of graph and token lists, which may lie in another run.
    """

    path: Path
    state: str
    problem: str | None = None
    dataset: str | None = None
    metric: str | None = None
    val: float | None = None
    test: float | None = None
    seconds: float | None = None
    size: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    graph: str | None = None
    uses: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Leaderboard:
    """The runs below a folder, in the order of the list."""

    folder: Path
    runs: tuple[ListedRun, ...]

    @classmethod
    def of(cls, folder: str | Path, sort: str = "val") -> Leaderboard:
        """Read all runs below a folder; links to other folders are not followed."""
        if sort not in SORTS:
            raise unknown_name("order", sort, SORTS)
        if not Path(folder).is_dir():
            raise StoreError(f"{folder} is not a folder: give the folder that holds your runs")
        runs = [_read(path) for path in find_runs(Path(folder))]
        return cls(Path(folder), tuple(sorted(runs, key=lambda run: _place(run, sort))))

    def name(self, run: ListedRun) -> str:
        """Return the path of a run below the folder."""
        return os.path.relpath(run.path, self.folder)

    @property
    def disk_bytes(self) -> int:
        """Return the bytes of all runs on disk; files that runs share count once."""
        return sum({(entry.st_dev, entry.st_ino): entry.st_size for entry in _files(self.runs)}.values())

    def differences(self) -> dict[Path, dict[str, Any]]:
        """Return, by folder, the settings in which the runs differ."""
        known = [run for run in self.runs if run.settings]
        names = {name: None for run in known for name in run.settings if name not in _NOT_COMPARED}
        differ = [name for name in names if len({repr(run.settings.get(name)) for run in known}) > 1]
        return {run.path: {name: run.settings.get(name) for name in differ} for run in known}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: one entry per run, with the settings in which the runs differ."""
        differences = self.differences()
        plain = ("state", "problem", "dataset", "metric", "val", "test", "seconds", "size")
        return {
            "folder": str(self.folder),
            "disk_bytes": self.disk_bytes,
            "runs": [
                {"run": self.name(run), **{name: getattr(run, name) for name in plain}}
                | {"settings": differences.get(run.path, {})}
                for run in self.runs
            ],
        }

    def to_prune(self, keep: int | None = None) -> list[ListedRun]:
        """Return the runs that pruning deletes: unfinished ones and, with `keep`, all but the best of each graph.

        Best is by the validation metric; runs on another graph or with another metric are counted apart. A run whose
        graph or token lists another one uses stays. So do a damaged one, which may not be ours, and a search.
        """
        if keep is not None and (not is_whole(keep) or keep < 1):
            raise ConfigError(f"keep is {keep}; it must be 1 or more")
        counts: Counter[Any] = Counter()
        chosen = []
        for run in sorted(self.runs, key=lambda run: _place(run, "val")):
            if run.state == FINISHED:
                counts[run.graph, run.metric] += 1
            worse = keep is not None and run.state == FINISHED and counts[run.graph, run.metric] > keep
            if (run.state == UNFINISHED and run.problem is None) or worse:
                chosen.append(run)
        while used := [run for run in chosen if self._is_used(run, chosen)]:
            chosen = [run for run in chosen if run not in used]
        return chosen

    def _is_used(self, run: ListedRun, deleted: Sequence[ListedRun]) -> bool:
        """Return whether a run that stays reads files in this one."""
        folder = run.path.resolve()
        return any(
            path.is_relative_to(folder)
            for other in self.runs
            if other not in deleted and other is not run
            for path in other.uses
        )


def find_runs(folder: Path) -> Iterator[Path]:
    """Yield the run folders at and below a folder. Links are not followed; runs inside a run belong to that one."""
    for path, folders, files in os.walk(folder):
        if RUN_FILE in files and not (Path(path) / RUN_FILE).is_symlink():
            folders.clear()
            yield Path(path)
        folders.sort()


def freed_bytes(runs: Iterable[ListedRun]) -> int:
    """Return the bytes on disk that deleting runs sets free: files that others link to stay."""
    entries = list(_files(runs))
    links = Counter((entry.st_dev, entry.st_ino) for entry in entries)
    last = {(entry.st_dev, entry.st_ino): entry for entry in entries}
    return sum(entry.st_size for key, entry in last.items() if links[key] >= entry.st_nlink)


def delete(run: ListedRun) -> None:
    """Delete a run folder; refuse one that a process works in, one with kept nodes, and one that is no longer a run."""
    file = run.path / RUN_FILE
    if run.path.is_symlink() or file.is_symlink() or read_json(file).get("kind") != "run":
        raise StoreError(f"{run.path} is not a run folder any more: it stays")
    with claim(file):
        check_kept(run.path)
        try:
            shutil.rmtree(run.path)  # links inside are removed, not followed
        except OSError as error:
            raise StoreError(f"cannot delete {run.path}: {error.strerror or error}") from error


def _place(run: ListedRun, sort: str) -> tuple[Any, ...]:
    """Return the key that sorts runs: data and metric together, best first, those without a value last."""
    value = None if sort == "run" else getattr(run, sort)
    best_is_high = sort in ("val", "test") and run.metric not in LOWER_IS_BETTER
    order = (value is None, 0.0 if value is None else -value if best_is_high else value)
    together = (run.state != FINISHED, run.dataset or "", run.metric or "") if sort in ("val", "test") else ()
    return (*together, *order, str(run.path))


def _files(runs: Iterable[ListedRun]) -> Iterator[os.stat_result]:
    """Yield what the disk says about each file of some runs, links themselves included."""
    for run in runs:
        for folder, _, names in os.walk(run.path):
            yield from (os.lstat(Path(folder) / name) for name in names)


def _read(path: Path) -> ListedRun:
    """Read what a run folder says about itself; whatever is wrong with it becomes its `problem`."""
    run = ListedRun(path, DAMAGED)
    try:
        run = replace(run, size=sum(entry.st_size for entry in _files([run])))
        about = read_json(path / RUN_FILE)
        if about.get("kind") != "run" or about.get("version") != RUN_VERSION:
            return replace(run, problem=f"{RUN_FILE} is not of a run that this version reads")
        uses = tuple((path / str(about[name])).resolve() for name in ("graph", "tokens") if name in about)
        run = replace(run, graph=about.get("fingerprint"), uses=uses)
        if not (path / "config.toml").is_file():  # the last file before training begins
            return replace(run, state=UNFINISHED)
        run = replace(run, settings=_flat(load_run_config(path / "config.toml")))
        if not (path / "metrics.json").is_file():
            searched = (path / ABOUT_FILE).is_file()
            problem = "the search is done: the same tune command trains the winner" if searched else None
            return replace(run, state=UNFINISHED, dataset=Path(run.settings["data.dataset"]).name, problem=problem)
        metrics = read_json(path / "metrics.json")
        scores = {part: None if math.isnan(metrics[part]) else metrics[part] for part in ("val", "test")}
        about = {"dataset": str(metrics["dataset"]), "metric": str(metrics["metric"]), **scores}
        return replace(run, state=FINISHED, seconds=float(sum(metrics["timings"].values())), **about)
    except (VCRError, OSError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # The last is for whole numbers of hundreds of digits, which JSON allows and no float can hold.
        text = f"{type(error).__name__}: {error}" if not isinstance(error, VCRError) else str(error)
        return replace(run, state=DAMAGED, problem=text)


def _flat(config: Config) -> dict[str, Any]:
    sections = {section.name: getattr(config, section.name) for section in fields(config)}
    return {
        f"{name}.{item.name}": shown(values, item.name) for name, values in sections.items() for item in fields(values)
    }
