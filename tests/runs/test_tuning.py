"""Tune: the same trials whatever happens to the process, judged without test labels, ending in a run."""

import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from vcr_graphormer import (
    Config,
    ConfigError,
    Graph,
    ProcessError,
    Run,
    Split,
    StoreError,
    TrainingError,
    Tuning,
    TuningState,
)
from vcr_graphormer.base.files import read_json, read_npz
from vcr_graphormer.base.workers import Workers
from vcr_graphormer.runs import tuning
from vcr_graphormer.runs.contest import CONTEST_FILE, DEFAULT, WINNER, default_wins, read_scores
from vcr_graphormer.runs.recipes import differences
from vcr_graphormer.runs.trials import Judged, Trial, Workbench
from vcr_graphormer.runs.tuning import Budget, Plan, Search, TuningTrial, rank_entries
from vcr_graphormer.tokens import lists

RECIPES = ("features", "hops-no-layers", "hops", "full")
# Three rungs of 4, 2 and 1 recipes, then two steps.
TRIALS = 9
SHORT = Config(model=vcr.ModelConfig(hidden_channels=16), training=vcr.TrainConfig(epochs=4))


def make_graph(homophily: float = 0.7) -> Graph:
    return vcr.generate(nodes=120, edges=500, classes=3, features=8, homophily=homophily, seed=0)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make_graph()


@pytest.fixture(scope="module")
def split(graph: Graph) -> Split:
    return Split.random(graph.labels, seed=0)


def search_in(folder: Path, graph: Graph, split: Split, **options: Any) -> Run:
    given: dict[str, Any] = {"recipes": RECIPES, "trials": TRIALS, "device": "cpu", "workers": 1, **options}
    return vcr.tune(graph, split, given.pop("minutes", 60), folder, given.pop("config", SHORT), **given)


