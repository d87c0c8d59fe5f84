"""Long work shows itself in a log, and ends with a table."""

import json
from pathlib import Path

import numpy as np
import pytest

from vcr_graphormer import Predictions
from vcr_graphormer.cli.console import StageProgress, print_predictions, print_scores, print_stages, print_summary


def test_plain_lines_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with StageProgress() as progress:
        for done in range(3):
            progress("ranking", done, 2)
    assert capsys.readouterr().err == "ranking: done\n"


def test_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"structure ranking": {"seconds": 1.234, "visits": 5_000_000, "peak_bytes": 3 * 2**20}}
    (tmp_path / "stages.json").write_text(json.dumps(rows))
    print_stages(tmp_path / "stages.json")
    text = capsys.readouterr().out
    for part in ("structure ranking", "1.23", "5,000,000", "3.0 MiB"):
        assert part in text
    print_stages(tmp_path / "nowhere.json")
    assert capsys.readouterr().out == ""


def test_names_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    chances = np.array([[0.2, 0.8], [0.6, 0.4]], dtype=np.float32)
    names, classes = np.array(["[/b]", "[red] n1"]), ("[a]", "[bold]b")
    print_predictions(Predictions(np.arange(2), chances, chances.argmax(1), "classification", names, classes))
    text = capsys.readouterr().out
    for part in ("[/b]", "[red] n1", "[a] 0.600", "[bold]b 0.800"):
        assert part in text


def test_a_metric_without_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    print_scores({"test": {"accuracy": 0.5, "roc_auc": float("nan")}})
    text = capsys.readouterr().out
    assert "0.5000" in text
    assert "none" in text


def test_baselines_stand_below_the_means_over_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {part: {"mean": 0.25, "std": 0.0, "values": [0.25]} for part in ("train", "val", "test")}
    gcn = {"name": "GCN", "val": {**parts["val"], "mean": 0.3125}, "test": {**parts["test"], "mean": 0.6875}}
    print_summary({"dataset": "digits", "metric": "accuracy", **parts, "baselines": [gcn]})
    rows = [line.strip("│ ").split() for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    values = [("train", "0.2500"), ("val", "0.2500"), ("test", "0.2500"), ("val", "0.3125"), ("test", "0.6875")]
    assert [(row[0], row[-5]) for row in rows] == values
