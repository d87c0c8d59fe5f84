"""Graph and training nodes → `TokenStore`, in stages. An interrupted job resumes with the stages that are finished."""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..base.checks import Array, check_sources
from ..base.files import read_npz, replace_file, to_path
from ..base.folders import MANIFEST, digest, is_intact, write_manifest
from ..base.jobs import JobFolder, Progress, Stages
from ..base.machine import default_threads
from ..base.progress import bars
from ..data.graph import Graph
from ..ranking.connections import Connections
from ..ranking.ranker import NodeRanker
from .adapt import adapt_tokens
from .config import TokenConfig
from .distinct import leave_repeats_out, places_before
from .gpu import GpuStep, Product, check_device, free_gpu, gpu_for_hops
from .hops import Step, propagate, to_type
from .kinds import STRUCTURE, Kind, Train, kinds_of, resolve, structure_clusters
from .lists import COARSE, SPARSE_PARTS, coarse_clusters, hop_arrays, must_keep_clusters, open_hop, preparation
from .resources import check_resources
from .shards import SavedRanker, Shard, rank_shards
from .store import FORMAT_VERSION, KIND, TokenStore

SOURCES_AT_ONCE = 4096  # sources of a shard, as few as an interruption should cost; chosen by hand
MOST_SHARDS = 1024  # each first clears 16 bytes per node, so their number must not grow with the graph (docs/log.md)
_HOP_STAGE = "hop features"
_Hops: TypeAlias = dict[int, dict[str, Array]]  # the arrays of each hop by name; none of one that is not finished
_MOST_WRITERS = 4  # hops that are written at once; each has four blocks in page-locked memory
_NAME_LENGTH = 8  # hexadecimal digits that tell the jobs of one folder apart


class More(TypedDict, total=False):
    """What `tokenize` is rarely told.

    Attributes
    ----------
    kinds : sequence of Kind
        More kinds of neighbours than the settings name, such as one of your own.
    device : str
        Where dense hops of large graphs may be computed: auto (the default: on the first GPU, if there is one), cpu,
        cuda or cuda:N. The bits do not depend on it.
    """

    kinds: Sequence[Kind]
    device: str


def tokenize(
    graph: Graph,
    train: Any = None,
    config: TokenConfig | None = None,
    out: str | Path = "tokens",
    threads: int | None = None,
    progress: Progress | bool | None = None,
    executor: Executor | None = None,
    **more: Unpack[More],
) -> TokenStore:
    """Compute every node's token list, once, and store it.

    If it is interrupted, the same call resumes with the finished parts and ends with the same bytes. If `out` holds a
    finished store of the same graph, training nodes and settings, it is opened. A store of others is refused.

    Parameters
    ----------
    train
        Training nodes; their labels, and no others, make the content connections.
    out
        The folder of the store.
    threads
        Default: all cores this process may use. The result does not depend on it, unless KaMinPar cuts a graph of 2^25
        arcs or more: with several threads it finds other clusters every time. These are stored first.
    progress
        Called with stage, done and total. By default bars show it on a terminal and in a notebook; False: nothing does.
    executor
        Ranks the shards; default: a pool of `threads` in this process. Any `concurrent.futures.Executor` will do, such
        as `client.get_executor()` of dask.distributed. Its workers must see `out` and the folder of the graph under the
        same path. If the graph has no folder, its edges are saved under `out` for the time of the job. On processors of
        one kind the result does not depend on the executor. It is not shut down.
    **more
        `kinds` and `device`, as in `More`.
    """
    if unknown := more.keys() - More.__annotations__.keys():
        raise TypeError(f"tokenize() got an unexpected keyword argument '{min(unknown)}'")
    kinds, device = more.get("kinds", ()), more.get("device", "auto")
    check_device(device)
    nodes = None if train is None else np.unique(check_sources(train, graph.num_nodes, "train"))
    config = adapt_tokens(config or TokenConfig(), graph, nodes)
    settings = resolve(config, graph, nodes, kinds)
    threads = default_threads(threads)
    identity = make_identity(graph, nodes, config=config, settings=settings, kinds=kinds)
    folder = to_path(out)
    if (folder / MANIFEST).is_file():
        store = TokenStore.open(folder).check(identity)
        JobFolder(folder, identity).end()  # a process that was killed after its last array leaves parts
        return store
    check_resources(graph, settings, threads=threads, folder=folder, by_path=_by_path(executor), kinds=kinds)
    all_kinds = (*kinds_of(settings), *kinds)
    with bars(progress) as show, JobFolder(folder, identity) as work:
        job = _Job(
            graph, nodes, config=settings, kinds=all_kinds, work=work, threads=threads, progress=show, executor=executor
        )
        kept = job.kept  # before any other array: where clusters were lost, nothing counts as finished
        with job.hops(device) as finish_hops:
            # Processes that are forked for the rankings must not inherit threads that write hops. Numbers that are too
            # large for float16 are known before the rankings, not hours later.
            hops_first = _by_path(executor) or config.hop_type != "float32"
            hops = finish_hops() if hops_first else {}
            arrays = {**kept, **job.rank_all(), **(hops or finish_hops())}
        about = {**settings.to_dict(), "num_features": graph.num_features}
        meta: dict[str, Any] = {"config": about, "identity": identity}
        if kinds:
            meta["kinds"] = [[kind.name, kind.own_label_left_out] for kind in kinds]
        write_manifest(folder, KIND, version=FORMAT_VERSION, arrays=arrays, meta=meta, checksums=work.checksums)
        # Measurements lie beside the complete store, not in it: its bytes depend on its input alone.
        with replace_file(folder / "stages.json") as temporary:
            temporary.write_text(json.dumps(job.stages.rows, indent=1))
        work.end()
    return TokenStore.open(folder)


