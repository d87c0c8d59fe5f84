"""Write a graph of planted communities that is too large for `vcr.generate`, by all cores and in little memory.

It has the form of `generate`'s graphs, but other bits: each pair of groups of nodes draws its edges from a stream of
random numbers of its own. So pairs can be drawn in any order by any number of threads. Edges of different pairs differ,
and repeats within a pair are found in a small table. While edges are sorted, 16 bytes per edge are in memory. Features
are written in blocks.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from vcr_graphormer.base.files import replace_file, write_array
from vcr_graphormer.base.folders import digest, write_manifest
from vcr_graphormer.base.mapping import map_array
from vcr_graphormer.data.graph import FORMAT_VERSION
from vcr_graphormer.data.sorting import sort_edges
from vcr_graphormer.errors import ConfigError

TAIL = 1.5  # P(propensity > x) ~ x^-1.5, the default of `generate`
NOISE = 2.0  # standard deviation of features around the centre of their class, likewise
MOST_GROUPS = 128  # of whole communities, whose pairs draw the edges between classes
ROWS_AT_ONCE = 1 << 14  # rows of features that share a stream of random numbers; other values give another graph
PARTS_PER_THREAD = 8  # so that all threads end at about the same time
MOST_DRAWS = 200  # per edge, after which a pair of groups counts as full
TINY = 1e-9
# What a stream of random numbers is for.
LAYOUT, INSIDE, ACROSS, ROWS = range(4)
# Constants of SplitMix64 (Steele, Lea and Flood, 2014).
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_A, _B, _C, _D = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@dataclass(frozen=True)
class Communities:
    """The form of a graph: settings as in `generate`."""

    nodes: int
    edges: int
    classes: int
    communities: int
    features: int
    homophily: float = 0.8
    seed: int = 0


def write_communities(form: Communities, folder: Path, threads: int) -> None:
    """Draw the graph and write the folder that `Graph.save` would write. Its bytes do not depend on the threads."""
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
    temporary.mkdir(parents=True)
    ends, labels = draw_edges(form, threads)
    indptr, indices, _ = sort_edges(ends, None, form.nodes, directed=False, threads=threads)
    del ends
    write_features(temporary / "features.npy", form, labels, threads)
    arrays: dict[str, NDArray[Any]] = {"indptr": indptr, "indices": indices, "labels": labels}
    for name, array in arrays.items():
        write_array(temporary / f"{name}.npy", array)
    arrays["features"] = map_array(temporary / "features.npy")
    hashed: dict[str, tuple[Any, ...]] = {name: (array,) for name, array in arrays.items()}
    hashed |= {"adjacency": (indptr, indices, None, np.array([False]))}
    hashed |= {"known labels": (labels, np.array(["classification"])), "names": (None,)}
    with ThreadPoolExecutor(threads) as pool:
        sums = dict(zip(hashed, pool.map(lambda parts: digest(*parts), hashed.values()), strict=True))
    prints = {"adjacency": sums["adjacency"], "features": sums["features"]}
    meta = {
        "name": "generated",
        "task": "classification",
        "directed": False,
        "class_names": None,
        "features_shape": None,
        "fingerprints": {**prints, "labels": sums["known labels"], "names": sums["names"]},
    }
    write_manifest(temporary, "graph", FORMAT_VERSION, arrays, meta, sums)
    temporary.rename(folder)


def draw_edges(
    form: Communities, threads: int
) -> tuple[tuple[NDArray[np.int32], NDArray[np.int32]], NDArray[np.int64]]:
    """Return both ends of every edge, each edge once, and the labels.

    While edges are drawn, the nodes of a community are consecutive, and so are the communities of a class. Ids are
    shuffled, as in `generate`.
    """
    nodes, random = form.nodes, np.random.default_rng([form.seed, LAYOUT])
    starts = np.linspace(0, nodes, form.communities + 1).astype(np.int64)
    class_of = np.arange(form.communities) * form.classes // form.communities
    community = np.repeat(np.arange(form.communities), np.diff(starts))
    label = class_of[community]
    propensity = random.pareto(TAIL, nodes) + 1
    inside = round(form.homophily * form.edges)
    # Nobody is expected to be linked to more than half of the community, or of all nodes.
    mean, degree = propensity.mean(), 2 * form.edges / nodes
    at_home = np.minimum(propensity, mean * np.diff(starts)[community] / (2 * max(1.0, form.homophily * degree)))
    away = np.minimum(propensity, mean * nodes / (2 * max(1.0, (1 - form.homophily) * degree)))
    del community, propensity

    ids = random.permutation(np.arange(nodes, dtype=np.int32))
    source, target = (np.empty(form.edges, dtype=np.int32) for _ in range(2))
    own = np.arange(form.communities)
    counts = random.multinomial(inside, _shares(np.add.reduceat(at_home, starts[:-1])))
    how: dict[str, Any] = {"nodes": (label, ids), "threads": threads}
    _draw_pairs(
        (own, own), counts, starts, at_home, ends=(source[:inside], target[:inside]), seed=(form.seed, INSIDE), **how
    )

    bounds = np.linspace(0, form.communities, min(MOST_GROUPS, form.communities) + 1).astype(np.int64)
    groups = starts[bounds]
    first, second = np.triu_indices(len(groups) - 1)
    counts = np.zeros(len(first), dtype=np.int64)
    if inside < form.edges:
        group = np.repeat(np.arange(len(groups) - 1), np.diff(groups))
        by_class = np.bincount(group * form.classes + label, away, (len(groups) - 1) * form.classes)
        by_class = by_class.reshape(-1, form.classes)
        # Pairs of nodes of different classes, by propensity. Not by BLAS, whose last bits depend on threads.
        total = by_class.sum(axis=1)
        all_pairs, same = np.outer(total, total), np.einsum("ic,jc->ij", by_class, by_class)
        weight = np.where(all_pairs - same > TINY * all_pairs, all_pairs - same, 0.0) * (2 - np.eye(len(total)))
        counts = random.multinomial(form.edges - inside, _shares(weight[first, second]))
    ends = source[inside:], target[inside:]
    _draw_pairs((first, second), counts, groups, away, ends=ends, seed=(form.seed, ACROSS), **how)
    labels = np.empty(nodes, dtype=np.int64)
    labels[ids] = label
    return (source, target), labels


def _shares(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _draw_pairs(
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]],
    counts: NDArray[np.int64],
    starts: NDArray[np.int64],
    propensity: NDArray[np.float64],
    *,
    ends: tuple[NDArray[np.int32], NDArray[np.int32]],
    seed: tuple[int, int],
    nodes: tuple[NDArray[np.int64], NDArray[np.int32]],
    threads: int,
) -> None:
    """Write `counts` edges between each pair of groups; a group has the nodes `starts[i]` to `starts[i + 1]` - 1.

    `nodes` are the label and the final id of each node.
    """
    cumulative = np.concatenate([[0.0], np.cumsum(propensity)])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    within = seed[1] == INSIDE
    work = partial(_draw, *pairs, starts, cumulative, *nodes, within, offsets, key, *ends)
    # Parts with about the same number of edges.
    cuts = np.searchsorted(offsets, np.linspace(0, offsets[-1], PARTS_PER_THREAD * threads + 1)[1:-1])
    with ThreadPoolExecutor(threads) as pool:
        bounds = list(pairwise([0, *np.minimum(cuts, len(counts)).tolist(), len(counts)]))
        full = max(pool.map(lambda part: int(work(*part)), bounds))
    if full >= 0:
        raise ConfigError(
            f"{counts[full]:,} distinct edges do not fit between groups {pairs[0][full]} and {pairs[1][full]}: ask for "
            f"fewer edges, more nodes or fewer communities"
        )


@nb.njit(nogil=True, cache=True)
def _random(state: Any) -> Any:
    """Return the next 64 random bits."""
    state[0] += _STEP
    bits = state[0]
    bits = (bits ^ (bits >> _A)) * _FIRST
    bits = (bits ^ (bits >> _B)) * _SECOND
    return bits ^ (bits >> _C)


@nb.njit(nogil=True, cache=True)
def _locate(state: Any, cumulative: Any, first: int, stop: int) -> int:
    """Return a random node from `first` to `stop` - 1, drawn by propensity."""
    low, high = cumulative[first], cumulative[stop]
    position = low + (high - low) * (np.float64(_random(state) >> _D) * 2.0**-53)
    while stop - first > 1:
        middle = (first + stop) // 2
        if cumulative[middle] <= position:
            first = middle
        else:
            stop = middle
    return first


@nb.njit(nogil=True, cache=True)
def _draw(  # noqa: PLR0913 - numba compiles plain arguments best
    firsts: Any,
    seconds: Any,
    starts: Any,
    cumulative: Any,
    label: Any,
    ids: Any,
    within: bool,
    offsets: Any,
    key: Any,
    source: Any,
    target: Any,
    start: int,
    stop: int,
) -> int:
    """Draw the edges of the pairs start … stop - 1; return a pair that has no room for its edges, or -1."""
    state = np.empty(1, np.uint64)
    for pair in range(start, stop):
        state[0] = key ^ (np.uint64(pair) * _SECOND)
        state[0] = _random(state)
        count = offsets[pair + 1] - offsets[pair]
        size = 16
        while size < 2 * count:
            size *= 2
        table = np.full(size, -1, np.int64)  # the edges so far, by a hash
        a, b = firsts[pair], seconds[pair]
        done, draws = 0, 0
        while done < count:
            draws += 1
            if draws > MOST_DRAWS * count + size:
                return pair
            u = _locate(state, cumulative, starts[a], starts[a + 1])
            v = _locate(state, cumulative, starts[b], starts[b + 1])
            if u == v or (label[u] == label[v]) != within:
                continue
            edge = min(u, v) * len(label) + max(u, v)
            place = np.int64((np.uint64(edge) * _STEP) >> _A) & (size - 1)
            while table[place] >= 0 and table[place] != edge:
                place = (place + 1) & (size - 1)
            if table[place] < 0:
                table[place] = edge
                source[offsets[pair] + done], target[offsets[pair] + done] = ids[u], ids[v]
                done += 1
    return -1


def write_features(file: Path, form: Communities, labels: NDArray[np.int64], threads: int) -> None:
    """Write normally distributed features around a random centre per class, block by block."""
    shape = (form.nodes, form.features)
    centres = np.random.default_rng([form.seed, ROWS]).standard_normal((form.classes, form.features), dtype=np.float32)
    with replace_file(file) as temporary, temporary.open("wb") as handle, ThreadPoolExecutor(threads) as pool:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(handle, header)
        handle.flush()
        begin = handle.tell()

        def write(start: int) -> None:
            own = labels[start : start + ROWS_AT_ONCE]
            random = np.random.default_rng([form.seed, ROWS, start])
            block = random.standard_normal((len(own), form.features), dtype=np.float32)
            block *= np.float32(NOISE)
            block += centres[own]
            os.pwrite(handle.fileno(), block.data, begin + start * form.features * block.itemsize)

        list(pool.map(write, range(0, form.nodes, ROWS_AT_ONCE)))
