"""Lists cut from one long ranking: those of exact kinds are the same, those by PageRank are at least as close."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.plain import token_config
from vcr_graphormer import Graph, exact_pagerank, generate, structure_connections
from vcr_graphormer.tokens.config import TokenConfig
from vcr_graphormer.tokens.lists import Kept, longest_rankings, make_lists

EXACT = token_config(hops=0, structure_tokens=0, content="links", content_tokens=6, nearest_tokens=5, link_tokens=0)
PAGERANK = token_config(hops=0, clusters=4, structure_tokens=8, content_tokens=0, content="features")


def longer(config: TokenConfig) -> TokenConfig:
    counts = ("structure_tokens", "content_tokens", "link_tokens", "nearest_tokens")
    changes: Any = {name: 3 * getattr(config, name) for name in counts}
    return replace(config, **changes)


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize(
    "change",
    [{}, {"content_tokens": 1}, {"content_tokens": 0}, {"score_type": "float16"}],
)
def test_exact_kinds_are_the_same(graph: Graph, change: dict[str, Any], distinct: bool) -> None:
    config = replace(EXACT, **change, distinct=distinct)
    kept = Kept(longest=longest_rankings([longer(replace(EXACT, distinct=True))]))
    assert kept.longest == {"structure": 0, "content": 18, "nearest": 15 + 18}
    expected = make_lists(graph, config=config)
    for _ in range(2):  # made, then kept
        cut = make_lists(graph, config=config, kept=kept)
        assert cut.arrays.keys() == expected.arrays.keys()
        for name, array in expected.arrays.items():
            assert cut.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(cut.arrays[name], array)


def test_pagerank_is_at_least_as_close(graph: Graph) -> None:
    kept = Kept(longest=longest_rankings([longer(PAGERANK)]))
    exact = exact_pagerank(graph, structure_connections(graph, 4), np.arange(graph.num_nodes))[:, : graph.num_nodes]
    np.fill_diagonal(exact, 0)
    best = np.sort(exact, axis=1)[:, -8:].sum(axis=1)
    direct, cut = (
        (np.take_along_axis(exact, np.asarray(lists.ids("structure")), axis=1).sum(axis=1) / best).mean()
        for lists in (make_lists(graph, config=PAGERANK), make_lists(graph, config=PAGERANK, kept=kept))
    )
    assert 0.99 < direct <= cut


def test_rankings_longer_than_the_graph() -> None:
    graph = generate(nodes=12, edges=20, classes=2, features=4, seed=0)
    config = replace(EXACT, structure_tokens=3, clusters=2)
    kept = Kept(longest={"structure": 40, "content": 40, "nearest": 40})
    expected, cut = make_lists(graph, config=config), make_lists(graph, config=config, kept=kept)
    for kind in ("structure", "content", "nearest"):
        np.testing.assert_array_equal(cut.ids(kind), expected.ids(kind))


def test_a_ranking_that_is_not_long_enough_is_made_anew(graph: Graph) -> None:
    kept = Kept(longest={"content": 2, "nearest": 2})
    lists = make_lists(graph, config=EXACT, kept=kept)
    np.testing.assert_array_equal(lists.ids("content"), make_lists(graph, config=EXACT).ids("content"))
