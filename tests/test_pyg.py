"""`vcr_graphormer.pyg`: transforms that put rankings and token lists into a `Data`."""

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import ppr

import vcr_graphormer as vcr
from tests.support.graphs import karate_club, two_components
from vcr_graphormer import exact_pagerank, generate
from vcr_graphormer.pyg import AddTokens, AddTopPPR, top_ppr

ONLY: dict[str, Any] = {"link_tokens": 0, "nearest_tokens": 0}


@pytest.fixture
def data() -> Data:
    graph = generate(nodes=60, edges=200, classes=3, features=5, seed=0)
    data = graph.to_pyg()
    data.train_mask = torch.arange(60) < 30
    return data


def test_edges_of_a_ranking() -> None:
    ranking = vcr.rank(two_components(), k=2)
    edge_index, weight = ranking.to_edge_index()
    assert edge_index.dtype == np.int64 and weight.dtype == np.float32
    assert sorted(edge_index.T.tolist()) == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1], [3, 4], [4, 3]]
    assert (weight > 0).all()


def test_top_ppr_is_the_beginning_of_get_ppr(monkeypatch: pytest.MonkeyPatch) -> None:
    # As it is written, without the 20 seconds that its compilation takes.
    monkeypatch.setattr(ppr, "_get_ppr_numba", ppr._get_ppr)
    edge_index, target = karate_club().to_pyg().edge_index, torch.tensor([11, 33])
    pairs, scores = top_ppr(edge_index, 0.2, target, 34, k=5)
    all_pairs, all_scores = ppr.get_ppr(edge_index, alpha=0.2, eps=1e-5, target=target, num_nodes=34)
    dense = torch.zeros(34, 34).index_put(tuple(all_pairs), all_scores.float()).fill_diagonal_(0)
    best = dense[target].topk(5)
    assert pairs[0].tolist() == [11] * 5 + [33] * 5
    np.testing.assert_allclose(scores.reshape(2, 5), best.values, rtol=0.02)
    np.testing.assert_allclose(dense[pairs[0], pairs[1]].reshape(2, 5), best.values, rtol=0.02)


def test_top_ppr_of_some_nodes() -> None:
    edge_index = karate_club().to_pyg().edge_index
    pairs, scores = top_ppr(edge_index, 0.15, torch.tensor([33, 2]), k=3, threads=1)
    assert pairs[0].tolist() == [33, 33, 33, 2, 2, 2]
    exact = exact_pagerank(karate_club(), source=2, restart=0.15)
    np.testing.assert_allclose(scores[3:], exact[pairs[1, 3:]], rtol=0.02)
    one_way, _ = top_ppr(torch.tensor([[0, 1], [1, 2]]), k=2, directed=True)
    assert sorted(one_way.T.tolist()) == [[0, 1], [0, 2], [1, 2]]


def test_add_top_ppr(data: Data) -> None:
    changed = AddTopPPR(k=4)(data)
    assert changed.ppr_ids.shape == changed.ppr_scores.shape == (60, 4)
    ranking = vcr.rank(vcr.Graph.from_pyg(data), k=4)
    np.testing.assert_array_equal(changed.ppr_ids, ranking.ids)
    np.testing.assert_array_equal(changed.ppr_edge_index, ranking.to_edge_index()[0])
    into = torch.zeros(60).index_add(0, changed.ppr_edge_index[1], changed.ppr_edge_weight)
    np.testing.assert_allclose(into, vcr.Graph.from_pyg(data).degrees > 0, rtol=1e-5)  # one node has no edges
    assert "ppr_ids" not in data  # PyG's transforms work on a copy
    assert torch.equal(changed.edge_index, data.edge_index)


def test_sparsify(data: Data) -> None:
    data.edge_attr = torch.ones(data.edge_index.shape[1], 2)
    sparse = AddTopPPR(k=3, clusters=2, replace=True, normalize=False, threads=1)(data)
    assert torch.equal(sparse.edge_index, sparse.ppr_edge_index) and torch.equal(
        sparse.edge_weight, sparse.ppr_edge_weight
    )
    assert sparse.edge_attr is None
    assert sparse.edge_weight.max() < 1
    assert repr(AddTopPPR(3)) == "AddTopPPR(k=3, restart=0.15, clusters=0, replace=False)"


def test_add_tokens(data: Data) -> None:
    config = vcr.TokenConfig(hops=2, clusters=2, structure_tokens=3, content_tokens=2, **ONLY)
    changed = AddTokens(config)(data)
    lists = vcr.make_lists(vcr.Graph.from_pyg(data), np.arange(30), config)
    np.testing.assert_array_equal(changed.token_ids, lists.neighbours(np.arange(60)))
    np.testing.assert_array_equal(changed.token_scores[:, :3], lists.scores("structure"))
    assert changed.token_kinds.tolist() == [0, 0, 0, 1, 1] and changed.token_names == ["structure", "content"]
    np.testing.assert_array_equal(changed.hop_features[:, 1], lists.hop(2))
    assert changed.token_edge_index.shape[1] == int((changed.token_ids >= 0).sum())
    listed = changed.token_ids[7][changed.token_ids[7] >= 0]
    assert changed.token_edge_index[0, changed.token_edge_index[1] == 7].tolist() == listed.tolist()


def test_content_follows_the_training_nodes(data: Data) -> None:
    config = vcr.TokenConfig(hops=0, clusters=0, structure_tokens=0, content_tokens=3, **ONLY)
    by_label = AddTokens(config, hops=False)(data)
    data.nodes = torch.arange(30)
    assert torch.equal(AddTokens(config, "nodes")(data).token_ids, by_label.token_ids)
    by_features = AddTokens(config, train=None)(data)
    assert not torch.equal(by_features.token_ids, by_label.token_ids)
    assert by_label.token_names == ["content"] and "hop_features" not in by_label
    data.train_mask = data.train_mask[:, None]
    with pytest.raises(vcr.GraphError, match=r"train_mask has shape \[60, 1\]: choose one column"):
        AddTokens(config)(data)
    assert "content_tokens=3" in repr(AddTokens(config))
