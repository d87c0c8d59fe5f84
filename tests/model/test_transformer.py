"""The model against the paper's equations, written as loops, and what must not matter: padding, batch, form."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tests.support import naive
from tests.support.graphs import karate_club
from tests.support.plain import model_config
from vcr_graphormer import ConfigError, Graph, hop_features
from vcr_graphormer.model.batches import Inputs
from vcr_graphormer.model.config import READOUTS, VOTES, ModelConfig
from vcr_graphormer.model.dropout import dropout
from vcr_graphormer.model.matrices import Matrix, SparseRows
from vcr_graphormer.model.transformer import EncoderLayer, VCRGraphormer, _Attend
from vcr_graphormer.tokens.layout import Layout

NODES, FEATURES, HOPS, STRUCTURE, CONTENT = 12, 5, 2, 3, 2
LAYOUT = Layout(HOPS, {"structure": STRUCTURE, "content": CONTENT})
SMALL = model_config(hidden_channels=8, heads=2, layers=2, dropout=0.0, attention_dropout=0.0)


def make_inputs(seed: int = 0, sparse: bool = False, padded: bool = True, **keywords: Any) -> Inputs:
    """Random token lists of 12 nodes; node 0 has no neighbours at all, node 1 one."""
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(NODES, FEATURES, generator=generator) * (torch.rand(NODES, FEATURES, generator=generator) < 0.5)
    hops = tuple(torch.randn(NODES, FEATURES, generator=generator) for _ in range(HOPS))
    ids = torch.randint(0, NODES, (NODES, STRUCTURE + CONTENT), generator=generator)
    scores = torch.rand(NODES, STRUCTURE + CONTENT, generator=generator)
    if padded:
        ids[0], ids[1, 1:] = -1, -1
        scores[ids < 0] = 0
    features: Matrix = dense
    if sparse:
        csr = sp.csr_matrix(dense.numpy())
        parts = (torch.from_numpy(part) for part in (csr.indptr, csr.indices, csr.data))
        indptr, indices, values = parts
        features = SparseRows(indptr, indices, values, FEATURES)
    return Inputs(features, hops, (ids,), (scores,), LAYOUT, torch.device("cpu"), **keywords)


def make_shared() -> torch.Tensor:
    """Scores of some structure tokens by the content ranking; node 0 has no tokens, node 1 has one."""
    shared = torch.rand(NODES, STRUCTURE, generator=torch.Generator().manual_seed(3))
    shared[shared < 0.5], shared[0], shared[1, 1:] = 0, 0, 0
    return shared


JOINT_READOUTS = [readout for readout in READOUTS if readout != VOTES]


def make_model(config: ModelConfig = SMALL, labels: int = 0) -> VCRGraphormer:
    torch.manual_seed(1)
    model = VCRGraphormer(config, LAYOUT, num_features=FEATURES, num_outputs=4, num_labels=labels)
    with torch.no_grad():  # norms that do something
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("readout", JOINT_READOUTS)
@pytest.mark.parametrize(("kinds", "ranks"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("distinct", [False, True])
def test_equals_a_loop_over_the_papers_equations(readout: str, kinds: bool, ranks: bool, distinct: bool) -> None:
    inputs = make_inputs(shared=(make_shared(),) if distinct else ())
    model = make_model(replace(SMALL, readout=readout, kind_embedding=kinds, rank_embedding=ranks))
    logits = model(inputs.batch(torch.arange(NODES)))
    for node in range(NODES):
        expected = naive.transformer(model, inputs, node)
        np.testing.assert_allclose(logits[node].detach().numpy(), expected, atol=1e-5)


def test_ranks_need_neighbours_and_lists_of_the_right_length() -> None:
    config = replace(SMALL, rank_embedding=True)
    assert VCRGraphormer(config, Layout(HOPS, {}), num_features=FEATURES, num_outputs=4).ranks is None
    model = VCRGraphormer(config, Layout(HOPS, {"structure": STRUCTURE}), num_features=FEATURES, num_outputs=4)
    with pytest.raises(ConfigError, match=f"have {1 + HOPS + STRUCTURE + CONTENT} tokens, .*: give it the layout"):
        model(make_inputs().batch(torch.arange(2)))


def test_dense_sparse_all_rows_and_needed_rows_agree() -> None:
    model = make_model(replace(SMALL, rich_tokens=2))
    dense, sparse = (make_inputs(sparse=sparse, rich_tokens=2) for sparse in (False, True))
    nodes = torch.tensor([3, 0, 5])
    whole = model(dense.batch(nodes))
    streamed = replace(dense, streamed=True)
    assert len(streamed.batch(nodes).rows[0]) < NODES  # type: ignore[arg-type]
    for other in (sparse.batch(nodes), streamed.batch(nodes)):
        torch.testing.assert_close(model(other), whole)
    projected = model.project_rows((dense.features, *dense.hops))
    torch.testing.assert_close(model(dense.batch(nodes, with_rows=False), projected), whole)


@pytest.mark.parametrize("readout", READOUTS)
def test_padding_has_no_influence_to_the_bit(readout: str) -> None:
    combine = "gated" if readout == VOTES else "joint"
    config = replace(SMALL, readout=readout, combine=combine, kind_embedding=True, label_embedding=True)
    model = make_model(config, labels=4)
    batch = make_inputs(labels=torch.eye(NODES)[:, :4]).batch(torch.arange(NODES))
    assert batch.mask is not None
    assert batch.labels is not None
    hidden = ~batch.mask
    place = batch.place.clone()
    place[:, 1:][hidden[:, 1 + HOPS :]] = 7
    labels = torch.where(hidden[:, 1 + HOPS :, None], 123.0, batch.labels)
    changed = replace(batch, scores=torch.where(hidden, 1e6, batch.scores), place=place, labels=labels)
    assert hidden.sum() > 5
    assert torch.equal(model(changed), model(batch))
    assert torch.equal(model.look(*model.tokens(changed)).logits, model.look(*model.tokens(batch)).logits)


def test_a_batch_of_one_and_any_order_give_the_same() -> None:
    model, inputs = make_model(), make_inputs()
    whole = model(inputs.batch(torch.arange(NODES)))
    torch.testing.assert_close(model(inputs.batch(torch.tensor([4]))), whole[4:5])
    torch.testing.assert_close(model(inputs.batch(torch.tensor([9, 0, 4]))), whole[[9, 0, 4]])


def test_only_the_node_itself() -> None:
    # No hops, no neighbours: the readout of one token is that token.
    nothing = torch.empty(NODES, 0)
    inputs = Inputs(torch.randn(NODES, FEATURES), (), (nothing.long(),), (nothing,), Layout(0, {}), torch.device("cpu"))
    for readout in JOINT_READOUTS:
        model = VCRGraphormer(
            replace(SMALL, readout=readout), Layout(0, {}), num_features=FEATURES, num_outputs=4
        ).eval()
        seen = model.look(*model.tokens(inputs.batch(torch.tensor([2]))))
        assert seen.logits.isfinite().all()
        assert seen.readout.tolist() == [[1.0]]


@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("combine", ["joint", "gated"])
@pytest.mark.parametrize("padded", [False, True])
def test_a_readout_of_the_target_computes_the_target_alone(layers: int, combine: str, padded: bool) -> None:
    model = make_model(replace(SMALL, readout="target", layers=layers, combine=combine)).double()
    tokens, mask = model.tokens(make_inputs(padded=padded).batch(torch.arange(NODES)))
    if mask is not None:  # as explanations hide tokens
        mask[2, 0] = False
    whole = model.look(tokens, mask)  # with attention weights, which need every token
    assert whole.attention.shape == (layers, NODES, 2, tokens.shape[1], tokens.shape[1])
    logits, _, weights = model.read(tokens, mask)
    torch.testing.assert_close(logits, whole.logits, rtol=0, atol=1e-12)
    assert torch.equal(weights, whole.readout)
    if layers == 0:
        assert torch.equal(logits, whole.logits)
    # Gradients, too. That of the keys' bias is zero: it adds the same to every score.
    names, parameters = zip(*model.named_parameters(), strict=True)
    for name, ours, expected in zip(
        names,
        torch.autograd.grad(logits.square().sum(), parameters, retain_graph=True, allow_unused=True),
        torch.autograd.grad(whole.logits.square().sum(), parameters, allow_unused=True),
        strict=True,
    ):
        assert (ours is None) == (expected is None), name
        if ours is not None:
            torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("readout", JOINT_READOUTS)
def test_weights_on_request(readout: str) -> None:
    model, inputs = make_model(replace(SMALL, readout=readout)), make_inputs()
    batch = inputs.batch(torch.arange(NODES))
    seen = model.look(*model.tokens(batch))
    torch.testing.assert_close(seen.logits, model(batch))
    assert seen.attention.shape == (2, NODES, 2, inputs.num_tokens, inputs.num_tokens)
    torch.testing.assert_close(seen.attention.sum(-1), torch.ones(2, NODES, 2, inputs.num_tokens))
    assert batch.mask is not None
    hidden = ~batch.mask
    assert (seen.attention.sum((0, 2, 3))[hidden] == 0).all()
    assert (seen.readout[hidden] == 0).all()
    others = seen.readout[5, 1:].sum().item()
    assert others == pytest.approx({"attention": 1, "mean": 7 / 8, "target": 0}[readout])


@pytest.mark.parametrize("layers", [0, 1])
def test_neighbours_vote(layers: int) -> None:
    config = replace(SMALL, combine="gated", readout=VOTES, layers=layers)
    model, batch = make_model(config), make_inputs().batch(torch.arange(NODES))
    assert model.own is not None
    assert batch.mask is not None
    tokens, mask = model.tokens(batch)
    logits, _, weights = model.read(tokens, mask)
    encoded = tokens
    for layer in model.layers:
        encoded = layer(encoded, mask)
    own, _ = model.own.encode(tokens[:, : 1 + HOPS], batch.mask[:, : 1 + HOPS])
    count = STRUCTURE + CONTENT
    for node in range(NODES):
        votes = sum(
            model.head(model.norm(encoded[node, place]))
            for place in range(1 + HOPS, 1 + HOPS + count)
            if batch.mask[node, place]
        )
        torch.testing.assert_close(logits[node], model.own.head(own)[node] + model.gate.tanh() * votes / count)
        assert weights[node].sum().item() == pytest.approx(batch.mask[node, 1 + HOPS :].sum().item() / count)
    if not layers:  # a hidden neighbour takes its own vote away, and nothing else changes
        without = batch.mask.clone()
        without[:, 1 + HOPS] = False
        lost = model.gate.tanh() * model.head(model.norm(tokens[:, 1 + HOPS])) / count
        lost = lost * batch.mask[:, 1 + HOPS, None]
        torch.testing.assert_close(model.read(tokens, without)[0], logits - lost)


def test_a_gated_model_adds_the_whole_list_to_the_node_and_its_hops() -> None:
    gated = replace(SMALL, combine="gated", kind_embedding=True)
    model, inputs = make_model(gated), make_inputs()
    batch = inputs.batch(torch.arange(NODES))
    tokens, mask = model.tokens(batch)
    assert model.own is not None and mask is not None and not len(model.own.layers)
    own = inputs.layout.first_neighbour
    first = model.own.head(model.own.encode(tokens[:, :own], mask[:, :own])[0])
    second = model.head(model.encode(tokens, mask)[0])
    torch.testing.assert_close(model(batch), first + math.tanh(model.gate.item()) * second)
    with torch.no_grad():
        model.gate.fill_(0.0)  # closed: the neighbours change nothing
    torch.testing.assert_close(model(batch), first)
    assert model.represent(batch).shape == (NODES, 2 * gated.hidden_channels) == (NODES, model.vector_width)
    assert (model.represent(batch)[:, gated.hidden_channels :] == 0).all()
    fresh = VCRGraphormer(gated, inputs.layout, num_features=FEATURES, num_outputs=4)
    assert math.tanh(fresh.gate.item()) == pytest.approx(0.5, abs=1e-3)  # half open


def test_neighbour_dropout_closes_the_gate_for_some_nodes_while_training() -> None:
    model, inputs = make_model(replace(SMALL, combine="gated", neighbour_dropout=0.5)), make_inputs()
    batch = inputs.batch(torch.arange(NODES))
    whole = model.eval()(batch)
    with torch.no_grad():
        gate = model.gate.clone()
        model.gate.fill_(0.0)
        alone = model(batch)
        model.gate.copy_(gate)
    torch.manual_seed(0)
    seen = model.train()(batch)
    is_alone, is_whole = (torch.isclose(seen, logits, atol=1e-6).all(1) for logits in (alone, whole))
    assert (is_alone | is_whole).all() and is_alone.any() and is_whole.any()


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("numbers", [[0.1, 0.4, 0.9], [0.1], [0.4, 0.9]])
@pytest.mark.parametrize("own_hops", [False, True])
def test_lists_of_hidden_paths_are_not_read_and_change_nothing(
    readout: str, layers: int, numbers: list[float], own_hops: bool
) -> None:
    hiding = replace(SMALL, neighbour_dropout=0.3, own_dropout=0.3, own_hops=own_hops)
    everything: dict[str, Any] = {"kind_embedding": True, "rank_embedding": True, "label_hops": 1, "rich_tokens": 1}
    config = replace(hiding, readout=readout, layers=layers, combine="gated", label_embedding=True, **everything)
    model = make_model(config, labels=3).double().train()
    labels, label_hops = torch.eye(NODES)[:, :3], torch.rand(NODES, 1, 3)
    inputs = make_inputs(shared=(make_shared(),), rich_tokens=1, labels=labels, label_hops=label_hops)
    draw = torch.tensor(numbers).repeat(NODES)[:NODES, None]
    alone = draw[:, 0] < 0.3
    batch = replace(inputs.batch(torch.arange(NODES), alone=alone), draw=draw)
    whole = inputs.batch(torch.arange(NODES))
    assert torch.equal(batch.place[~alone], whole.place[~alone])
    assert (batch.place[alone] == whole.nodes[alone, None]).all()
    expected = model._read(*model.tokens(whole), [], draw)[0]  # whose attention is asked for: every token is computed
    found = model(batch)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    outer = torch.randn_like(found)
    parameters = dict(model.named_parameters())
    gradients = (
        torch.autograd.grad(logits, list(parameters.values()), outer, materialize_grads=True)
        for logits in (found, expected)
    )
    for name, ours, theirs in zip(parameters, *gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11, msg=name)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("fraction", [0.0, 0.4])
def test_the_attention_of_one_query_has_the_gradient_of_its_operations(masked: bool, fraction: float) -> None:
    tokens, asked = (torch.randn(3, count, 6, dtype=torch.float64, requires_grad=True) for count in (5, 2))
    mask = torch.rand(3, 5) < 0.6 if masked else None
    if mask is not None:
        mask[1] = False  # as explanations hide the whole list
    results = []
    for compiled in (True, False):
        torch.manual_seed(0)
        if compiled:
            mixed, sums = _Attend.apply(tokens, asked, mask, fraction)  # type: ignore[no-untyped-call]
        else:
            scores = asked @ tokens.transpose(1, 2)
            if mask is not None:
                scores = scores.masked_fill(~mask[:, None], torch.finfo(scores.dtype).min)
            weights = dropout(scores.softmax(-1), fraction)
            mixed, sums = weights @ tokens, weights.sum(-1, keepdim=True)
        loss = mixed.square().sum() + (3 * sums).square().sum()
        results.append((mixed, sums, *torch.autograd.grad(loss, (tokens, asked))))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


def test_theorem_1_hop_tokens_with_identity_attention_are_a_polynomial_convolution() -> None:
    # Σ_l (P^l X)(u) Θ: a fixed polynomial filter whose terms are all kept (jumping knowledge), with P = the
    # normalized adjacency with self-loops, as in the paper's proof.
    graph = karate_club().with_features("degree")
    hops = tuple(torch.from_numpy(np.array(hop)) for hop in hop_features(graph, 3, self_loops=True))
    features = torch.from_numpy(np.asarray(graph.features))
    none = torch.empty(34, 0)
    inputs = Inputs(features, hops, (none.long(),), (none,), Layout(3, {}), torch.device("cpu"))
    config = model_config(hidden_channels=6, heads=2, layers=1, readout="mean")
    model = VCRGraphormer(config, Layout(3, {}), num_features=features.shape[1], num_outputs=2).eval()
    layer = model.layers[0]
    assert isinstance(layer, EncoderLayer)
    model.norm = layer.first_norm = torch.nn.Identity()  # type: ignore[assignment]
    layer.attend = lambda query, key, value, mask, attention: value  # type: ignore[method-assign]
    with torch.no_grad():
        for parameter in (model.score_weight, model.bias, *layer.feedforward.parameters()):
            parameter.zero_()
        layer.query_key_value.bias.zero_()
        layer.mix.bias.zero_()
    represented = 4 * model.represent(inputs.batch(torch.arange(34))).detach().numpy()  # a sum, not a mean
    value = layer.query_key_value.weight[12:].T @ layer.mix.weight.T
    theta = (model.feature_weights[0] @ (torch.eye(6) + value)).detach().numpy()
    powers = [np.asarray(graph.features), *naive.hops(graph, 3, self_loops=True)]
    np.testing.assert_allclose(represented, sum(powers) @ theta, rtol=1e-4, atol=1e-5)


def test_label_inputs_reach_only_their_tokens() -> None:
    config = replace(SMALL, layers=0, readout="mean", label_hops=1, label_embedding=True, rich_labels=True)
    model = make_model(config, labels=3)
    inputs = make_inputs(labels=torch.eye(NODES)[:, :3], label_hops=torch.rand(NODES, 1, 3))
    batch = inputs.batch(torch.tensor([5]))
    batch = replace(batch, labels_around=torch.rand(1, batch.place.shape[1] - 1, 3))
    assert batch.labels is not None
    assert batch.label_hops is not None
    tokens, _ = model.tokens(batch)
    plain, _ = model.tokens(replace(batch, labels=None, label_hops=None, labels_around=None))
    added = (tokens - plain)[0].detach()
    assert model.label_hop_weight is not None
    assert model.label_weight is not None
    torch.testing.assert_close(added[1], (batch.label_hops[0, 0] @ model.label_hop_weight).detach())
    assert model.rich_label_weight is not None
    assert batch.labels_around is not None
    carried = batch.labels[0] @ model.label_weight + batch.labels_around[0] @ model.rich_label_weight
    torch.testing.assert_close(added[1 + HOPS :], carried.detach())
    assert (added[[0, 2]].abs() < 1e-6).all()


def test_token_dropout_hides_tokens_but_never_the_target() -> None:
    model = make_model(replace(SMALL, token_dropout=0.5)).train()
    batch = make_inputs(padded=False).batch(torch.arange(NODES))
    assert batch.mask is None
    mask = model.tokens(batch)[1]
    assert mask is not None
    assert mask[:, 0].all()
    assert 0.3 < mask[:, 1:].float().mean() < 0.7
    assert model.eval().tokens(batch)[1] is None


def test_dropouts_change_training_only() -> None:
    inputs = make_inputs()
    batch = inputs.batch(torch.arange(NODES))
    plain = make_model()
    for name in ("dropout", "attention_dropout", "feature_dropout", "embedding_dropout", "token_dropout"):
        changed: dict[str, Any] = {name: 0.5}
        model = make_model(replace(SMALL, **changed))
        assert torch.equal(model(batch), plain(batch))
        model.train()
        assert not torch.allclose(model(batch), plain(batch))


def test_attention_with_dropout_on_a_cpu_equals_the_fused_one_on_average() -> None:
    model = make_model(replace(SMALL, attention_dropout=0.2, layers=1)).train()
    batch = make_inputs().batch(torch.arange(NODES))
    torch.manual_seed(0)
    tokens, mask = model.tokens(batch)
    layer = model.layers[0]
    assert isinstance(layer, EncoderLayer)
    query, key, value = (torch.randn(NODES, 2, tokens.shape[1], 4) for _ in range(3))
    many = torch.stack([layer.attend(query, key, value, mask, None) for _ in range(4000)]).mean(0)
    assert (many - layer.eval().attend(query, key, value, mask, None)).abs().max() < 0.1


def test_works_on_a_graph_whose_node_has_no_neighbours() -> None:
    graph = Graph.from_edges([[0], [1]], num_nodes=3, features=np.eye(3, dtype=np.float32))
    hops = tuple(torch.from_numpy(np.array(hop)) for hop in hop_features(graph, 2))
    ids = torch.tensor([[1], [0], [-1]])
    layout = Layout(2, {"structure": 1})
    inputs = Inputs(torch.eye(3), hops, (ids,), ((ids >= 0).float(),), layout, torch.device("cpu"))
    batch = inputs.batch(torch.arange(3))
    model = VCRGraphormer(SMALL, layout, num_features=3, num_outputs=2).eval()
    assert model(batch).isfinite().all()


def test_padded_columns_change_nothing() -> None:
    # On a GPU features are padded with zero columns to an aligned width.
    model, inputs = make_model(replace(SMALL, rich_tokens=1)), make_inputs(rich_tokens=1)
    features, *hops = (torch.nn.functional.pad(m, (0, 3)) for m in (inputs.features, *inputs.hops))  # type: ignore[arg-type]
    wider = replace(inputs, features=features, hops=tuple(hops))
    nodes = torch.arange(NODES)
    torch.testing.assert_close(model(wider.batch(nodes)), model(inputs.batch(nodes)))
