"""`Graph.extend`: the same graph as one made from all edges at once; wrong input is refused in words."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from vcr_graphormer import Graph, GraphError
from vcr_graphormer.data.growth import align

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


@given(st.integers(0, 1000), st.booleans(), st.booleans())
def test_aligning_a_shuffled_graph(seed: int, weighted: bool, lose: bool) -> None:
    random = np.random.default_rng(seed)
    count, more = 8, 3
    names = [f"node {number}" for number in range(count + more)]
    edges = random.integers(0, count + more, (2, 20))
    weights = random.random(20).astype(np.float32) + 0.5 if weighted else None
    features, labels = random.random((count + more, 2)), random.integers(-1, 2, count + more)
    whole = Graph.from_edges(edges, count + more, weights, features, labels, names=names)
    kept = random.permutation(count + more)
    if lose:
        kept = kept[kept != 2]
    row_of = {int(node): row for row, node in enumerate(kept)}
    inside = [edge for edge in range(20) if int(edges[0, edge]) in row_of and int(edges[1, edge]) in row_of]
    shuffled = Graph.from_edges(
        np.array([[row_of[int(end)] for end in edges[side, inside]] for side in (0, 1)]).reshape(2, -1),
        len(kept),
        None if weights is None else weights[inside],
        features[kept],
        labels[kept],
        names=[names[node] for node in kept],
    )
    before = Graph.from_edges([[0], [1]], count, features=features[:count], labels=labels[:count], names=names[:count])
    aligned = align(before, shuffled)
    assert aligned.names is not None and aligned.names[:count].tolist() == names[:count]
    rows = [names.index(name) for name in aligned.names.tolist()]
    np.testing.assert_array_equal(np.asarray(aligned.features), features[rows].astype(np.float32))
    assert np.asarray(aligned.labels).tolist() == labels[rows].tolist()
    expected = whole.to_scipy()[rows][:, rows].toarray()
    if lose:
        expected[2], expected[:, 2] = 0, 0
    np.testing.assert_allclose(aligned.to_scipy().toarray(), expected)
    assert align(before, aligned) is aligned


def test_names_on_one_side_only() -> None:
    with pytest.raises(GraphError, match="nodes of the later graph have no names"):
        align(NAMED, Graph.from_edges([[0], [1]]))
