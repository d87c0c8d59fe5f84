"""Stages add up across interruptions; memory peaks are seen."""

import json
from pathlib import Path

import numpy as np

from vcr_graphormer.measure import Stages, peak_memory, reset_peak_memory


def test_stages_add_up(tmp_path: Path) -> None:
    file = tmp_path / "parts" / "stages.json"
    for visits in (10, 5):
        with Stages(file).measure("ranking") as row:
            row["visits"] = visits
    rows = json.loads(file.read_text())
    assert rows["ranking"]["visits"] == 15
    assert rows["ranking"]["seconds"] > 0
    assert rows["ranking"]["peak_bytes"] > 2**20


def test_peak_memory_sees_an_allocation() -> None:
    reset_peak_memory()
    before = peak_memory()
    block = np.ones(8 * 2**20)  # 64 MiB
    assert peak_memory() - before > 32 * 2**20
    assert block[-1] == 1