def check_tokens(graph: Graph, train: Any, config: TokenConfig, out: str | Path, kinds: Sequence[Kind] = ()) -> None:
    """Refuse a finished store at `out` that belongs to another graph, split or configuration."""
    if (Path(out) / MANIFEST).is_file():
        nodes = np.unique(check_sources(train, graph.num_nodes, "train"))
        config = adapt_tokens(config, graph, nodes)
        settings = resolve(config, graph, nodes, kinds)
        TokenStore.open(out).check(make_identity(graph, nodes, config=config, settings=settings, kinds=kinds))


def make_identity(
    graph: Graph, train: Train, *, config: TokenConfig, settings: TokenConfig, kinds: Sequence[Kind] = ()
) -> dict[str, str]:
    """Return what the bytes of a store depend on, by name. Only training nodes' labels are part of it.

    `config` is what the user gave, `settings` what it was resolved to.
    """
    identity = {"graph adjacency": graph.fingerprints["adjacency"], "graph features": graph.fingerprints["features"]}
    if config.content_tokens:
        identity["kind of content"] = settings.content
    for kind in (*kinds_of(settings), *kinds):
        identity |= kind.labels(graph, train) if kind.count(settings) else {}
    identity |= {f"kind {kind.name}": f"{kind.count(settings)} tokens" for kind in kinds}
    given = config.to_dict()
    if given["partitioner"] == "metis":
        del given["partitioner"]  # younger than the first stores, which stay valid
    return identity | {f"setting {name}": str(value) for name, value in given.items()}


def _by_path(executor: Executor | None) -> bool:
    """Return whether workers get paths instead of arrays: all but threads, which share our memory."""
    return executor is not None and not isinstance(executor, ThreadPoolExecutor)


def _are_groups(values: Array, num_nodes: int, least: int, count: int) -> bool:
    """Return whether an array read from a file has one group for each node, from `least` to below `count`."""
    if values.dtype != np.int32 or values.shape != (num_nodes,):
        return False
    return not num_nodes or (least <= int(values.min()) and int(values.max()) < count)


