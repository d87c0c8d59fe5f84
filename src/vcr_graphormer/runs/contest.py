"""The last comparison of `tune`: its winner against the default, both with as many members as the last training.

Trials train one model each. Several members lift some settings more than others, so the best single model may not be
the best mean of several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ..base.checks import misfit
from ..base.files import read_json, write_json
from ..data.metrics import is_better
from ..data.split import Split
from ..errors import StoreError, VCRError
from ..training.trainer import Trainer
from .config import Config
from .trials import Workbench

CONTEST_FILE = "contest.json"
WINNER, DEFAULT = "winner of the trials", "default"
_FORM = dict.fromkeys((WINNER, DEFAULT), (float, None))

OnEpoch = Callable[[int, int], None]


def judge_rivals(
    folder: Path,
    bench: Workbench,
    splits: Sequence[Split],
    configs: Mapping[str, Config],
    *,
    on_epoch: OnEpoch,
) -> dict[str, float]:
    """Return the validation score of each settings, as an earlier call wrote it to the folder, or by training.

    Settings that cannot be trained have the score NaN. `on_epoch` is called with epochs that are done, and with all.
    """
    scores = read_scores(folder)
    if scores is not None:
        return scores
    total, before = sum(config.training.epochs for config in configs.values()) * len(splits), 0
    scores = {}
    for name, config in configs.items():

        def watch(trainer: Trainer, before: int) -> None:
            on_epoch(before + trainer.epoch, total)

        judged = []
        try:
            for split in splits:
                judged.append(bench.judge(split, config, on_epoch=partial(watch, before=before)).score)
                before += config.training.epochs
            scores[name] = float(np.mean(judged))
        except VCRError:
            scores[name] = math.nan
    write_json(folder / CONTEST_FILE, {name: None if math.isnan(score) else score for name, score in scores.items()})
    return scores


def read_scores(folder: Path) -> dict[str, float] | None:
    """Return the scores that a contest wrote to the folder of a search; None if there was none."""
    file = folder / CONTEST_FILE
    if not file.is_file():
        return None
    content = read_json(file)
    if (problem := misfit(content, _FORM, CONTEST_FILE)) or content.keys() != _FORM.keys():
        raise StoreError(f"{file} is damaged: {problem or 'other names'}. Delete it")
    return {name: math.nan if content[name] is None else float(content[name]) for name in _FORM}


def default_wins(scores: Mapping[str, float], metric: str) -> bool:
    """Return whether the default is better than the winner of the trials.

    >>> default_wins({WINNER: 0.8, DEFAULT: 0.9}, "accuracy"), default_wins({WINNER: 0.8, DEFAULT: 0.8}, "accuracy")
    (True, False)
    """
    return is_better(metric, scores[DEFAULT], scores[WINNER])


def with_members(config: Config, members: int) -> Config:
    """Return the settings with so many times the members."""
    return replace(config, model=replace(config.model, members=members * config.model.members))
