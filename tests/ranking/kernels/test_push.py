"""The push keeps every bit of mass, and its small linear algebra is right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ranking.test_exact import rewired_graphs
from vcr_graphormer import Connections, Graph
from vcr_graphormer.ranking.kernels.push import (
    RESIDUAL,
    SETTLED,
    by_node,
    per_unlisted_weight,
    resolvent,
    settle,
    subtract_unlisted,
)
from vcr_graphormer.ranking.kernels.scans import weighted_degrees
from vcr_graphormer.ranking.second_level import _best_first, make_arcs, new_scratch


@settings(deadline=None, max_examples=60)
@given(rewired_graphs(), st.sampled_from([0.3, 1e-2, 1e-6]))
def test_mass_is_settled_left_or_absorbed(case: tuple[Graph, Connections], tolerance: float) -> None:
    graph, connections = case
    arcs = make_arcs(graph)
    total = weighted_degrees(*arcs)[0] + (connections.assignment >= 0)
    scratch = new_scratch(np.maximum(total, 1e-30).astype(np.float32), 1, False)
    absorbed = np.zeros(max(1, connections.count))
    scratch.state[0, RESIDUAL] = 1.0
    scratch.touched[0] = 0
    count, visits = settle(arcs, total, connections.assignment, scratch, absorbed, 1, tolerance, 0.15, -1)
    settled, left = scratch.state[:, SETTLED], scratch.state[:, RESIDUAL]
    assert settled.sum() + left.sum() + absorbed.sum() == pytest.approx(1, abs=1e-5)
    # Nothing above the limit is left, and only touched nodes changed.
    assert (left <= tolerance * np.maximum(total, 1e-30) * (1 + 1e-6)).all()
    touched = set(scratch.touched[:count].tolist())
    assert touched >= set(np.flatnonzero((settled > 0) | (left > 0)).tolist())
    assert len(touched) == count
    assert visits >= 0


def eliminate(steps: np.ndarray) -> np.ndarray:
    """Return (I - W)^-1, one pivot after the other."""
    x: np.ndarray = np.eye(len(steps)) - steps
    for i in range(len(x)):
        pivot, x[i, i] = 1.0 / x[i, i], 1.0
        x[i] *= pivot
        for r in range(len(x)):
            factor = x[r, i]
            if r != i and factor != 0.0:
                x[r, i] = 0.0
                x[r] -= factor * x[i]
    return x


@pytest.mark.parametrize("size", [1, 3, 8, 11, 30])
def test_resolvent_takes_the_steps_of_one_pivot_at_a_time(size: int) -> None:
    random = np.random.default_rng(size)
    steps = random.random((size, size)) / (size + 10)
    steps[random.random((size, size)) < 0.3] = 0.0
    found = resolvent(steps)
    np.testing.assert_array_equal(found, eliminate(steps))
    np.testing.assert_allclose(found, np.linalg.inv(np.eye(size) - steps), atol=1e-12)


def test_mass_that_the_lists_leave_out_is_spread_over_unlisted_nodes() -> None:
    group, mass = np.array([0, 0, 0, 1], dtype=np.int32), np.array([1.0, 2.0, 3.0, 4.0])
    ptr, ids = np.array([0, 1, 2]), np.array([1, 3], dtype=np.int32)
    spill = np.array([[0.8, 0.6], [0.4, 0.0]], dtype=np.float32)
    density = per_unlisted_weight(spill, group, mass, ptr, ids, 1e-6)
    # Cluster 0 has the weight 6, of which vector 0 lists 2; cluster 1 has 4, all of it listed by vector 1.
    np.testing.assert_allclose(density, [[0.8 / 4, 0.6 / 6], [0.4 / 4, 0.0]], rtol=1e-6)
    row_ptr, row_vector, row_value = by_node(4, ptr, ids, np.array([0.9, 0.7], dtype=np.float32))
    subtract_unlisted(row_ptr, row_vector, row_value, group, mass, density)
    np.testing.assert_allclose(row_value, [0.9 - 2 * 0.2, 0.7], rtol=1e-6)


def test_entries_by_node() -> None:
    ptr, ids = np.array([0, 2, 2, 5]), np.array([3, 0, 0, 1, 3], dtype=np.int32)
    values = np.array([0.5, 0.4, 0.3, 0.2, 0.1], dtype=np.float32)
    row_ptr, row_vector, row_value = by_node(4, ptr, ids, values)
    assert row_ptr.tolist() == [0, 2, 3, 3, 5]
    assert row_vector.tolist() == [0, 2, 2, 0, 2]
    np.testing.assert_allclose(row_value, [0.4, 0.3, 0.2, 0.5, 0.1])


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 99)), unique_by=lambda entry: entry[1]))
def test_the_best_come_first_as_lexsort_sorts(entries: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in entries], dtype=np.float32)
    ids = np.array([node for _, node in entries], dtype=np.int32)
    order = np.lexsort((ids, -values))
    found, sorted_values = _best_first(values, ids)
    assert found.tolist() == ids[order].tolist()
    assert sorted_values.tolist() == values[order].tolist()
