"""Stages add up across interruptions; memory peaks are seen."""

import json
import subprocess
import sys
from pathlib import Path

from vcr_graphormer.base.jobs import Stages


def test_stages_add_up(tmp_path: Path) -> None:
    file = tmp_path / "parts" / "stages.json"
    for visits in (10, 5):
        with Stages(file).measure("ranking") as row:
            row["visits"] = visits
            assert sum(range(10**5)) == 4999950000  # some time of the processor
    rows = json.loads(file.read_text())
    assert rows["ranking"]["visits"] == 15
    assert rows["ranking"]["processor_seconds"] > 0
    assert rows["ranking"]["seconds"] > 0
    assert rows["ranking"]["peak_bytes"] > 2**20


def test_measurements_of_earlier_versions_are_added_to(tmp_path: Path) -> None:
    file = tmp_path / "stages.json"
    file.write_text(json.dumps({"ranking": {"seconds": 1.5, "visits": 3, "peak_bytes": 7}}))
    with Stages(file).measure("ranking"):
        pass
    row = json.loads(file.read_text())["ranking"]
    assert row["seconds"] > 1.5
    assert row["visits"] == 3
    assert 0 <= row["processor_seconds"] < 1.5


SCRIPT = """
import numpy as np
from vcr_graphormer.base.machine import peak_memory, reset_peak_memory
for filled in (False, True, False):
    reset_peak_memory()
    block = np.ones(2**25) if filled else None
    print(peak_memory())
    del block
"""


def test_peak_memory_sees_an_allocation_and_forgets_it_when_told() -> None:
    """In a process of its own: in this one, threads of other tests and the system take memory away meanwhile."""
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=400
    ).stdout
    before, within, after = map(int, told.split())
    assert within - before > 2**27  # half of the 256 MiB
    assert within - after > 2**27
