"""Graph and training nodes → `TokenStore`: both rankings and the hop features, in stages that survive interruption."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array, check_sources
from ..base.files import read_npz, replace_file
from ..base.folders import MANIFEST, digest, is_intact, write_manifest
from ..base.jobs import JobFolder, Progress, Stages
from ..base.machine import default_threads
from ..data.graph import Graph
from ..ranking.connections import Connections
from ..ranking.links import LinkRanker
from ..ranking.pagerank import Ranker
from ..ranking.second_level import coarse_clusters
from .config import KINDS, TokenConfig
from .hops import Step, propagate
from .kinds import make_connections, member_means
from .resources import check_resources
from .shards import SavedRanker, Shard, rank_shards
from .store import FORMAT_VERSION, KIND, TokenStore

SOURCES_AT_ONCE = 4096


MOST_SHARDS = 1024  # each clears working memory for all nodes first, so their number must not grow with the graph


SPARSE_PARTS = ("data", "indices", "indptr")


def tokenize(
    graph: Graph,
    train: Any = None,
    config: TokenConfig | None = None,
    out: str | Path = "tokens",
    threads: int | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> TokenStore:
    """Compute every node's token list, once, and store it.

    Interrupted, it resumes with the finished parts and ends with the same bytes. A finished store of the same graph,
    training nodes and settings is opened as it is; one of others is refused.

    Parameters
    ----------
    train
        Training nodes; their labels, and no others, make the content connections.
    out
        The folder of the store.
    threads
        Default: all cores this process may use. The result does not depend on it.
    progress
        Called with stage, done and total.
    executor
        Who ranks the shards; default a pool of `threads` in this process. Any `concurrent.futures.Executor`, such as
        `client.get_executor()` of dask.distributed, whose workers see `out` and the folder of the graph under the same
        path; a graph that was not opened from a folder is saved, its edges only, under `out` for the time of the job.
        On processors of one kind the result does not depend on it. It is not shut down.
    """
    config = config or TokenConfig()
    nodes = None if train is None else np.unique(check_sources(train, graph.num_nodes, "train"))
    content = config.check(graph, nodes)
    threads = default_threads(threads)
    identity = _identity(graph, nodes, config, content)
    folder = Path(out)
    if (folder / MANIFEST).is_file():
        return _open_checked(folder, identity)
    check_resources(graph, config, threads, folder, _by_path(executor))
    with JobFolder(folder, identity) as work:
        job = _Job(graph, nodes, config, content, work, threads, progress or (lambda *_: None), executor)
        arrays = {**job.rank_all(), **job.hop_all()}
        settings = {**asdict(config), "content": content, "num_features": graph.num_features}
        meta = {"config": settings, "identity": identity}
        write_manifest(folder, KIND, FORMAT_VERSION, arrays, meta, work.checksums)
        # The store is complete. Measurements lie beside it, not in it: its bytes depend on its input alone.
        with replace_file(folder / "stages.json") as temporary:
            temporary.write_text(json.dumps(job.stages.rows, indent=1))
        work.end()
    return TokenStore.open(folder)


def check_tokens(graph: Graph, train: Any, config: TokenConfig, out: str | Path) -> None:
    """Refuse a finished store at `out` that belongs to another graph, split or configuration."""
    if (Path(out) / MANIFEST).is_file():
        nodes = np.unique(check_sources(train, graph.num_nodes, "train"))
        _open_checked(Path(out), _identity(graph, nodes, config, config.check(graph, nodes)))


def _open_checked(folder: Path, identity: dict[str, str]) -> TokenStore:
    store = TokenStore.open(folder)
    store.check(identity)
    return store


def _identity(graph: Graph, train: NDArray[np.int64] | None, config: TokenConfig, content: str) -> dict[str, str]:
    """What the bytes of a store depend on, by name. Labels of other than training nodes are not among it."""
    identity = {"graph adjacency": graph.fingerprints["adjacency"], "graph features": graph.fingerprints["features"]}
    if config.content_tokens:
        identity["kind of content"] = content
    if content == "labels" and config.content_tokens and graph.labels is not None and train is not None:
        identity["training nodes"] = digest(train)
        identity["training labels"] = digest(np.asarray(graph.labels)[train])
    settings = asdict(config)
    if settings["partitioner"] == "metis":
        del settings["partitioner"]  # younger than the first stores, which stay good
    return identity | {f"setting {name}": str(value) for name, value in settings.items()}


def _by_path(executor: Executor | None) -> bool:
    """Whether work is handed over by path: threads share our memory, all others do not."""
    return executor is not None and not isinstance(executor, ThreadPoolExecutor)


class _Job:
    """One run of `tokenize`: what it needs everywhere, and its stages in order."""

    def __init__(
        self,
        graph: Graph,
        train: NDArray[np.int64] | None,
        config: TokenConfig,
        content: str,
        work: JobFolder,
        threads: int,
        progress: Progress,
        executor: Executor | None,
    ) -> None:
        self.graph, self.train, self.config, self.content = graph, train, config, content
        self.work, self.threads, self.progress, self.executor = work, threads, progress, executor
        self.by_path = _by_path(executor)
        self.stages = Stages(work.parts / "stages.json")

    def rank_all(self) -> dict[str, Array]:
        """Components 3 and 4: ids and scores of all nodes, for structure and content."""
        arrays: dict[str, Array] = {}
        for kind, tokens in zip(KINDS, (self.config.structure_tokens, self.config.content_tokens), strict=True):
            names = [f"{kind}_ids", f"{kind}_scores", f"{kind}_assignment"]
            names += [f"{kind}_means"] if self.config.super_tokens == "mean" else []
            found = {name: self.work.open(name) for name in names}
            if any(array is None for array in found.values()):
                connections = self._connect(kind)
                found = dict(self._rank(kind, tokens, connections))
            arrays |= {name: array for name, array in found.items() if array is not None}
        return arrays

    def _connect(self, kind: str) -> Connections:
        """The super nodes of a kind; none where no token of that kind is asked for."""
        graph, config = self.graph, self.config
        with self.stages.measure(f"{kind} connections"):
            self.progress(f"{kind} connections", 0, 1)
            connections = make_connections(graph, self.train, config, kind, self.content)
            self.progress(f"{kind} connections", 1, 1)
        return connections

    @cached_property
    def coarse(self) -> NDArray[np.int32]:
        """The clusters of the coarse correction, which serve both rankings."""
        with self.stages.measure("coarse clusters"):
            self.progress("coarse clusters", 0, 1)
            coarse = coarse_clusters(self.graph, self.config.seed, self.config.partitioner)
            self.progress("coarse clusters", 1, 1)
        return coarse

    def _rank(self, kind: str, tokens: int, connections: Connections) -> Iterator[tuple[str, Array]]:
        """Rank all nodes in shards, then join the shards into arrays of the result."""
        num_nodes = self.graph.num_nodes
        shards = self._shards(kind, tokens) if tokens else []
        missing = [shard for shard in shards if not shard.is_whole()]
        if missing:
            self._rank_shards(f"{kind} ranking", missing, len(shards), self._prepare(kind, connections))
        for part, dtype in (("ids", "int32"), ("scores", self.config.score_type)):
            blocks = (read_npz(shard.file)[part] for shard in shards) if tokens else [np.empty((num_nodes, 0))]
            yield f"{kind}_{part}", self.work.write_blocks(f"{kind}_{part}", (num_nodes, tokens), dtype, blocks)
        if self.config.super_tokens == "mean":
            means = member_means(self.graph.features, connections)
            yield f"{kind}_means", self.work.write(f"{kind}_means", means)
        yield f"{kind}_assignment", self.work.write(f"{kind}_assignment", connections.assignment)

    def _shards(self, kind: str, tokens: int) -> list[Shard]:
        leave_out = kind == "content" and self.content == "labels" and self.config.leave_own_label_out
        how = (tokens, self.config.tolerance, leave_out, self.config.super_tokens == "mean")
        size = max(SOURCES_AT_ONCE, -(-self.graph.num_nodes // MOST_SHARDS))
        starts = range(0, self.graph.num_nodes, size)
        ranges = [(start, min(start + size, self.graph.num_nodes)) for start in starts]
        # Absolute, for workers have working directories of their own.
        # By the job's own name, for a worker may outlive a job that was deleted and write when another is under way.
        job = digest(np.array([f"{name}={value}" for name, value in sorted(self.work.identity.items())]))[:8]
        return [Shard(self.work.parts.absolute() / f"{kind}-{a}-{b}-{job}.npz", a, b, *how) for a, b in ranges]

    def _prepare(self, kind: str, connections: Connections) -> Ranker | LinkRanker | SavedRanker:
        """The ranker in memory, or saved where workers find it; one saved before an interruption serves again."""
        folder = self.work.parts.absolute() / f"{kind}-ranker"
        saved, by_links = is_intact(folder), kind == "content" and self.config.by_links
        ranker: Ranker | LinkRanker
        if not saved:
            coarse = None if by_links else self.coarse
            stage = f"{kind} links" if by_links else f"{kind} vectors"
            with self.stages.measure(stage) as row:
                self.progress(stage, 0, 1)
                if by_links:
                    ranker = LinkRanker.prepare(self.graph)
                else:
                    restart, threads = self.config.restart, self.threads
                    ranker = Ranker.prepare(self.graph, connections, restart, coarse, threads=threads)
                row["visits"] = ranker.visits
                if self.by_path:
                    shutil.rmtree(folder, ignore_errors=True)  # damaged
                    ranker.save(folder, self.graph)
                self.progress(stage, 1, 1)
        if self.by_path:
            return SavedRanker(self._graph_folder(), folder, by_links)
        return (LinkRanker if by_links else Ranker).open(folder, self.graph) if saved else ranker

    def _graph_folder(self) -> Path:
        """Where workers find the graph; features and labels are none of their business."""
        if self.graph.folder is not None:
            return self.graph.folder
        folder = self.work.parts.absolute() / "graph"
        if not is_intact(folder):
            shutil.rmtree(folder, ignore_errors=True)
            replace(self.graph, features=None, labels=None, names=None, class_names=None).save(folder)
        return folder

    def _rank_shards(
        self, stage: str, missing: list[Shard], total: int, ranker: Ranker | LinkRanker | SavedRanker
    ) -> None:
        done = total - len(missing)
        pool = ThreadPoolExecutor(self.threads) if self.executor is None else nullcontext(self.executor)
        with (
            self.stages.measure(stage) as row,
            pool as executor,
            closing(rank_shards(executor, missing, ranker, done)) as finished,
        ):
            self.progress(stage, done, total)
            row["visits"] = 0
            for visits in finished:
                row["visits"] += visits
                done += 1
                self.progress(stage, done, total)

    def hop_all(self) -> dict[str, Array]:
        """Component 2: one matrix per hop, computed from the file of the hop before."""
        arrays: dict[str, Array] = {}
        if not self.config.hops:
            return arrays
        stage, step = "hop features", None
        current: Any = self.graph.features
        self.progress(stage, 0, self.config.hops)
        for hop in range(1, self.config.hops + 1):
            found = self._open_hop(hop)
            if not found:
                with self.stages.measure(stage):
                    step = Step.of(self.graph, self.config.self_loops) if step is None else step
                    found = self._write_hop(hop, propagate(step, current, self.threads), current.shape)
            arrays |= found
            if f"hop_{hop}" in found:
                current = found[f"hop_{hop}"]
            else:
                parts = tuple(found[f"hop_{hop}_{part}"] for part in SPARSE_PARTS)
                current = sp.csr_matrix(parts, shape=current.shape, copy=False)
            self.progress(stage, hop, self.config.hops)
        return arrays

    def _write_hop(self, hop: int, blocks: Iterator[Any], shape: tuple[int, int]) -> dict[str, Array]:
        """Stream dense blocks to the file; sparse ones are smaller than one dense hop and are joined in memory."""
        first = next(blocks)
        if not sp.issparse(first):
            return {f"hop_{hop}": self.work.write_blocks(f"hop_{hop}", shape, "float32", chain([first], blocks))}
        matrix = sp.vstack([first, *blocks], format="csr")
        matrix.sort_indices()
        names = {part: f"hop_{hop}_{part}" for part in SPARSE_PARTS}
        return {name: self.work.write(name, getattr(matrix, part)) for part, name in names.items()}

    def _open_hop(self, hop: int) -> dict[str, Array]:
        """The arrays of a finished hop, none where one of them is not finished."""
        dense = self.work.open(f"hop_{hop}")
        if dense is not None:
            return {f"hop_{hop}": dense}
        parts = {f"hop_{hop}_{part}": self.work.open(f"hop_{hop}_{part}") for part in SPARSE_PARTS}
        found = {name: array for name, array in parts.items() if array is not None}
        return found if len(found) == len(SPARSE_PARTS) else {}
