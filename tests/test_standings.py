"""Tables and pictures of result files."""

from pathlib import Path
from typing import Any

import pytest

from tests.test_accuracy import write
from vcr_graphormer import ConfigError
from vcr_graphormer.standings import accuracy_table, draw_accuracy, not_measured, read_results


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
        "| VCR-Graphormer, the paper's settings | **95.00 ± 0.00** | not measured |",
        "| VCR-Graphormer, our presets | **95.00 ± 1.41** | **50.00 ± 0.00** |",
        "| printed in the paper | 95.53 | figure only |",
    ]
    assert accuracy_table(results, "B").splitlines()[2:] == ["| VCR-Graphormer, our presets | **97.00 ± 0.00** |"]


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
