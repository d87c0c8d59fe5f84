"""Bring token lists up to date for a graph that has grown, without making all of them anew.

How much is done is called refresh:

- `new`: lists and hops of new nodes. The second level of the ranking and all old rows stay as they are.
- `affected`: also old nodes whose list a new node or edge can change, and the hops of all nodes near a change. If more
  than one node in twenty is new or has other edges, it is `all`: nearly every list is affected then.
- `all`: everything, as `tokenize` does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array
from ..base.folders import MANIFEST, digest, is_intact, write_manifest
from ..base.jobs import JobFolder, Progress
from ..base.machine import default_threads
from ..base.patched import Patched, patched_csr
from ..data.graph import Graph
from ..data.growth import Growth, align, subgraph
from ..errors import ConfigError, StoreError
from ..ranking.connections import Connections
from ..ranking.growth import coarse_of, grow_ranker, join_clusters, join_nearest, repair_rankings, share_new_node
from ..ranking.nearest import FeatureRanker
from ..ranking.pagerank import Ranker
from ..ranking.ranker import Ranking, check_ranking
from .build import make_identity, tokenize
from .config import CONTENTS
from .distinct import leave_repeats_out, places_before
from .hops import Step, take_rows, to_type
from .kinds import CONTENT, STRUCTURE, Kind, kinds_of
from .lists import COARSE, TokenLists, hop_arrays, make_lists, preparation
from .store import FORMAT_VERSION, KIND, TokenStore

NEW, AFFECTED, ALL = "new", "affected", "all"
REFRESH = (NEW, AFFECTED, ALL)
# A changed node looks back at so many nodes whose lists it may enter. Chosen by hand.
LOOKED_BACK = 64
ENTERS = 0.5  # a changed node may enter a list by similarity from this fraction of its last score; chosen by hand
RANKERS = "rankers"  # folder in a store
# Up to this fraction of new nodes `affected` keeps the second level of the ranking (docs/log.md).
FROZEN_UP_TO = 0.02
# Beyond this fraction of new nodes, and of old ones with other edges among themselves, `affected` becomes `all`. With
# one node in ten it took as long or longer (docs/log.md).
MOST_AFFECTED = 0.05
# Beyond this fraction of new nodes a fresh start is advised. A rule of thumb.
MOST_NEW = 0.2


@dataclass(frozen=True, eq=False)
class Rankers:
    """The rankers behind a store, kept beside it, so that new nodes can be ranked at any time."""

    store: TokenStore
    before: Graph
    threads: int | None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return the kinds of the store that have tokens."""
        if self.store.more_kinds:
            raise ConfigError("kinds of neighbours of your own cannot be brought up to date: tokenize anew")
        return tuple(kind for kind in kinds_of(self.store.settings) if kind.count(self.store.settings))

    @cached_property
    def coarse(self) -> NDArray[np.int32]:
        """Return the clusters of the second level as they were."""
        return self.store.coarse_clusters(self.before)

    def connections(self, kind: Kind) -> Connections:
        """Return the super nodes of a kind, as the store has them."""
        assignment = np.asarray(self.store.assignment(kind.name))
        return Connections(assignment, int(assignment.max(initial=-1)) + 1)

    def open(self, kind: Kind) -> Any:
        """Return the ranker of a kind: from its folder in the store, or prepared and put there if it can be written."""
        folder, ranker = self.store.path / RANKERS / kind.name, kind.ranker()
        if is_intact(folder):
            return ranker.open(folder, self.before)
        coarse = self.coarse if ranker.uses_clusters else None
        how = preparation(self.store.settings, coarse, self.threads)
        prepared = ranker.prepare(self.before, self.connections(kind), **how)
        with suppress(StoreError):  # a store may be read-only: then the next process prepares them again
            prepared.save(folder, self.before)
        return prepared


