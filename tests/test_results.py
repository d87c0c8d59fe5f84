"""Tables in README and LOG say what the files in results/ say."""

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from vcr_graphormer.accuracy import variant_config, with_defaults
from vcr_graphormer.presets import VARIANTS
from vcr_graphormer.standings import accuracy_table, not_measured, read_results

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


def between(text: str, marker: str) -> str:
    return text.partition(f"<!-- {marker}:start -->\n")[2].partition(f"\n<!-- {marker}:end -->")[0]


@pytest.mark.parametrize("protocol", ["A", "B"])
def test_accuracy_tables(protocol: str) -> None:
    rows = read_results(ROOT / "results" / "accuracy")
    page = (ROOT / "docs" / "accuracy.md").read_text()
    assert between(page, f"accuracy-{protocol}") == accuracy_table(rows, protocol)
    if protocol == "A":
        table = accuracy_table(rows, protocol, ("paper", "default"))
        assert between((ROOT / "README.md").read_text(), "accuracy-A") == table
        for name in not_measured(rows):
            assert name in page


def test_results_are_complete() -> None:
    """All of seeds 0 to 9 under protocol A, at least five under B, each file with what reproduces it."""
    for row in read_results(ROOT / "results" / "accuracy"):
        seeds = [run["seed"] for run in row["runs"]]
        assert seeds == list(range(len(seeds)))
        assert len(seeds) == 10 if row["protocol"] == "A" else len(seeds) >= 5
        assert row["command"].startswith(("vcr-graphormer benchmark accuracy", "python benchmarks/yardsticks.py"))
        assert row["versions"]["torch"]


def test_presets_are_those_behind_the_results() -> None:
    """A preset that was changed after it was measured would make the table a lie."""
    for row in read_results(ROOT / "results" / "accuracy"):
        if row["variant"] in VARIANTS:
            config = variant_config(row["dataset"], row["variant"])
            for section in ("tokens", "model", "training"):
                settings = asdict(getattr(config, section))
                settings.pop("seed") if section == "training" else None
                assert with_defaults(row["config"])[section] == settings, (row["dataset"], row["variant"])
            assert row["config"]["data"] == {"directed": config.data.directed}
