"""Transforms for PyG: token lists and the best nodes by personalized PageRank, as tensors in a `Data`.

Import it by name, `from vcr_graphormer import pyg`: nothing else in this package loads PyG.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import scatter

from .data.graph import Graph
from .errors import GraphError
from .ranking.connections import structure_connections
from .ranking.pagerank import rank
from .ranking.ranker import Ranking, lists_to_edges
from .tokens.config import TokenConfig
from .tokens.lists import TokenLists, make_lists


def top_ppr(
    edge_index: Tensor,
    alpha: float = 0.2,
    target: Tensor | None = None,
    num_nodes: int | None = None,
    *,
    k: int = 32,
    **how: Any,
) -> tuple[Tensor, Tensor]:
    """Return the k best nodes by personalized PageRank of all or some nodes, as PyG's `get_ppr` returns them.

    It takes the place of `get_ppr` where only the best nodes are wanted. Edges go both ways, unless `directed`. The
    node itself is not listed. Our `restart` is called `alpha` here, as there.

    Parameters
    ----------
    k
        Nodes per list, instead of `eps`.
    **how
        `directed`; `tolerance`, `seed`, `partitioner`, `budget` and `threads` as in `rank`.

    Returns
    -------
    tuple
        Pairs [2, e] of a node and a node of its list, best first, and the scores [e].
    """
    graph = Graph.from_edges(edge_index, num_nodes, directed=how.pop("directed", False))
    ranking = rank(graph, None, k, restart=alpha, sources=None if target is None else target.cpu().numpy(), **how)
    (listed, source), score = ranking.to_edge_index()
    device = edge_index.device
    return torch.from_numpy(np.stack([source, listed])).to(device), torch.from_numpy(score).to(device)


class AddTopPPR(BaseTransform):  # type: ignore[misc] # PyG has no types
    """Add the k best nodes of every node by personalized PageRank.

    Adds `ppr_ids` [n, k] (-1: padding), `ppr_scores` [n, k], `ppr_edge_index` [2, e] from listed nodes to the node, and
    `ppr_edge_weight` [e]. With `replace`, these edges become `edge_index` and `edge_weight`, as GDC does it.

    Parameters
    ----------
    k
        Nodes per list.
    restart
        Probability that a walk returns to its node in each step; GDC's alpha.
    clusters
        Walks may also pass through this many super nodes, one per cluster; 0: the graph as it is.
    replace
        Whether the new edges replace the old ones.
    normalize
        Whether the weights of all edges into a node sum to 1. Otherwise they are scores.
    **how
        `directed`; `tolerance`, `seed`, `partitioner`, `budget` and `threads` as in `rank`.
    """

    def __init__(
        self,
        k: int = 32,
        restart: float = 0.15,
        *,
        clusters: int = 0,
        replace: bool = False,
        normalize: bool = True,
        **how: Any,
    ) -> None:
        self.k, self.restart, self.clusters = k, restart, clusters
        self.replace, self.normalize, self.how = replace, normalize, how

    def forward(self, data: Data) -> Data:
        """Return the data with the lists; `transform(data)` calls this with a copy."""
        how = dict(self.how)
        graph = Graph.from_pyg(data, features=None, labels=None, directed=how.pop("directed", False), **_weights(data))
        parts = {"seed": how.get("seed", 0), "partitioner": how.get("partitioner", "metis")}
        connections = structure_connections(graph, self.clusters, **parts) if self.clusters else None
        ranking: Ranking = rank(graph, connections, self.k, restart=self.restart, **how)
        edge_index, weight = _to_tensors(ranking.to_edge_index(), data.edge_index.device)
        if self.normalize:
            total = scatter(weight, edge_index[1], dim=0, dim_size=graph.num_nodes, reduce="sum")
            weight = weight / total[edge_index[1]].clamp(min=torch.finfo(weight.dtype).tiny)
        data.ppr_ids, data.ppr_scores = _to_tensors((ranking.ids.astype(np.int64), ranking.scores), edge_index.device)
        data.ppr_edge_index, data.ppr_edge_weight = edge_index, weight
        if self.replace:
            data.edge_index, data.edge_weight = edge_index, weight
            if data.edge_attr is not None:
                data.edge_attr = None  # its rows are the old edges
        return data

    def __repr__(self) -> str:
        return f"AddTopPPR(k={self.k}, restart={self.restart}, clusters={self.clusters}, replace={self.replace})"


class AddTokens(BaseTransform):  # type: ignore[misc]
    """Add the token list of every node.

    Adds `token_ids` [n, k] (-1: padding) and `token_scores` [n, k], all kinds of neighbours side by side; `token_kinds`
    [k], the kind of each column as a number; `hop_features` [n, L, d]; `token_edge_index` [2, e] from tokens to the
    node, and `token_edge_weight` [e]. `token_names` has the names of the kinds.

    Parameters
    ----------
    config
        The settings of a token list; numbers that are not given are chosen for the graph.
    train
        Attribute with the mask or the ids of training nodes. Their labels, and no others, make content neighbours.
        None, or a `Data` without that attribute: content neighbours share features.
    hops
        Whether to add `hop_features`, which are as large as L times the features.
    threads
        Default: all cores.
    """

    def __init__(
        self,
        config: TokenConfig | None = None,
        train: str | None = "train_mask",
        *,
        hops: bool = True,
        threads: int | None = None,
    ) -> None:
        self.config, self.train, self.hops, self.threads = config, train, hops, threads

    def forward(self, data: Data) -> Data:
        """Return the data with the tokens; `transform(data)` calls this with a copy."""
        graph = Graph.from_pyg(data, **_weights(data))
        lists = make_lists(graph, self._train(data), self.config, threads=self.threads)
        counts = {kind: count for kind, count in lists.layout.counts.items() if count}
        empty = np.empty((graph.num_nodes, 0), np.float32)
        ids = np.concatenate([empty.astype(np.int32), *(np.asarray(lists.ids(kind)) for kind in counts)], axis=1)
        scores = np.concatenate([empty, *(np.asarray(lists.scores(kind), np.float32) for kind in counts)], axis=1)
        device = data.edge_index.device
        data.token_ids, data.token_scores = _to_tensors((ids.astype(np.int64), scores), device)
        data.token_kinds = torch.from_numpy(np.repeat(np.arange(len(counts)), list(counts.values()))).to(device)
        data.token_names = list(counts)
        edges = lists_to_edges(ids, scores, np.arange(graph.num_nodes))
        data.token_edge_index, data.token_edge_weight = _to_tensors(edges, device)
        if self.hops and lists.num_hops:
            data.hop_features = torch.from_numpy(_dense_hops(lists)).to(device)
        return data

    def _train(self, data: Data) -> NDArray[np.int64] | None:
        """Return the ids of training nodes, if the data names any."""
        value = None if self.train is None else getattr(data, self.train, None)
        if value is None:
            return None
        nodes: NDArray[Any] = value.cpu().numpy()
        if nodes.ndim != 1:
            raise GraphError(f"{self.train} has shape {list(nodes.shape)}: choose one column of it")
        return np.flatnonzero(nodes) if nodes.dtype == np.bool_ else nodes.astype(np.int64)

    def __repr__(self) -> str:
        return f"AddTokens({self.config or TokenConfig()})"


def _weights(data: Data) -> dict[str, Any]:
    """Return the weights of a `Data` as keywords; attributes of edges that are no weights are not used."""
    return {"edge_weight": getattr(data, "edge_weight", None)}


def _to_tensors(arrays: tuple[NDArray[Any], NDArray[Any]], device: torch.device) -> tuple[Tensor, Tensor]:
    first, second = (torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays)
    return first, second


def _dense_hops(lists: TokenLists) -> NDArray[np.float32]:
    """Return the features of all hops, [n, L, d]."""
    hops: list[Any] = [lists.hop(number) for number in range(1, lists.num_hops + 1)]
    dense = [hop if isinstance(hop, np.ndarray) else hop.toarray() for hop in hops]
    return np.stack(dense, axis=1).astype(np.float32, copy=False)
