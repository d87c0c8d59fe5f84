"""Graphs that are written in little memory are sound, and the pipeline on them goes on where it was stopped."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.common import variant_config
from benchmarks.speed import large, scale
from benchmarks.speed.communities import Communities, write_communities

import vcr_graphormer as vcr

FORM = Communities(nodes=2000, edges=30_000, classes=4, communities=20, features=8, homophily=0.7, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("communities") / "graph"
    write_communities(FORM, folder, 1)
    return folder


def test_the_folder_is_the_one_that_save_writes(folder: Path, tmp_path: Path) -> None:
    """Exact number of edges, symmetric, sorted, without repeats and loops: the same edges by scipy give its bytes."""
    graph = vcr.Graph.open(folder)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (2000, 30_000, 8, 4)
    source = np.repeat(np.arange(2000), graph.degrees)
    once = source < graph.indices
    assert once.sum() == 30_000
    edges = np.stack([source, graph.indices])[:, once]
    features, labels = np.array(graph.features), np.array(graph.labels)
    again = vcr.Graph.from_edges(edges, 2000, features=features, labels=labels, name="generated")
    again.save(tmp_path / "again")
    for file in folder.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes(), file.name


def test_bytes_depend_on_the_seed_and_not_on_the_threads(folder: Path, tmp_path: Path) -> None:
    for number, (form, threads) in enumerate([(FORM, 3), (FORM, 16), (replace(FORM, seed=4), 3)]):
        write_communities(form, tmp_path / str(number), threads)
    manifest = (folder / "manifest.json").read_bytes()
    same = [(tmp_path / str(number) / "manifest.json").read_bytes() == manifest for number in range(3)]
    assert same == [True, True, False]
    vcr.Graph.verify(tmp_path / "1")


def test_what_a_killed_process_left_is_replaced(folder: Path, tmp_path: Path) -> None:
    (tmp_path / ".graph.tmp").mkdir()
    (tmp_path / ".graph.tmp" / "left.npy").write_bytes(b"half")
    write_communities(FORM, tmp_path / "graph", 2)
    assert [file.name for file in tmp_path.iterdir()] == ["graph"]
    assert sorted(file.name for file in (tmp_path / "graph").iterdir()) == sorted(
        ["features.npy", "indices.npy", "indptr.npy", "labels.npy", "manifest.json"]
    )


@pytest.mark.parametrize("homophily", [0.0, 0.3, 1.0])
def test_homophily_is_the_one_asked_for(homophily: float, tmp_path: Path) -> None:
    write_communities(replace(FORM, edges=10_000, homophily=homophily), tmp_path / "graph", 2)
    graph = vcr.Graph.open(tmp_path / "graph")
    labels = np.asarray(graph.labels)
    source = np.repeat(np.arange(2000), graph.degrees)
    assert graph.num_edges == 10_000
    assert (labels[source] == labels[graph.indices]).sum() == 2 * homophily * 10_000


def test_degrees_are_skewed_features_tell_classes_and_ids_tell_nothing(folder: Path) -> None:
    graph = vcr.Graph.open(folder)
    assert graph.degrees.max() > 5 * graph.degrees.mean()
    features, labels = np.asarray(graph.features), np.asarray(graph.labels)
    assert np.bincount(labels).tolist() == [500] * 4
    assert np.bincount(labels[:1000]).min() > 200
    centres = np.stack([features[labels == c].mean(axis=0) for c in range(4)])
    nearest = ((features[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == labels).mean() > 0.4
    spread = features - centres[labels]
    assert spread.std() == pytest.approx(2, rel=0.02)
    assert abs(np.corrcoef(spread.T) - np.eye(8)).max() < 0.1


def test_too_many_edges_are_refused(tmp_path: Path) -> None:
    with pytest.raises(vcr.ConfigError, match="distinct edges do not fit between groups"):
        write_communities(replace(FORM, edges=150_000, homophily=1.0), tmp_path / "graph", 2)


def test_the_whole_pipeline_goes_on_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = variant_config("Amazon2M", "paper")
    config = replace(
        config,
        tokens=replace(config.tokens, clusters=20),
        model=replace(config.model, hidden_channels=16),
        training=replace(config.training, batch_size=200),
    )
    for module in (scale, large):
        monkeypatch.setattr(module, "variant_config", lambda *_: config)
    monkeypatch.setattr(large, "CLASSES", 4)
    monkeypatch.setattr(large, "COMMUNITY", 100)
    monkeypatch.setattr(large, "EDGES_PER_NODE", 10)
    monkeypatch.setattr(large, "STEPS", 30)
    monkeypatch.setattr(large, "AT_ONCE", 700)
    done: list[str] = []

    def in_this_process(work: Any, stage: Any, threads: int) -> Any:
        done.append(stage.func.__name__)
        return work(stage, threads)

    monkeypatch.setattr(large, "in_a_process", in_this_process)
    arguments = large.make_parser().parse_args(["--threads", "2", "--steps", "1", "--hops", "2"])
    assert isinstance(arguments, argparse.Namespace)
    first = large.measure(2000, tmp_path, arguments)
    for _ in range(3):
        row = next(first)
    assert sorted({"generate", "check", "tokenize", "steps", "predict"} & row.keys()) == [
        "check",
        "generate",
        "tokenize",
    ]
    rows = list(large.measure(2000, tmp_path, arguments))
    assert done == ["generate", "check", "tokenize", "predict", "train"]
    row = rows[-1]
    assert (row["check"]["nodes"], row["check"]["edges"]) == (2000, 20_000)
    store = vcr.TokenStore.open(tmp_path / "tokens")
    assert (store.num_hops, store.num_tokens, store.settings.partitioner) == (2, 13, "propagation")
    labels = np.asarray(vcr.Graph.open(tmp_path / "graph").labels)
    predicted = np.load(tmp_path / "predicted.npy")
    assert (predicted == labels).mean() > 0.5
    assert row["predict"]["test accuracy"] > 0.5
    assert 0 < row["tokenize"]["own gigabytes"] < row["tokenize"]["peak gigabytes"]
    parts = sum(large.processor_seconds(row, title) for title in large.STAGES)
    assert 0 < parts < large.processor_seconds(row, large.WHOLE)
    twice = json.loads(json.dumps(row)) | {"nodes": 4000, "edges": 40_000}
    lines = large.table([row, twice]).splitlines()
    assert lines[0] == "| edges | 2.0 · 10^4 | 4.0 · 10^4 | slope | last slope |"
    assert lines[-1].startswith("| test accuracy of the small model | 0.")
    everything = next(line for line in lines if line.startswith("| everything but training, processor s |"))
    assert everything.endswith("| 0.00 | 0.00 |") or everything.endswith("| -0.00 | -0.00 |")
