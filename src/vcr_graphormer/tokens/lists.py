"""`TokenLists`: the token lists of all nodes as arrays, a pure function of graph, training nodes and settings.

`make_lists` computes them in memory. A `TokenStore` is the same, memory-mapped from a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array, check_sources
from ..base.machine import available_memory, format_bytes
from ..data.contract import Features
from ..data.graph import Graph
from ..errors import StoreError, unknown_name
from ..ranking.connections import Connections
from ..ranking.partitioners import is_repeatable
from ..ranking.ranker import Preparation, check_ranking
from .config import TokenConfig
from .distinct import leave_repeats_out, places_before
from .hops import Step, next_hop
from .kinds import Kind, Train, kinds_of, resolve
from .layout import Layout

SPARSE_PARTS = ("data", "indices", "indptr")
ENTRY_BYTES = 8  # of a ranking: int32 id and float32 score
COARSE = "coarse_clusters"  # the array of these clusters, which only those lists have that could not make them again
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False, repr=False)
class TokenLists:
    """The token lists of all nodes.

    Neighbours are stored as ids and scores, [n, k] each, best first, padded with -1 and 0. If lists are distinct, no
    node stands in a list twice, and `shared` has the scores by further kinds. Hops are one matrix each. The node itself
    needs no storage.

    Attributes
    ----------
    config : dict
        The settings that made them, and the number of features.
    arrays : dict
        Arrays by name; prefer the methods below.
    more_kinds : tuple of (str, bool)
        Kinds that no setting names, and whether each ranks a training node without its own label.
    """

    config: dict[str, Any]
    arrays: dict[str, Array]
    more_kinds: tuple[tuple[str, bool], ...] = ()

    @cached_property
    def settings(self) -> TokenConfig:
        """Return the settings that made the lists, with `content` resolved."""
        return TokenConfig.from_dict(self.config)

    @cached_property
    def layout(self) -> Layout:
        """Return which token stands where in a list."""
        names = [*(kind.name for kind in kinds_of(self.settings)), *(name for name, _ in self.more_kinds)]
        return Layout(self.num_hops, {name: int(self.arrays[f"{name}_ids"].shape[1]) for name in names})

    def leaves_out(self, kind: str) -> bool:
        """Return whether lists of this kind were ranked without a training node's edge to its own super node."""
        by_name = {one.name: one.own_label_left_out for one in kinds_of(self.settings)}
        return {**dict(self.more_kinds), **by_name}[kind]

    def ids(self, kind: str) -> NDArray[np.int32]:
        """Return token ids [n, k] of a kind such as `structure` or `content`; -1 is padding."""
        return self._array(kind, "ids")

    def scores(self, kind: str) -> Array:
        """Return the PageRank scores, or link similarities, [n, k] that belong to `ids`; 0 for padding."""
        return self._array(kind, "scores")

    def shared(self, kind: str) -> Array | None:
        """Return the scores [n, p] this kind gives to the p neighbours before its own; 0 if it does not propose one.

        None if lists are not distinct, or if no neighbours stand before those of this kind.
        """
        self._check(kind)
        return self.arrays.get(f"{kind}_shared")

    def assignment(self, kind: str) -> NDArray[np.int32]:
        """Return the super node of each node, -1 for none."""
        return self._array(kind, "assignment")

    def connections(self) -> dict[str, Connections]:
        """Return the super nodes behind the lists, by kind; kinds without tokens or super nodes are left out."""
        connections = {}
        for kind, tokens in self.layout.counts.items():
            assignment = np.asarray(self.assignment(kind))
            count = int(assignment.max()) + 1 if len(assignment) else 0
            if count and tokens:
                connections[kind] = Connections(assignment, count)
        return connections

    def coarse_clusters(self, graph: Graph) -> NDArray[np.int32]:
        """Return the clusters of the ranking's second level: the stored ones, else made again from the settings.

        `graph` is the one that the lists were made from.
        """
        stored = self.arrays.get(COARSE)
        return coarse_clusters(graph, self.settings) if stored is None else np.array(stored)

    def neighbours(self, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the ids of some nodes' neighbours, all kinds side by side [m, k]."""
        return np.concatenate([np.asarray(self.ids(kind)[nodes]) for kind in self.layout.counts], 1)

    def _array(self, kind: str, part: str) -> Array:
        self._check(kind)
        return self.arrays[f"{kind}_{part}"]

    def _check(self, kind: str) -> None:
        if kind not in self.layout.counts:
            raise unknown_name("kind of token", kind, self.layout.counts)

    def hop(self, number: int) -> Features:
        """Return the features of hop 1 … L, dense or CSR (P^l X)."""
        if not 1 <= number <= self.num_hops:
            raise StoreError(f"{self.where} has hops 1 to {self.num_hops}, not {number}")
        return open_hop(number, self.arrays, (self.num_nodes, self.num_features))

    @property
    def where(self) -> str:
        """Return what error messages call these lists."""
        return "the token lists in memory"

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes of the graph."""
        return len(self.arrays["structure_ids"])

    @property
    def num_features(self) -> int:
        """Return the width of the graph's features."""
        return int(self.config["num_features"])

    @property
    def num_hops(self) -> int:
        """Return the number of hops (L)."""
        return self.settings.hops

    @property
    def num_tokens(self) -> int:
        """Return the length of a token list."""
        return self.layout.num_tokens

    @property
    def num_bytes(self) -> int:
        """Return the bytes of all arrays."""
        return sum(int(array.nbytes) for array in self.arrays.values())

    def __repr__(self) -> str:
        neighbours = ", ".join(f"{count} {kind}" for kind, count in self.layout.counts.items())
        return f"{self.num_nodes:,} nodes, {self.num_tokens} tokens each (1 self, {self.num_hops} hops, {neighbours})"


@dataclass(frozen=True)
class Kept:
    """A cache of results that many trainings on one graph share, by what they depend on.

    Attributes
    ----------
    results : dict
        What was made, by what it depends on.
    longest : dict
        How many nodes to rank for a kind, by its name. Shorter lists are cut from that one ranking, see
        `longest_rankings`. A kind that is missing is ranked anew for every length.
    """

    results: dict[Any, Any] = field(default_factory=dict)
    longest: Mapping[str, int] = field(default_factory=dict)

    def once(self, key: Any, make: Callable[[], Result]) -> Result:
        """Return the result of a key; make it first if it is not there yet."""
        if key not in self.results:
            self.results[key] = make()
        result: Result = self.results[key]
        return result


def make_lists(
    graph: Graph,
    train: Any = None,
    config: TokenConfig | None = None,
    *,
    kinds: Sequence[Kind] = (),
    threads: int | None = None,
    kept: Kept | None = None,
) -> TokenLists:
    """Compute every node's token list in memory: the arrays that `tokenize` writes, without the folder.

    Nothing depends on the number of threads: KaMinPar has one, also where it has several in `tokenize`.

    Parameters
    ----------
    train
        Training nodes; their labels, and no others, make the content connections.
    kinds
        More kinds of neighbours than the settings name.
    kept
        Results of earlier calls with the same graph, to which this call adds its own.

    >>> from vcr_graphormer import generate
    >>> make_lists(generate(50, 100), config=TokenConfig(clusters=2, structure_tokens=2, content_tokens=0))
    50 nodes, 22 tokens each (1 self, 3 hops, 2 structure, 0 content, 8 links, 8 nearest)
    """
    nodes = None if train is None else np.unique(check_sources(train, graph.num_nodes, "train"))
    settings = resolve(config or TokenConfig(), graph, nodes, kinds)
    kept = kept or Kept()
    arrays: dict[str, Array] = {}
    all_kinds = (*kinds_of(settings), *kinds)
    counts = {kind.name: kind.count(settings) for kind in all_kinds}
    before = places_before(counts, settings)
    _check_fits(graph, sum(counts.values()), more=sum(before.values()))
    for kind in all_kinds:
        own = _ranking(kind, graph, nodes, config=settings, more=before.get(kind.name, 0), kept=kept, threads=threads)
        if kind.name in before:
            earlier = np.concatenate([array for name, array in arrays.items() if name.endswith("_ids")], 1)
            how: dict[str, Any] = {"count": counts[kind.name], "score_type": settings.score_type}
            kept_ids = {"reserve": own["ids"]} if kind.reserve else {}
            own = own | kept_ids | leave_repeats_out(own["ids"], own["scores"], earlier=earlier, **how)
        own = own | {"scores": own["scores"].astype(settings.score_type, copy=False)}
        arrays |= {f"{kind.name}_{part}": array for part, array in own.items()}
    current: Any = graph.features
    for number in range(1, settings.hops + 1):
        step = kept.once(("step", settings.self_loops), partial(Step.of, graph, settings.self_loops))
        key = ("hop", settings.self_loops, settings.hop_type, number)
        current = kept.once(key, partial(_sorted_hop, step, current, settings.hop_type))
        arrays |= hop_arrays(number, current)
    about = {**settings.to_dict(), "num_features": graph.num_features}
    return TokenLists(about, arrays, tuple((kind.name, kind.own_label_left_out) for kind in kinds))


def _check_fits(graph: Graph, tokens: int, *, more: int) -> None:
    """Refuse lists that do not fit into memory, before anything is allocated: Linux would end the process later."""
    needed, free = ENTRY_BYTES * graph.num_nodes * (tokens + more), available_memory()
    if needed > free:
        raise StoreError(
            f"{tokens:,} neighbours of each of {graph.num_nodes:,} nodes need at least {format_bytes(needed)} of "
            f"memory, {format_bytes(free)} are free: set tokens.structure_tokens and the like to fewer, or use "
            f"tokenize, which writes the lists to a disk"
        )


def longest_rankings(configs: Iterable[TokenConfig]) -> dict[str, int]:
    """Return how many nodes each kind ranks at most in lists with any of these resolved settings.

    >>> from dataclasses import replace
    >>> none = {"link_tokens": 0, "nearest_tokens": 0}
    >>> few = TokenConfig(structure_tokens=4, content_tokens=8, content="labels", distinct=True, **none)
    >>> longest_rankings([few, replace(few, structure_tokens=8, content_tokens=2, distinct=False)])
    {'structure': 8, 'content': 12}
    """
    longest: dict[str, int] = {}
    for config in configs:
        counts = {kind.name: kind.count(config) for kind in kinds_of(config)}
        before = places_before(counts, config)
        for name, count in counts.items():
            longest[name] = max(longest.get(name, 0), count + before.get(name, 0))
    return longest


def _ranking(
    kind: Kind, graph: Graph, train: Train, *, config: TokenConfig, more: int, kept: Kept, threads: int | None
) -> dict[str, Array]:
    """Return the arrays of `_rank_kind` for `more` nodes than a kind has tokens, made or cut from what is kept."""
    count, length, longest = kind.count(config), kind.count(config) + more, kept.longest.get(kind.name)
    if count and longest is not None:
        # A ranking is sorted, ties by id, so its beginning is the shorter one if it is exact. The tolerance of PageRank
        # is a fraction of the last score. A longer ranking ends with a smaller one, so its beginning is as close or
        # closer.
        count, more = max(length, longest), 0
    make = partial(_rank_kind, kind, graph, train, config=config, length=count + more, kept=kept, threads=threads)
    key = (kind, more, *{**kind.depends_on(graph, train, config), "tokens": count}.items())
    own = kept.once(key, partial(make, effort=kind.effort(config, more)))
    cut = {part: np.ascontiguousarray(own[part][:, :length]) for part in ("ids", "scores")}
    return own if count + more == length else own | cut


def _rank_kind(
    kind: Kind,
    graph: Graph,
    train: Train,
    *,
    config: TokenConfig,
    length: int,
    effort: dict[str, Any],
    kept: Kept,
    threads: int | None,
) -> dict[str, Array]:
    """Return ids and scores of the best `length` nodes by one kind; also the assignment."""
    connections = kind.connections(graph, train, config)
    ids, scores = np.empty((graph.num_nodes, 0), np.int32), np.empty((graph.num_nodes, 0), np.float32)
    if kind.count(config):
        ranker, coarse = kind.ranker(), None
        if ranker.uses_clusters:
            key = ("coarse clusters", config.seed, config.partitioner)
            coarse = kept.once(key, partial(coarse_clusters, graph, config))
        prepared = ranker.prepare(graph, connections, **preparation(config, coarse, threads))
        ranking = prepared.rank(np.arange(graph.num_nodes), length, threads=threads, **effort)
        check_ranking(ranking, length, limit=graph.num_nodes)
        ids, scores = ranking.ids, ranking.scores
    return {"ids": ids, "scores": scores, "assignment": connections.assignment}


def preparation(config: TokenConfig, coarse: NDArray[np.int32] | None, threads: int | None) -> Preparation:
    """Return the keywords of a ranker's `prepare`."""
    return {
        "restart": config.restart,
        "seed": config.seed,
        "partitioner": config.partitioner,
        "coarse": coarse,
        "threads": threads,
    }


def coarse_clusters(graph: Graph, config: TokenConfig, threads: int = 1) -> NDArray[np.int32]:
    """Make the clusters of the ranking's second level, which serve every kind."""
    from ..ranking.second_level import coarse_clusters as make

    return make(graph, config.seed, config.partitioner, threads=threads)


def must_keep_clusters(graph: Graph, config: TokenConfig, kinds: Iterable[Kind]) -> bool:
    """Return whether a store must keep the clusters behind its rankings, since the settings do not make them again.

    This does not depend on the number of threads, so that a job can be resumed with another one.
    """
    ranked = any(kind.count(config) and kind.ranker().uses_clusters for kind in kinds)
    return ranked and not is_repeatable(graph, config.partitioner)


def _sorted_hop(step: Step, features: Features, dtype: str) -> Features:
    hop = next_hop(step, features, dtype)
    if isinstance(hop, sp.csr_matrix):
        hop.sort_indices()
    return hop


def hop_arrays(number: int, hop: Any) -> dict[str, Array]:
    """Return the arrays of a hop by their names in a store: one if it is dense, three if it is sparse."""
    if sp.issparse(hop):
        return {f"hop_{number}_{part}": getattr(hop, part) for part in SPARSE_PARTS}
    return {f"hop_{number}": hop}


def open_hop(number: int, arrays: Mapping[str, Array], shape: tuple[int, int]) -> Features:
    """Return a hop from the arrays that `hop_arrays` named."""
    if f"hop_{number}" in arrays:
        return arrays[f"hop_{number}"]
    matrix = sp.csr_matrix(tuple(arrays[f"hop_{number}_{part}"] for part in SPARSE_PARTS), shape=shape, copy=False)
    matrix.has_canonical_format = True  # it was sorted before it was written; the arrays are read-only
    return matrix
