"""Tables and pictures of result files."""

from pathlib import Path
from typing import Any

import pytest
from benchmarks.tables import accuracy_table, draw_accuracy, not_measured, paired_table, read_results

from tests.benchmarks.test_records import write
from vcr_graphormer import ConfigError, StoreError


@pytest.fixture
def results(tmp_path: Path) -> list[dict[str, Any]]:
    write(tmp_path, "Texas", "default", [0.5])
    write(tmp_path, "Photo", "default", [0.96, 0.94])
    write(tmp_path, "Photo", "paper", [0.95, 0.95])
    write(tmp_path, "Photo", "GCN", [0.91, 0.93, 0.92])
    write(tmp_path, "Photo", "default", [0.97], protocol="B")
    return read_results(tmp_path)


def test_tables(results: list[dict[str, Any]]) -> None:
    assert accuracy_table(results, "A").splitlines() == [
        "| test accuracy, % | Photo | Texas |",
        "| --- | --- | --- |",
        "| GCN | 92.00 ± 1.00 | not measured |",
        "| VCR-Graphormer, the paper's settings | 95.00 ± 0.00 | not measured |",
        "| VCR-Graphormer, our presets | 95.00 ± 1.41 | 50.00 ± 0.00 |",
        "| printed in the paper | **95.53** | figure only |",
    ]
    assert accuracy_table(results, "B").splitlines()[2:] == [
        "| VCR-Graphormer, our presets | **97.00 ± 0.00** |",
        "| best published | 96.78 |",
    ]


def test_graphs_judged_by_another_metric_have_a_table_of_their_own(results: list[dict[str, Any]]) -> None:
    auc = {"dataset": "Tolokers", "protocol": "B", "variant": "default", "metric": "roc_auc", "mean": 84.0, "std": 1.0}
    assert accuracy_table([*results, auc], "B") == accuracy_table(results, "B")
    assert accuracy_table([*results, auc], "B", metric="roc_auc").splitlines() == [
        "| test ROC-AUC, % | Tolokers |",
        "| --- | --- |",
        "| VCR-Graphormer, our presets | 84.00 ± 1.00 |",
    ]


def test_differences_are_taken_split_by_split(tmp_path: Path) -> None:
    write(tmp_path, "Photo", "default", [0.96, 0.93, 0.95])
    write(tmp_path, "Photo", "GCN", [0.94, 0.94, 0.92])
    write(tmp_path, "Photo", "MLP", [0.5, 0.5, 0.5])
    write(tmp_path, "Texas", "default", [0.9])
    write(tmp_path, "Actor", "GCN", [0.9])
    # +2, -1, +3: mean 4/3, deviation 2.0817, / √3 = 1.2019.
    assert paired_table(read_results(tmp_path)).splitlines()[2:] == [
        "| Photo | GCN (of 2 measured) | +1.33 | 1.20 | 2 of 3 |"
    ]


def test_bold_is_the_best_of_all_even_where_it_is_not_shown(tmp_path: Path) -> None:
    for variant, value in (("default", 0.96), ("paper", 0.95), ("GCN", 0.97), ("mine", 0.97)):
        write(tmp_path, "Photo", variant, [value])
    rows = read_results(tmp_path)
    assert accuracy_table(rows, "A").splitlines()[2:] == [
        "| GCN | **97.00 ± 0.00** |",
        "| VCR-Graphormer, the paper's settings | 95.00 ± 0.00 |",
        "| VCR-Graphormer, our presets | 96.00 ± 0.00 |",
        "| mine | **97.00 ± 0.00** |",
        "| printed in the paper | 95.53 |",
    ]
    assert "**" not in accuracy_table(rows, "A", ("paper", "default"))
    draw_accuracy([row for row in rows if row["variant"] == "mine"], "A", tmp_path / "mine.png")
    assert (tmp_path / "mine.png").is_file()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"runs": [{"test": 1}]}', '{"runs": 3}'])
def test_a_damaged_result_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "Photo-A-default.json").write_text(text)
    with pytest.raises(StoreError, match=r"Photo-A-default\.json is damaged or no result file: delete it and measure"):
        read_results(tmp_path)


def test_a_result_without_runs_is_none(tmp_path: Path) -> None:
    about = '{"dataset": "Photo", "protocol": "A", "variant": "default", "runs": []}'
    (tmp_path / "Photo-A-default.json").write_text(about)
    assert read_results(tmp_path) == []


def test_what_was_not_measured(results: list[dict[str, Any]]) -> None:
    missing = not_measured(results)
    assert missing[:3] == ["PubMed", "CoraFull", "Computer"]
    assert len(missing) == 11  # of the paper's 13
    assert "Cora" not in missing  # not in the paper


def test_picture(results: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_accuracy(results, "A", tmp_path / "plots" / "a.png")
    assert (tmp_path / "plots" / "a.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        draw_accuracy(results, "A", tmp_path / "b.png")
