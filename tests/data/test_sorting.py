"""The compiled way to sort edges gives what the slow ways give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcr_graphormer.data.contract import build_adjacency
from vcr_graphormer.data.sorting import sort_edges


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 2**20)), max_size=60),
    directed=st.booleans(),
    weighted=st.booleans(),
    threads=st.integers(1, 3),
)
def test_edges_add_up(pairs: list[tuple[int, int, int]], directed: bool, weighted: bool, threads: int) -> None:
    sums: dict[tuple[int, int], float] = {}
    for u, v, weight in pairs:
        for arc in [(u, v)] if directed else [(u, v), (v, u)]:
            if u != v:
                sums[arc] = sums.get(arc, 0) + weight
    source, target = (np.array([pair[side] for pair in pairs], dtype=np.int32) for side in (0, 1))
    weights = np.array([pair[2] for pair in pairs], dtype=np.float32) if weighted else None
    found = sort_edges((source, target), weights, 8, directed=directed, threads=threads)
    slow = build_adjacency(np.stack([source, target]), weights, 8, directed, both_add_up=True)
    for indptr, indices, values in (found, slow):
        rows = np.repeat(np.arange(8), np.diff(indptr))
        assert list(zip(rows.tolist(), indices.tolist(), strict=True)) == sorted(sums)
        assert (values is None) == (not weighted)
        assert values is None or values.tolist() == [np.float32(sums[arc]) for arc in sorted(sums)]


@pytest.mark.parametrize("directed", [True, False])
def test_long_rows(directed: bool) -> None:
    random = np.random.default_rng(0)
    source, target = random.integers(0, 40, (2, 5000), dtype=np.int32)
    source[::3] = 7
    weights = random.random(5000, dtype=np.float32)
    found = sort_edges((source, target), weights, 40, directed=directed, threads=2)
    slow = build_adjacency(np.stack([source, target]), weights, 40, directed, both_add_up=True)
    for one, other in zip(found, slow, strict=True):
        assert one is not None
        assert other is not None
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
