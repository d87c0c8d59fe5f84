"""The accuracy harness: the files it leaves, that it goes on, and the table made from the files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.common import this_command, variant_config
from benchmarks.records import Plan, Record, choose_split, measure_accuracy

from vcr_graphormer import ConfigError, StoreError, load_dataset


def write(folder: Path, dataset: str, variant: str, values: list[float], protocol: str = "A") -> None:
    about = {"dataset": dataset, "protocol": protocol, "variant": variant, "metric": "accuracy"}
    record = Record(folder, about, {"model": {"layers": 1}})
    for seed in record.missing(list(range(len(values)))):
        record.add(seed, 0.5, values[seed], 1.234)


def test_an_option_newer_than_a_result_had_its_default(tmp_path: Path) -> None:
    about = {"dataset": "Photo", "protocol": "A", "variant": "default", "metric": "accuracy"}
    Record(tmp_path, about, {"tokens": {"hops": 2}}).add(0, 0.5, 0.9, 1.0)
    assert Record(tmp_path, about, {"tokens": {"hops": 2, "partitioner": "metis"}}).missing([0]) == []
    with pytest.raises(StoreError, match="was made with other settings"):
        Record(tmp_path, about, {"tokens": {"hops": 2, "partitioner": "propagation"}})


def test_lists_of_an_older_result_had_repeats(tmp_path: Path) -> None:
    about = {"dataset": "Photo", "protocol": "A", "variant": "default", "metric": "accuracy"}
    Record(tmp_path, about, {"tokens": {"hops": 2}}).add(0, 0.5, 0.9, 1.0)
    assert Record(tmp_path, about, {"tokens": {"hops": 2, "distinct": False}}).missing([0]) == []
    with pytest.raises(StoreError, match="was made with other settings"):
        Record(tmp_path, about, {"tokens": {"hops": 2, "distinct": True}})


def test_record_keeps_runs_and_refuses_other_settings(tmp_path: Path) -> None:
    write(tmp_path, "Photo", "default", [0.9, 0.8])
    content = json.loads((tmp_path / "Photo-A-default.json").read_text())
    assert {"dataset", "protocol", "variant", "metric", "config", "command", "versions", "runs"} == content.keys()
    assert content["runs"] == [
        {"seed": 0, "val": 0.5, "test": 0.9, "seconds": 1.23},
        {"seed": 1, "val": 0.5, "test": 0.8, "seconds": 1.23},
    ]
    about = {"dataset": "Photo", "protocol": "A", "variant": "default", "metric": "accuracy"}
    assert Record(tmp_path, about, {"model": {"layers": 1}}).missing([0, 1, 2]) == [2]
    with pytest.raises(StoreError, match="was made with other settings"):
        Record(tmp_path, about, {"model": {"layers": 2}})
    assert Record(tmp_path, about, {"model": {"layers": 2}}, force=True).missing([0, 1]) == [0, 1]


def test_the_command_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["python -m benchmarks table", "Photo", "--data", "/my"])
    assert this_command() == "python -m benchmarks table Photo --data ROOT"
    monkeypatch.setattr("sys.argv", ["python -m benchmarks baselines", "--out", "/my", "--graphs", "Photo"])
    assert this_command() == "python -m benchmarks baselines --graphs Photo"


def test_splits_by_protocol(data_root: Path) -> None:
    graph = load_dataset("Photo", data_root)
    first, second = (choose_split("Photo", graph, "A", seed, data_root) for seed in (0, 1))
    assert first.train.tolist() != second.train.tolist()
    fixed, again = (choose_split("Photo", graph, "B", seed, data_root) for seed in (0, 1))
    assert fixed.train.tolist() == again.train.tolist()
    with pytest.raises(ConfigError, match="protocol is 'C'; it must be A"):
        choose_split("Photo", graph, "C", 0, data_root)


def test_it_goes_on_where_it_was(data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def stop(content: dict[str, Any], row: dict[str, Any]) -> None:
        seen.append(row["seed"])
        if len(seen) == 2:
            raise KeyboardInterrupt

    short = variant_config("Texas", "default")
    short = replace(short, training=replace(short.training, epochs=2), model=replace(short.model, hidden_channels=16))
    monkeypatch.setattr("benchmarks.records.variant_config", lambda *_: short)
    plan = Plan("Texas", ["default"], [0, 1, 2])
    with pytest.raises(KeyboardInterrupt):
        measure_accuracy(plan, tmp_path, root=data_root, device="cpu", on_run=stop)
    before = json.loads((tmp_path / "Texas-A-default.json").read_text())["runs"]
    assert [row["seed"] for row in before] == [0, 1]
    measure_accuracy(plan, tmp_path, root=data_root, device="cpu", on_run=stop)
    after = json.loads((tmp_path / "Texas-A-default.json").read_text())["runs"]
    assert after[:2] == before
    assert seen == [0, 1, 2]
