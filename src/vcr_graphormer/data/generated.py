"""Graphs that need no download: scikit-learn's handwritten digits, and planted communities of any size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..base.checks import check_count, check_seed
from ..errors import ConfigError
from .graph import Graph


def digits(neighbours: int = 10) -> Graph:
    """1,797 real 8 × 8 images of handwritten digits that ship with scikit-learn, as a mutual nearest-neighbour graph.

    Two images are linked when each is among the other's `neighbours` nearest in pixel distance. The graph uses the
    images alone, never the labels.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    count = len(images)
    if not 1 <= neighbours < count:
        raise ConfigError(f"neighbours is {neighbours}; it must lie between 1 and {count - 1}")
    # Pixels are whole numbers, so these squared distances are exact in float64, whatever the order of summation: the
    # graph is the same on every machine and for every number of threads. Ties go to the smaller id.
    squares = (images**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * images @ images.T
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :neighbours]
    near = np.zeros((count, count), dtype=np.bool_)
    np.put_along_axis(near, nearest, True, axis=1)
    return Graph.from_edges(
        np.stack(np.nonzero(near & near.T)),
        count,
        features=images / 16.0,  # pixels run from 0 to 16
        labels=labels,
        class_names=[str(digit) for digit in range(10)],
        name="digits",
    )


