"""Several seeds: every run kept, mean and deviation, resumed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.data.test_agreement import write_pages
from tests.runs.test_launch import CONFIG
from vcr_graphormer import Graph, GraphError, Run, StoreError
from vcr_graphormer.data.datasets import DataConfig
from vcr_graphormer.runs.seeds import train_seeds


@pytest.fixture(scope="module")
def graph() -> Graph:
    return vcr.generate(nodes=200, edges=900, classes=3, features=8, homophily=0.8, seed=0)


def test_seeds_give_mean_and_deviation_and_go_on_after_an_interruption(graph: Graph, tmp_path: Path) -> None:
    saved = graph.save(tmp_path / "saved")
    config = replace(CONFIG, data=DataConfig(dataset=str(saved)))
    seen: list[int] = []

    def stop(seed: int, run: Run) -> None:
        seen.append(seed)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_seeds(config, 3, tmp_path / "runs", "cpu", on_run=stop)
    made = (tmp_path / "runs" / "seed-0" / "metrics.json").stat().st_mtime_ns
    summary = train_seeds(config, 3, tmp_path / "runs", "cpu")
    assert (tmp_path / "runs" / "seed-0" / "metrics.json").stat().st_mtime_ns == made
    values = [Run.open(tmp_path / "runs" / f"seed-{seed}", "cpu").metrics["test"] for seed in range(3)]
    assert summary["test"]["values"] == values
    assert summary["test"]["mean"] == pytest.approx(np.mean(values))
    assert summary["test"]["std"] == pytest.approx(np.std(values, ddof=1))
    assert json.loads((tmp_path / "runs" / "summary.json").read_text()) == summary
    splits = [Run.open(tmp_path / "runs" / f"seed-{seed}", "cpu").split.train.tolist() for seed in range(3)]
    assert splits[0] != splits[1]
    other = replace(config, model=replace(CONFIG.model, layers=2))
    with pytest.raises(StoreError, match="holds runs with other settings"):
        train_seeds(other, 3, tmp_path / "runs", "cpu")
    assert train_seeds(other, 1, tmp_path / "runs", "cpu", force=True)["seeds"] == [0]
    with pytest.raises(GraphError, match="no labels"):
        unlabelled = replace(graph, labels=None, class_names=None).save(tmp_path / "unlabelled")
        train_seeds(replace(config, data=DataConfig(dataset=str(unlabelled))), 1, tmp_path / "none", "cpu")
    assert not (tmp_path / "none").exists()


@pytest.mark.filterwarnings("ignore:while reading the data")
def test_all_seeds_have_the_directions_that_the_first_one_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pages(tmp_path / "pages")
    config = replace(CONFIG, data=DataConfig(dataset=str(tmp_path / "pages")))
    train_seeds(config, 1, tmp_path / "runs", "cpu")
    assert Run.open(tmp_path / "runs" / "seed-0", "cpu").graph.directed
    # The next split would choose otherwise, but means compare runs of one graph.
    monkeypatch.setattr("vcr_graphormer.data.datasets.keeps_directions", lambda *_: False)
    train_seeds(config, 2, tmp_path / "runs", "cpu")
    second = Run.open(tmp_path / "runs" / "seed-1", "cpu")
    assert second.graph.directed
    assert second.config.data.directed is True
