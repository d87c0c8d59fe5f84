"""Single files: sparse matrices of every format, archives that do not fit together, odd numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from vcr_graphormer import Graph, GraphError, StoreError
from vcr_graphormer.data.readers.formats import read_features, read_scipy
from vcr_graphormer.data.readers.own import read_graph

DENSE = np.array([[0.0, 1.0, 0.0], [2.0, 3.0, 0.0], [0.0, 0.0, 4.0]])


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_matrices_of_every_format(tmp_path: Path, form: str) -> None:
    file = tmp_path / "features.npz"
    sp.save_npz(file, sp.csr_matrix(DENSE).asformat(form))
    np.testing.assert_array_equal(read_scipy(file).toarray(), DENSE)
    features = read_features(file)[1]
    np.testing.assert_array_equal(sp.csr_matrix(features).toarray(), DENSE)
    directed = read_graph(file, directed=True)
    np.testing.assert_array_equal(directed.to_scipy().toarray(), DENSE - np.diag(np.diag(DENSE)))


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"edge_index": [[0], [1]], "num_nodes": [2, 3]}, GraphError, "num_nodes has shape"),
        ({"edge_index": [[0], [1]], "num_nodes": 2.7}, GraphError, "num_nodes.* is 2.7; it must be a whole number"),
        ({"adj_data": [1.0]}, StoreError, "adj_data, _indices, _indptr and _shape do not fit together"),
        ({"edge_index": [[0], [1]], "attr_data": [1.0]}, StoreError, "attr_data, _indices"),
        (
            {"adj_data": [1.0], "adj_indices": [7], "adj_indptr": [0, 1], "adj_shape": [1, 1]},
            GraphError,
            r"adj_\* is not a sound sparse matrix",
        ),
    ],
)
def test_archives_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], error: type[Exception], message: str) -> None:
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(error, match=message):
        read_graph(tmp_path / "graph.npz")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[0.0, np.nan], [1.0, 2.0], [1.0, 2.0]]), "is nan; it must be a whole number"),
        (np.array([[0.0, np.inf], [1.0, 2.0], [1.0, 2.0]]), "is inf"),
        (np.array(5), r"edges have shape \[\]"),
        (np.array([[0, 2**63], [1, 2], [3, 4]], dtype=np.uint64), "too large"),
    ],
)
def test_odd_numbers_in_npy(tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "edges.npy", array)
    with pytest.raises(GraphError, match=message):
        read_graph(tmp_path / "edges.npy")


def test_saved_sparse_graph_is_checked_too(tmp_path: Path) -> None:
    folder = Graph.from_edges([[0], [1]], features=sp.identity(2)).save(tmp_path / "graph")
    assert Graph.open(folder).num_features == 2