@dataclass(frozen=True, eq=False)
class _Job:
    """One run of `tokenize`, with what its stages need."""

    graph: Graph
    train: Train
    config: TokenConfig
    kinds: tuple[Kind, ...]
    work: JobFolder
    threads: int
    progress: Progress
    executor: Executor | None

    @cached_property
    def stages(self) -> Stages:
        return Stages(self.work.parts / "stages.json")

    @contextmanager
    def _stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Measure a stage that has no parts, and show its progress."""
        with self.stages.measure(name) as row:
            self.progress(name, 0, 1)
            yield row
            self.progress(name, 1, 1)

    @contextmanager
    def _writing_stage(self, name: str) -> Iterator[None]:
        """Measure a part of a stage that writes arrays, and how long it waited for that."""
        with self.stages.measure(name) as row:
            before = self.work.waited
            try:
                yield
            finally:
                row["writing"] = self.work.waited - before

    def rank_all(self) -> dict[str, Array]:
        """Return the arrays of every kind of neighbours, by name; compute those that are not finished."""
        arrays: dict[str, Array] = {}
        for kind in self.kinds:
            more = () if kind.name not in self._before else ("shared", "reserve") if kind.reserve else ("shared",)
            parts = ("ids", "scores", "assignment", *more)
            finished = {f"{kind.name}_{part}": self.work.open(f"{kind.name}_{part}") for part in parts}
            if any(array is None for array in finished.values()):
                connections = self._connections(kind)
                earlier = [array for name, array in arrays.items() if name.endswith("_ids")]
                finished = dict(self._rank(kind, connections, earlier=earlier))
            arrays |= {name: array for name, array in finished.items() if array is not None}
        return arrays

    @cached_property
    def kept(self) -> dict[str, Array]:
        """Return the clusters that cannot be made again, by name. They are written before anything depends on them.

        If one is missing or damaged, all that was made from them is made anew.
        """
        if not must_keep_clusters(self.graph, self.config, self.kinds):
            return {}
        structure = f"{STRUCTURE.name}_assignment"
        kept = {name: self.work.open(name) for name in (structure, COARSE)}
        nodes = self.graph.num_nodes
        groups = {structure: (-1, self.config.clusters), COARSE: (0, nodes)}
        if any(array is None or not _are_groups(array, nodes, *groups[name]) for name, array in kept.items()):
            self.work.forget()
            with self._stage(f"{STRUCTURE.name} connections"):
                connections = structure_clusters(self.graph, self.config, self.threads)
            with self._stage("coarse clusters"):
                coarse = coarse_clusters(self.graph, self.config, self.threads)
            made = {structure: connections.assignment, COARSE: coarse}
            kept = {name: self.work.write(name, array) for name, array in made.items()}
        return {name: array for name, array in kept.items() if array is not None}

    def _connections(self, kind: Kind) -> Connections:
        """Return the super nodes of a kind: those that are kept or that an interrupted job made, else make them."""

        def make() -> dict[str, Any]:
            with self._stage(f"{kind.name} connections"):
                made = kind.connections(self.graph, self.train, self.config)
            return {"assignment": made.assignment, "count": np.array(made.count)}

        def fits(arrays: dict[str, Any]) -> bool:
            if arrays.keys() != {"assignment", "count"} or arrays["count"].shape or arrays["count"].dtype != np.int64:
                return False
            nodes, count = self.graph.num_nodes, int(arrays["count"])
            return count <= nodes and _are_groups(arrays["assignment"], nodes, -1, count)

        kept = self.kept.get(f"{kind.name}_assignment")
        if kept is not None:
            return Connections(np.array(kept), self.config.clusters if kind.count(self.config) else 0)
        arrays = self.work.once(f"{kind.name}-connections", make, fits)
        return Connections(arrays["assignment"], int(arrays["count"]))

    @cached_property
    def _counts(self) -> dict[str, int]:
        """Return the number of tokens of each kind."""
        return {kind.name: kind.count(self.config) for kind in self.kinds}

    @cached_property
    def _before(self) -> dict[str, int]:
        """Return the number of neighbours before those of each kind that must not repeat them."""
        return places_before(self._counts, self.config)

    @cached_property
    def coarse(self) -> NDArray[np.int32]:
        """Return the clusters of the second level, which serve every kind: those that are kept, else made."""

        def make() -> dict[str, Any]:
            with self._stage("coarse clusters"):
                return {"clusters": coarse_clusters(self.graph, self.config)}

        def fits(arrays: dict[str, Any]) -> bool:
            nodes = self.graph.num_nodes
            return arrays.keys() == {"clusters"} and _are_groups(arrays["clusters"], nodes, 0, nodes)

        if COARSE in self.kept:
            return np.array(self.kept[COARSE])
        arrays = self.work.once("coarse-clusters", make, fits)
        return np.asarray(arrays["clusters"])

    def _rank(self, kind: Kind, connections: Connections, *, earlier: list[Array]) -> Iterator[tuple[str, Array]]:
        """Rank all nodes in shards, then join the shards into arrays of the result.

        Shards do not depend on other kinds. Nodes of `earlier` lists are left out where shards are joined.
        """
        num_nodes, tokens = self.graph.num_nodes, self._counts[kind.name]
        shards = self._shards(kind) if tokens else []
        missing = [shard for shard in shards if not shard.is_whole()]
        if missing:
            ranker = self._prepare(kind, connections)
            self._rank_shards(f"{kind.name} ranking", missing, total=len(shards), ranker=ranker)
        before, score_type = self._before.get(kind.name, 0), self.config.score_type
        parts = {"ids": (tokens, "int32"), "scores": (tokens, score_type)}
        parts |= {"shared": (before, score_type)} if before else {}
        parts |= {"reserve": (tokens + before, "int32")} if before and kind.reserve else {}
        for part, (width, dtype) in parts.items():
            name = f"{kind.name}_{part}"
            blocks: Iterable[Array] = [np.empty((num_nodes, 0))]
            if tokens:
                blocks = (self._lists(kind, shard, earlier=earlier)[part] for shard in shards)
            with self._writing_stage(f"{kind.name} ranking") if tokens else nullcontext():
                array = self.work.write_blocks(name, (num_nodes, width), dtype, blocks)
            yield name, array
        yield f"{kind.name}_assignment", self.work.write(f"{kind.name}_assignment", connections.assignment)

    def _lists(self, kind: Kind, shard: Shard, *, earlier: list[Array]) -> dict[str, Array]:
        """Return ids and scores of a finished shard; if lists are distinct, without repeats and with `shared`."""
        ranking = read_npz(shard.file)
        if kind.name not in self._before:
            return ranking
        lists = leave_repeats_out(
            ranking["ids"],
            ranking["scores"],
            earlier=np.concatenate([ids[shard.start : shard.stop] for ids in earlier], 1),
            count=self._counts[kind.name],
            score_type=self.config.score_type,
        )
        return {**lists, "reserve": ranking["ids"]}

    def _shards(self, kind: Kind) -> list[Shard]:
        num_nodes = self.graph.num_nodes
        size = max(SOURCES_AT_ONCE, -(-num_nodes // MOST_SHARDS))
        ranges = [(start, min(start + size, num_nodes)) for start in range(0, num_nodes, size)]
        # The job is part of a file's name: a worker may outlive a deleted job and write while another one runs.
        # So are clusters that cannot be made again: another attempt at the same job has others.
        identity = [f"{name}={value}" for name, value in sorted(self.work.identity.items())]
        identity += [f"{name}={digest(array)}" for name, array in sorted(self.kept.items())]
        job = digest(np.array(identity))[:_NAME_LENGTH]
        # Absolute, because workers have working directories of their own.
        folder = self.work.parts.absolute()
        tokens, more = self._counts[kind.name], self._before.get(kind.name, 0)
        how: dict[str, Any] = {"tokens": tokens + more, "effort": kind.effort(self.config, more)}
        how["limit"] = num_nodes
        return [Shard(folder / f"{kind.name}-{start}-{stop}-{job}.npz", start, stop, **how) for start, stop in ranges]

    def _prepare(self, kind: Kind, connections: Connections) -> NodeRanker | SavedRanker:
        """Return the ranker in memory, or its folder for workers. One saved before an interruption is used again."""
        folder, by_path = self.work.parts.absolute() / f"{kind.name}-ranker", _by_path(self.executor)
        ranker, prepared = kind.ranker(), None
        if not is_intact(folder):
            coarse = self.coarse if ranker.uses_clusters else None
            with self._stage(f"{kind.name} {ranker.stage}") as row:
                how = preparation(self.config, coarse, self.threads)
                prepared = ranker.prepare(self.graph, connections, **how)
                row["visits"] = prepared.visits
                if by_path:
                    shutil.rmtree(folder, ignore_errors=True)  # damaged
                    prepared.save(folder, self.graph)
        if by_path:
            return SavedRanker(self._graph_folder(), folder, ranker)
        return ranker.open(folder, self.graph) if prepared is None else prepared

    def _graph_folder(self) -> Path:
        """Return the folder where workers find the graph, whose features and labels they do not need."""
        if self.graph.folder is not None:
            return self.graph.folder
        folder = self.work.parts.absolute() / "graph"
        if not is_intact(folder):
            shutil.rmtree(folder, ignore_errors=True)
            bare = replace(self.graph, features=None, feature_names=None, schema=None)
            replace(bare, labels=None, names=None, class_names=None).save(folder)
        return folder

    def _rank_shards(self, stage: str, missing: list[Shard], *, total: int, ranker: NodeRanker | SavedRanker) -> None:
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

    @contextmanager
    def hops(self, device: str) -> Iterator[Callable[[], dict[str, Array]]]:
        """Yield a function that returns the arrays of all hops, by name; it computes those that are not finished.

        On a GPU they are computed at once, in seconds, and written while the block runs.
        """
        hops = {hop: self._open_hop(hop) for hop in range(1, self.config.hops + 1)}
        missing = [hop for hop, arrays in hops.items() if not arrays]
        gpu = gpu_for_hops(self.graph, self.config.self_loops, len(missing), device) if missing else None
        unwritten: deque[tuple[int, Future[dict[str, Array]]]] = deque()
        on_gpu = gpu is not None
        with ThreadPoolExecutor(min(max(1, self.threads // 2), _MOST_WRITERS), "vcr-hops") as pool:

            def finish() -> dict[str, Array]:
                if missing:
                    with self._writing_stage(_HOP_STAGE):
                        if not on_gpu:
                            self._compute_hops(hops, None, pool=pool, unwritten=unwritten)
                        self._settle(hops, unwritten, 0)
                elif hops:
                    self._show_hops(hops)
                return {name: array for arrays in hops.values() for name, array in arrays.items()}

            try:
                if gpu is not None:
                    with self._writing_stage(_HOP_STAGE):
                        self._compute_hops(hops, gpu, pool=pool, unwritten=unwritten)
                gpu = None  # the graph leaves the device
                yield finish
            finally:
                pool.shutdown(cancel_futures=True)
                if on_gpu:
                    free_gpu()

    def _show_hops(self, hops: _Hops) -> None:
        self.progress(_HOP_STAGE, sum(map(bool, hops.values())), len(hops))

    def _settle(self, hops: _Hops, unwritten: deque[tuple[int, Future[dict[str, Array]]]], most: int) -> None:
        """Wait until at most so many hops are not written."""
        while len(unwritten) > most:
            hop, future = unwritten.popleft()
            with self.work.waiting():
                hops[hop] = future.result()
            self._show_hops(hops)

    def _compute_hops(self, hops: _Hops, gpu: GpuStep | None, *, pool: Executor, unwritten: deque[Any]) -> None:
        """Compute each hop that is not finished from the one before. Those of a GPU are left to the pool to write."""
        missing = [hop for hop, arrays in hops.items() if not arrays]
        features: Any = self.graph.features
        step = Step.of(self.graph, self.config.self_loops) if gpu is None else gpu.step
        most = 0 if gpu is None else gpu.most_waiting(features.shape[1])
        product: Product | None = None  # the hop before, if a GPU computed it

        def read(hop: int) -> Any:
            self._settle(hops, unwritten, 0)
            if hop == 0:
                return features
            # Mapped anew: the pages of a hop are given back when the hop after the next one begins.
            return open_hop(hop, {name: self.work.map(name) for name in hops[hop]}, features.shape)

        self._show_hops(hops)
        for hop in missing:
            made = None
            if gpu is not None:
                made = gpu.times(read(hop - 1) if product is None else product, self.config.hop_type)
            if made is None:
                hops[hop] = self._write_hop(hop, propagate(step, read(hop - 1), self.threads), shape=features.shape)
                self._show_hops(hops)
            else:
                unwritten.append((hop, pool.submit(self._write_hop, hop, made.blocks(), shape=features.shape)))
                self._settle(hops, unwritten, most)
            product = made if hop + 1 in missing else None

    def _write_hop(self, hop: int, blocks: Iterator[Any], *, shape: tuple[int, int]) -> dict[str, Array]:
        """Stream dense blocks to the file. Sparse ones are joined in memory, for they are smaller than a dense hop."""
        first = next(blocks)
        if not sp.issparse(first):
            dtype = self.config.hop_type
            numbers = (to_type(block, dtype) for block in chain([first], blocks))
            return {f"hop_{hop}": self.work.write_blocks(f"hop_{hop}", shape, dtype, numbers)}
        matrix = sp.vstack([first, *blocks], format="csr")
        matrix.sort_indices()
        return {name: self.work.write(name, array) for name, array in hop_arrays(hop, matrix).items()}

    def _open_hop(self, hop: int) -> dict[str, Array]:
        """Return the arrays of a finished hop; none if one of them is not finished."""
        dense = self.work.open(f"hop_{hop}")
        if dense is not None:
            return {f"hop_{hop}": dense}
        arrays = {f"hop_{hop}_{part}": self.work.open(f"hop_{hop}_{part}") for part in SPARSE_PARTS}
        finished = {name: array for name, array in arrays.items() if array is not None}
        return finished if len(finished) == len(SPARSE_PARTS) else {}
