"""What neighbours add: validation scores of one recipe with other gates, kinds of neighbours and super edges.

    python -m benchmarks neighbours --study gates --data ROOT --device cuda --graphs Photo Texas

Split seeds start at 100, which are never reported; the test part is never computed. Each half of the validation nodes
is judged at the epoch that is best on the other half. Every row of results/neighbours/STUDY.jsonl is one training; only
missing rows are trained.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor, nn

import vcr_graphormer as vcr
from benchmarks.common import GRAPHS, load_graph, markdown_table, new_parser, random_splits, variant_config
from benchmarks.search.tune import crossed_score
from vcr_graphormer.model.batches import Batch
from vcr_graphormer.model.transformer import ListReader, VCRGraphormer
from vcr_graphormer.ranking.connections import Connections
from vcr_graphormer.ranking.nearest import FeatureRanker
from vcr_graphormer.ranking.pagerank import Ranker
from vcr_graphormer.ranking.ranker import Ranking, empty_lists
from vcr_graphormer.ranking.second_level import with_weights
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.tokens.kinds import CONTENT, NEAREST, STRUCTURE, Kind
from vcr_graphormer.tokens.layout import Layout
from vcr_graphormer.training.devices import find_device
from vcr_graphormer.training.inference import compute
from vcr_graphormer.training.trainer import Trainer

TWELVE = (*GRAPHS, "Cora", "CiteSeer", "Minesweeper", "Tolokers")
FIRST_SEED = 100
BY_AUC = ("Minesweeper", "Tolokers")  # two unbalanced classes: judged by ROC-AUC, as published
# One recipe for all graphs, so that only the neighbours differ.
RECIPE = vcr.Config(
    tokens=vcr.TokenConfig(hops=3, clusters=10, structure_tokens=8, content_tokens=8),
    model=vcr.ModelConfig(
        hidden_channels=128,
        combine="gated",
        dropout=0.3,
        feature_dropout=0.5,
        token_dropout=0.2,
        kind_embedding=True,
        rank_embedding=True,
        rich_tokens=1,
        label_hops=2,
        label_embedding=True,
        neighbour_dropout=0.0,
    ),
    training=vcr.TrainConfig(
        epochs=60,
        learning_rate=1e-3,
        final_learning_rate=0.0,
        schedule="cosine",
        warmup_steps=20,
        weight_decay=0.01,
        label_smoothing=0.1,
        average=0.99,
        patience=60,
        checkpoint_every=0,
    ),
)


class Form(VCRGraphormer):
    """A gated model with another gate: `combine` joins the logits of both paths."""

    start: tuple[int, float] = (1, 0.55)  # number of gates, and their first value
    own_layers = 0  # encoder layers of the first path

    def __init__(self, *arguments: Any, **sizes: Any) -> None:
        super().__init__(*arguments, **sizes)
        count, value = self.start
        self.gate = nn.Parameter(torch.full((count,), value))
        if self.own_layers:
            self.own = ListReader().add_path(self.config, self.own_layers, self.num_outputs)

    def read(
        self, tokens: Tensor, mask: Tensor | None, attention: list[Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Return what both paths see."""
        assert self.own is not None
        vectors, weights = self.encode(tokens, mask, attention)
        places = slice(self.layout.first_neighbour)
        own_vectors, _ = self.own.encode(tokens[:, places], None if mask is None else mask[:, places])
        logits = self.combine(self.own.head(own_vectors), self.head(vectors), own_vectors)
        return logits, (own_vectors,), weights

    def combine(self, first: Tensor, second: Tensor, own_vectors: Tensor) -> Tensor:
        """Return the logits from those of the first and of the second path."""
        return first + self.gate.tanh() * second


class OwnLayer(Form):
    """A first path with an encoder layer."""

    own_layers = 1


class FromZero(OwnLayer):
    """A gate that starts closed."""

    start = (1, 0.0)


class Fast(FromZero):
    """A gate that starts closed and moves twenty times as fast."""

    def combine(self, first: Tensor, second: Tensor, own_vectors: Tensor) -> Tensor:
        """Return the logits from those of the first and of the second path."""
        return first + (20 * self.gate).tanh() * second


class PerClass(Form):
    """A gate per class."""

    def __init__(self, *arguments: Any, **sizes: Any) -> None:
        self.start = (sizes["num_outputs"], 0.55)
        super().__init__(*arguments, **sizes)


