"""The heap equals sorting."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vcr_graphormer.ranking.kernels.heap import ZERO, key, offer, unload


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 8))
def test_heap_equals_sorting(scores: list[int], k: int) -> None:
    keys, size = np.empty(k, dtype=np.uint64), ZERO
    for node, score in enumerate(scores):
        size = np.uint64(offer(keys, size, np.uint64(key(score, node))))
    ids, values = np.full(k, -1, dtype=np.int32), np.zeros(k)
    unload(keys, size, ids, values)
    expected = sorted(enumerate(scores), key=lambda pair: (-pair[1], pair[0]))[:k]
    padding = [(-1, 0)] * (k - len(expected))
    assert list(zip(ids.tolist(), values.tolist(), strict=True)) == expected + padding
