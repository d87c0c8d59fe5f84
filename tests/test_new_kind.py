"""A new kind of neighbours with a ranker of its own, defined here and nowhere else, goes through the whole package."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import pytest

import vcr_graphormer as vcr
from tests.support.dask_cluster import Here
from tests.support.plain import alone, token_config
from tests.support.runs import CONFIG, all_bytes, named_graph
from vcr_graphormer.base.checks import check_sources
from vcr_graphormer.base.folders import open_folder, write_folder
from vcr_graphormer.ranking.connections import Connections
from vcr_graphormer.ranking.ranker import Effort, NodeRanker, Preparation, Ranking, empty_lists
from vcr_graphormer.report.page import collect
from vcr_graphormer.tokens.lists import Kept, make_lists


@dataclass(frozen=True, eq=False)
class CircleRanker:
    """The nodes that follow a node by id, the last one followed by the first: an order nobody else would give."""

    stage: ClassVar[str] = "circle"
    uses_clusters: ClassVar[bool] = False

    num_nodes: int

    @property
    def visits(self) -> int:
        return 0

    @classmethod
    def prepare(
        cls, graph: vcr.Graph, connections: Connections | None = None, **how: Unpack[Preparation]
    ) -> "CircleRanker":
        return cls(graph.num_nodes)

    def rank(self, sources: Any = None, k: int = 20, **how: Unpack[Effort]) -> Ranking:
        nodes = np.arange(self.num_nodes) if sources is None else check_sources(sources, self.num_nodes)
        ids, scores = empty_lists(len(nodes), k)
        ids[:] = (nodes[:, None] + np.arange(1, k + 1)) % self.num_nodes
        scores[:] = 1 / np.arange(1, k + 1)
        return Ranking(ids, scores, nodes, visits=ids.size)

    def save(self, path: str | Path, graph: vcr.Graph) -> Path:
        return write_folder(path, "circle", 1, {"size": np.array([self.num_nodes])}, {}, overwrite=False)

    @classmethod
    def open(cls, path: str | Path, graph: vcr.Graph) -> "CircleRanker":
        return cls(int(open_folder(path, "circle", 1)[1]["size"][0]))

    @classmethod
    def memory(cls, graph: vcr.Graph, threads: int, partitioner: str) -> dict[str, int]:
        return {"circles": 8}

    @classmethod
    def saved_bytes(cls, graph: vcr.Graph) -> int:
        return 8


def circle() -> type[NodeRanker]:
    return CircleRanker


CIRCLE = vcr.Kind("circle", count=lambda config: 3, ranker=circle)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> vcr.Run:
    graph = named_graph()
    model = replace(CONFIG.model, kind_embedding=True, rank_embedding=True, label_embedding=True)
    config = replace(CONFIG, model=model, tokens=replace(CONFIG.tokens, link_tokens=2, distinct=False))
    split = vcr.Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, config, tmp_path_factory.mktemp("runs") / "run", device="cpu", kinds=[CIRCLE])


def test_its_tokens_stand_behind_the_others(run: vcr.Run) -> None:
    layout = run.store.layout
    assert dict(layout.counts) == {"structure": 3, "content": 3, "links": 2, "circle": 3}
    assert layout.places("circle") == slice(11, 14)
    assert run.store.ids("circle")[[0, 148]].tolist() == [[1, 2, 3], [149, 0, 1]]
    assert run.store.scores("circle")[5].tolist() == pytest.approx([1, 1 / 2, 1 / 3])
    assert "3 circle" in repr(run.store)
    batch = run.inputs.batch(run.inputs.ids[0].new_tensor([148]).long(), with_rows=False)
    assert batch.place[0, -3:].tolist() == [149, 0, 1]
    kinds = alone(run.model).kinds
    assert kinds is not None
    assert len(kinds) == 1 + 2 + 4  # the node, two hops, four kinds of neighbours


def test_it_is_learned_predicted_and_explained(run: vcr.Run) -> None:
    assert run.metrics["test"] > 0.5
    again = vcr.Run.open(run.path, "cpu")
    np.testing.assert_array_equal(again.predict().probabilities, run.predict().probabilities)
    tokens = [token for token in run.explain("n7").tokens if token.kind == "circle"]
    assert [token.name for token in tokens] == ["n8", "n9", "n10"]
    assert any(abs(token.effect) > 1e-6 for token in tokens)
    assert run.attributions([7]).layout.names == ("self", "hop", "structure", "content", "links", "circle")


def test_the_page_is_told_of_it(run: vcr.Run) -> None:
    data = collect(run)
    assert data["explorer"]["layout"] == {"hop": 2, "structure": 3, "content": 3, "links": 2, "circle": 3}
    assert [row["kind"] for row in data["kinds"]] == ["self", "hop", "structure", "content", "links", "circle"]
    assert run.report(run.path / "page.html").stat().st_size > 10_000


def test_bytes_do_not_depend_on_who_ranks(run: vcr.Run, tmp_path: Path) -> None:
    graph, train, config = run.graph, run.split.train, run.config.tokens
    by_path = vcr.tokenize(graph, train, config, tmp_path / "tokens", executor=Here(), kinds=[CIRCLE])
    assert all_bytes(by_path) == all_bytes(run.store)
    in_memory = make_lists(graph, train, config, kinds=[CIRCLE])
    assert in_memory.layout == run.store.layout
    for name, array in run.store.arrays.items():
        np.testing.assert_array_equal(in_memory.arrays[name], array)


def test_it_goes_on_to_its_next_best_where_others_have_taken_its_nodes() -> None:
    config = token_config(hops=0, content_tokens=0, clusters=0, structure_tokens=2)
    lists = make_lists(named_graph(), config=config, kinds=[CIRCLE])
    shared = lists.shared("circle")
    assert shared is not None
    for node in range(150):
        taken = lists.ids("structure")[node].tolist()
        way = [i for i in ((node + step) % 150 for step in range(1, 6)) if i not in taken][:3]
        assert lists.ids("circle")[node].tolist() == way
        steps = [(other - node) % 150 for other in taken]
        last = (way[-1] - node) % 150
        assert shared[node].tolist() == pytest.approx([1 / step if step < last else 0 for step in steps])
    assert (shared > 0).any()


def test_stores_with_and_without_it_are_not_mixed(run: vcr.Run) -> None:
    graph, train, config = run.graph, run.split.train, run.config.tokens
    with pytest.raises(vcr.StoreError, match="belongs to another kind circle"):
        vcr.tokenize(graph, train, config, run.tokens_folder)
    with pytest.raises(vcr.ConfigError, match="there are two kinds of neighbours named 'links'"):
        vcr.tokenize(graph, train, config, run.tokens_folder, kinds=[replace(CIRCLE, name="links")])


def test_links_beside_the_others_are_the_links_of_before(tmp_path: Path) -> None:
    graph = named_graph()
    train = vcr.Split.random(graph.labels, seed=0).train
    alone = vcr.tokenize(
        graph, train, token_config(content="links", content_tokens=4, distinct=False), tmp_path / "alone"
    )
    beside = vcr.tokenize(graph, train, token_config(link_tokens=4, distinct=False), tmp_path / "beside")
    np.testing.assert_array_equal(alone.ids("content"), beside.ids("links"))
    np.testing.assert_array_equal(alone.scores("content"), beside.scores("links"))
    assert list(alone.layout.counts) == ["structure", "content"]
    assert list(beside.layout.counts) == ["structure", "content", "links"]


@dataclass(frozen=True, eq=False)
class WrongRanker(CircleRanker):
    """A ranker with a mistake: `shift` is added to all ids, and lists are `cut` places too short."""

    shift: int = 0
    cut: int = 0

    def rank(self, sources: Any = None, k: int = 20, **how: Unpack[Effort]) -> Ranking:
        ranking = super().rank(sources, k, **how)
        ids = ranking.ids[:, : k - self.cut] + np.int32(self.shift)
        return replace(ranking, ids=ids, scores=ranking.scores[:, : k - self.cut])


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"shift": -1}, "put node 0 into its own list"),  # where label embedding would show it its own label
        ({"shift": 10_000}, "returned ids outside of -1 to 149"),
        ({"cut": 1}, r"returned ids \[150, 10\]; they must be \[150, 11\]"),  # 3 tokens, 8 before them
    ],
)
def test_what_a_ranker_returns_is_checked(mistake: dict[str, int], message: str, tmp_path: Path) -> None:
    class Wrong(WrongRanker):
        @classmethod
        def prepare(
            cls, graph: vcr.Graph, connections: Connections | None = None, **how: Unpack[Preparation]
        ) -> "Wrong":
            return cls(graph.num_nodes, **mistake)

    kind: Any = replace(CIRCLE, ranker=lambda: Wrong)  # type: ignore[arg-type,return-value]
    config = token_config(hops=0, content_tokens=0, clusters=0)
    with pytest.raises(vcr.GraphError, match=message):
        make_lists(named_graph(), config=config, kinds=[kind])
    with pytest.raises(vcr.GraphError, match=message):
        vcr.tokenize(named_graph(), None, config, tmp_path / "tokens", kinds=[kind])


def refuse(graph: vcr.Graph, train: Any, config: vcr.TokenConfig) -> None:
    raise vcr.ConfigError("this kind wants another graph")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (replace(CIRCLE, name="structure"), "two kinds of neighbours named 'structure'"),
        (replace(CIRCLE, name="hop"), "'hop' cannot be the name of a kind"),
        (replace(CIRCLE, name="neighbours"), "'neighbours' cannot be the name of a kind"),
        (replace(CIRCLE, name="a/b"), "'a/b' cannot be the name of a kind"),
        (replace(CIRCLE, check=refuse), "this kind wants another graph"),
    ],
)
def test_kinds_are_checked(kind: vcr.Kind, message: str) -> None:
    with pytest.raises(vcr.ConfigError, match=message):
        make_lists(named_graph(), config=token_config(hops=0, content_tokens=0), kinds=[kind])


def by_training_label(graph: vcr.Graph, train: Any, config: vcr.TokenConfig) -> Connections:
    return vcr.content_connections(graph.labels, train)


def test_a_kind_depends_on_the_training_nodes_unless_it_says_otherwise(tmp_path: Path) -> None:
    graph = named_graph()
    first, second = (vcr.Split.random(graph.labels, seed=seed).train for seed in (0, 7))
    kind = vcr.Kind("mine", lambda config: 3, connect=by_training_label, own_label_left_out=True)
    config, kept = token_config(hops=0, content_tokens=0, clusters=0), Kept()
    lists = [make_lists(graph, train, config, kinds=[kind], kept=kept) for train in (first, second)]
    assert not np.array_equal(lists[0].ids("mine"), lists[1].ids("mine"))
    vcr.tokenize(graph, first, config, tmp_path / "tokens", kinds=[kind])
    with pytest.raises(vcr.StoreError, match="belongs to another training labels, training nodes"):
        vcr.tokenize(graph, second, config, tmp_path / "tokens", kinds=[kind])


def test_the_order_of_kinds_counts(run: vcr.Run, tmp_path: Path) -> None:
    graph, train, config = run.graph, run.split.train, run.config.tokens
    back = replace(CIRCLE, name="back")
    one, other = (
        vcr.tokenize(graph, train, config, tmp_path / name, kinds=kinds)
        for name, kinds in (("one", [CIRCLE, back]), ("other", [back, CIRCLE]))
    )
    assert one.layout != other.layout
    assert len({one.layout, other.layout, vcr.TokenStore.open(one.path).layout}) == 2
    with pytest.raises(vcr.StoreError, match="the model was trained with"):
        run.on(graph, one)


def test_resume_wants_the_kinds_of_the_run(tmp_path: Path) -> None:
    graph = named_graph()

    def stop(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vcr.train(
            graph, vcr.Split.random(graph.labels), CONFIG, tmp_path / "run", device="cpu", kinds=[CIRCLE], progress=stop
        )
    with pytest.raises(vcr.ConfigError, match=r"was begun with kinds=\['circle'\]: give these to resume"):
        vcr.resume(tmp_path / "run", "cpu")
    assert vcr.resume(tmp_path / "run", "cpu", [CIRCLE]).store.layout.counts["circle"] == 3
