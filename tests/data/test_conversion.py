"""Graphs of scipy, PyG and networkx become ours."""

import networkx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data

from tests.data.test_graph import rows
from vcr_graphormer import Graph, GraphError


def test_from_pyg_reads_weights_and_refuses_other_data() -> None:
    index = torch.tensor([[0], [1]])
    weighted = Graph.from_pyg(Data(edge_index=index, edge_weight=torch.tensor([2.0]), num_nodes=2))
    assert weighted.weights is not None
    assert weighted.weights.tolist() == [2.0, 2.0]
    # An edge attribute may be a category: it is a weight only if one says so.
    data = Data(edge_index=index, edge_attr=torch.ones(1, 1), num_nodes=2)
    assert Graph.from_pyg(data).weights is None
    assert Graph.from_pyg(data, edge_weight=data.edge_attr).weights is not None
    with pytest.raises(GraphError, match="data has no edge_index"):
        Graph.from_pyg(Data(num_nodes=2))


def test_from_scipy() -> None:
    matrix = sp.csr_matrix(([1.0, 0.0, 1.0], ([0, 1, 2], [1, 2, 2])), shape=(3, 3))
    graph = Graph.from_scipy(matrix)
    assert (rows(graph), graph.weights) == ([[1], [0], []], None)
    weighted = Graph.from_scipy(sp.csr_matrix([[0, 3], [0, 0]]), directed=True)
    assert weighted.weights is not None
    assert weighted.weights.tolist() == [3.0]
    assert (weighted.to_scipy() != sp.csr_matrix([[0, 3], [0, 0]])).nnz == 0
    with pytest.raises(GraphError, match=r"adjacency has shape \[2, 3\]; it must be square"):
        Graph.from_scipy(sp.csr_matrix((2, 3)))
    with pytest.raises(GraphError, match="from_scipy takes a scipy sparse matrix"):
        Graph.from_scipy(np.eye(2))


def test_from_networkx() -> None:
    source = networkx.Graph()
    source.add_node("ann", x=[1.0, 0.0], y=0)
    source.add_node("bob", x=[0.0, 1.0], y=1)
    source.add_node("eve", x=[0.0, 0.0], y=1)
    source.add_edge("eve", "ann", weight=2.0)
    graph = Graph.from_networkx(source, features="x", labels="y")
    assert graph.names is not None
    assert graph.weights is not None
    assert graph.labels is not None
    assert (rows(graph), graph.names.tolist()) == ([[2], [], [0]], ["ann", "bob", "eve"])
    assert (graph.weights.tolist(), graph.labels.tolist(), graph.num_features) == ([2.0, 2.0], [0, 1, 1], 2)
    source.add_edge("ann", "bob")
    with pytest.raises(GraphError, match="1 of 2 edges have no attribute 'weight'"):
        Graph.from_networkx(source)
    assert Graph.from_networkx(source, weight=None).weights is None
    with pytest.raises(GraphError, match="node 'ann' has no attribute 'z' \\(3 nodes lack it\\)"):
        Graph.from_networkx(source, features="z", weight=None)


def test_undirected_networkx_edges_go_both_ways() -> None:
    assert rows(Graph.from_networkx(networkx.path_graph(3), directed=True)) == [[1], [0, 2], [1]]
    assert rows(Graph.from_networkx(networkx.DiGraph([(0, 1), (1, 2)]), directed=True)) == [[1], [2], []]
    several = networkx.MultiGraph([(0, 1), (0, 1), (1, 1)])
    assert rows(Graph.from_networkx(several)) == [[1], [0]]


def test_other_objects_are_refused() -> None:
    with pytest.raises(GraphError, match="graph is a list; from_networkx takes a networkx graph"):
        Graph.from_networkx([1, 2])
    with pytest.raises(GraphError, match="the graph is empty"):
        Graph.from_networkx(networkx.Graph())
    with pytest.raises(GraphError, match="from_scipy takes the number of nodes"):
        Graph.from_scipy(sp.identity(3), num_nodes=3)
