"""Many trainings on one graph in one process: what does not depend on split or settings is computed once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vcr_graphormer.base.folders import digest
from vcr_graphormer.data.graph import Graph
from vcr_graphormer.data.metrics import measure, probabilities
from vcr_graphormer.data.split import Split
from vcr_graphormer.model.batches import Inputs
from vcr_graphormer.model.config import ModelConfig
from vcr_graphormer.model.inputs import adjacency_rows, residence, super_nodes, to_matrix
from vcr_graphormer.model.labels import label_hops, label_matrix, label_width, target_scale
from vcr_graphormer.model.matrices import Matrix
from vcr_graphormer.model.transformer import VCRGraphormer
from vcr_graphormer.ranking.connections import Connections
from vcr_graphormer.ranking.links import LinkRanker
from vcr_graphormer.ranking.pagerank import Ranker
from vcr_graphormer.ranking.ranker import Ranking
from vcr_graphormer.ranking.second_level import coarse_clusters
from vcr_graphormer.runs.config import Config
from vcr_graphormer.tokens.config import KINDS, TokenConfig
from vcr_graphormer.tokens.hops import Step, join_blocks, propagate
from vcr_graphormer.tokens.kinds import make_connections, member_means
from vcr_graphormer.training.devices import choose_precision
from vcr_graphormer.training.inference import compute
from vcr_graphormer.training.trainer import Examples, Trainer


@dataclass(frozen=True)
class Trial:
    """What one training gave: the metric on the three parts at the best validation epoch."""

    train: float
    val: float
    test: float
    epochs: int
    best_epoch: int
    seconds: float


class Workbench:
    """One graph on one device, ready to be trained on with many settings and splits.

    The same functions as in `tokenize` and `train` make the same numbers; only nothing is written to disk.
    """

    def __init__(self, graph: Graph, device: torch.device, precision: str = "auto") -> None:
        self.graph, self.device = graph, device
        self.precision = choose_precision(precision, device)
        self._kept: dict[Any, Any] = {}

    def train(
        self, split: Split, config: Config, test: bool = True, on_epoch: Callable[[Trainer], None] | None = None
    ) -> Trial:
        """Train once; the test part is read after training, from the best state, and only if `test`."""
        start = time.perf_counter()
        inputs = self.inputs(split, config.tokens, config.model)
        graph, training = self.graph, config.training
        labels = np.asarray(graph.labels)
        scale = target_scale(labels, split.train) if graph.task == "regression" else None
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(training.seed)
            model = self.model(config).to(self.device)
            seen, judged = (Examples(part, labels[part]) for part in (split.train, split.val))
            trainer = Trainer(model, inputs, seen, judged, graph.task, training, scale)
            best = trainer.fit(None if on_epoch is None else lambda _: on_epoch(trainer))
            if not test:
                nothing = float("nan")
                return Trial(nothing, best.value, nothing, trainer.epoch, best.epoch, time.perf_counter() - start)
            model.load_state_dict(best.state)
            model.to(self.precision)
            nodes = np.concatenate([split.train, split.test])
            predicted = probabilities(compute(model, inputs, nodes, trainer.micro_batch), graph.task, scale)
        cut = len(split.train)
        parts = (predicted[:cut], labels[split.train]), (predicted[cut:], labels[split.test])
        seen_value, test_value = (measure(trainer.metric, *part, graph.task) for part in parts)
        return Trial(seen_value, best.value, test_value, trainer.epoch, best.epoch, time.perf_counter() - start)

    def model(self, config: Config) -> VCRGraphormer:
        """A model of the right sizes with fresh weights."""
        graph, tokens = self.graph, config.tokens
        width = label_width(graph)
        sizes = (graph.num_features, graph.num_classes, tokens.hops, tokens.structure_tokens)
        return VCRGraphormer(config.model, *sizes, width, graph.num_nodes, tokens.content_tokens)

    def inputs(self, split: Split, tokens: TokenConfig, model: ModelConfig) -> Inputs:
        """Batches' source for this split and these settings."""
        content = tokens.check(self.graph, split.train)
        model.check(tokens.hops)
        structure, following = (self._ranking(kind, split, tokens, content) for kind in KINDS)
        super_rows, own = None, None
        if tokens.super_tokens == "mean":
            leave_out = content == "labels" and tokens.leave_own_label_out
            groups = [
                self._groups("structure", split, tokens, content),
                self._groups("content", split, tokens, content),
            ]
            means = [member_means(self.graph.features, group) for group in groups]
            super_rows, own = super_nodes(means, groups[1].assignment, leave_out, self.device)
            ids = following[0]
            following = torch.where(ids >= self.graph.num_nodes, ids + len(means[0]), ids), following[1]
        known = label_matrix(self.graph, split.train) if model.label_hops or model.label_embedding else None
        around = None
        if known is not None and model.label_hops:
            parts = label_hops(self.graph, known, model.label_hops, tokens.self_loops)
            around = torch.from_numpy(np.stack(parts, axis=1)).to(self.device)
        return Inputs(
            self._once("features", lambda: self._place(self.graph.features)),
            self._hops(tokens.hops, tokens.self_loops),
            (torch.cat([structure[0], following[0]], 1),),
            (torch.cat([structure[1], following[1]], 1),),
            tokens.structure_tokens,
            self.device,
            rich_tokens=model.rich_tokens,
            super_rows=super_rows,
            own=own,
            label_hops=around,
            labels=torch.from_numpy(known).to(self.device) if known is not None and model.label_embedding else None,
            adjacency=self._adjacency() if model.adjacency_rows else None,
        )

    def _hops(self, count: int, self_loops: bool) -> tuple[Matrix, ...]:
        """Hop features on the device. Only the last one is kept in main memory too, to make the next from."""
        made = self._once(("hops", self_loops), list)
        step = self._once(("step", self_loops), lambda: Step.of(self.graph, self_loops))
        while len(made) < count:
            before = self._kept.get(("last hop", self_loops), self.graph.features)
            self._kept["last hop", self_loops] = following = join_blocks(list(propagate(step, before)))
            made.append(self._place(following))
        return tuple(made[:count])

    def _place(self, matrix: Any) -> Matrix:
        on_gpu = self.device.type == "cuda"
        dense = on_gpu and residence([matrix], self.device, self.precision)[0]
        return to_matrix(matrix, self.device, self.precision if on_gpu else None, dense)

    def _adjacency(self) -> Matrix:
        made: Matrix = self._once("adjacency", lambda: self._place(adjacency_rows(self.graph)))
        return made

    def _once(self, key: Any, make: Any) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def _groups(self, kind: str, split: Split, tokens: TokenConfig, content: str) -> Connections:
        """The super nodes of structure or content; METIS's clusters are made once."""

        def make() -> Connections:
            return make_connections(self.graph, split.train, tokens, kind, content)

        if kind == "content":
            return make()
        made: Connections = self._once(
            ("clusters", tokens.structure_tokens > 0, tokens.clusters, tokens.seed, tokens.partitioner), make
        )
        return made

    def _ranking(self, kind: str, split: Split, tokens: TokenConfig, content: str) -> tuple[Tensor, Tensor]:
        """Ids and scores of components 3 or 4 on the device; each ranking is computed once."""
        leave_out = kind == "content" and content == "labels" and tokens.leave_own_label_out
        settings: Any = (tokens.restart, tokens.tolerance, tokens.seed, tokens.super_tokens, tokens.score_type)
        settings += (tokens.partitioner,)
        if kind == "structure":
            key: Any = (kind, tokens.structure_tokens, tokens.clusters, *settings)
            count = tokens.structure_tokens
        else:
            which = digest(split.train) if content == "labels" else str(tokens.content_clusters)
            key = (kind, tokens.content_tokens, content, which, leave_out, *settings)
            if tokens.by_links:  # which depend on nothing else
                key = (kind, tokens.content_tokens, content, tokens.score_type)
            count = tokens.content_tokens

        def make() -> tuple[Tensor, Tensor]:
            if kind == "content" and tokens.by_links:
                return self._tensors(LinkRanker.prepare(self.graph).rank(None, count), tokens)
            return self._rank(self._groups(kind, split, tokens, content), count, tokens, leave_out)

        found: tuple[Tensor, Tensor] = self._once(key, make)
        return found

    def _rank(
        self, connections: Connections, count: int, tokens: TokenConfig, leave_out: bool
    ) -> tuple[Tensor, Tensor]:
        nodes = self.graph.num_nodes
        if not count:
            return torch.empty(nodes, 0, dtype=torch.int32, device=self.device), torch.empty(
                nodes, 0, device=self.device
            )
        coarse = self._once(
            ("coarse", tokens.seed, tokens.partitioner),
            lambda: coarse_clusters(self.graph, tokens.seed, tokens.partitioner),
        )
        ranker = Ranker.prepare(self.graph, connections, tokens.restart, coarse)
        keep_super = tokens.super_tokens == "mean"
        return self._tensors(ranker.rank(np.arange(nodes), count, tokens.tolerance, leave_out, keep_super), tokens)

    def _tensors(self, found: Ranking, tokens: TokenConfig) -> tuple[Tensor, Tensor]:
        scores = found.scores.astype(tokens.score_type)
        return torch.from_numpy(found.ids).to(self.device), torch.from_numpy(scores).to(self.device)
