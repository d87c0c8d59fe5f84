"""Hop features against dense matrices."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import graphs, naive
from vcr_graphormer import ConfigError, Graph, GraphError, generate, hop_features
from vcr_graphormer.tokens import hops


def dense(matrix: object) -> np.ndarray:
    return matrix.toarray() if isinstance(matrix, sp.csr_matrix) else np.asarray(matrix)


@settings(deadline=None)
@given(graphs.edge_lists(), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 3))
def test_equal_to_dense_matrices(
    case: tuple[int, list[tuple[int, int]]], directed: bool, self_loops: bool, sparse: bool, count: int
) -> None:
    n, edges = case
    features = np.random.default_rng(n).integers(0, 3, (n, 4)).astype(np.float32)
    given_features = sp.csr_matrix(features) if sparse else features
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    graph = Graph.from_edges(pairs, n, features=given_features, directed=directed)
    found = [dense(hop) for hop in hop_features(graph, count, self_loops)]
    assert len(found) == count
    for mine, theirs in zip(found, naive.hops(graph, count, self_loops), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
        assert mine.dtype == np.float32


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graphs.karate_club().with_features("identity")
    whole = [dense(hop) for hop in hop_features(graph, 3)]
    monkeypatch.setattr(hops, "ENTRIES_AT_ONCE", 100)  # blocks of two rows
    for mine, theirs in zip(hop_features(graph, 3), whole, strict=True):
        np.testing.assert_array_equal(dense(mine), theirs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("threads", [1, 2, 3, 40])
@pytest.mark.parametrize("kind", ["plain", "loops", "weighted", "directed", "few edges"])
def test_dense_products_have_the_bits_of_scipys(kind: str, threads: int, dtype: type) -> None:
    edges = generate(300, 1500, classes=3, seed=1).to_scipy().tocoo()
    weight = np.random.default_rng(1).random(len(edges.row)) if kind == "weighted" else None
    graph = Graph.from_edges([edges.row, edges.col], 300, edge_weight=weight, directed=kind == "directed")
    graph = Graph.from_edges([[0, 299], [1, 298]], 300) if kind == "few edges" else graph  # threads without a row
    step = hops.Step.of(graph, self_loops=kind == "loops")
    features: np.ndarray = np.random.default_rng(0).standard_normal((300, 7)).astype(dtype)
    (found,) = hops.propagate(step, features, threads)
    np.testing.assert_array_equal(found, (step.matrix @ features).astype(np.float32))


def test_every_finite_float16_is_read_exactly() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)][None]
    loops = hops.Step.of(Graph.from_edges(np.empty((2, 0), np.int64), 1), self_loops=True)  # one node: P = 1
    np.testing.assert_array_equal(loops.times_dense(every, range(1), threads=1), every.astype(np.float32))


def test_numbers_of_another_type() -> None:
    block = np.array([[1.0, 65504.0], [1e-9, 0.1]], np.float32)
    assert hops.to_type(block, "float16").tolist() == [[1.0, 65504.0], [0.0, 0.0999755859375]]
    assert hops.to_type(block, "float32") is block
    with pytest.raises(GraphError, match="a hop holds the number 7e\\+04, but float16 ends at 65,504: use tokens.hop"):
        hops.to_type(block + np.array([0, 4496], np.float32), "float16")


def test_sparse_stays_sparse_while_smaller() -> None:
    path = graphs.path(40).with_features("identity")
    kinds = [sp.issparse(hop) for hop in hop_features(path, 3)]
    assert kinds == [True, True, True]
    star = graphs.star(20).with_features("identity")
    # Two steps on a star link all leaves with each other: more than half of the entries.
    assert [sp.issparse(hop) for hop in hop_features(star, 2)] == [True, False]


def test_isolated_nodes_have_no_hops() -> None:
    graph = Graph.from_edges([[0], [1]], num_nodes=3, features=np.ones((3, 1)))
    (hop,) = hop_features(graph, 1)
    assert dense(hop)[:, 0].tolist() == [1.0, 1.0, 0.0]
    (hop,) = hop_features(graph, 1, self_loops=True)
    np.testing.assert_allclose(dense(hop)[:, 0], [1.0, 1.0, 1.0], rtol=1e-6)


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match="hops is -1"):
        list(hop_features(graphs.path(), -1))
    with pytest.raises(GraphError, match="the graph has no features: use graph.with_features"):
        list(hop_features(graphs.path(), 1))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
def test_degrees_by_numpy_and_by_compiled_code_have_the_same_bits(
    directed: bool, weighted: bool, self_loops: bool
) -> None:
    random = np.random.default_rng(0)
    edges = random.integers(0, 60, (2, 400))
    weights = random.random(400) + 0.01 if weighted else None
    graph = Graph.from_edges(edges, 60, edge_weight=weights, directed=directed)
    compiled, plain = hops.Step.of(graph, self_loops).matrix, hops.normalized_adjacency(graph, self_loops)
    np.testing.assert_array_equal(compiled.data, plain.data)
    np.testing.assert_array_equal(compiled.indices, plain.indices)
