"""A small graph and settings that many tests train on: seconds at most."""

from dataclasses import replace

import numpy as np

import vcr_graphormer as vcr
from tests.support.plain import model_config, plain_config, token_config, train_config

CONFIG = plain_config(
    tokens=token_config(hops=2, clusters=4, structure_tokens=3, content_tokens=3),
    model=model_config(hidden_channels=16, heads=2),
    training=train_config(epochs=3, batch_size=64, warmup_steps=5, learning_rate=0.01),
)


def named_graph(seventh: str = "n7") -> vcr.Graph:
    """150 nodes n0, n1 … of classes a, b and c; one node may have a name of its own."""
    plain = vcr.generate(nodes=150, edges=600, classes=3, features=8, homophily=0.8, seed=0)
    names = np.array([seventh if node == 7 else f"n{node}" for node in range(150)])
    return replace(plain, names=names, class_names=("a", "b", "c"))


def rare_graph() -> vcr.Graph:
    """1,500 nodes, 3 % of them of class fraud, which is class 0: larger features, and edges among them."""
    random = np.random.default_rng(0)
    nodes, rare = 1500, 45
    labels = np.ones(nodes, np.int64)
    labels[random.choice(nodes, rare, replace=False)] = 0
    features = (random.normal(size=(nodes, 8)) + 0.8 * (labels == 0)[:, None]).astype(np.float32)
    among = random.choice(np.flatnonzero(labels == 0), (2, rare))
    edges = np.concatenate([random.integers(nodes, size=(2, 4500)), among], axis=1)
    return vcr.Graph.from_edges(
        edges, nodes, features=features, labels=labels, class_names=["fraud", "ok"], name="rare"
    )


def list_graph() -> vcr.Graph:
    """1,500 nodes: token lists of a dozen shards, where these are made small."""
    return vcr.generate(1500, 6000, classes=3, seed=0, features=6)


COSTS = ("stages.json", "checksums.json")


def all_bytes(store: vcr.TokenStore) -> dict[str, bytes]:
    """Every file of a finished store but for what it cost, and the checksum of that; nothing else is left in it."""
    assert [file for file in store.path.iterdir() if file.is_dir()] == []
    return {file.name: file.read_bytes() for file in store.path.iterdir() if file.name not in COSTS}
