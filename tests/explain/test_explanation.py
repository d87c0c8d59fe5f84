"""Explanations: effects against lists that really lack the token, attention that sums to 1, names and labels."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from tests.model.test_transformer import (
    CONTENT,
    FEATURES,
    HOPS,
    JOINT_READOUTS,
    NODES,
    SMALL,
    STRUCTURE,
    make_inputs,
    make_model,
    make_shared,
)
from tests.support import naive
from tests.support.plain import alone
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer import ConfigError, Explanation, Graph, Run, VCRError
from vcr_graphormer.cli.console import print_explanation
from vcr_graphormer.data.tasks import TASKS, Target
from vcr_graphormer.explain.attributions import attribute, faithfulness, outputs_without
from vcr_graphormer.explain.explanation import find_output
from vcr_graphormer.model.transformer import VCRGraphormer
from vcr_graphormer.tokens.layout import Layout

HIDDEN = {"hop": slice(1, 3), "structure": slice(3, 6), "content": slice(6, 8), "neighbours": slice(3, 8)}
CLASSES, LABELS = Target(TASKS["classification"]), Target(TASKS["multilabel"])


def softmax(logits: Any) -> Any:
    shifted = np.exp(logits - np.max(logits))
    return shifted / shifted.sum()


@pytest.mark.parametrize("readout", JOINT_READOUTS)
def test_effects_equal_lists_without_the_token(readout: str) -> None:
    """A neighbour that is hidden is as one that was never there: the slow loop on the shorter list agrees."""
    inputs = make_inputs()
    model = make_model(replace(SMALL, readout=readout, kind_embedding=True))
    found = attribute(model, inputs, np.arange(NODES), CLASSES, lists_at_once=40)
    for node in range(NODES):
        whole = softmax(naive.transformer(model, inputs, node))
        column = int(whole.argmax())
        assert found.column[node] == column
        assert found.explained[node] == pytest.approx(whole[column], abs=1e-5)
        for place in range(STRUCTURE + CONTENT):
            ids, scores = inputs.ids[0].clone(), inputs.scores[0].clone()
            if ids[node, place] < 0:
                assert found.effect[node, 1 + HOPS + place] == 0
                assert not found.shown[node, 1 + HOPS + place]
                continue
            ids[node, place], scores[node, place] = -1, 0
            without = softmax(naive.transformer(model, replace(inputs, ids=(ids,), scores=(scores,)), node))
            effect = found.effect[node, 1 + HOPS + place]
            assert effect == pytest.approx(whole[column] - without[column], abs=1e-5)


@pytest.mark.parametrize("combine", ["joint", "gated"])
@pytest.mark.parametrize(("distinct", "streamed"), [(False, False), (True, True)])
def test_effects_of_kinds_equal_hand_made_masks(combine: str, distinct: bool, streamed: bool) -> None:
    shared = (make_shared(),) if distinct else ()
    inputs = make_inputs(shared=shared, streamed=streamed)
    model = make_model(replace(SMALL, combine=combine, kind_embedding=True))
    found = attribute(model, inputs, np.arange(NODES), CLASSES, lists_at_once=40)
    assert list(found.without) == list(found.kind_effects) == list(HIDDEN)
    for node in range(NODES):
        tokens, mask = model.tokens(inputs.batch(torch.tensor([node])))
        for name, places in HIDDEN.items():
            kept = torch.ones(1, 1 + HOPS + STRUCTURE + CONTENT, dtype=torch.bool) if mask is None else mask.clone()
            kept[:, places] = False
            expected = model.read(tokens, kept)[0].softmax(-1)[0].detach().numpy()
            np.testing.assert_allclose(found.without[name][node], expected, atol=1e-6)
            column = found.column[node]
            effect = found.outputs[node, column] - found.without[name][node, column]
            assert found.kind_effects[name][node] == effect
    for name in ("structure", "content", "neighbours"):
        assert found.kind_effects[name][0] == 0  # node 0 has no neighbours
        assert np.abs(found.kind_effects[name][2:]).min() > 0
    assert found.kind_effects["content"][1] == 0  # and node 1 one, by structure
    assert found.kind_effects["structure"][1] == found.kind_effects["neighbours"][1]
    whole, without = outputs_without(model, inputs, np.arange(NODES), target=CLASSES, lists_at_once=7)
    np.testing.assert_allclose(whole, found.outputs, atol=1e-6)
    for name, outputs in without.items():
        np.testing.assert_allclose(outputs, found.without[name], atol=1e-6)


def test_without_neighbours_is_as_if_they_were_never_there() -> None:
    inputs, model = make_inputs(), make_model(replace(SMALL, kind_embedding=True))
    found = attribute(model, inputs, np.arange(NODES), CLASSES, 100)
    ids, scores = torch.full_like(inputs.ids[0], -1), torch.zeros_like(inputs.scores[0])
    for node in range(NODES):
        alone = softmax(naive.transformer(model, replace(inputs, ids=(ids,), scores=(scores,)), node))
        np.testing.assert_allclose(found.without["neighbours"][node], alone, atol=1e-5)


def test_behind_a_closed_gate_neighbours_have_no_effect() -> None:
    model, inputs = make_model(replace(SMALL, combine="gated")), make_inputs(shared=(make_shared(),))
    with torch.no_grad():
        model.gate.zero_()
    found = attribute(model, inputs, np.arange(NODES), CLASSES, 1)
    assert np.abs(found.effect[:, 1 + HOPS :]).max() < 1e-6
    for name in ("structure", "content", "neighbours"):
        np.testing.assert_allclose(found.without[name], found.outputs, atol=1e-6)
    assert np.abs(found.kind_effects["hop"]).min() > 1e-4


def test_a_gated_model_on_distinct_lists_is_explained_faithfully() -> None:
    model, inputs = (
        make_model(replace(SMALL, combine="gated", kind_embedding=True)),
        make_inputs(shared=(make_shared(),)),
    )
    found = attribute(model, inputs, np.arange(2, NODES), CLASSES, 100)
    curves = faithfulness(model, inputs, found, CLASSES, 100, most=3)
    assert curves["random"][0] == pytest.approx(found.explained.mean(), abs=1e-6)
    best = found.effect[:, 1:].max(1)
    assert curves["effect"][1] == pytest.approx((found.explained - best).mean(), abs=1e-6)


def test_attention_and_places() -> None:
    found = attribute(make_model(), make_inputs(), np.arange(NODES), CLASSES, lists_at_once=1)
    np.testing.assert_allclose(found.attention.sum(1), 1, atol=1e-5)
    assert (found.attention[~found.shown] == 0).all()
    assert found.kinds.tolist() == [0, 1, 1, 2, 2, 2, 3, 3]
    assert found.ids[2].tolist()[:3] == [2, -1, -1]
    assert found.scores[2, :3].tolist() == pytest.approx([1, 2 / 3, 1 / 3])
    model = make_model(replace(SMALL, layers=0))
    no_layers = attribute(model, make_inputs(), np.arange(3), CLASSES, 100)
    assert found.attends
    assert not no_layers.attends
    assert np.isnan(no_layers.attention).all()
    assert set(faithfulness(model, make_inputs(), no_layers, CLASSES, 100)) == {"effect", "random"}


@pytest.mark.parametrize("readout", JOINT_READOUTS)
def test_a_list_of_one_token(readout: str) -> None:
    inputs = make_inputs()
    nothing = (inputs.ids[0][:, :0],), (inputs.scores[0][:, :0],)
    alone = replace(inputs, hops=(), ids=nothing[0], scores=nothing[1], layout=Layout(0, {}))
    torch.manual_seed(0)
    model = VCRGraphormer(replace(SMALL, readout=readout), Layout(0, {}), num_features=FEATURES, num_outputs=4).eval()
    found = attribute(model, alone, np.arange(3), CLASSES, 10)
    assert found.effect.shape == (3, 1)
    assert found.without == found.kind_effects == {}
    assert np.isfinite(found.effect).all()
    with pytest.raises(ConfigError, match="there are no nodes to explain"):
        attribute(model, alone, np.arange(0), CLASSES, 10)


def test_another_output_and_other_tasks() -> None:
    model, inputs, nodes = make_model(), make_inputs(), np.arange(NODES)
    first = attribute(model, inputs, nodes, CLASSES, 100, column=0)
    assert (first.column == 0).all()
    many = attribute(model, inputs, nodes, LABELS, 100)
    logits = model(inputs.batch(torch.arange(NODES))).detach()
    np.testing.assert_allclose(many.outputs, logits.sigmoid(), atol=1e-5)
    alone = make_inputs()
    alone.ids[0].fill_(-1)
    lonely = model(alone.batch(torch.arange(NODES))).detach()
    np.testing.assert_allclose(many.without["neighbours"], lonely.sigmoid(), atol=1e-5)
    scale = (np.arange(4.0), np.full(4, 2.0))
    values = attribute(model, inputs, nodes, Target(TASKS["regression"], scale), 100)
    np.testing.assert_allclose(values.outputs, logits.numpy() * 2 + np.arange(4), atol=1e-4)
    assert (values.column == 0).all()
    np.testing.assert_allclose(values.without["neighbours"], lonely.numpy() * 2 + np.arange(4), atol=1e-4)


def test_hiding_equals_hiding_one_after_the_other() -> None:
    """The curve by effect, first step: the mean of what is left without the token of largest effect."""
    model, inputs = make_model(), make_inputs()
    found = attribute(model, inputs, np.arange(2, NODES), CLASSES, 100)
    curves = faithfulness(model, inputs, found, CLASSES, 100, most=3)
    assert {name: len(curve) for name, curve in curves.items()} == {"effect": 4, "attention": 4, "random": 4}
    for curve in curves.values():
        assert curve[0] == pytest.approx(found.explained.mean(), abs=1e-6)
    best = found.effect[:, 1:].max(1)
    assert curves["effect"][1] == pytest.approx((found.explained - best).mean(), abs=1e-6)
    assert curves["effect"][1] <= min(curves["attention"][1], curves["random"][1])


@pytest.fixture(scope="module")
def graph() -> Graph:
    return named_graph()


@pytest.fixture(scope="module")
def run(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Run:
    split = vcr.Split.random(graph.labels, seed=0)
    return vcr.train(graph, split, CONFIG, tmp_path_factory.mktemp("runs") / "run", device="cpu")


def test_an_explained_node(run: Run) -> None:
    found = run.explain("n7")
    assert (found.node, found.name, found.task) == (7, "n7", "classification")
    assert sum(found.outputs.values()) == pytest.approx(1)
    assert found.explained == max(found.outputs, key=lambda name: found.outputs[name])
    assert run.predict(7).probabilities[0].max() == pytest.approx(found.outputs[found.explained], abs=1e-6)
    assert found.label == run.graph.class_names[int(np.asarray(run.graph.labels)[7])]  # type: ignore[index]
    assert [token.kind for token in found.tokens[:3]] == ["self", "hop", "hop"]
    assert [token.distance for token in found.tokens[:3]] == [0, 1, 2]
    assert [token.hop for token in found.tokens[:3]] == [None, 1, 2]
    stored = run.store.ids("structure")[7]
    mine = [token for token in found.tokens if token.kind == "structure"]
    assert [token.node for token in mine] == stored[stored >= 0].tolist()
    assert [token.name for token in mine] == [f"n{node}" for node in stored[stored >= 0]]
    for token in found.tokens[3:]:
        known = token.node in run.split.train
        assert (token.label is not None) == known
    assert json.loads(json.dumps(found.to_dict()))["tokens"][0]["kind"] == "self"
    assert run.explain(7, "a").explained == "a"
    assert list(found.kind_effects) == ["hop", "structure", "content", "neighbours"]
    assert list(found.without_neighbours) == ["a", "b", "c"]
    after = found.outputs[found.explained] - found.kind_effects["neighbours"]
    assert found.without_neighbours[found.explained] == pytest.approx(after, abs=1e-6)


def test_a_token_names_all_kinds_that_propose_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    shared = run.store.shared("content")
    assert shared is not None
    node = int(np.flatnonzero((shared > 0).any(1) & (shared == 0).any(1))[0])
    tokens = run.explain(node).tokens
    assert [token.kinds for token in tokens[:3]] == [{"self": 1.0}, {"hop": tokens[1].score}, {"hop": tokens[2].score}]
    for token, score in zip((token for token in tokens if token.kind == "structure"), shared[node], strict=False):
        assert token.kinds == {"structure": token.score} | ({"content": float(score)} if score else {})
    assert all(token.kinds == {"content": token.score} for token in tokens if token.kind == "content")
    print_explanation(run.explain(node))
    assert capsys.readouterr().out.count("structure + content") == (shared[node] > 0).sum()


def test_a_gated_run_knows_its_gate(run: Run, graph: Graph, tmp_path: Path) -> None:
    assert run.gate is None
    assert run.embed([1, 2]).shape == (2, 16)
    config = replace(CONFIG, model=replace(CONFIG.model, combine="gated"))
    gated = vcr.train(graph, vcr.Split.random(graph.labels, seed=0), config, tmp_path / "run", device="cpu")
    assert gated.gate == pytest.approx(float(np.tanh(alone(gated.model).gate.item())))
    assert 0 < gated.gate < 1  # type: ignore[operator]
    assert gated.embed([1, 2]).shape == (2, 32)
    assert gated.explain("n7").kind_effects["neighbours"] != 0


def test_lists_without_neighbours(graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(CONFIG, tokens=replace(CONFIG.tokens, structure_tokens=0, content_tokens=0))
    run = vcr.train(graph, vcr.Split.random(graph.labels, seed=0), config, tmp_path / "run", device="cpu")
    found = run.explain("n7")
    assert list(found.kind_effects) == ["hop"]
    assert found.without_neighbours == {}
    print_explanation(found)
    assert "Its list has no neighbours." in capsys.readouterr().out


SAID = Explanation(0, None, "classification", {"AI": 0.93, "Theory": 0.07}, "AI", None, (), {"hop": 0.5})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"without_neighbours": {"AI": 0.39, "Theory": 0.61}},
            "Without its neighbours the model would say Theory (0.610) instead of AI (0.930).",
        ),
        (
            {"without_neighbours": {"AI": 0.88, "Theory": 0.12}},
            "Without its neighbours the model would still say AI, with 0.880 instead of 0.930.",
        ),
        (
            {"without_neighbours": {"AI": 0.88, "Theory": 0.12}, "explained": "Theory"},
            "Without its neighbours the probability of Theory would be 0.120 instead of 0.070.",
        ),
        (
            {
                "without_neighbours": {"AI": 0.88, "Theory": 0.12},
                "threshold": ("Theory", 0.2),
                "predicted_without": "AI",
            },
            "Without its neighbours the model would still say AI: "
            "Theory has 0.120 instead of 0.070 and is said from 0.200 on.",
        ),
        (
            {
                "without_neighbours": {"AI": 0.88, "Theory": 0.12},
                "threshold": ("Theory", 0.1),
                "predicted_without": "Theory",
            },
            "Without its neighbours the model would say Theory instead of AI: "
            "Theory has 0.120 instead of 0.070 and is said from 0.100 on.",
        ),
        (
            {"without_neighbours": {"AI": 0.88, "Theory": 0.12}, "task": "multilabel"},
            "Without its neighbours the probability of AI would be 0.880 instead of 0.930.",
        ),
        (
            {"without_neighbours": {"AI": 2.5, "Theory": 0}, "task": "regression"},
            "Without its neighbours the model would say 2.5 instead of 0.93.",
        ),
    ],
)
def test_what_the_console_says(changes: Any, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(replace(SAID, **changes))
    text = capsys.readouterr().out
    assert f"\n{sentence}\n" in text
    assert "  effect of all hops together: +0.5000\n" in text


def test_the_own_training_label_is_not_shown_as_an_input(run: Run) -> None:
    own = run.explain(int(run.split.train[0])).tokens[0]
    assert (own.kind, own.label) == ("self", None)


def test_the_rewiring_of_a_training_node_is_that_of_its_tokens(run: Run) -> None:
    node = int(run.split.train[0])
    without = np.asarray(run.store.assignment("content")).copy()
    without[node] = -1
    exact = vcr.exact_pagerank(run.graph, vcr.Connections(without, 3), node)
    plain = vcr.exact_pagerank(run.graph, None, node)
    moved = run.rewiring(node)["content"][0].moved
    assert moved == pytest.approx(np.maximum(plain - exact[:150], 0).sum(), abs=1e-8)


def test_low_precision_does_not_reach_explanations(graph: Graph, tmp_path: Path) -> None:
    config = replace(CONFIG, training=replace(CONFIG.training, precision="bfloat16"))
    run = vcr.train(graph, vcr.Split.random(graph.labels, seed=0), config, tmp_path / "run", device="cpu")
    looked = run.attributions([3, 4])
    exact = Run.open(run.path, "cpu")
    object.__setattr__(exact, "config", CONFIG)
    np.testing.assert_allclose(looked.effect, exact.attributions([3, 4]).effect, atol=1e-7)


def test_what_cannot_be_explained(run: Run) -> None:
    with pytest.raises(VCRError, match="there is no node named 'n1x'"):
        run.explain("n1x")
    with pytest.raises(VCRError, match=r"'N14'; 11 names contain it: 'n14', 'n140', 'n141', 'n142', 'n143' and 6 more"):
        run.explain("N14")
    with pytest.raises(VCRError, match="there is no node 150"):
        run.explain(150)
    assert run.explain("id:7").name == "n7"
    with pytest.raises(ConfigError, match="explain takes one node, not 2"):
        run.explain([1, 2])
    with pytest.raises(VCRError, match="unknown class 'd'"):
        run.explain(1, "d")
    assert find_output(run.graph, 3, 2) == 2


def test_a_name_that_is_another_nodes_id(run: Run) -> None:
    names = np.array([str((node + 10) % 150) for node in range(150)])
    other = run.on(replace(run.graph, names=names), run.store)
    with pytest.raises(VCRError, match="'12' is the name of node 2 and also an id: give id:2 or id:12"):
        other.explain("12")
    assert other.explain("id:12").name == "22"
    assert other.explain(12).node == 12


def test_effects_are_faithful_on_real_data(tmp_path: Path) -> None:
    """Handwritten digits: hiding tokens by effect lowers the probability more than by attention or at random."""
    graph = vcr.digits()
    config = replace(CONFIG, training=replace(CONFIG.training, epochs=15, learning_rate=0.003))
    run = vcr.train(graph, vcr.Split.random(graph.labels, seed=0), config, tmp_path / "run", device="cpu")
    assert run.metrics["test"] > 0.9
    curves = run.faithfulness(run.attributions(run.split.test[:200]), most=5)
    for step in range(1, 6):
        assert curves["effect"][step] < curves["attention"][step] - 0.001
        assert curves["effect"][step] < curves["random"][step] - 0.001