@pytest.fixture(scope="module")
def whole(graph: Graph, split: Split, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A search without interruptions, with an ensemble."""
    return search_in(tmp_path_factory.mktemp("tuning") / "whole", graph, split, ensemble=2)


def without_seconds(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "tuning.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


def test_the_run_is_that_of_the_best_trial(whole: Run, graph: Graph) -> None:
    found = Tuning.open(whole.path)
    assert len(found.entries) == TRIALS
    assert [entry.rung for entry in found.entries] == [1, 1, 1, 1, 2, 2, 3, 4, 4]
    assert [entry.epochs for entry in found.entries[:7]] == [1, 1, 1, 1, 2, 2, 4]
    assert [len(entry.scores) for entry in found.entries] == [2, 2, 2, 2, 3, 3, 5, 5, 5]
    best = found.ranked[0]
    assert best.full
    assert best.score == max(entry.score for entry in found.entries if entry.full and entry.score is not None)
    assert whole.finished
    assert (best.settings["model"]["members"], whole.config.model.members) == (1, 5)  # trials train one model
    scores = read_scores(whole.path)
    assert scores is not None
    if default_wins(scores, "accuracy"):
        assert (whole.config.model.combine, whole.config.training.epochs) == ("gated", 4)
    else:
        for section, values in best.settings.items():
            given = {name: value for name, value in values.items() if name != "members"}
            assert {name: getattr(getattr(whole.config, section), name) for name in given} == given
    assert whole.config.model.hidden_channels == 16  # a setting of the caller holds in every trial
    assert {entry.settings["model"]["hidden_channels"] for entry in found.entries} == {16}
    assert not found.changes(found.entries[0])
    assert len(found.changes(found.entries[-1])) >= 1
    assert whole.predict([0]).probabilities.shape == (1, 3)


@pytest.mark.parametrize("better", [WINNER, DEFAULT])
def test_the_winner_is_compared_with_the_default(
    graph: Graph, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: str
) -> None:
    """Both with the members of the last training, which the better one gets."""
    judged: list[tuple[int, str]] = []

    def score(bench: Workbench, part: Split, config: Config, **options: Any) -> Judged:
        judged.append((config.model.members, config.model.combine))
        right = (config.model.combine == "gated") == (better == DEFAULT)
        return Judged(Trial(1.0, 0.5 + 0.25 * right, 1.0, 1, 1, 1.0, 0.0), 0.5 + 0.25 * right, None)

    short: dict[str, Any] = {"recipes": ("hops",), "trials": 1}
    search_in(tmp_path / "run", graph, split, **short)  # without the recipe of the default there is no contest
    assert not (tmp_path / "run" / CONTEST_FILE).exists()
    shutil.rmtree(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Workbench, "judge", score)
        run = search_in(tmp_path / "run", graph, split, recipes=("hops", "full"), trials=1)
    assert judged[2:] == [(5, "joint"), (5, "joint"), (5, "gated"), (5, "gated")]  # on two splits each
    assert (run.config.model.combine, run.config.model.members) == ("gated" if better == DEFAULT else "joint", 5)
    scores = read_scores(run.path)
    assert scores is not None and default_wins(scores, "accuracy") == (better == DEFAULT)
    assert search_in(run.path, graph, split, recipes=("hops", "full"), trials=1).config == run.config  # it is finished
    (run.path / CONTEST_FILE).write_text('{"default": "good"}')
    with pytest.raises(StoreError, match=r"contest.json is damaged"):
        read_scores(run.path)


def test_the_score_is_the_mean_over_redraws_of_the_split(whole: Run, graph: Graph, split: Split) -> None:
    trial = Tuning.open(whole.path).entries[6]
    splits = [split, *(split.redraw(graph.labels, (0, number)) for number in range(1, 5))]
    bench = Workbench(graph, torch.device("cpu"))
    assert trial.scores == [bench.judge(one, Search.config_of(trial)).score for one in splits]
    assert trial.score == pytest.approx(np.mean(trial.scores))
    assert len(set(trial.scores)) > 1
    assert whole.split.val.tolist() == split.val.tolist()  # the last training has the user's own


@pytest.mark.parametrize("limit", ["FEW_FOR_ONE_SPLIT", "MOST_NODES_REDRAWN"])
def test_many_nodes_are_judged_on_one_split(
    graph: Graph, split: Split, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    search = Search.prepare(graph, split, data=vcr.DataConfig(), fixed={}, seed=0, recipes=("features",))
    assert [len(search.splits(rung)) for rung in (1, 2, 3, 4)] == [2, 3, 5, 5]
    monkeypatch.setattr(tuning, limit, 24 if limit == "FEW_FOR_ONE_SPLIT" else 119)
    assert [len(search.splits(rung)) for rung in (1, 2, 3, 4)] == [1, 1, 1, 1]
    assert search.plans(())[0].splits == 1


def test_each_ranking_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials with all counts of neighbours that a step may have share the rankings of the longest lists."""
    graph = make_graph()
    split, made = Split.random(graph.labels, seed=0), list[tuple[Any, ...]]()
    search = Search.prepare(graph, split, data=vcr.DataConfig(), fixed={}, seed=0, recipes=("nearest", "links"))
    longest = search.longest()
    assert longest == {"structure": 16, "content": 16 + 16, "links": 8 + 32, "nearest": 8 + 40}
    rank_kind = lists._rank_kind

    def spy(kind: Any, *arguments: Any, **how: Any) -> Any:
        made.append((kind.name, how["length"], how["config"].restart))
        return rank_kind(kind, *arguments, **how)

    monkeypatch.setattr(lists, "_rank_kind", spy)
    bench = Workbench(graph, torch.device("cpu"), longest=longest)
    tokens, none = search.configs["nearest"].tokens, [(kind, 0, 0.15) for kind in ("structure", "content")]
    for structure, content, link, distinct in itertools.product((0, 4, 16), (0, 8), (0, 8), (False, True)):
        counts: dict[str, Any] = {"structure_tokens": structure, "content_tokens": content, "link_tokens": link}
        bench.lists(split, replace(tokens, **counts, distinct=distinct))
    assert sorted(made) == sorted([*none, *((name, length, 0.15) for name, length in longest.items())])


def test_the_same_call_opens_a_finished_search(whole: Run, graph: Graph, split: Split) -> None:
    before = (whole.path / "tuning.jsonl").read_bytes()
    made = (whole.path / "metrics.json").stat().st_mtime_ns
    again = search_in(whole.path, graph, split, trials=None, ensemble=2)
    assert again.metrics == whole.metrics
    assert (whole.path / "tuning.jsonl").read_bytes() == before
    assert (whole.path / "metrics.json").stat().st_mtime_ns == made


def test_the_ensemble_is_the_mean_of_its_members(whole: Run, graph: Graph, split: Split) -> None:
    members = [Run.open(folder, "cpu") for folder in (whole.path, whole.path / "members" / "2")]
    same: dict[str, Any] = {"epochs": 1, "warmup_steps": 0, "patience": 1}
    first, second = (replace(run.config, training=replace(run.config.training, **same)) for run in members)
    assert first != second  # in more than the number of epochs
    mean = np.mean([member.predict().probabilities.astype(np.float64) for member in members], axis=0)
    made = read_npz(whole.path / "ensemble.npz")
    np.testing.assert_allclose(made["probabilities"], mean, atol=1e-6)
    np.testing.assert_array_equal(made["labels"], mean.argmax(1))
    about = read_json(whole.path / "ensemble.json")
    assert about["members"] == [".", "members/2"]
    right = mean.argmax(1)[split.test] == np.asarray(graph.labels)[split.test]
    assert about["test"] == about["scores"]["test"]["accuracy"] == pytest.approx(right.mean())


def test_test_labels_change_nothing(whole: Run, graph: Graph, split: Split, tmp_path: Path) -> None:
    labels = np.array(graph.labels)
    labels[split.test] = (labels[split.test] + 1) % 3
    wrong = search_in(tmp_path / "wrong", replace(graph, labels=labels), split)
    assert without_seconds(wrong.path) == without_seconds(whole.path)
    assert wrong.metrics["test"] != whole.metrics["test"]


SCRIPT = """
import sys
from pathlib import Path
from tests.runs.test_tuning import make_graph, search_in
from vcr_graphormer import Split
graph = make_graph()
search_in(Path(sys.argv[1]), graph, Split.random(graph.labels, seed=0), workers=int(sys.argv[2]))
"""


def kill_after(folder: Path, lines: int, workers: int = 1) -> None:
    """Start the search in a process of its own and kill it when the file has so many lines."""
    command = [sys.executable, "-c", SCRIPT, str(folder), str(workers)]
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent.parent)
    file = folder / "tuning.jsonl"
    while process.poll() is None and (not file.is_file() or file.read_bytes().count(b"\n") < lines):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_killed_searches_go_on_the_same_way(whole: Run, graph: Graph, split: Split, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    for lines in (2, 6):
        kill_after(folder, lines)
    killed = without_seconds(folder)
    assert 6 <= len(killed) <= TRIALS
    run = search_in(folder, graph, split)
    assert without_seconds(folder) == without_seconds(whole.path)
    ours, theirs = (
        re.sub(rb'seconds": [^,]+', b"", (path / "tuning.jsonl").read_bytes()) for path in (folder, whole.path)
    )
    assert ours == theirs
    assert {part: run.metrics[part] for part in ("train", "val", "test")} == {
        part: whole.metrics[part] for part in ("train", "val", "test")
    }


@pytest.fixture(scope="module")
def grouped(graph: Graph, split: Split, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A search by one worker, with the groups of two that two workers begin."""
    folder = tmp_path_factory.mktemp("tuning") / "grouped"
    search = Search.prepare(graph, split, data=SHORT.data, fixed=differences(SHORT, Config()), seed=0, recipes=RECIPES)
    assert replace(search, group=2).begin(folder).group == 2
    return search_in(folder, graph, split, workers=1)


def test_workers_do_the_same_trials(grouped: Run, whole: Run, graph: Graph, split: Split, tmp_path: Path) -> None:
    titles: list[str] = []
    run = search_in(tmp_path / "run", graph, split, workers=2, progress=lambda state: titles.append(state.doing))
    assert without_seconds(run.path) == without_seconds(grouped.path)
    assert without_seconds(run.path)[:8] == without_seconds(whole.path)[:8]  # the first step knows no other step
    assert run.metrics["val"] == grouped.metrics["val"]
    assert {title.split(":")[0] for title in titles} == {
        "training the winner",
        "comparing the winner with the default",
        *(f"trial {number}" for number in range(1, TRIALS + 1)),
    }


def test_killed_searches_with_workers_go_on_the_same_way(
    grouped: Run, graph: Graph, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "killed"
    kill_after(folder, 2, workers=2)
    listen, started = Workers._listen, list[Workers]()

    def stop(state: TuningState) -> None:
        """Kill a worker in the second rung."""
        if len(state.tuning.entries) == 5:
            started[0].processes[1].kill()

    def spy(self: Workers, *arguments: Any) -> None:
        started.append(self)
        listen(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Workers, "_listen", spy)
        with pytest.raises(ProcessError, match="a worker ended: continue with the same call"):
            search_in(folder, graph, split, workers=2, progress=stop)
    assert len(without_seconds(folder)) >= 5
    assert all(process.poll() is not None for process in started[0].processes)
    search_in(folder, graph, split, workers=1)
    assert without_seconds(folder) == without_seconds(grouped.path)


def test_steps_of_a_group_depend_on_earlier_trials_only(grouped: Run, graph: Graph, split: Split) -> None:
    entries = Tuning.open(grouped.path).entries
    search = Search.prepare(graph, split, data=SHORT.data, fixed=differences(SHORT, Config()), seed=0, recipes=RECIPES)
    search = replace(search, group=3)
    first, second, third = search.plans(entries[:7])
    assert len({first.config, second.config, third.config}) == 3
    better = [replace(one, score=1.0, scores=[1.0]) for one in entries[7:9]]
    assert search.plans([*entries[:7], *better]) == [third]
    assert search.plans([*entries[:7], better[0]]) == [second, third]


def test_a_half_written_line_is_written_again(whole: Run, graph: Graph, split: Split, tmp_path: Path) -> None:
    search_in(tmp_path / "run", graph, split, trials=3)
    folder = tmp_path / "half"
    folder.mkdir()
    (folder / "tuning.json").write_bytes((tmp_path / "run" / "tuning.json").read_bytes())
    lines = (tmp_path / "run" / "tuning.jsonl").read_text().splitlines(keepends=True)
    (folder / "tuning.jsonl").write_text("".join(lines[:2]) + lines[2][:40])
    assert len(Tuning.open(folder).entries) == 2
    search_in(folder, graph, split, trials=3)
    assert without_seconds(folder) == without_seconds(whole.path)[:3]
    older = [json.loads(line) for line in lines[:2]]
    for row in older:  # removed since
        row["settings"]["model"]["feedforward"] = 2
    (folder / "tuning.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in older))
    assert Tuning.open(folder).entries == Tuning.open(tmp_path / "run").entries[:2]
    (folder / "tuning.jsonl").write_text("".join(lines[:1]) + "{}\n")
    with pytest.raises(StoreError, match="line 2 is damaged: delete it and all lines after it"):
        Tuning.open(folder)
    (folder / "tuning.jsonl").write_text(lines[1])
    with pytest.raises(StoreError, match="line 1 is trial 2"):
        Tuning.open(folder)


def test_other_searches_are_refused(whole: Run, graph: Graph, split: Split, tmp_path: Path) -> None:
    for options, what in (
        ({"seed": 1}, r"another seed, settings of the recipes"),
        ({"recipes": ("hops",)}, "another recipes, settings of the recipes"),
        ({"config": Config()}, "another settings of the recipes"),
    ):
        with pytest.raises(StoreError, match=what):
            search_in(whole.path, graph, split, **options)
    with pytest.raises(
        StoreError, match="holds a search with another graph, settings of the recipes: choose another folder"
    ):
        search_in(whole.path, make_graph(0.2), split)
    with pytest.raises(StoreError, match="holds a search with another split"):
        search_in(whole.path, graph, Split.random(graph.labels, seed=1))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    with pytest.raises(StoreError, match="exists and is not a run"):
        search_in(tmp_path / "mine", graph, split)
    with pytest.raises(StoreError, match="holds no search"):
        Tuning.open(tmp_path)


def test_the_last_training_goes_on_after_an_interruption(
    whole: Run, graph: Graph, split: Split, tmp_path: Path
) -> None:
    def stop(state: TuningState) -> None:
        if state.doing == "training the winner" and state.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search_in(tmp_path / "run", graph, split, progress=stop)
    assert not Run.open(tmp_path / "run", "cpu").finished
    seen: list[str] = []
    run = search_in(tmp_path / "run", graph, split, trials=50, progress=lambda state: seen.append(state.doing))
    assert set(seen) == {"training the winner"}  # the search is over, even if more trials are allowed now
    assert run.metrics["val"] == whole.metrics["val"]
    # A process that is killed while it makes the run folder leaves parts of it.
    for name in ("config.toml", "metrics.json", "history.jsonl"):
        (run.path / name).unlink()
    (run.path / ".config.toml.1-ab.tmp").write_text("half")
    again = search_in(tmp_path / "run", graph, split)
    assert again.metrics["val"] == whole.metrics["val"]
    assert without_seconds(tmp_path / "run") == without_seconds(whole.path)


def test_a_short_time_gives_one_trial_and_its_run(graph: Graph, split: Split, tmp_path: Path) -> None:
    run = search_in(tmp_path / "run", graph, split, minutes=1e-6, trials=None)
    assert len(Tuning.open(run.path).entries) == 1
    assert run.finished


def test_time_that_ends_within_a_trial(
    graph: Graph, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second trial is expected to fit, but the time is over after its first epoch."""
    left = iter([1e9])
    monkeypatch.setattr(Budget, "left", lambda *_: next(left, 0.0))
    monkeypatch.setattr(Plan, "seconds", lambda *_: -1.0)
    run = search_in(
        tmp_path / "run", graph, split, trials=None, config=replace(SHORT, training=vcr.TrainConfig(epochs=8))
    )
    assert len(Tuning.open(run.path).entries) == 1


def entry(number: int, recipe: str, rung: int, score: float | None, **more: Any) -> TuningTrial:
    times: dict[str, Any] = {"seconds": 5.0, "token_seconds": 1.0, "wall_seconds": 5.0}
    return TuningTrial(number, recipe, rung, {}, score, epochs=10, **times, **more)


def test_time_is_kept_for_the_last_trainings() -> None:
    entries = (entry(1, "a", 1, 0.5), replace(entry(2, "b", 1, 0.7), seconds=9.0, token_seconds=3.0))
    entries = (entries[0], replace(entries[1], settings={"tokens": {"hops": 1}}, wall_seconds=9.0))
    found = Tuning("accuracy", entries, {})
    # 14 of 60 seconds are used. The best takes 6 without and 9 with token lists of its own, the other 4 and 7.
    assert Budget(60, 9, 1).left(found) == 60 - 14 - 9
    assert Budget(60, 9, 2).left(found) == 60 - 14 - 9 - 7
    config = Config(training=vcr.TrainConfig(epochs=20))
    assert Plan(3, "b", 2, config).seconds(entries) == 12.0  # twice the epochs, with the token lists that are there
    assert Plan(3, "c", 1, config).seconds(entries) == 5.0
    assert Plan(1, "c", 1, config).seconds(()) == 0.0
    # Judged on two splits, the best took 3 seconds a training. A trial with three splits takes three times as long.
    twice = (entries[0], replace(entries[1], scores=[0.6, 0.8]))
    assert Budget(60, 9, 1).left(replace(found, entries=twice)) == 60 - 14 - 6
    assert Plan(3, "b", 2, config, 3).seconds(twice) == 18.0


def test_the_last_comparison_takes_half_of_the_time_at_most() -> None:
    """A search of one minute must not be followed by ten of trainings with members."""
    trial = TuningTrial(1, "hops", 1, {}, 0.8, [0.8, 0.8], epochs=15, seconds=10.0)  # four times as long in full
    found = Tuning("accuracy", (trial,), {})
    seconds = 2 * 5 * 2 * 20  # two rivals, members, splits; the default was not tried
    for minutes, held in ((7, True), (6, False)):
        budget = Budget(2 * minutes * 60, 9, 1, members=5, splits=2)
        assert budget.contest_seconds(found) == seconds
        assert budget.holds_contest(found) == (seconds <= minutes * 60) == held
        assert budget.left(found) == 2 * minutes * 60 - 5 * 5 - held * seconds
    assert not Budget(10**6, 9, 1, members=1, splits=2).holds_contest(found)  # the trials have compared them
    tried = replace(trial, recipe="full", score=0.7, seconds=40.0)
    assert Budget(60, 9, 1, 5, 2).contest_seconds(replace(found, entries=(trial, tried))) == 5 * 2 * (20 + 80)


def test_the_better_half_goes_on(graph: Graph, split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "has_optuna", lambda: False)
    scores = {"features": 0.1, "hops-no-layers": 0.4, "hops": 0.3, "full": 0.4, "joint": None}
    search = Search.prepare(graph, split, data=vcr.DataConfig(), fixed={}, seed=0, recipes=tuple(scores))
    entries: list[TuningTrial] = []
    while plans := search.plans(entries):
        assert [plan.number for plan in plans] == list(range(len(entries) + 1, len(entries) + len(plans) + 1))
        entries.append(entry(plans[0].number, plans[0].recipe, plans[0].rung, scores[plans[0].recipe]))
    assert [one.recipe for one in entries] == [*scores, "hops-no-layers", "full", "hops", "hops-no-layers", "full"]
    assert [one.rung for one in entries] == [1, 1, 1, 1, 1, 2, 2, 2, 3, 3]


def test_lower_is_better_for_errors() -> None:
    entries = [entry(1, "a", 3, 0.5), entry(2, "b", 3, None, error="no"), entry(3, "c", 1, 0.1), entry(4, "d", 4, 0.3)]
    assert [one.recipe for one in rank_entries(entries, lower=True)] == ["d", "a", "c", "b"]
    assert [one.recipe for one in rank_entries(entries, lower=False)] == ["a", "d", "c", "b"]


def test_regression(split: Split, tmp_path: Path) -> None:
    graph = make_graph()
    values = np.asarray(graph.features)[:, 0].astype(np.float32)
    graph = replace(graph, labels=values, class_names=None, task="regression")
    run = search_in(tmp_path / "run", graph, split, trials=8)
    found = Tuning.open(run.path)
    assert found.lower
    best = found.ranked[0].score
    assert best is not None
    assert best == min(one.score for one in found.entries if one.full and one.score is not None)


def test_without_optuna_the_recipes_are_all(
    graph: Graph, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "has_optuna", lambda: False)
    with pytest.warns(UserWarning, match="optuna is not installed, so the search ends with the recipes"):
        run = search_in(tmp_path / "run", graph, split, trials=None)
    assert len(Tuning.open(run.path).entries) == 7


def test_settings_that_cannot_be_trained(graph: Graph, split: Split, tmp_path: Path) -> None:
    hot = replace(SHORT, training=replace(SHORT.training, learning_rate=1e30, gradient_clip=0.0, epochs=8))
    with pytest.raises(TrainingError, match="no trial could be trained: the .* step"):
        search_in(tmp_path / "hot", graph, split, config=hot, recipes=("hops", "features"), trials=2)
    found = Tuning.open(tmp_path / "hot")
    assert [one.score for one in found.entries] == [None, None]
    heads = replace(SHORT, model=replace(SHORT.model, heads=5))
    with pytest.raises(ConfigError, match="no recipe can be trained here: .* must be a multiple of model.heads"):
        search_in(tmp_path / "none", graph, split, config=heads)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"minutes": 0}, "minutes is 0; it must be more than 0"),
        ({"ensemble": 0}, "ensemble is 0; it must be 1 or more"),
        ({"trials": 0}, "trials is 0; it must be 1 or more"),
        ({"workers": 0}, "workers is 0; it must be 1 or more"),
        ({"recipes": ("hopps",)}, "did you mean 'hops'"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_options(graph: Graph, split: Split, tmp_path: Path, options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        search_in(tmp_path / "run", graph, split, **options)
    assert not (tmp_path / "run").exists()
