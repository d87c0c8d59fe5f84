"""Long work shows itself in a log, and ends with a table."""

import json
from pathlib import Path

import pytest

from vcr_graphormer.console import StageProgress, print_stages


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
