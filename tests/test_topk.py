"""The heap equals sorting, and the products of the second level equal plain ones."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vcr_graphormer.topk import mix, offer, unload


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 8))
def test_heap_equals_sorting(scores: list[int], k: int) -> None:
    heap_score, heap_node, size = np.empty(k), np.empty(k, dtype=np.int32), 0
    for node, score in enumerate(scores):
        size = offer(heap_score, heap_node, size, float(score), node)
    ids, values = np.full(k, -1, dtype=np.int32), np.zeros(k)
    unload(heap_score, heap_node, size, ids, values)
    expected = sorted(enumerate(scores), key=lambda pair: (-pair[1], pair[0]))[:k]
    padding = [(-1, 0)] * (k - len(expected))
    assert list(zip(ids.tolist(), values.tolist(), strict=True)) == expected + padding


def test_mix() -> None:
    random = np.random.default_rng(1)
    coefficient, matrix = random.random(20), random.random((20, 20)).astype(np.float32)
    out, mean = np.empty(20, dtype=np.float32), matrix.mean(axis=0)
    mix(coefficient, 0.0, matrix, mean, out)
    np.testing.assert_allclose(out, coefficient @ matrix, rtol=1e-5)
    mix(coefficient, 2.0, matrix, mean, out)  # all are small: the mean row stands for them
    np.testing.assert_allclose(out, coefficient.sum() * mean, rtol=1e-5)
