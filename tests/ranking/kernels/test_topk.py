"""The products of the second level equal plain ones."""

import numpy as np
import pytest

from vcr_graphormer import generate, structure_connections
from vcr_graphormer.ranking.kernels.topk import four_values, mix, value
from vcr_graphormer.ranking.pagerank import Ranker


def test_mix() -> None:
    random = np.random.default_rng(1)
    coefficient, matrix = random.random(20), random.random((20, 20)).astype(np.float32)
    out, mean = np.empty(20, dtype=np.float32), matrix.mean(axis=0)
    mix(coefficient, 0.0, matrix, mean, out)
    np.testing.assert_allclose(out, coefficient @ matrix, rtol=1e-5)
    mix(coefficient, 2.0, matrix, mean, out)  # all are small: the mean row stands for them
    np.testing.assert_allclose(out, coefficient.sum() * mean, rtol=1e-5)


@pytest.mark.parametrize("count", range(10))
def test_mix_takes_rows_in_order(count: int) -> None:
    random = np.random.default_rng(count)
    coefficient, matrix = np.zeros(20), random.random((20, 20)).astype(np.float32)
    coefficient[random.permutation(20)[:count]] = random.random(count) + 1
    expected, out = np.zeros(20, dtype=np.float32), np.empty(20, dtype=np.float32)
    for q in np.flatnonzero(coefficient):  # exact products, each sum rounded once: as one instruction does both
        product = np.float64(np.float32(coefficient[q])) * matrix[q].astype(np.float64)
        expected = (expected + product).astype(np.float32)
    mix(coefficient, 0.5, matrix, np.zeros(20, dtype=np.float32), out)
    np.testing.assert_allclose(out, expected, rtol=3e-7)


def test_four_values_equal_single_ones() -> None:
    graph = generate(2000, 10_000, classes=3, communities=10, seed=0, features=0)
    vectors = Ranker.prepare(graph, structure_connections(graph, 5)).vectors
    mixed = np.random.default_rng(0).random(len(vectors.ptr) - 1).astype(np.float32)
    dropped = np.full(len(vectors.spill), np.inf, dtype=np.float32)
    for nodes in np.arange(400, dtype=np.uint64).reshape(-1, 4):
        together = four_values(*nodes, vectors, mixed, dropped)
        assert together == tuple(value(v, vectors, mixed, dropped) for v in nodes)
