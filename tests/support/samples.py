"""Write a small sample of every format, to be kept in `tests/samples` and read forever.

    python -m tests.support.samples tests/samples/NAME

Write new samples whenever a format changes, under a new name; never change those that are there.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import vcr_graphormer as vcr


def make_graph(directed: bool = False) -> vcr.Graph:
    """Zachary's karate club with names, weights, two classes and columns on very different scales."""
    from tests.support import graphs

    club = graphs.karate_club()
    edges = np.stack([np.repeat(np.arange(34), club.degrees), club.indices])
    random = np.random.default_rng(0)
    about: dict[str, Any] = {"names": [f"member {node}" for node in range(34)], "class_names": ["Hi", "Officer"]}
    return vcr.Graph.from_edges(
        edges,
        34,
        edge_weight=1 + (edges.sum(axis=0) % 5),
        features=random.random((34, 4)).astype(np.float32) * [1, 1, 10, 1000],
        labels=np.arange(34) % 2,
        directed=directed,
        name="karate club",
        **about,
    )


def write(folder: Path) -> None:
    """Write a graph, token lists, three rankers and a finished run."""
    graph = make_graph()
    graph.save(folder / "graph")
    split = vcr.Split.random(graph.labels, seed=0)
    connections = vcr.content_connections(graph.labels, split.train)
    vcr.Ranker.prepare(graph, connections, threads=1).save(folder / "ranker", graph)
    directed = make_graph(directed=True)
    vcr.LinkRanker.prepare(directed).save(folder / "links", directed)
    vcr.FeatureRanker.prepare(graph).save(folder / "nearest", graph)
    config = vcr.Config(
        data=vcr.DataConfig(scale="standard"),
        tokens=vcr.TokenConfig(hops=2, clusters=3, structure_tokens=2, content_tokens=2, link_tokens=1),
        model=vcr.ModelConfig(hidden_channels=8, heads=2, layers=1),
        training=vcr.TrainConfig(epochs=2, batch_size=16, warmup_steps=1),
    )
    opened = vcr.Graph.open(folder / "graph")
    run = vcr.train(
        opened, split, config, folder / "run", tokens=folder / "tokens", device="cpu", threads=1, baselines="none"
    )
    np.save(folder / "expected.npy", run.predict().probabilities)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