def generate(
    nodes: int,
    edges: int,
    classes: int = 10,
    homophily: float = 0.8,
    seed: int = 0,
    features: int = 32,
    communities: int | None = None,
    degree_exponent: float = 2.5,
    feature_noise: float = 2.0,
    name: str = "generated",
) -> Graph:
    """Draw a degree-corrected planted-community graph with features and labels.

    Node propensities follow a power law. The share `homophily` of all edges, to the nearest edge, stays inside a
    community; the others lead to another class.

    Parameters
    ----------
    nodes, edges
        n, and the exact number of distinct undirected edges.
    classes, communities
        Labels, and communities (at least one per class, default exactly one); community i has label i mod classes.
    homophily
        From 0 (every edge crosses classes) to 1 (none does).
    features, feature_noise
        d, and the noise around each class's random centre (centres are about 1.4 apart per dimension).
    degree_exponent
        Tail of the propensities: P(propensity > x) ~ x^-(degree_exponent - 1); larger is more even.

    >>> generate(100, 300, classes=3, seed=1)
    Graph(generated: 100 nodes, 300 edges, 32 features, 3 classes)
    """
    communities = classes if communities is None else communities
    for what, value in (("nodes", nodes), ("edges", edges), ("classes", classes), ("communities", communities)):
        check_count(value, what)
    check_seed(seed)
    _check_arguments(nodes, edges, classes, homophily, features, communities, degree_exponent)
    generator = np.random.default_rng(seed)
    # Communities are contiguous while drawing, which makes "inside" and "outside" intervals; a final shuffle hides it.
    # Those of one class lie side by side, so another class is everything outside one interval.
    order = np.argsort(np.arange(communities) % classes, kind="stable")
    community = np.sort(np.arange(nodes) % communities)
    label_of_community = (np.arange(communities) % classes)[order]
    propensity = generator.pareto(degree_exponent - 1, nodes) + 1
    # A node cannot have more neighbours than there are nodes: without a cap the heaviest one would soak up edges.
    np.minimum(propensity, propensity.mean() * nodes / max(4.0, 4.0 * edges / nodes), out=propensity)
    cumulative = np.concatenate([[0.0], np.cumsum(propensity)])
    class_of_node = label_of_community[community]
    inside = round(homophily * edges)
    pairs = np.concatenate(
        [
            _draw_pairs(inside, cumulative, community, True, generator),
            _draw_pairs(edges - inside, cumulative, class_of_node, False, generator),
        ]
    )

    shuffle = generator.permutation(nodes).astype(np.int32)
    labels = np.empty(nodes, dtype=np.int64)
    labels[shuffle] = class_of_node
    edge_index = np.stack([shuffle[pairs // nodes], shuffle[pairs % nodes]])
    del pairs
    x = None
    if features:
        centres = generator.standard_normal((classes, features), dtype=np.float32)
        x = generator.standard_normal((nodes, features), dtype=np.float32)
        x *= np.float32(feature_noise)
        x += centres[labels]
    return Graph.from_edges(edge_index, nodes, features=x, labels=labels, name=name)


def _draw_pairs(
    wanted: int,
    cumulative: NDArray[np.float64],
    group: NDArray[np.int64],
    inside: bool,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Exactly `wanted` distinct pairs inside one group, or across groups, each as smaller · n + larger.

    Both ends are drawn by propensity; repeated pairs are drawn again.
    """
    nodes, total = len(group), cumulative[-1]
    starts, stops = _interval_ends(group, cumulative)
    found = np.empty(0, dtype=np.int64)
    for _ in range(200):
        missing = wanted - len(found)
        if missing == 0:
            return found
        draws = missing + missing // 8 + 16
        # Sorted draws make the binary search run through memory in order: three times faster at 10^7 edges.
        first = _locate(cumulative, np.sort(generator.random(draws)) * total)
        low, high = starts[group[first]], stops[group[first]]
        uniform = generator.random(draws)
        if inside:
            position = low + uniform * (high - low)
        else:
            position = uniform * (total - (high - low))
            position += np.where(position >= low, high - low, 0.0)  # skip the own group
        del low, high, uniform
        second = _locate(cumulative, position)
        # Rounding at the border of a group may land next door; such pairs are dropped like self-loops.
        fits = (first != second) & ((group[first] == group[second]) == inside)
        # Sort and compare with the neighbour: np.unique hashes, which took half of all time at 10^7 edges.
        keys = np.sort((np.minimum(first, second) * nodes + np.maximum(first, second))[fits])
        keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
        fresh = keys[~_contains(found, keys)]
        if len(fresh) > missing:  # the keys are sorted, so drop at random, never the last ones
            fresh = np.delete(fresh, generator.choice(len(fresh), len(fresh) - missing, replace=False))
        found = np.sort(np.concatenate([found, fresh]))
    raise ConfigError(
        f"only {len(found):,} of {wanted:,} distinct edges {'inside' if inside else 'across'} groups could be drawn: "
        f"ask for fewer edges, more nodes, fewer communities or another homophily"
    )


def _contains(sorted_values: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(sorted_values):
        return np.zeros(len(wanted), dtype=np.bool_)
    place = np.minimum(np.searchsorted(sorted_values, wanted), len(sorted_values) - 1)
    return np.equal(sorted_values[place], wanted)


def _interval_ends(
    group: NDArray[np.int64], cumulative: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Where each group begins and ends on the cumulative axis; groups are contiguous runs of nodes."""
    count = int(group.max()) + 1
    starts, stops = np.full(count, len(group)), np.zeros(count, dtype=np.int64)
    np.minimum.at(starts, group, np.arange(len(group)))
    np.maximum.at(stops, group, np.arange(len(group)) + 1)
    return cumulative[starts], cumulative[stops]


def _locate(cumulative: NDArray[np.float64], position: NDArray[np.float64]) -> NDArray[np.int64]:
    found = np.searchsorted(cumulative, position, side="right") - 1
    return np.minimum(found, len(cumulative) - 2)  # rounding may land on the right end


def _check_arguments(
    nodes: int, edges: int, classes: int, homophily: float, features: int, communities: int, degree_exponent: float
) -> None:
    rules = {
        f"nodes is {nodes}; it must be at least 1": nodes >= 1,
        f"classes is {classes}; it must be between 1 and nodes ({nodes})": 1 <= classes <= nodes,
        f"communities is {communities}; it must be between classes ({classes}) and nodes ({nodes})": (
            classes <= communities <= nodes
        ),
        f"homophily is {homophily!r}; it must lie between 0 and 1": (
            isinstance(homophily, int | float) and 0 <= homophily <= 1
        ),
        f"homophily is {homophily} but with one class every edge is inside: use 1": homophily == 1 or classes > 1,
        f"features is {features}; it must be 0 or more": features >= 0,
        f"degree_exponent is {degree_exponent}; it must be above 2": degree_exponent > 2,
        f"edges is {edges}; {nodes} nodes can have between 0 and {nodes * (nodes - 1) // 2}": (
            0 <= edges <= nodes * (nodes - 1) // 2
        ),
    }
    for message, fine in rules.items():
        if not fine:
            raise ConfigError(message)