class PerNode(Form):
    """A gate per node, from its own vector; half open at first."""

    def __init__(self, config: vcr.ModelConfig, *arguments: Any, **sizes: Any) -> None:
        self.start = (config.hidden_channels + 1, 0.0)
        super().__init__(config, *arguments, **sizes)

    def combine(self, first: Tensor, second: Tensor, own_vectors: Tensor) -> Tensor:
        """Return the logits from those of the first and of the second path."""
        return first + (own_vectors @ self.gate[1:] + self.gate[0]).sigmoid()[:, None] * second


class PerKind(Form):
    """A gate per kind of neighbour: each kind is read out by itself."""

    def __init__(self, config: vcr.ModelConfig, layout: Layout, **sizes: Any) -> None:
        self.start = (len(layout.counts), 0.55)
        super().__init__(config, layout, **sizes)

    def read(
        self, tokens: Tensor, mask: Tensor | None, attention: list[Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Return what both paths see."""
        assert self.own is not None
        places = slice(self.layout.first_neighbour)
        own_vectors, weights = self.own.encode(tokens[:, places], None if mask is None else mask[:, places])
        logits = self.own.head(own_vectors)
        for layer in self.layers:
            tokens = layer(tokens, mask, attention)
        tokens = self.norm(tokens)
        for number, kind in enumerate(self.layout.counts):
            shown = torch.zeros(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
            shown[:, 0] = True
            shown[:, self.layout.places(kind)] = True
            vectors, _ = self.read_out(tokens, shown if mask is None else shown & mask)
            logits = logits + self.gate[number].tanh() * self.head(vectors)
        return logits, (own_vectors,), weights


class Votes(Form):
    """Votes of the neighbours, in proportion to their scores, through the head of the first path."""

    def read(
        self, tokens: Tensor, mask: Tensor | None, attention: list[Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
        """Return what both paths see."""
        assert self.own is not None
        first = self.layout.first_neighbour
        own_vectors, weights = self.own.encode(tokens[:, :first], None if mask is None else mask[:, :first])
        votes = self.own.head(self.own.norm(tokens[:, first:]))
        scores = self.batch_scores[:, first:].to(votes.dtype)
        scores = scores if mask is None else scores * mask[:, first:]
        scores = scores / scores.sum(1, keepdim=True).clamp(min=1e-6)
        logits = self.own.head(own_vectors) + self.gate.tanh() * (scores[..., None] * votes).sum(1)
        return logits, (own_vectors,), weights

    def tokens(self, batch: Batch, projected: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Remember the scores of the batch, then return its tokens."""
        self.batch_scores = batch.scores
        return super().tokens(batch, projected)


# ---------------------------------------------------------------- other rankings


class Lighter(Ranker):
    """PageRank with super edges of another weight: the same as ordinary edges of the inverse weight."""

    fraction: ClassVar[float] = 0.0  # of the steps from a connected node that lead to its super node, in the mean

    @classmethod
    def prepare(cls, graph: vcr.Graph, connections: Any = None, **how: Any) -> Ranker:  # type: ignore[override]
        """Scale the edges and compute the vectors."""
        degrees = np.asarray(graph.degrees)[connections.assignment >= 0]
        degrees = degrees[degrees > 0]  # a node without edges steps to its super node anyway
        weight = brentq(lambda w: (w / (degrees + w)).mean() - cls.fraction, 1e-6, 1e6)
        arcs = with_weights(graph, np.full(graph.num_arcs, 1 / weight, np.float32))
        with patch("vcr_graphormer.ranking.pagerank.make_arcs", lambda graph: arcs):
            return super().prepare(graph, connections, **how)


class Brightened(Ranker):
    """Nodes whose score the super nodes raise most, r̃ - r: the brightened nodes of Theorem 2."""

    @classmethod
    def prepare(cls, graph: vcr.Graph, connections: Any = None, **how: Any) -> Any:  # type: ignore[override]
        """Prepare the ranking with and that without super nodes."""
        ranker = super().prepare(graph, connections, **how)
        object.__setattr__(ranker, "plain", Ranker.prepare(graph, None, **how))
        return ranker

    def rank(self, sources: Any = None, k: int = 20, **how: Any) -> Ranking:  # type: ignore[override]
        """Return the k nodes with the largest gain among the best 128."""
        rewired = super().rank(sources, 128, **how)
        plain = self.plain.rank(sources, 256, tolerance=how["tolerance"])  # type: ignore[attr-defined]
        ids, scores = empty_lists(len(rewired.ids), k)
        for row in range(len(ids)):
            before = dict(zip(plain.ids[row].tolist(), plain.scores[row].tolist(), strict=True))
            gains = sorted(
                (before.get(node, 0.0) - score, node)
                for node, score in zip(rewired.ids[row].tolist(), rewired.scores[row].tolist(), strict=True)
                if node >= 0
            )
            for place, (loss, node) in enumerate([pair for pair in gains if pair[0] < 0][:k]):
                ids[row, place], scores[row, place] = node, -loss
        return Ranking(ids, scores, rewired.sources, rewired.visits)


def kind_of(name: str, ranker: type[Any], like: Kind, count: int = 8) -> Kind:
    """Return a kind with the super nodes of another one and a ranker of its own."""
    return replace(like, name=name, count=lambda config: count, ranker=lambda: ranker)


def by_fraction(fraction: float) -> tuple[Kind, ...]:
    """Return both kinds with super edges that take this fraction of the steps."""
    ranker = type(f"Lighter{fraction}", (Lighter,), {"fraction": fraction})
    return kind_of("by_clusters", ranker, STRUCTURE), kind_of("by_labels", ranker, CONTENT["labels"])


def by_predictions(bench: Workbench, split: vcr.Split, config: vcr.Config) -> tuple[Kind, ...]:
    """Return a kind with a super node per predicted class; a training node's prediction comes from other folds."""
    hops = replace(
        config,
        tokens=replace(config.tokens, **NONE),
        model=replace(config.model, combine="joint", rank_embedding=False, neighbour_dropout=0.0),
        training=replace(config.training, epochs=20),
    )
    labels = np.asarray(bench.graph.labels)
    folds = np.random.default_rng(0).permutation(len(split.train)) % 3
    assignment = np.full(bench.graph.num_nodes, -1, np.int32)
    for fold in (*range(3), None):
        kept = split.train if fold is None else split.train[folds != fold]
        wanted = (
            np.flatnonzero(~np.isin(np.arange(len(labels)), split.train))
            if fold is None
            else split.train[folds == fold]
        )
        part = replace(split, train=kept)
        inputs = bench.inputs(part, hops.tokens, hops.model)
        trainer = Trainer.of(bench.graph, part, inputs=inputs, model=hops.model, training=hops.training)
        trainer.fit()
        assignment[wanted] = compute(trainer.best_model(), inputs, wanted, 4096).argmax(1)
    connections = Connections(assignment, bench.graph.num_classes)
    return (replace(kind_of("predicted", Ranker, STRUCTURE), connect=lambda *_: connections),)


@dataclass(frozen=True)
class Variant:
    """One line of a study: what it changes in the recipe."""

    tokens: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    form: type[VCRGraphormer] = VCRGraphormer
    kinds: Callable[..., tuple[Kind, ...]] | None = None
    long: bool = False  # 60 epochs instead of 40


NONE: dict[str, Any] = {"structure_tokens": 0, "content_tokens": 0}
HOPS_ONLY = Variant(NONE, {"combine": "joint", "rank_embedding": False})
GATES = {
    "hops only": HOPS_ONLY,
    "joint": Variant(model={"combine": "joint"}),
    "gate from 0": Variant(form=FromZero),
    "gate from 0, 20 x rate": Variant(form=Fast),
    "gate from 0.5": Variant(form=OwnLayer),
    "gate from 0.5, no own layer": Variant(),
    "gate per class": Variant(form=PerClass),
    "gate per kind": Variant(form=PerKind),
    "gate per node": Variant(form=PerNode),
    "second path dropped": Variant(model={"neighbour_dropout": 0.5}),
    "votes": Variant(form=Votes),
    "either path hidden": Variant(model={"neighbour_dropout": 1 / 3, "own_dropout": 1 / 3}),
}
QUARTER = {"neighbour_dropout": 0.25}
KINDS = {
    "hops only": HOPS_ONLY,
    "structure and content": Variant(model=QUARTER),
    "with repeats": Variant({"distinct": False}, QUARTER),
    "structure only": Variant({"content_tokens": 0}, QUARTER),
    "content only": Variant({"structure_tokens": 0}, QUARTER),
    "nearest by features": Variant(model=QUARTER, kinds=lambda *_: (kind_of("by_features", FeatureRanker, NEAREST),)),
    "nearest by hops": Variant({"nearest_tokens": 8}, QUARTER),
    "links": Variant({"link_tokens": 8}, QUARTER),
    "brightened": Variant(
        {"content_tokens": 0}, QUARTER, kinds=lambda *_: (kind_of("brightened", Brightened, CONTENT["labels"]),)
    ),
    "super edges 0.1": Variant(NONE, QUARTER, kinds=lambda *_: by_fraction(0.1)),
    "super edges 0.3": Variant(NONE, QUARTER, kinds=lambda *_: by_fraction(0.3)),
    "super edges 0.5": Variant(NONE, QUARTER, kinds=lambda *_: by_fraction(0.5)),
    "super edges 0.3, restart 0.05": Variant({**NONE, "restart": 0.05}, QUARTER, kinds=lambda *_: by_fraction(0.3)),
    "predicted classes": Variant(model=QUARTER, kinds=by_predictions),
    "32 of a kind": Variant({"structure_tokens": 32, "content_tokens": 32}, {**QUARTER, "token_dropout": 0.5}),
    "64 of a kind": Variant({"structure_tokens": 64, "content_tokens": 64}, {**QUARTER, "token_dropout": 0.5}),
}
# The gates were compared before there were lists without repeats.
REPEATS = {"distinct": False}
STUDIES = {
    "gates": {name: replace(one, tokens={**one.tokens, **REPEATS}, long=True) for name, one in GATES.items()},
    "kinds": KINDS,
}


def make_parser() -> argparse.ArgumentParser:
    """Return the options of this benchmark."""
    parser = new_parser(__doc__, device=True, graphs=TWELVE)
    parser.add_argument("--study", choices=list(STUDIES), default="gates")
    parser.add_argument("--variants", nargs="+", help="some variants of the study; default: all")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/neighbours"))
    return parser


def recipe(graph: vcr.Graph, variant: Variant, seed: int) -> vcr.Config:
    """Return the settings of one training.

    Few training nodes get smaller batches and more epochs. In the study of kinds, wide features get fewer epochs and
    larger batches, for they are slow.
    """
    train, wide = int(0.6 * graph.num_nodes), graph.num_features > 5000 and not variant.long
    training = replace(
        RECIPE.training,
        seed=seed,
        batch_size=1000 if wide else min(1000, max(32, train // 25)),
        epochs=100 if train <= 1000 else 25 if wide else 60 if variant.long else 40,
        patience=100,
        metric="roc_auc" if graph.name in BY_AUC else "accuracy",
    )
    tokens, model = replace(RECIPE.tokens, **variant.tokens), replace(RECIPE.model, **variant.model)
    return replace(RECIPE, tokens=tokens, model=model, training=training)


def table(rows: list[dict[str, Any]], base: str, variants: Sequence[str] = ()) -> str:
    """Return a Markdown table: the mean difference to a base variant in points, with its standard error, by graph.

    Differences are taken split by split, over the splits that both have. The first line has the scores of the base.
    """
    scores: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        scores.setdefault((row["graph"], row["variant"]), {})[row["seed"]] = 100 * row["val"]
    graphs = [name for name in TWELVE if (name, base) in scores]
    lines = [[base, *(f"{np.mean(list(scores[name, base].values())):.2f}" for name in graphs)]]
    for variant in variants or dict.fromkeys(row["variant"] for row in rows):
        if variant == base:
            continue
        cells = []
        for name in graphs:
            ours, theirs = scores.get((name, variant), {}), scores[name, base]
            gains = np.array([ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())])
            error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
            cells.append(f"{gains.mean():+.2f} ± {error:.2f}" if len(gains) else "")
        lines.append([variant, *cells])
    return markdown_table(["validation score, %", *graphs], lines)


def main() -> None:
    """Train every variant on every graph and split that is not in the file yet."""
    arguments = make_parser().parse_args()
    file = arguments.out / f"{arguments.study}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    done = {(row["graph"], row["variant"], row["seed"]) for row in rows}
    variants = STUDIES[arguments.study]
    for name in arguments.graphs:
        directed = name in GRAPHS and variant_config(name, "default").data.directed
        bench = Workbench(load_graph(name, arguments.data, directed), find_device(arguments.device))
        seeds = range(FIRST_SEED, FIRST_SEED + arguments.splits)
        for seed, split in zip(seeds, random_splits(bench.graph, seeds), strict=True):
            for label in arguments.variants or variants:
                if (name, label, seed) in done:
                    continue
                variant = variants[label]
                config = recipe(bench.graph, variant, seed)
                kinds = variant.kinds(bench, split, config) if variant.kinds else ()
                with patch("vcr_graphormer.training.trainer.VCRGraphormer", variant.form):
                    score = crossed_score(bench, split, config, kinds)
                row = {"graph": name, "variant": label, "seed": seed, "val": round(score, 6)}
                with file.open("a") as log:
                    log.write(json.dumps(row) + "\n")
                rows.append(row)
                print(row, flush=True)
    print(table(rows, "hops only"))
