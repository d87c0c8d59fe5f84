"""Token lists, hops and labels of known and new nodes, and the small `Inputs` that a few of them need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...base.checks import Array
from ...data.graph import Graph
from ...errors import ConfigError, GraphError
from ...model.batches import Inputs
from ...model.inputs import adjacency_rows, to_matrix
from ...model.labels import GRID, OFFSET, label_hops, label_matrix
from ...model.matrices import Matrix
from ...ranking.exact import super_edge_weight
from ...ranking.links import LinkRanker
from ...ranking.live import Addition, LiveGraph, Undo
from ...ranking.live_rankers import LiveLinks, LiveNearest, LivePageRank, join_neighbours, unit_row
from ...ranking.pagerank import Ranker
from ...tokens.distinct import leave_repeats_out, places_before
from ...tokens.growth import Rankers
from ...tokens.hops import normalized_adjacency, to_type
from ...tokens.kinds import Kind
from ...tokens.store import TokenStore
from ..run import Run
from .rows import Rows

# Labels around new nodes are exact if at most so many arcs are read for them. Beyond, labels around their neighbours
# are those of the graph of before.
MOST_ARCS = 1 << 18


@dataclass(frozen=True, eq=False)
class _KindRanker:
    """A kind of neighbours, and what ranks new nodes by it."""

    kind: Kind
    ranker: LivePageRank | LiveLinks | LiveNearest


class _Means:
    """The mean features of clusters, which new nodes join by."""

    def __init__(self, graph: Graph, assignment: NDArray[np.int32]) -> None:
        members, count = np.flatnonzero(assignment >= 0), int(assignment.max(initial=-1)) + 1
        ones = np.ones(len(members))
        sums = sp.csr_matrix((ones, (assignment[members], members)), shape=(count, graph.num_nodes)) @ graph.features
        self.sums = np.asarray(sums.todense() if sp.issparse(sums) else sums, dtype=np.float64)
        self.counts = np.bincount(assignment[members], minlength=count).astype(np.float64)

    def join(self, features: Any, undo: Undo) -> NDArray[np.int32]:
        """Return the cluster with the nearest mean for each row, which then counts as a member."""
        means = self.sums / np.maximum(self.counts, 1)[:, None]
        product = np.asarray(features @ means.T)
        nearest: NDArray[np.int32] = (np.square(means).sum(axis=1) - 2 * product).argmin(axis=1).astype(np.int32)
        for row, cluster in enumerate(nearest.tolist()):
            values = features[row]
            values = values.toarray()[0] if sp.issparse(values) else values
            undo.write(self.sums, cluster, self.sums[cluster] + values)
            undo.write(self.counts, cluster, self.counts[cluster] + 1)
        return nearest


class LiveTokens:
    """What the model reads of any node: from the store for the nodes of the run, in memory for new ones.

    Rows of older nodes stay as they are when nodes are added, as with `update(…, refresh="new")`.

    Attributes
    ----------
    num_nodes : int
        Nodes now, new ones included.
    refusal : str or None
        Why this run cannot take new nodes; None if it can.
    """

    def __init__(self, run: Run, threads: int | None = None) -> None:
        self.run, self.model = run, run.config.model
        graph, store = run.graph, run.store
        self.num_nodes, self.layout = graph.num_nodes, store.layout
        self.features = Rows(graph.features)
        self.hops = [Rows(store.hop(number)) for number in range(1, store.num_hops + 1)]
        self.lists = {name: Rows(array) for name, array in store.arrays.items() if not name.startswith("hop_")}
        self.adjacency = Rows(adjacency_rows(graph)) if self.model.adjacency_rows else None
        self._read_labels()
        self._kinds: dict[str, _KindRanker] = {}
        self._undo = Undo()
        self._addition: Addition | None = None
        self.refusal = self._prepare(threads)

    def _read_labels(self) -> None:
        """Make label rows Y, labels around each node, and P^l Y, which new nodes are computed from."""
        graph, model, loops = self.run.graph, self.model, self.run.store.settings.self_loops
        self.labels = self.label_hops = None
        self.around: list[Rows] = []
        self.step: Any = None
        if not (model.label_embedding or model.label_hops or model.rich_labels):
            return
        labels = label_matrix(graph, self.run.split.train)
        self.labels = Rows(labels)
        if model.label_hops:
            hops = label_hops(graph, labels, model.label_hops, self_loops=loops)
            self.label_hops = Rows(np.stack(hops, axis=1))
        step, current = normalized_adjacency(graph, loops), labels.astype(np.float64)
        for _ in range(max(model.label_hops - 1, int(model.rich_labels))):
            current = step.astype(np.float64) @ current
            self.around.append(Rows(current))
        self.step = step if model.rich_labels else None

    def _prepare(self, threads: int | None) -> str | None:
        """Prepare the rankers; return why there can be no new nodes, if so."""
        run, graph = self.run, self.run.graph
        if self.model.adjacency_rows:
            return "the model knows nodes by their links (adjacency_rows): it cannot read new nodes"
        if run.preparation.made == "identity":
            return "the features of a node are its number (identity): the model cannot read new nodes"
        kept = Rankers(TokenStore.open(run.tokens_folder), graph, threads)
        try:
            kinds = kept.kinds
        except ConfigError as error:
            return str(error)
        self.live = LiveGraph(graph, super_edge_weight(graph))
        self.means: _Means | None = None
        for kind in kinds:
            ranker = kept.open(kind)
            if isinstance(ranker, Ranker):
                self._kinds[kind.name] = _KindRanker(kind, LivePageRank(ranker, graph, self.live))
            elif isinstance(ranker, LinkRanker):
                self._kinds[kind.name] = _KindRanker(kind, LiveLinks(ranker, self.live))
            else:
                self._kinds[kind.name] = _KindRanker(kind, LiveNearest(ranker))
            if kind.name == "content" and run.store.settings.content == "features":
                self.means = _Means(graph, np.asarray(run.store.assignment(kind.name)))
        return None

    def prepare_features(self, values: Any, addition: Addition) -> Any:
        """Return features of new nodes as the model reads them; made from degrees where the data has none."""
        graph, count = self.run.graph, addition.count
        if self.run.original.features is None:
            degrees = np.bincount(addition.source, minlength=addition.first + count)[addition.first :]
            bucket = np.minimum(np.log2(degrees + 1).astype(np.int64), graph.num_features - 2)
            one_hot = np.eye(graph.num_features - 1, dtype=np.float32)[bucket]
            return np.column_stack([np.log1p(degrees).astype(np.float32), one_hot])
        about: dict[str, Any] = {"feature_names": self.run.original.feature_names, "schema": self.run.original.schema}
        empty = Graph(np.zeros(count + 1, dtype=np.int64), np.empty(0, dtype=np.int32), features=values, **about)
        prepared: Any = self.run.preparation.apply(empty).features
        return prepared

    def add(self, addition: Addition, features: Any) -> None:
        """Add new nodes, with features as the model reads them. Call `keep` or `drop` before the next addition."""
        if self.refusal is not None:
            raise GraphError(self.refusal)
        undo = self._undo = Undo()
        self._addition = addition
        try:
            self.live.add(addition, undo)
            self.num_nodes += addition.count
            self.features.extend(features)
            self._add_hops(addition)
            self._add_labels(addition)
            self._add_lists(addition, features, undo)
        except BaseException:
            self.drop()
            raise

    def keep(self) -> None:
        """Make the last addition lasting."""
        for item in self._kinds.values():
            if not isinstance(item.ranker, LiveNearest):
                item.ranker.keep()
        self._addition = None

    def drop(self) -> None:
        """Take the last addition back."""
        addition = self._addition
        if addition is None:
            return
        self._undo.back()
        self.live.drop(addition)
        for rows in self._all_rows():
            rows.drop(max(0, len(rows) - addition.first))
        for item in self._kinds.values():
            if isinstance(item.ranker, LiveNearest):
                item.ranker.drop(max(0, item.ranker.num_nodes - addition.first))
        self.num_nodes, self._addition = addition.first, None

    def _all_rows(self) -> list[Rows]:
        labels = [rows for rows in (self.labels, self.label_hops) if rows is not None]
        return [self.features, *self.hops, *self.lists.values(), *labels, *self.around]

    def _steps(self, nodes: NDArray[np.int64]) -> tuple[sp.csr_matrix, NDArray[np.int64]]:
        """Return the rows of P of some nodes with only the columns that are not zero, and the nodes of these."""
        loops = self.run.store.settings.self_loops
        owner, target, weight = self.live.rows.take(nodes)
        if loops:
            owner, target = np.concatenate([owner, np.arange(len(nodes))]), np.concatenate([target, nodes])
            weight = np.concatenate([weight, np.ones(len(nodes), dtype=np.float32)])
        left, right = _inverse_root(self.live.out[nodes] + loops), _inverse_root(self.live.into[target] + loops)
        needed, column = np.unique(target, return_inverse=True)
        data = (weight * left[owner] * right).astype(np.float32)
        return sp.csr_matrix((data, (owner, column)), shape=(len(nodes), len(needed))), needed

    def _add_hops(self, addition: Addition) -> None:
        """Compute the hops of new nodes from the rows of their neighbours."""
        if not self.hops:
            return
        step, needed = self._steps(addition.nodes)
        current = self.features
        for rows in self.hops:
            taken = current.take(needed)
            product: Any = step @ (taken if sp.issparse(taken) else np.asarray(taken, dtype=np.float32))
            if not rows.is_sparse:
                dense = product.toarray() if sp.issparse(product) else product
                product = to_type(dense, self.run.store.settings.hop_type)
            rows.extend(product)
            current = rows

    def _add_labels(self, addition: Addition) -> None:
        """Give new nodes no labels of their own, and compute those around them."""
        if self.labels is None:
            return
        self.labels.extend(np.zeros((addition.count, self.labels.old.shape[1])))
        hops = []
        for hop in range(1, max(self.model.label_hops, len(self.around)) + 1):
            rows = self._label_rows(addition.nodes, hop)
            if hop <= len(self.around):
                self.around[hop - 1].extend(rows)
            hops.append((np.round(rows / GRID + OFFSET) * GRID + 0.0).astype(np.float32))
        if self.label_hops is not None:
            self.label_hops.extend(np.stack(hops[: self.model.label_hops], axis=1))

    def _label_rows(self, nodes: NDArray[np.int64], hop: int) -> NDArray[np.float64]:
        """Return rows of P^hop Y on the graph of now, unless that would read too many arcs."""
        assert self.labels is not None  # its only caller has looked
        if not hop:
            return np.asarray(self.labels.take(nodes), dtype=np.float64)
        is_there = hop <= len(self.around) and len(self.around[hop - 1]) == self.num_nodes
        if is_there and int(self.live.rows.counts(nodes).sum()) > MOST_ARCS:
            return np.asarray(self.around[hop - 1].take(nodes), dtype=np.float64)
        step, needed = self._steps(nodes)
        return np.asarray(step.astype(np.float64) @ self._label_rows(needed, hop - 1))

    def _add_lists(self, addition: Addition, features: Any, undo: Undo) -> None:
        """Rank the new nodes by every kind, as `tokens.growth.Update.lists` does."""
        settings, counts, nodes = self.run.store.settings, dict(self.layout.counts), addition.nodes
        before, earlier = places_before(counts, settings), list[Array]()
        nothing = np.full(len(nodes), -1, dtype=np.int32)
        joined = {name: self._join(name, addition, features, undo) for name in self._kinds}
        for name, count in counts.items():
            own: dict[str, Array] = {"ids": np.empty((len(nodes), 0), np.int32)}
            own["scores"] = np.empty((len(nodes), 0), np.float32)
            if count:
                item, more = self._kinds[name], before.get(name, 0)
                ids, scores = item.ranker.rank(nodes, count + more, **item.kind.effort(settings, more))
                own = {"ids": ids, "scores": scores}
                if more:
                    how: dict[str, Any] = {"count": count, "score_type": settings.score_type}
                    own = leave_repeats_out(ids, scores, earlier=np.concatenate(earlier, 1), **how)
            earlier.append(own["ids"])
            own["assignment"] = joined.get(name, nothing)
            for part, array in own.items():
                self.lists[f"{name}_{part}"].extend(array)

    def _join(self, name: str, addition: Addition, features: Any, undo: Undo) -> NDArray[np.int32]:
        """Add the new nodes to the ranker of a kind; return the super nodes that they join."""
        ranker, joined = self._kinds[name].ranker, np.full(addition.count, -1, dtype=np.int32)
        if isinstance(ranker, LivePageRank):
            if name == "structure":
                joined = join_neighbours(addition, ranker.assignment)
            elif self.means is not None:
                joined = self.means.join(features, undo)
            ranker.add(addition, joined, undo)
        elif isinstance(ranker, LiveLinks):
            ranker.add(addition, undo)
        else:
            ranker.add(self._unit_rows(addition, features, with_hop=ranker.with_hop))
        return joined

    def _unit_rows(self, addition: Addition, features: Any, *, with_hop: bool) -> list[NDArray[np.float32]]:
        """Return features of new nodes, with those of the next hop, as rows of unit length."""
        length = 0.5**0.5 if with_hop else 1.0
        parts = [_dense(features)]
        if with_hop:
            owner, target, weight = self.live.rows.take(addition.nodes)
            needed, column = np.unique(target, return_inverse=True)
            data = (weight / np.sqrt(self.live.into[target])).astype(np.float32)
            step = sp.csr_matrix((data, (owner, column)), shape=(addition.count, len(needed)))
            parts.append(_dense(step @ self.features.take(needed)))
        return [np.concatenate([unit_row(part[row], length) for part in parts]) for row in range(addition.count)]

    def inputs(self, targets: NDArray[np.int64], rows: int = 1) -> tuple[Inputs, NDArray[np.int64]]:
        """Return the `Inputs` of some nodes, which are its first rows, and the node of each of its rows.

        Parameters
        ----------
        rows
            The number of rows is a multiple of this; the last node is repeated.
        """
        kinds = list(self.layout.counts)
        ids = np.concatenate([self.lists[f"{kind}_ids"].take(targets) for kind in kinds], 1)
        scores = np.concatenate([self.lists[f"{kind}_scores"].take(targets) for kind in kinds], 1)
        others = np.setdiff1d(ids[ids >= 0], targets)
        nodes = np.concatenate([targets, others]).astype(np.int64)
        nodes = np.concatenate([nodes, np.repeat(nodes[-1:], -len(nodes) % rows)])
        order = np.argsort(nodes, kind="stable")
        place = order[np.minimum(np.searchsorted(nodes[order], ids), len(nodes) - 1)]
        compact = np.where(ids >= 0, place, -1)
        rich = self.model.rich_tokens
        hops = [self._matrix(hop, nodes if number < rich else targets) for number, hop in enumerate(self.hops)]
        shared = [self.lists.get(f"{kind}_shared") for kind in kinds[1:]]
        empty = np.empty((len(targets), 0), np.float32)
        inputs = Inputs(
            features=self._matrix(self.features, nodes),
            hops=tuple(hops),
            ids=(torch.from_numpy(compact),),
            scores=(torch.from_numpy(scores.astype(np.float32)),),
            layout=self.layout,
            device=torch.device("cpu"),
            rich_tokens=rich,
            label_hops=None if self.label_hops is None else torch.from_numpy(self.label_hops.take(targets)),
            labels=self._label_tensor(nodes) if self.model.label_embedding else None,
            rich_labels=self._rich_labels(targets, nodes, ids),
            adjacency=None if self.adjacency is None else self._matrix(self.adjacency, nodes),
            shared=tuple(torch.from_numpy(empty if part is None else part.take(targets)).float() for part in shared)
            if any(part is not None for part in shared)
            else (),
        )
        return inputs, nodes

    def _matrix(self, rows: Rows, nodes: NDArray[np.int64]) -> Matrix:
        return to_matrix(rows.take(nodes), torch.device("cpu"), dtype=None, dense=False)

    def _label_tensor(self, nodes: NDArray[np.int64]) -> Tensor:
        assert self.labels is not None  # the model reads labels, so `_read_labels` has made them
        return torch.from_numpy(np.ascontiguousarray(self.labels.take(nodes)))

    def _rich_labels(
        self, targets: NDArray[np.int64], nodes: NDArray[np.int64], ids: Array
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return labels around each row, how much of a neighbour's come from the target, and the labels themselves."""
        if not self.model.rich_labels:
            return None
        weights = np.zeros(ids.shape, np.float32)
        owner = np.broadcast_to(targets[:, None], ids.shape)
        old = self.run.graph.num_nodes
        shown = (ids >= 0) & (ids < old) & (owner < old)  # new nodes have no label of their own to be left out
        weights[shown] = np.asarray(self.step[ids[shown], owner[shown]]).ravel()
        around = torch.from_numpy(np.ascontiguousarray(self.around[0].take(nodes)))
        return around, torch.from_numpy(weights), self._label_tensor(nodes)


def _inverse_root(degree: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.where(degree > 0, 1.0 / np.sqrt(degree), 0.0)


def _dense(matrix: Any) -> NDArray[np.float32]:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float32)
