"""`Graph.extend`: the same graph as one made from all edges at once; wrong input is refused in words."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from vcr_graphormer import Graph, GraphError

NAMED = Graph.from_edges(
    [[0, 1], [1, 2]], features=[[1.0], [2.0], [3.0]], labels=[0, 1, -1], names=["a", "b", "c"], class_names=["x", "y"]
)


@given(st.integers(0, 1000), st.booleans(), st.booleans(), st.booleans())
def test_extending_equals_making_anew(seed: int, directed: bool, weighted: bool, sparse: bool) -> None:
    random = np.random.default_rng(seed)
    old, new = int(random.integers(2, 12)), int(random.integers(0, 5))
    features: Any = random.random((old + new, 3)).astype(np.float32) * (random.random((old + new, 3)) < 0.5)
    features = sp.csr_matrix(features) if sparse else features
    labels = random.integers(-1, 2, old + new)
    first = random.integers(0, old, (2, int(random.integers(1, 20))))
    first = first[:, first[0] != first[1]]
    second = random.integers(0, old + new, (2, int(random.integers(1, 20))))
    pairs = {tuple(sorted(pair)) if not directed else tuple(pair) for pair in first.T.tolist()}
    # A weight may differ in the two directions only in one call, where the larger one counts: so draw each pair once.
    second = (
        np.array([p for p in second.T.tolist() if tuple(p if directed else sorted(p)) not in pairs]).reshape(-1, 2).T
    )
    weights = [
        random.integers(1, 9, part.shape[1]).astype(np.float32) if weighted else None for part in (first, second)
    ]
    before = Graph.from_edges(
        first, old, edge_weight=weights[0], features=features[:old], labels=labels[:old], directed=directed
    )
    grown = before.extend(
        features=features[old:] if new else None,
        labels=labels[old:] if new else None,
        edges=tuple(second),
        weights=weights[1],
    )
    both = np.concatenate([first, second], 1)
    expected = Graph.from_edges(
        both,
        old + new,
        edge_weight=np.concatenate(weights) if weighted else None,  # type: ignore[arg-type]
        features=features,
        labels=labels,
        directed=directed,
    )
    assert grown.fingerprint == expected.fingerprint
    there = np.stack([np.repeat(np.arange(old), before.degrees), before.indices])
    if there.shape[1]:
        assert (
            grown.extend(remove_edges=tuple(there)).extend(edges=tuple(there)).indices.tolist()
            == grown.indices.tolist()
        )


def test_by_name() -> None:
    grown = NAMED.extend(
        names=["d", "e"],
        features=[[4.0], [5.0]],
        labels=["y", ""],
        edges=(["d", "a"], ["a", "e"]),
        remove_edges=(["c"], ["b"]),
    )
    assert grown.names is not None and grown.names.tolist() == ["a", "b", "c", "d", "e"]
    assert np.asarray(grown.labels).tolist() == [0, 1, -1, 1, -1]
    assert [grown.indices[grown.indptr[u] : grown.indptr[u + 1]].tolist() for u in range(5)] == [
        [1, 3, 4],
        [0],
        [],
        [0],
        [0],
    ]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"names": ["d"]}, "features of the 1 new nodes are missing"),
        ({"features": [[4.0]]}, "the 1 new nodes need names"),
        ({"names": ["a"], "features": [[4.0]]}, "'a' is in the graph already"),
        ({"names": ["d", "e"], "features": [[4.0]]}, "names has 2, features has 1"),
        ({"names": ["d"], "features": [[4.0, 5.0]]}, "2 features but the graph has 1"),
        ({"names": ["d"], "features": [[np.nan]]}, "must be finite"),
        ({"names": ["d"], "features": [[4.0]], "labels": ["z"]}, "no class named 'z'"),
        ({"names": ["d"], "features": [[4.0]], "labels": [7]}, "labels go up to 7"),
        ({"edges": (["a"], ["z"])}, "there is no node named 'z'"),
        ({"edges": ([0], [9])}, "9"),
        ({"edges": ([0, 1], [2])}, "two lists of equal length"),
        ({"remove_edges": (["a"], ["c"])}, "there is no edge from node 0 to node 2"),
        ({"weights": [1.0]}, "weights were given without edges"),
    ],
)
def test_what_is_refused(keywords: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        NAMED.extend(**keywords)
    bare = Graph.from_edges([[0], [1]])
    with pytest.raises(GraphError, match="the nodes of the graph have none"):
        bare.extend(names=["x"])
    with pytest.raises(GraphError, match="the graph has none"):
        bare.extend(features=[[1.0]])
