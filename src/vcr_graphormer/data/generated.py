"""Make graphs that need no download: scikit-learn's handwritten digits, and planted communities of any size."""

from __future__ import annotations

from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from ..base.checks import check_count, check_seed
from ..errors import ConfigError
from .graph import Graph

_LARGEST_PIXEL = 16.0  # of scikit-learn's digits
# A node of propensity p has an expected degree of p / mean propensity · 2 edges / nodes. Cutting p at
# mean · nodes / (4 · edges / nodes) makes that at most half of all nodes.
_CAP = 4.0
# Rounds of drawing after which the number of distinct edges counts as impossible.
_MOST_ROUNDS = 200


class Shape(TypedDict, total=False):
    """Settings of `generate` that are rarely changed; see there."""

    communities: int | None
    degree_exponent: float
    feature_noise: float
    name: str


_DEFAULT_SHAPE: Shape = {"communities": None, "degree_exponent": 2.5, "feature_noise": 2.0, "name": "generated"}


def digits(neighbours: int = 10) -> Graph:
    """Return 1,797 images of handwritten digits, which ship with scikit-learn, as a mutual nearest-neighbour graph.

    The images have 8 × 8 pixels. Two are linked when each is among the other's `neighbours` nearest in pixel distance.
    The edges use the images alone, never the labels.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    count = len(images)
    if not 1 <= neighbours < count:
        raise ConfigError(f"neighbours is {neighbours}; it must lie between 1 and {count - 1}")
    # Pixels are whole numbers, so float64 holds these squared distances exactly in any order of summation. The graph
    # is therefore the same on every machine and for every number of threads. Ties go to the smaller id.
    squares = (images**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * images @ images.T
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :neighbours]
    near = np.zeros((count, count), dtype=np.bool_)
    np.put_along_axis(near, nearest, True, axis=1)
    return Graph.from_edges(
        np.stack(np.nonzero(near & near.T)),
        count,
        features=images / _LARGEST_PIXEL,
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
    **shape: Unpack[Shape],
) -> Graph:
    """Draw a degree-corrected planted-community graph with features and labels.

    Each node has a propensity to be the end of an edge; propensities follow a power law. Edges stay inside a community
    or lead to another class.

    Parameters
    ----------
    nodes
        Number of nodes n.
    edges
        Exact number of distinct undirected edges.
    classes
        Number of classes.
    homophily
        Fraction of edges, to the nearest edge, that stay inside a community; the others lead to another class.
    features
        Number of features d; 0 for none.
    communities : default one per class
        Number of communities, at least one per class; community i has label i mod classes.
    degree_exponent : default 2.5
        Tail of the propensities: P(propensity > x) ~ x^-(degree_exponent - 1). A larger one gives more even degrees.
    feature_noise : default 2.0
        Standard deviation around each class's random centre; centres are about 1.4 apart per dimension.
    name : default "generated"
        Name of the graph.

    >>> generate(100, 300, classes=3, seed=1)
    Graph(generated: 100 nodes, 300 edges, 32 features, 3 classes)
    """
    unknown = shape.keys() - _DEFAULT_SHAPE.keys()
    if unknown:
        raise TypeError(f"generate() got an unexpected keyword argument '{min(unknown)}'")
    settings: Shape = {**_DEFAULT_SHAPE, **shape}
    communities = classes if settings["communities"] is None else settings["communities"]
    degree_exponent = settings["degree_exponent"]
    for what, value in (("nodes", nodes), ("edges", edges), ("classes", classes), ("communities", communities)):
        check_count(value, what)
    check_seed(seed)
    _check_arguments(
        nodes,
        edges,
        classes=classes,
        homophily=homophily,
        features=features,
        communities=communities,
        degree_exponent=degree_exponent,
    )
    generator = np.random.default_rng(seed)
    # While edges are drawn, the nodes of a community are consecutive, and so are the communities of a class. A draw
    # inside a community or outside a class is then a draw from intervals. A final shuffle hides the order.
    order = np.argsort(np.arange(communities) % classes, kind="stable")
    community = np.sort(np.arange(nodes) % communities)
    label_of_community = (np.arange(communities) % classes)[order]
    propensity = generator.pareto(degree_exponent - 1, nodes) + 1
    # Without a cap the heaviest node could be drawn for more edges than there are other nodes.
    np.minimum(propensity, propensity.mean() * nodes / max(_CAP, _CAP * edges / nodes), out=propensity)
    cumulative = np.concatenate([[0.0], np.cumsum(propensity)])
    class_of_node = label_of_community[community]
    inside = round(homophily * edges)
    pairs = np.concatenate(
        [
            _draw_pairs(inside, cumulative, group=community, inside=True, generator=generator),
            _draw_pairs(edges - inside, cumulative, group=class_of_node, inside=False, generator=generator),
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
        x *= np.float32(settings["feature_noise"])
        x += centres[labels]
    return Graph.from_edges(edge_index, nodes, features=x, labels=labels, name=settings["name"])


def _draw_pairs(
    count: int,
    cumulative: NDArray[np.float64],
    *,
    group: NDArray[np.int64],
    inside: bool,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw `count` distinct pairs of nodes inside one group, or across groups, each as smaller · n + larger.

    Both ends are drawn in proportion to their propensities, of which `cumulative` holds the sums [n + 1].
    """
    nodes, total = len(group), cumulative[-1]
    starts, stops = _interval_ends(group, cumulative)
    pairs = np.empty(0, dtype=np.int64)
    for _ in range(_MOST_ROUNDS):
        missing = count - len(pairs)
        if missing == 0:
            return pairs
        draws = missing + missing // 8 + 16  # more than are missing, for some draws repeat a pair
        # Sorted draws make the binary search run through memory in order: three times faster at 10^7 edges.
        first = _locate(cumulative, np.sort(generator.random(draws)) * total)
        low, high = starts[group[first]], stops[group[first]]
        uniform = generator.random(draws)
        if inside:
            position = low + uniform * (high - low)
        else:
            position = uniform * (total - (high - low))
            position += np.where(position >= low, high - low, 0.0)  # skip the group of `first`
        del low, high, uniform
        second = _locate(cumulative, position)
        # Rounding at the border of a group may hit the next group; such pairs are dropped like self-loops.
        fits = (first != second) & ((group[first] == group[second]) == inside)
        # Sort and drop repeats: np.unique hashes, which took half of all time at 10^7 edges.
        keys = np.sort((np.minimum(first, second) * nodes + np.maximum(first, second))[fits])
        keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
        new = keys[~_contains(pairs, keys)]
        if len(new) > missing:  # the keys are sorted, so drop random ones: the last ones all have large ids
            new = np.delete(new, generator.choice(len(new), len(new) - missing, replace=False))
        pairs = np.sort(np.concatenate([pairs, new]))
    raise ConfigError(
        f"only {len(pairs):,} of {count:,} distinct edges {'inside' if inside else 'across'} groups could be drawn: "
        f"ask for fewer edges, more nodes, fewer communities or another homophily"
    )


def _contains(sorted_values: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(sorted_values):
        return np.zeros(len(queries), dtype=np.bool_)
    index = np.minimum(np.searchsorted(sorted_values, queries), len(sorted_values) - 1)
    return np.equal(sorted_values[index], queries)


def _interval_ends(
    group: NDArray[np.int64], cumulative: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where each group begins and ends on the cumulative axis; the nodes of a group are consecutive."""
    count = int(group.max()) + 1
    starts, stops = np.full(count, len(group)), np.zeros(count, dtype=np.int64)
    np.minimum.at(starts, group, np.arange(len(group)))
    np.maximum.at(stops, group, np.arange(len(group)) + 1)
    return cumulative[starts], cumulative[stops]


def _locate(cumulative: NDArray[np.float64], position: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the node whose interval on the cumulative axis holds each position."""
    node = np.searchsorted(cumulative, position, side="right") - 1
    return np.minimum(node, len(cumulative) - 2)  # rounding may hit the right end


def _check_arguments(
    nodes: int, edges: int, *, classes: int, homophily: float, features: int, communities: int, degree_exponent: float
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
    for message, holds in rules.items():
        if not holds:
            raise ConfigError(message)
