"""Tables in README and LOG say what the files in results/ say."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_training_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    spec = importlib.util.spec_from_file_location("training_benchmark", ROOT / "benchmarks" / "training.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.readme_table(ROOT / "results")
    assert len(rows.splitlines()) == 4
    assert rows in (ROOT / "README.md").read_text()


def test_extensions_table() -> None:
    rows = json.loads((ROOT / "results" / "extensions.json").read_text())["rows"]
    base = {row["graph"]: row["val"] for row in rows if row["switch"] == "the paper's model"}
    text = (ROOT / "LOG.md").read_text()
    for switch in dict.fromkeys(row["switch"] for row in rows):
        cells = [
            f"{base[row['graph']]:.2f}" if switch == "the paper's model" else f"{row['val'] - base[row['graph']]:+.2f}"
            for row in rows
            if row["switch"] == switch
        ]
        assert f"| {switch} | {' | '.join(cells)} |" in text
