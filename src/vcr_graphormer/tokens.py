"""Graph and training nodes → `TokenStore`: both rankings and the hop features, in stages that survive interruption."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .arrays import Array
from .connections import Connections, content_connections, feature_connections, structure_connections
from .errors import StoreError
from .graph import Graph
from .hops import normalized_adjacency, propagate
from .measure import Stages
from .pagerank import Ranker, default_threads
from .split import read_npz
from .storage import MANIFEST, digest, open_array_file, replace_file, write_array, write_manifest
from .store import FORMAT_VERSION, KIND, KINDS, TokenConfig, TokenStore
from .vectors import coarse_clusters
from .walks import check_sources

Progress = Callable[[str, int, int], None]
SOURCES_AT_ONCE = 4096
SPARSE_PARTS = ("data", "indices", "indptr")


def tokenize(
    graph: Graph,
    train: Any = None,
    config: TokenConfig | None = None,
    out: str | Path = "tokens",
    threads: int | None = None,
    progress: Progress | None = None,
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
    """
    config = config or TokenConfig()
    content = config.check(graph, train)
    nodes = None if train is None else check_sources(train, graph.num_nodes)
    identity = _identity(graph, nodes, config, content)
    folder = Path(out)
    if (folder / MANIFEST).is_file():
        store = TokenStore.open(folder)
        store.check(identity)
        return store
    _begin(folder, identity)
    job = _Job(graph, nodes, config, content, folder, default_threads(threads), progress or (lambda *_: None))
    arrays = {**job.rank_all(), **job.hop_all()}
    meta = {"config": {**asdict(config), "content": content, "num_features": graph.num_features}, "identity": identity}
    with job.stages.measure("checksums"):
        write_manifest(folder, KIND, FORMAT_VERSION, arrays, meta)
    # The store is complete. Measurements lie beside it, not in it: its bytes depend on its input alone.
    with replace_file(folder / "stages.json") as temporary:
        temporary.write_text(json.dumps(job.stages.rows, indent=1))
    shutil.rmtree(folder / "parts", ignore_errors=True)
    (folder / "job.json").unlink(missing_ok=True)
    return TokenStore.open(folder)


def _identity(graph: Graph, train: NDArray[np.int64] | None, config: TokenConfig, content: str) -> dict[str, str]:
    """What the bytes of a store depend on, by name. Labels of other than training nodes are not among it."""
    identity = {"graph adjacency": graph.fingerprints["adjacency"], "graph features": graph.fingerprints["features"]}
    if content == "labels" and config.content_tokens and graph.labels is not None and train is not None:
        identity["training nodes"] = digest(np.sort(train))
        identity["training labels"] = digest(np.asarray(graph.labels)[np.sort(train)])
    return identity | {f"setting {name}": repr(value) for name, value in asdict(config).items()}


def _begin(folder: Path, identity: dict[str, str]) -> None:
    """Claim the folder, or find that an earlier run of the same job was interrupted in it."""
    file = folder / "job.json"
    if file.is_file():
        try:
            earlier = json.loads(file.read_text())
        except json.JSONDecodeError as error:
            raise StoreError(f"{file} is damaged: delete {folder} and start again") from error
        different = [name for name in identity if identity[name] != earlier.get(name)]
        if different:
            raise StoreError(
                f"{folder} holds unfinished work of another {', '.join(different)}: finish it, delete it, or choose "
                f"another folder"
            )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(f"{folder} exists and is not a token store: choose another folder")
    with replace_file(file) as temporary:
        temporary.write_text(json.dumps(identity, indent=1))


