"""Graphs of scipy, PyG and networkx become ours."""

from types import SimpleNamespace
from typing import Any

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
    with pytest.warns(UserWarning, match=r"edge_attr \[1, 1\] is not used; to take a column of it as weights pass"):
        assert Graph.from_pyg(data).weights is None
    assert Graph.from_pyg(data, edge_weight=None).weights is None
    named = Graph.from_pyg(data, edge_weight="edge_attr:0").weights
    assert named is not None
    assert named.tolist() == [1.0, 1.0]
    with pytest.raises(GraphError, match="edge_weight is 'edge_attr:1', but edge_attr has columns 0 to 0"):
        Graph.from_pyg(data, edge_weight="edge_attr:1")
    with pytest.raises(GraphError, match="data has no attribute 'amount'"):
        Graph.from_pyg(data, edge_weight="amount")
    assert Graph.from_pyg(data, edge_weight=data.edge_attr).weights is not None
    with pytest.raises(GraphError, match="data has no edge_index"):
        Graph.from_pyg(Data(num_nodes=2))


def test_text_ids_and_text_labels() -> None:
    edges = [["bob", "eve", "eve"], ["ann", "bob", "bob"]]
    graph = Graph.from_edges(edges, labels=["spy", "friend", ""])
    assert graph.names is not None
    assert graph.labels is not None
    assert (graph.names.tolist(), rows(graph)) == (["bob", "eve", "ann"], [[1, 2], [0], [0]])
    assert (graph.class_names, graph.labels.tolist()) == (("friend", "spy"), [1, 0, -1])
    ordered = Graph.from_edges(np.array(edges), names=["ann", "bob", "eve", "zoe"], labels=["a", "b", None, "b"])
    assert ordered.labels is not None
    assert (ordered.num_nodes, rows(ordered), ordered.labels.tolist()) == (4, [[1], [0, 2], [1], []], [0, 1, -1, 1])
    given = Graph.from_edges(edges, labels=["b", "a", "b"], class_names=["b", "a", "c"])
    assert given.labels is not None
    assert (given.labels.tolist(), given.num_classes) == ([0, 1, 0], 3)
    with pytest.raises(GraphError, match="edge_index holds 'eve', which is not in names"):
        Graph.from_edges(edges, names=["ann", "bob"])
    with pytest.raises(GraphError, match="labels hold 'b', which is not in class_names: a"):
        Graph.from_edges(edges, labels=["a", "b", "a"], class_names=["a"])
    with pytest.raises(GraphError, match="features has 4 rows but the graph has 3 nodes"):
        Graph.from_edges(edges, features=np.ones((4, 1)))


def test_edge_attributes_of_networkx_are_not_dropped_in_silence() -> None:
    source = networkx.Graph()
    source.add_edge("ann", "bob", amount=2.5, colour="red")
    with pytest.warns(UserWarning, match="^edge attributes are not used: amount, colour; .* pass weight='amount'"):
        assert Graph.from_networkx(source).weights is None
    assert Graph.from_networkx(source, weight=None).weights is None
    named = Graph.from_networkx(source, weight="amount").weights
    assert named is not None
    assert named.tolist() == [2.5, 2.5]


def test_text_labels_of_networkx() -> None:
    source = networkx.path_graph(["ann", "bob", "eve"])
    for node, job in zip(source, ("spy", "friend", "spy"), strict=True):
        source.nodes[node]["job"] = job
    graph = Graph.from_networkx(source, labels="job")
    assert graph.labels is not None
    assert (graph.class_names, graph.labels.tolist()) == (("friend", "spy"), [1, 0, 1])


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


@pytest.mark.parametrize(
    ("column", "shape", "message"),
    [
        ("²", (2, 3), "edge_weight is 'edge_attr:²', but edge_attr has columns 0 to 2"),
        ("9" * 5000, (2, 3), "but edge_attr has columns 0 to 2"),
        ("0", (), r"edge_weight is 'edge_attr:0', but edge_attr has shape \[\]; it must be \[m, d\]"),
        ("0", (2, 3, 4), r"edge_attr has shape \[2, 3, 4\]; it must be \[m, d\]"),
        ("0", (0, 3), r"edge_weight has shape \[0\] but there are 2 edges"),
    ],
)
def test_columns_of_edges_that_are_none(column: str, shape: tuple[int, ...], message: str) -> None:
    data = SimpleNamespace(edge_index=np.array([[0, 1], [1, 2]]), num_nodes=3, edge_attr=np.ones(shape))
    with pytest.raises(GraphError, match=message):
        Graph.from_pyg(data, edge_weight=f"edge_attr:{column}")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"categories": [1]}, "categories names the column 1; columns are named by texts"),
        ({"categories": [["x"]]}, r"categories names the column \['x'\]"),
        ({"drop": 5}, "drop is 5; it must be a list of columns"),
        ({"label": 1}, "label names the column 1"),
        ({"weight": 0}, "weight names the column 0"),
    ],
)
def test_columns_of_tables_are_named_by_texts(columns: dict[str, Any], message: str) -> None:
    nodes, edges = {"id": ["a", "b"], "x": ["u", "v"]}, {"source": ["a"], "target": ["b"]}
    fine: dict[str, Any] = {"categories": np.array(["x"]), "label": None}
    assert Graph.from_frames(nodes, edges, **fine).num_features == 3  # two values, and one for others
    with pytest.raises(GraphError, match=message):
        Graph.from_frames(nodes, edges, **columns)