@dataclass(frozen=True, eq=False)
class Update:
    """The lists and hops of a graph that has grown, as rows that replace those of the store.

    Attributes
    ----------
    store : TokenStore
        The lists of before.
    growth : Growth
        What changed since.
    refresh : str
        `new` or `affected`.
    threads : int or None
        Default: all cores.
    """

    store: TokenStore
    growth: Growth
    refresh: str
    threads: int | None = None

    @property
    def graph(self) -> Graph:
        """Return the graph of now."""
        return self.growth.graph

    @property
    def frozen(self) -> bool:
        """Return whether the second level of the ranking stays as it was.

        A few new nodes hardly change the far part of a walk; many do. Its clusters can stay, so METIS is not needed.
        """
        return self.refresh == NEW or len(self.growth.new) <= FROZEN_UP_TO * self.growth.before.num_nodes

    @cached_property
    def rankers(self) -> dict[str, tuple[Kind, Any, Connections]]:
        """Return kind, ranker and super nodes of now, by the name of the kind."""
        kept = Rankers(self.store, self.growth.before, self.threads)
        grown = {}
        for kind in kept.kinds:
            connections, ranker = self._connections(kind, kept.connections(kind)), kept.open(kind)
            if self.frozen or not kind.ranker().uses_clusters:
                ranker = grow_ranker(ranker, self.growth.before, self.graph, connections)
            else:
                coarse = np.maximum(join_clusters(self.graph, coarse_of(ranker)), 0)
                how = preparation(self.store.settings, coarse, self.threads)
                ranker = kind.ranker().prepare(self.graph, connections, **how)
            grown[kind.name] = (kind, ranker, connections)
        return grown

    def _connections(self, kind: Kind, old: Connections) -> Connections:
        """Let new nodes join: the cluster of their neighbours, that of the nearest mean features, or no label."""
        more = np.full(len(self.growth.new), -1, dtype=np.int32)
        if kind is STRUCTURE:
            return Connections(join_clusters(self.graph, old.assignment), old.count)
        if kind is CONTENT["features"] and len(more):
            more = join_nearest(self.graph, old, self.growth.new)
        return Connections(np.concatenate([old.assignment, more]), old.count)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Return the nodes that are ranked anew: new ones, and affected ones if they are wanted."""
        if self.refresh == NEW:
            return self.growth.new
        ranked = [(kind, ranker) for kind, ranker, _ in self.rankers.values() if not self.is_repaired(kind)]
        return np.unique(np.concatenate([self.growth.new, *(self._entered(*pair) for pair in ranked)]))

    def is_repaired(self, kind: Kind) -> bool:
        """Return whether all lists of a kind are made, by comparing what stood in the longer ranking of before."""
        return self.refresh == AFFECTED and f"{kind.name}_reserve" in self.store.arrays

    def _rank(self, kind: Kind, ranker: Any, *, more: int) -> Ranking:
        """Rank the rows, or repair the rankings of all nodes."""
        length = kind.count(self.store.settings) + more
        if not self.is_repaired(kind):
            ranking = ranker.rank(self.rows, length, threads=self.threads, **kind.effort(self.store.settings, more))
            return check_ranking(ranking, length, limit=self.graph.num_nodes)
        growth = self.growth
        # Only what changed much is compared with all nodes. A link to a new node makes others that link to it similar.
        by_features = isinstance(ranker, FeatureRanker)
        changed = growth.other_features if by_features else growth.old_to_old
        sources = np.unique(np.concatenate([growth.old_to_old, changed, growth.new]))
        pairs = None if by_features else share_new_node(self.graph, growth.before.num_nodes)
        ranked = ranker.rank(sources, max(length, LOOKED_BACK), threads=self.threads)
        earlier = np.asarray(self.store.arrays[f"{kind.name}_reserve"])
        return repair_rankings(ranker, earlier, ranked, k=length, pairs=pairs, threads=self.threads)

    def _entered(self, kind: Kind, ranker: Any) -> NDArray[np.int64]:
        """Return the old nodes that changed, and those in whose lists a changed node stands or may stand.

        PageRank of an undirected graph is reversible, π_u(c) d_u = π_c(u) d_c, and similarities are symmetric. So the
        ranking of a changed node c tells its score in the lists of others.
        """
        growth, old = self.growth, self.growth.before.num_nodes
        by_pagerank = isinstance(ranker, Ranker)
        sources = np.concatenate([growth.old_to_old if by_pagerank else growth.changed, growth.new])
        if isinstance(ranker, FeatureRanker):  # features of a hop change with the neighbours
            sources = np.concatenate([growth.changed, growth.other_features, growth.new])
        if not len(sources):
            return np.empty(0, dtype=np.int64)
        effort = kind.effort(self.store.settings) | {"leave_out": False}
        ranking = ranker.rank(sources, LOOKED_BACK, threads=self.threads, **effort)
        seen = (ranking.ids >= 0) & (ranking.ids < old)
        others, scores = ranking.ids[seen], ranking.scores[seen].astype(np.float64)
        if by_pagerank:
            total = ranker.vectors.total
            owner = np.broadcast_to(ranking.sources[:, None], ranking.ids.shape)[seen]
            scores = scores * total[owner] / np.maximum(total[others], np.finfo(np.float64).tiny)
        last = np.asarray(self.store.scores(kind.name)[:, -1], dtype=np.float64)
        entered = others[scores >= (1 if by_pagerank else ENTERS) * last[others]].astype(np.int64)
        changed = sources[sources < old]
        is_changed = np.zeros(old + 1, dtype=np.bool_)  # the last entry stands for padding, -1
        is_changed[changed] = True
        listed = np.flatnonzero(is_changed[np.asarray(self.store.ids(kind.name))].any(axis=1))
        return np.concatenate([entered, listed, changed])

    def lists(self) -> dict[str, Patched]:
        """Return ids, scores and shared scores of every kind, by the names of a store's arrays.

        Where the store has the coarse clusters, new nodes join those of their neighbours.
        """
        settings, counts = self.store.settings, dict(self.store.layout.counts)
        before, names = places_before(counts, settings), list[str]()
        total = self.graph.num_nodes
        fresh = np.arange(self.growth.before.num_nodes, total)
        result: dict[str, Patched] = {}
        if COARSE in self.store.arrays:
            coarse = np.asarray(self.store.arrays[COARSE])
            joined = np.maximum(join_clusters(self.graph, coarse)[fresh], 0)
            result[COARSE] = Patched(coarse, fresh, joined, total)
        for name, count in counts.items():
            own: dict[str, Array]
            rows = self.rows
            if count:
                kind, ranker, connections = self.rankers[name]
                more = before.get(name, 0)
                ranking = self._rank(kind, ranker, more=more)
                rows = ranking.sources
                own = {"ids": ranking.ids, "scores": ranking.scores.astype(settings.score_type)}
                if more:
                    earlier = np.concatenate([result[f"{other}_ids"].take(rows) for other in names], 1)
                    how: dict[str, Any] = {"count": count, "score_type": settings.score_type}
                    own = leave_repeats_out(ranking.ids, ranking.scores, earlier=earlier, **how)
                    own |= {"reserve": ranking.ids} if f"{name}_reserve" in self.store.arrays else {}
                assignment = connections.assignment
            else:
                own = {"ids": np.empty((len(rows), 0), np.int32)}
                own["scores"] = np.empty((len(rows), 0), settings.score_type)
                assignment = np.concatenate([self.store.assignment(name), np.full(len(self.growth.new), -1, np.int32)])
            names.append(name)
            for part, array in own.items():
                result[f"{name}_{part}"] = Patched(self.store.arrays[f"{name}_{part}"], rows, array, total)
            old = np.asarray(self.store.assignment(name))
            result[f"{name}_assignment"] = Patched(old, fresh, assignment[fresh], total)
        return result

    def hops(self) -> Iterator[tuple[int, Any]]:
        """Yield the number and the matrix of each hop: CSR if it is sparse, else `Patched`, or an array of all rows."""
        hops = self.store.num_hops
        sets = [self.growth.new] * hops if self.refresh == NEW else self.growth.around(hops)
        if not hops:
            return
        step, dtype = Step.of(self.graph, self.store.settings.self_loops), self.store.settings.hop_type
        current: Any = self.graph.features
        for number, rows in enumerate(sets, start=1):
            old: Any = self.store.hop(number)
            if (
                self.refresh == AFFECTED
                and 2 * len(rows) > self.graph.num_nodes
                and not (sp.issparse(old) or sp.issparse(current))
            ):
                # Most rows change: computing all of them is quicker than picking, and gives the others the same bits.
                every, whole = range(self.graph.num_nodes), take_rows(current, np.arange(self.graph.num_nodes))
                current = to_type(step.times_dense(whole, every, threads=default_threads(self.threads)), dtype)
                yield number, current
                continue
            product = step.times_rows(current, rows)
            if sp.issparse(old):
                current = patched_csr(old, rows, sp.csr_matrix(product), num_rows=self.graph.num_nodes)
            else:
                dense = product.toarray() if sp.issparse(product) else product
                current = Patched(old, rows, to_type(dense, dtype), self.graph.num_nodes)
            yield number, current

    def arrays(self) -> dict[str, Array]:
        """Return all arrays of the lists in memory, by name."""
        arrays = {name: patched.take(np.arange(patched.num_rows)) for name, patched in self.lists().items()}
        for number, hop in self.hops():
            whole = hop.take(np.arange(hop.num_rows)) if isinstance(hop, Patched) else hop
            arrays |= hop_arrays(number, whole)
        return arrays

    def keep_rankers(self, folder: Path) -> None:
        """Keep the rankers that have a second level, for the next update; others are quickly prepared."""
        for name, (_, ranker, _) in self.rankers.items():
            if isinstance(ranker, Ranker) and not is_intact(folder / RANKERS / name):
                ranker.save(folder / RANKERS / name, self.graph)

    def to_lists(self) -> TokenLists:
        """Return the lists in memory."""
        return TokenLists(self.store.config, self.arrays(), self.store.more_kinds)


class Origin(Protocol):
    """Token lists with the graph they were made from, such as a `Run`."""

    @property
    def store(self) -> TokenStore:
        """Return the token lists."""

    @property
    def graph(self) -> Graph:
        """Return the graph with prepared features."""

    def prepare(self, graph: Graph) -> Graph:
        """Return another graph with its features prepared in the same way."""


def update(
    store: TokenStore | Origin,
    graph: Graph,
    out: str | Path = "tokens",
    *,
    before: Graph | None = None,
    refresh: str = AFFECTED,
    threads: int | None = None,
    progress: Progress | None = None,
) -> TokenStore:
    """Bring the token lists of a graph that has grown up to date, in a new folder.

    Parameters
    ----------
    store
        The token lists of before, or the run that they belong to. The first call keeps rankers in their folder,
        if that can be written.
    graph
        The graph of now: nodes of before first, in their order (`Graph.extend`). For a run, the graph as it is: nodes
        are matched by name, and features are prepared.
    before
        The graph that the store was made from. It is not needed for a run, for `all`, or if nothing but new nodes and
        their edges came since.
    refresh : "new", "affected" or "all"
        How much to make anew, see `vcr_graphormer.tokens.growth`.
    """
    if not isinstance(store, TokenStore):
        before = store.graph
        graph, store = align(before, store.prepare(graph)), store.store
    if refresh != ALL or before is not None:
        growth = Growth(before or _first_nodes(store, graph), graph).check()
        refresh = choose_refresh(growth, refresh)
        _check_before(store, growth.before)
    train = training_nodes(store)
    given = replace(store.settings, content=_asked_content(store))
    if refresh == ALL:
        return tokenize(graph, train, given, out, threads=threads, progress=progress)
    folder, show = Path(out), progress or (lambda *_: None)
    identity = make_identity(graph, train, config=given, settings=store.settings)
    identity |= {"grown from": digest(np.array(sorted(store.identity.items()))), "refresh": refresh}
    if (folder / MANIFEST).is_file():
        return TokenStore.open(folder).check(identity)
    job = Update(store, growth, refresh, threads)
    with JobFolder(folder, identity) as work:
        show("lists", 0, 1)
        arrays: dict[str, Array] = {}
        for name, patched in job.lists().items():
            shape = (patched.num_rows, *patched.old.shape[1:])
            arrays[name] = work.write_blocks(name, shape, patched.old.dtype.str, patched.blocks())
        show("lists", 1, 1)
        for number, hop in job.hops():
            if isinstance(hop, Patched):
                shape = (hop.num_rows, *hop.old.shape[1:])
                arrays[f"hop_{number}"] = work.write_blocks(f"hop_{number}", shape, hop.old.dtype.str, hop.blocks())
            else:
                arrays |= {name: work.write(name, array) for name, array in hop_arrays(number, hop).items()}
            show("hop features", number, store.num_hops)
        meta = {"config": store.config, "identity": identity, "growth": staleness(store, growth, job)}
        job.keep_rankers(folder)
        write_manifest(folder, KIND, version=FORMAT_VERSION, arrays=arrays, meta=meta, checksums=work.checksums)
        work.end()
    return TokenStore.open(folder)


def later_lists(
    store: TokenStore, before: Graph, graph: Graph, *, refresh: str = AFFECTED, train: NDArray[np.int64]
) -> TokenStore:
    """Return the lists of a graph that has grown; like `update`, but in memory. Its folder is that of before."""
    growth = Growth(before, graph).check()
    refresh = choose_refresh(growth, refresh)
    if store.num_nodes != before.num_nodes:
        raise ConfigError("a run on a later graph cannot be brought up to date again: begin with the run itself")
    if refresh == ALL:
        return replace(store, arrays=make_lists(graph, train, store.settings).arrays, identity={}, growth={})
    job = Update(store, growth, refresh)
    return replace(store, arrays=job.arrays(), identity={}, growth=staleness(store, growth, job))


def choose_refresh(growth: Growth, refresh: str) -> str:
    """Return how much is made anew: what is asked for, but `all` instead of `affected` where most lists are."""
    if refresh not in REFRESH:
        raise ConfigError(f"refresh is {refresh!r}; it must be {', '.join(REFRESH[:-1])} or {REFRESH[-1]}")
    changes = len(growth.new) + len(growth.old_to_old)
    return ALL if refresh == AFFECTED and changes > MOST_AFFECTED * growth.before.num_nodes else refresh


def staleness(store: TokenStore, growth: Growth, job: Update) -> dict[str, Any]:
    """Return how far the lists are from those of a fresh start: numbers since the last one."""
    earlier: Mapping[str, Any] = store.growth
    return {
        "nodes": int(earlier.get("nodes", growth.before.num_nodes)),
        "new": int(earlier.get("new", 0)) + len(growth.new),
        "changed": int(earlier.get("changed", 0)) + len(growth.changed),
        "updates": int(earlier.get("updates", 0)) + 1,
        "refresh": job.refresh,
    }


def summarize(store: TokenStore) -> str:
    """Say how far lists are from those of a fresh start, and when to make one.

    >>> summarize(TokenStore({}, {}, growth={"nodes": 9, "new": 3, "changed": 2, "updates": 2, "refresh": "new"}))
    '3 new nodes and 2 with other edges since 9 nodes were tokenized, in 2 updates: time to tokenize and train afresh'
    """
    growth = store.growth
    if not growth:
        return "the lists are those of a fresh start"
    text = (
        f"{growth['new']:,} new nodes and {growth['changed']:,} with other edges since {growth['nodes']:,} nodes were"
    )
    text += f" tokenized, in {growth['updates']:,} updates"
    stale = growth["new"] > MOST_NEW * growth["nodes"]
    return text + (": time to tokenize and train afresh" if stale else "")


def training_nodes(store: TokenStore) -> NDArray[np.int64] | None:
    """Return the training nodes whose labels made the content connections; None if no labels did."""
    if store.settings.content != "labels" or not store.settings.content_tokens:
        return None
    return np.flatnonzero(np.asarray(store.assignment("content")) >= 0)


def _asked_content(store: TokenStore) -> str:
    """Return the setting `content` that the lists were asked for with, which may be `auto`."""
    content = store.identity.get("setting content")
    if content not in CONTENTS:
        raise StoreError(
            f"{store.path} does not say which tokens.content it was asked for with: its identity has {content!r}, not "
            f"{', '.join(CONTENTS[:-1])} or {CONTENTS[-1]}. Tokenize again"
        )
    return content


def _check_before(store: TokenStore, before: Graph) -> None:
    if different := _differences(store, before):
        raise StoreError(f"{store.path} was not made from this graph: its {' and '.join(different)} differ")


def _differences(store: TokenStore, before: Graph) -> list[str]:
    names = ("adjacency", "features")
    return [name for name in names if store.identity.get(f"graph {name}") != before.fingerprints[name]]


def _first_nodes(store: TokenStore, graph: Graph) -> Graph:
    """Return the graph of before as the first nodes of that of now; refuse if these are no longer the same."""
    count = store.num_nodes
    before = subgraph(graph, np.arange(min(count, graph.num_nodes)))
    if different := _differences(store, before):
        raise StoreError(
            f"the first {count:,} nodes are no longer those that {store.path} was made from: their "
            f"{' and '.join(different)} differ. Give the graph of then too (before), or make everything anew (all)"
        )
    return before