class _Job:
    """One run of `tokenize`: what it needs everywhere, and its stages in order."""

    def __init__(
        self,
        graph: Graph,
        train: NDArray[np.int64] | None,
        config: TokenConfig,
        content: str,
        folder: Path,
        threads: int,
        progress: Progress,
    ) -> None:
        self.graph, self.train, self.config, self.content = graph, train, config, content
        self.folder, self.parts, self.threads, self.progress = folder, folder / "parts", threads, progress
        self.stages = Stages(folder / "parts" / "stages.json")

    def rank_all(self) -> dict[str, Array]:
        """Components 3 and 4: ids and scores of all nodes, for structure and content."""
        arrays: dict[str, Array] = {}
        coarse = None
        for kind, tokens in zip(KINDS, (self.config.structure_tokens, self.config.content_tokens), strict=True):
            names = [f"{kind}_ids", f"{kind}_scores", f"{kind}_assignment"]
            names += [f"{kind}_means"] if self.config.super_tokens == "mean" else []
            if not all((self.folder / f"{name}.npy").is_file() for name in names):
                connections = self._connect(kind, tokens)
                coarse = self._coarse() if tokens and coarse is None else coarse
                self._rank(kind, tokens, connections, coarse)
            for name in names:
                arrays[name] = open_array_file(self.folder / f"{name}.npy")
        return arrays

    def _connect(self, kind: str, tokens: int) -> Connections:
        """The super nodes of a kind; none where no token of that kind is asked for."""
        graph, config = self.graph, self.config
        with self.stages.measure(f"{kind} connections"):
            self.progress(f"{kind} connections", 0, 1)
            if not tokens:
                connections = Connections(np.full(graph.num_nodes, -1, dtype=np.int32), 0)
            elif kind == "structure":
                connections = structure_connections(graph, config.clusters, config.seed)
            elif self.content == "labels":
                connections = content_connections(graph.labels, self.train)
            else:
                connections = feature_connections(graph.features, config.content_clusters, config.seed)
            self.progress(f"{kind} connections", 1, 1)
        return connections

    def _coarse(self) -> NDArray[np.int32]:
        """The clusters of the coarse correction, which serve both rankings."""
        file = self.parts / "coarse.npy"
        if not file.is_file():
            with self.stages.measure("coarse clusters"):
                self.progress("coarse clusters", 0, 1)
                write_array(file, coarse_clusters(self.graph, self.config.seed))
                self.progress("coarse clusters", 1, 1)
        return open_array_file(file)

    def _rank(self, kind: str, tokens: int, connections: Connections, coarse: NDArray[np.int32] | None) -> None:
        """Rank all nodes in shards, then join the shards. The assignment is written last: it marks the kind as done."""
        config, num_nodes = self.config, self.graph.num_nodes
        shards = [(start, min(start + SOURCES_AT_ONCE, num_nodes)) for start in range(0, num_nodes, SOURCES_AT_ONCE)]
        files = [self.parts / f"{kind}-{start}.npz" for start, _ in shards]
        missing = [i for i, file in enumerate(files) if tokens and not file.is_file()]
        if missing:
            with self.stages.measure(f"{kind} vectors") as row:
                self.progress(f"{kind} vectors", 0, 1)
                ranker = Ranker.prepare(self.graph, connections, config.restart, coarse, threads=self.threads)
                row["visits"] = ranker.visits
                self.progress(f"{kind} vectors", 1, 1)
            self._rank_shards(kind, tokens, ranker, [(shards[i], files[i]) for i in missing], len(shards))
        self._join(kind, tokens, files)
        if config.super_tokens == "mean":
            write_array(self.folder / f"{kind}_means.npy", member_means(self.graph.features, connections))
        write_array(self.folder / f"{kind}_assignment.npy", connections.assignment)

    def _rank_shards(
        self, kind: str, tokens: int, ranker: Ranker, work: list[tuple[tuple[int, int], Path]], total: int
    ) -> None:
        leave_out = kind == "content" and self.content == "labels" and self.config.leave_own_label_out
        keep_super = self.config.super_tokens == "mean"

        def rank_shard(sources: NDArray[np.int64], file: Path) -> int:
            ranking = ranker.rank(sources, tokens, self.config.tolerance, leave_out, keep_super, threads=1)
            with replace_file(file) as temporary, temporary.open("wb") as handle:
                np.savez(handle, ids=ranking.ids, scores=ranking.scores)
            return ranking.visits

        done = total - len(work)
        stage = f"{kind} ranking"
        with self.stages.measure(stage) as row, ThreadPoolExecutor(self.threads) as pool:
            self.progress(stage, done, total)
            row["visits"] = 0
            futures = [pool.submit(rank_shard, np.arange(*sources), file) for sources, file in work]
            try:
                for future in as_completed(futures):
                    row["visits"] += future.result()
                    done += 1
                    self.progress(stage, done, total)
            except BaseException:
                pool.shutdown(cancel_futures=True)  # Ctrl-C or a full disk: keep what is finished, start nothing new
                raise

    def _join(self, kind: str, tokens: int, files: list[Path]) -> None:
        """Copy the shards into one array of ids and one of scores."""
        ids = np.full((self.graph.num_nodes, tokens), -1, dtype=np.int32)
        scores = np.zeros((self.graph.num_nodes, tokens), dtype=self.config.score_type)
        start = 0
        for file in files if tokens else ():
            shard = read_npz(file)
            stop = start + len(shard["ids"])
            ids[start:stop], scores[start:stop] = shard["ids"], shard["scores"]
            start = stop
        write_array(self.folder / f"{kind}_ids.npy", ids)
        write_array(self.folder / f"{kind}_scores.npy", scores)

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
                    step = normalized_adjacency(self.graph, self.config.self_loops) if step is None else step
                    self._write_hop(hop, propagate(step, current), current.shape)
                found = self._open_hop(hop)
            arrays |= found
            if f"hop_{hop}" in found:
                current = found[f"hop_{hop}"]
            else:
                parts = tuple(found[f"hop_{hop}_{part}"] for part in SPARSE_PARTS)
                current = sp.csr_matrix(parts, shape=current.shape, copy=False)
            self.progress(stage, hop, self.config.hops)
        return arrays

    def _write_hop(self, hop: int, blocks: Iterator[Any], shape: tuple[int, int]) -> None:
        """Stream dense blocks to the file; sparse ones are smaller than one dense hop and are joined in memory."""
        first = next(blocks)
        if not sp.issparse(first):
            with replace_file(self.folder / f"hop_{hop}.npy") as temporary, temporary.open("wb") as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
                for block in chain([first], blocks):
                    np.ascontiguousarray(block, dtype="<f4").tofile(file)
            return
        matrix = sp.vstack([first, *blocks], format="csr")
        for part in SPARSE_PARTS:  # indptr is the last: it marks the hop as done
            write_array(self.folder / f"hop_{hop}_{part}.npy", getattr(matrix, part))

    def _open_hop(self, hop: int) -> dict[str, Array]:
        dense = self.folder / f"hop_{hop}.npy"
        if dense.is_file():
            return {f"hop_{hop}": open_array_file(dense)}
        names = [f"hop_{hop}_{part}" for part in SPARSE_PARTS]
        if not (self.folder / f"{names[-1]}.npy").is_file():
            return {}
        return {name: open_array_file(self.folder / f"{name}.npy") for name in names}


def member_means(features: Any, connections: Connections) -> NDArray[np.float32]:
    """Mean features of each super node's members [count, d]; zero where there are none."""
    members = np.flatnonzero(connections.assignment >= 0)
    shape = (connections.count, len(connections.assignment))
    weights = 1.0 / np.maximum(connections.sizes, 1)[connections.assignment[members]]
    average = sp.csr_matrix((weights.astype(np.float32), (connections.assignment[members], members)), shape=shape)
    product = average @ (features if sp.issparse(features) else np.asarray(features))
    return np.asarray(product.toarray() if sp.issparse(product) else product, dtype=np.float32)
