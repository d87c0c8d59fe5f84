"""Tune on the command line: leaderboard, continuing, showing, stopping."""

from pathlib import Path

import pytest

from tests.support.command import run
from vcr_graphormer import Run, Tuning
from vcr_graphormer.runs.trials import Workbench

# One worker, in this process: others take seconds to start.
SHORT = ("--set", "training.epochs=4", "--set", "model.hidden_channels=16", "--device", "cpu", "--workers", "1")
SEARCH = ("tune", "--recipes", "features, hops-no-layers", "--trials", "5", "--minutes", "60", *SHORT)


def test_tune_show_and_continue(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    text = run(*SEARCH, "--workers", "2", "--out", out, "--ensemble", "2")
    for part in (
        "trial 1: features, 1 epochs: 0.",
        "trial 5: ",
        "validation accuracy of 5 trials, higher is better",
        "mean of the predictions of the best 2 settings:",
        "digits: accuracy, best epoch",
        f"the run lies in {out}",
        f"next: vcr-graphormer report {out}",
    ):
        assert part in text
    assert len(Tuning.open(out).entries) == 5
    best = f"{Tuning.open(out).ranked[0].score:.4f}"
    shown = run("tune", "--show", out)
    assert best in shown
    assert "changed in the recipe" in shown
    again = run(*SEARCH, "--out", out)
    assert "trial 1" not in again
    assert best in again
    assert Run.open(out, "cpu").config.model.hidden_channels == 16
    assert "holds a search with another seed" in run(*SEARCH, "--out", out, "--seed", "1", code=2)
    assert "leave out the other options" in run("tune", "--show", out, "--dataset", "digits", code=2)
    assert "holds no search" in run("tune", "--show", str(tmp_path), code=2)


def test_a_setting_holds_even_if_it_is_the_default(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run("tune", "--recipes", "hops-no-layers", "--trials", "2", *SHORT, "--set", "model.layers=1", "--out", str(out))
    assert Run.open(out, "cpu").config.model.layers == 1


def test_presets_say_only_where_the_data_is(data_root: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run("tune", "--dataset", "Texas", "--data", str(data_root), "--trials", "1", *SHORT, "--out", str(out))
    found = Run.open(out, "cpu")
    assert found.graph.directed  # as the preset says
    assert found.config.tokens.hops == 0  # of the first recipe


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = str(tmp_path / "run")

    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Workbench, "judge", stop)
        stopped = run(*SEARCH, "--out", out, code=130)
        assert "error: stopped; continue with the same command" in stopped
    assert Tuning.open(out).entries == ()
    assert "validation accuracy of 5 trials" in run(*SEARCH, "--out", out)


def test_skipped_recipes_are_named(tmp_path: Path) -> None:
    out, recipes = str(tmp_path / "run"), "features,hops"
    text = run("tune", "--recipes", recipes, "--trials", "1", *SHORT, "--set", "model.label_hops=2", "--out", out)
    assert text.count("features is skipped: model.label_hops is 2 but the token lists have 0 hops") == 2
    assert "unknown recipe 'hop'" in run("tune", "--recipes", "hop", "--out", str(tmp_path / "x"), code=2)
