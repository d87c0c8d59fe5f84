"""`python -m benchmarks accuracy` and `table`."""

import json
from pathlib import Path

from tests.benchmarks.test_records import write
from tests.support.command import run_benchmark


def test_table(tmp_path: Path) -> None:
    write(tmp_path, "Photo", "default", [0.96, 0.94])
    write(tmp_path, "Photo", "default", [0.97], protocol="B")
    text = run_benchmark("table", "--out", str(tmp_path))
    assert "Protocol B: the published fixed split" in text
    assert "| VCR-Graphormer, our presets | 95.00 ± 1.41 |" in text
    assert "| printed in the paper | **95.53** |" in text
    assert "| VCR-Graphormer, our presets | **97.00 ± 0.00** |" in text
    assert "| best published | 96.78 |" in text
    assert "Not measured: PubMed, CoraFull," in text
    text = run_benchmark("table", "--out", str(tmp_path), "--plot", str(tmp_path / "plots"))
    assert "accuracy-B.png" in text
    assert sorted(file.name for file in (tmp_path / "plots").iterdir()) == ["accuracy-A.png", "accuracy-B.png"]
    assert "holds no result files" in run_benchmark("table", "--out", str(tmp_path / "plots"), code=1)


def test_bad_names(tmp_path: Path) -> None:
    assert "unknown variant 'papr'; did you mean 'paper'?" in run_benchmark(
        "accuracy", "Photo", "--variant", "papr", "--out", str(tmp_path), code=1
    )
    assert not list(tmp_path.iterdir())


def test_accuracy(data_root: Path, tmp_path: Path) -> None:
    arguments = ("accuracy", "Texas", "--data", str(data_root), "--device", "cpu", "--variant", "hops")
    text = run_benchmark(*arguments, "--seeds", "1", "--out", str(tmp_path))
    assert "Texas A hops seed 0: val" in text
    rows = json.loads((tmp_path / "Texas-A-hops.json").read_text())["runs"]
    assert len(rows) == 1
    assert 0.3 < rows[0]["test"] < 1
