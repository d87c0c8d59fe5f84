"""The push keeps every bit of mass, and its small linear algebra is right."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ranking.test_exact import rewired_graphs
from vcr_graphormer import Connections, Graph
from vcr_graphormer.ranking.kernels.push import RESIDUAL, SETTLED, by_node, resolvent, settle, sort_ties
from vcr_graphormer.ranking.kernels.scans import weighted_degrees
from vcr_graphormer.ranking.second_level import make_arcs, new_scratch


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


def test_resolvent_is_the_inverse() -> None:
    steps = np.random.default_rng(0).random((30, 30)) / 40
    np.testing.assert_allclose(resolvent(steps), np.linalg.inv(np.eye(30) - steps), atol=1e-12)


def test_entries_by_node() -> None:
    ptr, ids = np.array([0, 2, 2, 5]), np.array([3, 0, 0, 1, 3], dtype=np.int32)
    values = np.array([0.5, 0.4, 0.3, 0.2, 0.1], dtype=np.float32)
    row_ptr, row_vector, row_value = by_node(4, ptr, ids, values)
    assert row_ptr.tolist() == [0, 2, 3, 3, 5]
    assert row_vector.tolist() == [0, 2, 2, 0, 2]
    np.testing.assert_allclose(row_value, [0.4, 0.3, 0.2, 0.5, 0.1])


@settings(deadline=None)  # the first example compiles
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), unique_by=lambda entry: entry[1]))
def test_ties_are_sorted_as_lexsort_does(entries: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in entries], dtype=np.float64)
    ids = np.array([node for _, node in entries], dtype=np.int32)
    expected = ids[np.lexsort((ids, -values))]
    order = np.argsort(-values)
    found, sorted_values = ids[order], values[order]
    sort_ties(sorted_values, found)
    assert found.tolist() == expected.tolist()
