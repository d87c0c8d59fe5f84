"""`Scorer`: a run that stays open and scores known and new nodes, at a cost that does not grow with the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ...data.contract import build_adjacency
from ...data.graph import Graph
from ...data.tasks import TASKS
from ...errors import GraphError, StoreError, VCRError
from ...explain.attributions import attribute
from ...explain.explanation import Explanation, describe, find_output
from ...ranking.live import Addition
from ..predictions import Predictions, similar_names, text_to_id
from ..run import Run
from .journal import Journal
from .requests import NewGraph, Sizes, read_graph, shown
from .tokens import LiveTokens

# Nodes in one pass of the model. A batch is filled up to this with copies, so that no answer depends on the others.
BATCH = 16
ROWS = 64  # the rows of a batch are filled up to a multiple of this
MOST_VISITS = 1 << 18  # arcs followed to count the hops between an explained node and its neighbours
MOST_COMPARED = 10_000  # names that an unknown one is compared with for a hint; more take too long
_LONGEST_ID = 18  # digits
_ANY_SIZE = Sizes(1 << 62, 1 << 62, 1 << 62)  # what was kept once is read again, whatever the limits are today
Result = TypeVar("Result")


class Scorer:
    """A run that is open for questions about single nodes.

    Use it from one thread. Known nodes are predicted as `Run.predict` does. New nodes are given with their features and
    edges; they are forgotten after the answer, or kept. Nodes of before are answered as before, whatever is kept.

    Attributes
    ----------
    run : Run
        The run.
    kept : int
        Number of new nodes that are kept.
    """

    def __init__(self, run: Run, journal: Journal | None = None, *, sizes: Sizes | None = None) -> None:
        run.check_finished()
        self.run, self.sizes, self.kept = run, sizes or Sizes(), 0
        self.tokens = LiveTokens(run)
        names = run.graph.names
        self._id_of = {} if names is None else {name: node for node, name in enumerate(np.asarray(names).tolist())}
        self._new_names: list[str] = []
        self.journal: Journal | None = None
        self._warm_up()
        if journal is not None:
            try:
                self.replay(journal.records, same_graph=journal.fingerprint == run.about["fingerprint"])
            except VCRError as error:
                journal.close()
                raise StoreError(f"{journal.file} does not fit this run: {error}") from error
            self.journal = journal

    @classmethod
    def open(cls, path: str | Path, journal: str | Path | None = None, *, sizes: Sizes | None = None) -> Self:
        """Open a run folder, and replay the nodes that were kept in a journal.

        The first time, this prepares the rankers of the run, and keeps them in its token store.
        """
        run = Run.open(path, "cpu")
        kept = None if journal is None else Journal(Path(journal), run.about["fingerprint"])
        return cls(run, kept, sizes=sizes)

    def close(self) -> None:
        """Give the journal free for other processes."""
        if self.journal is not None:
            self.journal.close()

    def _warm_up(self) -> None:
        """Add a node and forget it: this compiles the loops and reads the model, so that no request has to wait."""
        ask: NDArray[np.int64] = np.zeros(min(1, self.num_nodes), dtype=np.int64)
        self._compute(ask, vectors=False)
        if self.tokens.refusal is None:
            first = self.num_nodes
            ends = np.array([0, first]), np.array([first, 0])
            addition = Addition(first, 1, *ends, np.ones(2, dtype=np.float32))
            self.tokens.add(addition, self.run.graph.features[:1])  # type: ignore[index]
            self._compute(np.array([first]), vectors=False)
            self.tokens.drop()

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes, kept ones included."""
        return self.tokens.num_nodes

    def name(self, node: int) -> str | int:
        """Return the name of a node, or its id if the graph has no names."""
        old = self.run.graph.num_nodes
        if node >= old:
            return self._new_names[node - old]
        return node if self.run.graph.names is None else str(self.run.graph.names[node])

    def find(self, nodes: Iterable[Any]) -> NDArray[np.int64]:
        """Return the ids of nodes from names or ids, as `predictions.find_nodes` does."""
        return np.array([self._find(node) for node in nodes], dtype=np.int64)

    def _find(self, node: Any) -> int:
        number = self._number(node)
        if 0 <= number < self.num_nodes:
            return number
        if number >= 0 or not isinstance(node, str):
            raise GraphError(f"there is no node {shown(node)}: the graph has nodes 0 to {self.num_nodes - 1}")
        if self.run.graph.names is None:
            raise GraphError(f"there is no node named {shown(node)}: the nodes have no names, give ids")
        hint = similar_names(node, list(self._id_of)) if len(self._id_of) <= MOST_COMPARED else ""
        raise GraphError(f"there is no node named {shown(node)}{hint}")

    def _number(self, node: Any) -> int:
        """Return the id that a name or id stands for, whether or not there is such a node; -1 for other texts."""
        if not isinstance(node, str):
            return int(node)
        found = self._id_of.get(node)
        if found is None:
            found = text_to_id(node) if len(node) <= _LONGEST_ID else -1
        return found

    def predict(self, nodes: Iterable[Any]) -> Predictions:
        """Return probabilities and predicted labels of known nodes, by name or id."""
        return self.outputs(self.find(nodes))

    def outputs(self, ids: NDArray[np.int64]) -> Predictions:
        """Return probabilities and predicted labels of node ids."""
        predicted = self.run.target.outputs(self._compute(ids, vectors=False))
        names = [str(self.name(node)) for node in ids.tolist()]
        has_names = self.run.graph.names is not None or bool(self._new_names)
        return Predictions(
            nodes=ids,
            probabilities=predicted,
            labels=self.run.target.task.decide(predicted),
            task=self.run.task,
            names=np.array(names) if has_names else None,
            class_names=self.run.graph.class_names,
        )

    def embed(self, nodes: Iterable[Any]) -> NDArray[np.float32]:
        """Return the vectors before the head of known nodes, by name or id."""
        return self._compute(self.find(nodes), vectors=True)

    def _compute(self, ids: NDArray[np.int64], *, vectors: bool) -> NDArray[np.float32]:
        """Return logits or vectors of nodes, in batches of one size: so a row does not depend on the others."""
        unique, inverse = np.unique(ids, return_inverse=True)
        model, results = self.run.model, []
        with torch.inference_mode():
            for start in range(0, len(unique), BATCH):
                part = unique[start : start + BATCH]
                inputs, _ = self.tokens.inputs(part, rows=ROWS)
                order = torch.arange(BATCH).clamp(max=len(part) - 1)
                batch = inputs.batch(order)
                if batch.mask is None:  # with and without a mask the last bits differ
                    batch = replace(batch, mask=torch.ones(batch.scores.shape, dtype=torch.bool))
                rows = model.represent(batch) if vectors else model(batch)
                results.append(rows[: len(part)].float().numpy())
        width = model.vector_width if vectors else model.num_outputs
        joined = np.concatenate(results) if results else np.empty((0, width), np.float32)
        self._check_finite(unique, joined)
        values: NDArray[np.float32] = joined[inverse]
        return values

    def _check_finite(self, nodes: NDArray[np.int64], outputs: NDArray[np.float32]) -> None:
        """Refuse to answer what is no number, as for a new node with a feature of 1e30."""
        wrong = nodes[~np.isfinite(outputs).all(axis=1)]
        if len(wrong):
            raise GraphError(
                f"the answer for {shown(self.name(int(wrong[0])))} is not a finite number: its features, or those of "
                f"its neighbours, are too large for the model"
            )

    def explain(self, node: Any, output: Any = None) -> Explanation:
        """Explain the prediction of one known node, by name or id, as `Run.explain` does."""
        run, graph = self.run, self.run.graph
        column = None if output is None else find_output(graph, run.about["num_outputs"], output)
        [target] = self.find([node])
        inputs, nodes = self.tokens.inputs(np.array([target]))
        first = np.zeros(1, dtype=np.int64)
        attributions = attribute(
            run.model, inputs, first, target=run.target, lists_at_once=run.lists_at_once, column=column
        )
        self._check_finite(np.array([target]), attributions.outputs)
        explanation = describe(self._small_graph(nodes), attributions, 0, self._training_rows(nodes), run.task)
        found = [int(nodes[token.node]) for token in explanation.tokens if token.node is not None]
        hops = {int(target): 0}
        if self.tokens.refusal is None:
            hops = self.tokens.live.distances(int(target), found, MOST_VISITS)
        tokens = [
            token
            if token.node is None
            else replace(token, node=int(nodes[token.node]), distance=hops.get(int(nodes[token.node])))
            for token in explanation.tokens
        ]
        return replace(explanation, node=int(target), tokens=tuple(tokens))

    def _small_graph(self, nodes: NDArray[np.int64]) -> Graph:
        """Return some nodes as a graph without edges: names and labels, which an explanation shows."""
        graph, old = self.run.graph, nodes < self.run.graph.num_nodes
        labels = None
        if graph.labels is not None:
            shape = (len(nodes), *graph.labels.shape[1:])
            labels = np.full(shape, TASKS[graph.task].unknown, dtype=graph.labels.dtype)
            labels[old] = np.asarray(graph.labels)[nodes[old]]
        names = None
        if graph.names is not None or self._new_names:
            names = np.array([str(self.name(node)) for node in nodes.tolist()])
        empty = np.zeros(len(nodes) + 1, dtype=np.int64), np.empty(0, dtype=np.int32)
        return Graph(*empty, labels=labels, names=names, class_names=graph.class_names, task=graph.task)

    def _training_rows(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.flatnonzero(np.isin(nodes, self.run.split.train))

    def with_new(self, new: NewGraph, ask: Callable[[], Result], *, keep: bool = False) -> Result:
        """Add new nodes, ask something, and forget the nodes again unless they are kept.

        Parameters
        ----------
        ask
            Called without arguments while the new nodes are there; if it raises an error, nothing is kept.
        keep
            Whether later questions may name these nodes. They are in the journal before this returns.
        """
        addition = self._place(new)
        self.tokens.add(addition, self.tokens.prepare_features(new.features, addition))
        try:
            for number, name in enumerate(new.names):
                self._id_of[name] = addition.first + number
            self._new_names.extend(new.names)
            result = ask()
            if keep:
                self._compute(addition.nodes, vectors=False)  # a node that has no answer would spoil those of others
                if self.journal is not None:
                    self.journal.append(new.record)
        except BaseException:
            self._forget(new)
            raise
        if keep:
            self.tokens.keep()
            self.kept += len(new.names)
        else:
            self._forget(new)
        return result

    def _forget(self, new: NewGraph) -> None:
        self.tokens.drop()
        for name in new.names:
            self._id_of.pop(name, None)
        del self._new_names[max(0, self.num_nodes - self.run.graph.num_nodes) :]

    def read(self, content: Any) -> NewGraph:
        """Read new nodes and edges from plain data, as the server takes it: `{"nodes": […], "edges": […]}`."""
        return read_graph(content, self.run.original, self.sizes)

    def predict_new(self, graph: Any, targets: Sequence[Any] | None = None, *, keep: bool = False) -> Predictions:
        """Predict new nodes, or other `targets` that may be known too.

        Parameters
        ----------
        graph
            The new nodes with features and edges: plain data, or what `read` made of it.
        keep
            Whether later calls may name these nodes.
        """
        new = graph if isinstance(graph, NewGraph) else self.read(graph)
        wanted = new.names if targets is None else targets
        return self.with_new(new, lambda: self.predict(wanted), keep=keep)

    def _place(self, new: NewGraph) -> Addition:
        """Return numbers and arcs of new nodes; refuse names that are taken and edges that have no new node."""
        graph, first = self.run.graph, self.num_nodes
        for name in new.names:
            if self._is_known(name):
                raise GraphError(f"{shown(name)} is in the graph already: give new nodes new names")
        own = {name: first + number for number, name in enumerate(new.names)}
        pairs = []
        for place, edge in enumerate(new.edges):
            try:
                ends = [own[end] if isinstance(end, str) and end in own else self._find(end) for end in edge]
            except GraphError as error:
                raise GraphError(f"graph.edges[{place}]: {error}") from error
            if max(ends) < first:
                raise GraphError(
                    f"graph.edges[{place}] links two nodes that are in the graph already: each edge needs a new node"
                )
            pairs.append(ends)
        weights = None if new.weights is None else np.array(new.weights, dtype=np.float32)
        if graph.weights is None and weights is not None:
            if (weights != 1).any():
                raise GraphError("the edges of the graph have no weights: leave weight out, or give 1")
            weights = None
        elif graph.weights is not None and weights is None:
            weights = np.ones(len(pairs), dtype=np.float32)
        edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        nodes = np.union1d(edges, np.arange(first, first + len(new.names)))
        indptr, indices, values = build_adjacency(np.searchsorted(nodes, edges), weights, len(nodes), graph.directed)
        source = nodes[np.repeat(np.arange(len(nodes)), np.diff(indptr))]
        values = np.ones(len(indices), dtype=np.float32) if values is None else values
        return Addition(first, len(new.names), source, nodes[indices], values)

    def _is_known(self, name: str) -> bool:
        return 0 <= self._number(name) < self.num_nodes

    def replay(self, records: Iterable[dict[str, Any]], *, same_graph: bool = True) -> None:
        """Keep nodes again that were kept before, those that are not known by now.

        Parameters
        ----------
        same_graph
            Whether they were kept on the graph of this run. If not, edges to nodes that are gone are left out.
        """
        records = list(records)
        if records and not same_graph and self.run.graph.names is None:
            raise StoreError(
                "nodes were kept for another graph, and nodes without names cannot be told apart: choose another "
                "journal"
            )
        for record in records:
            is_new = not any(self._is_known(str(node["id"])) for node in record["nodes"])
            content = record if same_graph and is_new else self._unknown_part(record)
            if content["nodes"]:
                self.with_new(read_graph(content, self.run.original, _ANY_SIZE), lambda: None, keep=True)

    def _unknown_part(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return the nodes of a record that the graph does not know, and their edges to nodes that are there."""
        nodes = [node for node in record["nodes"] if not self._is_known(str(node["id"]))]
        own = {str(node["id"]) for node in nodes}
        edges = [
            edge
            for edge in record["edges"]
            if any(str(edge[end]) in own for end in ("source", "target"))
            and all(str(edge[end]) in own or self._is_known(str(edge[end])) for end in ("source", "target"))
        ]
        return {"nodes": nodes, "edges": edges}
