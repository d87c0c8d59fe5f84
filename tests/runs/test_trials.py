"""The workbench makes the same numbers as `train`, for every kind of setting, and keeps what it has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from tests.support.runs import CONFIG
from vcr_graphormer import Graph, Split
from vcr_graphormer.runs import trials
from vcr_graphormer.runs.trials import Workbench, choose_workers, crossed


@pytest.fixture(scope="module")
def graph() -> Graph:
    return vcr.generate(nodes=200, edges=900, classes=3, features=8, homophily=0.7, seed=0)


CHANGES: list[dict[str, Any]] = [
    {},
    {"tokens": {"content": "features", "content_clusters": 3}},
    {"tokens": {"content": "links"}, "model": {"rank_embedding": True}},
    {"tokens": {"content_tokens": 0, "hops": 1, "self_loops": True}},
    {"model": {"rich_tokens": 2, "label_hops": 2, "label_embedding": True, "adjacency_rows": True}},
    {"model": {"rich_labels": True}},
]


@pytest.mark.parametrize("change", CHANGES)
def test_equals_train(graph: Graph, tmp_path: Path, change: dict[str, Any]) -> None:
    split = Split.random(graph.labels, seed=0)
    sections: Any = {name: replace(getattr(CONFIG, name), **values) for name, values in change.items()}
    config = replace(CONFIG, **sections)
    bench = Workbench(graph, torch.device("cpu"))
    run = vcr.train(graph, split, config, tmp_path / "run", device="cpu")
    for _ in range(2):  # the second time from what is kept
        trial = bench.train(split, config)
        for part in ("train", "val", "test"):
            assert getattr(trial, part) == pytest.approx(run.metrics[part])
        assert (trial.epochs, trial.best_epoch) == (3, run.metrics["best_epoch"])


def test_the_test_part_is_left_alone_on_request(graph: Graph) -> None:
    trial = Workbench(graph, torch.device("cpu")).train(Split.random(graph.labels, seed=0), CONFIG, test=False)
    assert np.isnan(trial.test)
    assert trial.val > 0


def test_every_epoch_can_be_watched(graph: Graph) -> None:
    split, seen = Split.random(graph.labels, seed=0), list[float]()
    wanted = np.asarray(graph.labels)[split.val]
    trial = Workbench(graph, torch.device("cpu")).train(
        split,
        CONFIG,
        test=False,
        on_epoch=lambda trainer: seen.append(float((trainer.val_logits.argmax(1) == wanted).mean())),
    )
    assert len(seen) == 3
    assert trial.val == max(seen)
    assert seen[trial.best_epoch - 1] == trial.val


def test_hops_are_made_once_and_extended(graph: Graph) -> None:
    bench, split = Workbench(graph, torch.device("cpu")), Split.random(graph.labels, seed=0)
    few = bench.inputs(split, CONFIG.tokens, CONFIG.model)
    more = bench.inputs(split, replace(CONFIG.tokens, hops=4), CONFIG.model)
    assert few.hops[1] is more.hops[1]
    assert few.ids[0].equal(more.ids[0])
    for made, expected in zip(more.hops, vcr.hop_features(graph, 4), strict=True):
        np.testing.assert_allclose(np.asarray(made), np.asarray(expected), atol=1e-6)


def test_each_half_is_judged_at_the_epoch_of_the_other() -> None:
    by_epoch = [[0.2, 0.9], [0.8, 0.1], [0.5, 0.4]]
    assert crossed(by_epoch) == (0.2, 0.1)  # the second half chooses epoch 1, the first half epoch 2
    assert crossed(by_epoch, "rmse") == (0.8, 0.9)  # lower is better: they choose epochs 2 and 1
    assert crossed([[0.5, 0.5], [0.5, 0.7]]) == (0.5, 0.5)  # of equal epochs the first counts


def test_many_validation_nodes_are_judged_at_their_best_epoch(graph: Graph) -> None:
    bench, split = Workbench(graph, torch.device("cpu")), Split.random(graph.labels, seed=0)
    few, many = bench.judge(split, CONFIG), bench.judge(split, CONFIG, crossed_below=len(split.val))
    assert few.halves is not None
    assert few.score == np.mean(few.halves)
    assert (many.score, many.halves) == (many.trial.val, None)
    assert few.trial.val == many.trial.val
    assert np.isnan(few.trial.test)


def test_a_half_without_a_metric_leaves_the_best_epoch(graph: Graph) -> None:
    """The even validation nodes are all of class 0, so they have no ROC-AUC."""
    labels = np.asarray(graph.labels)
    zeros, others = np.flatnonzero(labels == 0), np.flatnonzero(labels != 0)
    pairs = [(zero, other) for zero in zeros for other in others if other == zero + 1][:6]
    val = np.sort(np.array(pairs).ravel())
    rest = np.setdiff1d(np.arange(len(labels)), val)
    split = Split(rest[::2], val, rest[1::2])
    config = replace(CONFIG, training=replace(CONFIG.training, metric="roc_auc"))
    judged = Workbench(graph, torch.device("cpu")).judge(split, config)
    assert (judged.score, judged.halves) == (judged.trial.val, None)


def test_workers_by_cores_and_free_memory(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = 200 * (8 * 11 + 200) * 4  # the features, ten hops and rows of the adjacency matrix
    for cores, free, expected in ((16, 1e9, 4), (6, 1e9, 3), (1, 1e9, 1), (16, 8 * inputs, 2), (16, inputs, 1)):
        monkeypatch.setattr(trials, "default_threads", lambda _, cores=cores: cores)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2e9))
        assert choose_workers(graph, torch.device("cuda")) == expected
    worker = 2**29 + inputs
    for cores, room, expected in ((16, 1e12, 4), (2, 1e12, 2), (1, 1e12, 1), (16, 12 * worker, 3), (16, worker, 1)):
        monkeypatch.setattr(trials, "default_threads", lambda _, cores=cores: cores)
        monkeypatch.setattr(trials, "available_memory", lambda room=room: room)
        assert choose_workers(graph, torch.device("cpu")) == expected
