"""The networks of benchmarks/baselines against naive references: dense formulas, PyG's layers, known invariants."""

import copy
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from benchmarks.baselines import methods, spaces
from benchmarks.baselines.bench import NO_LABEL, Bench, schedule, score
from benchmarks.baselines.features import Rows, chosen, read_features, with_sum_one
from benchmarks.baselines.links import Links, Matrix, two_hops
from benchmarks.baselines.methods.acm import ACMLayer
from benchmarks.baselines.methods.appnp import APPNP
from benchmarks.baselines.methods.convolutional import Convolution, Convolutional
from benchmarks.baselines.methods.exphormer import SparseAttention, expander_edges
from benchmarks.baselines.methods.gcn2 import GCNII
from benchmarks.baselines.methods.glognn import GloGNN
from benchmarks.baselines.methods.gprgnn import GPRGNN
from benchmarks.baselines.methods.grand_plus import GrandPlus
from benchmarks.baselines.methods.graphgps import FullAttention
from benchmarks.baselines.methods.h2gcn import H2GCN
from benchmarks.baselines.methods.label_propagation import correct, propagate_labels
from benchmarks.baselines.methods.mixhop import MixHopLayer
from benchmarks.baselines.methods.ours import make_config
from benchmarks.baselines.methods.polynormer import Polynormer, kernel_attention
from benchmarks.baselines.methods.pprgo import PPRGo
from benchmarks.baselines.methods.sgc import SGC
from benchmarks.baselines.methods.sgformer import linear_attention
from benchmarks.baselines.network import Network, Sizes, walk_weights
from benchmarks.baselines.spaces import METHODS, NETWORK
from benchmarks.baselines.together import Together
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch_geometric.nn import GCNConv, SAGEConv

import vcr_graphormer as vcr
from vcr_graphormer.data.tasks import TASKS, measure

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # torch calls its CSR matrices a prototype
CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"hidden": 16, "layers": 2, "dropout": 0.0, "learning_rate": 0.02, "weight_decay": 0.0}
# What every network needs to be made; those that need no such setting do not read it.
MADE: dict[str, Any] = SMALL | {
    **{"kind": "GCN", "norm": "none", "restart": 0.1, "steps": 4, "powers": 2, "theta": 0.5, "rounds": 1, "k": 8},
    **{"share": 0.5, "gamma": 0.3, "beta_1": 1.0, "beta_2": 1.0, "orders": 2, "weights": "ppr", "drop_nodes": 0.2},
    **{"temperature": 0.5, "confidence": 0.2, "agreement": 0.5, "local": "GCN", "heads": 4, "degree": 4},
    **{"local_weight": 0.5, "global_layers": 1},
}
NETWORKS = {name: method for name, method in METHODS.items() if method.kind == NETWORK}


@pytest.fixture(scope="module")
def graph() -> vcr.Graph:
    return vcr.generate(nodes=60, edges=150, classes=3, features=64, homophily=0.7, seed=0)


@pytest.fixture(scope="module")
def links(graph: vcr.Graph) -> Links:
    return Links(graph.to_scipy(), CPU)


@pytest.fixture
def x(graph: vcr.Graph) -> Tensor:
    return torch.randn(graph.num_nodes, 64, generator=torch.Generator().manual_seed(0))


def dense(links: Links, loops: bool, kind: str) -> Tensor:
    """The named matrices, written out."""
    matrix = links.adjacency.toarray() + (np.eye(links.count) if loops else 0)
    degrees = np.maximum(matrix.sum(1), 1e-12)
    if kind == "mean":
        matrix = matrix / degrees[:, None]
    if kind == "symmetric":
        matrix = matrix / np.sqrt(degrees[:, None] * degrees[None])
    return torch.from_numpy(matrix).float()


def make(network: Any, graph: vcr.Graph, **settings: Any) -> Any:
    torch.manual_seed(0)
    made: Network = network(Sizes(graph.num_nodes, 64, graph.num_classes), {**MADE, **settings})
    return made.eval()


def test_each_file_is_short() -> None:
    folder = Path(str(methods.__file__)).parent
    assert all(len(file.read_text().splitlines()) <= 80 for file in folder.glob("*.py"))


@pytest.mark.parametrize("name", ["plain", "symmetric", "symmetric-loops", "mean", "mean-loops"])
def test_matrices_are_what_they_are_called(name: str, links: Links, x: Tensor) -> None:
    wanted = dense(links, name.endswith("-loops"), name.removesuffix("-loops"))
    assert torch.allclose(links.matrix(name) @ x, wanted @ x, atol=1e-5)
    assert links.matrix(name) is links.matrix(name)


@pytest.mark.parametrize("density", [0.01, 0.5])  # stored sparse, stored dense
def test_products_have_the_gradient_of_a_dense_product(density: float) -> None:
    matrix = sp.random(40, 40, density, random_state=0, dtype=np.float32)
    ours, theirs = (torch.randn(40, 3, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
    product = Matrix(matrix, CPU)
    assert product.tensor.is_sparse_csr == (density < 0.05)
    ((product @ ours) ** 2).sum().backward()  # type: ignore[no-untyped-call]
    ((torch.from_numpy(matrix.toarray()) @ theirs) ** 2).sum().backward()  # type: ignore[no-untyped-call]
    assert ours.grad is not None
    assert theirs.grad is not None
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)


def test_two_hops_are_neither_neighbours_nor_the_node(links: Links) -> None:
    one, two = links.adjacency.toarray() > 0, two_hops(links.adjacency).toarray() > 0
    for node in range(links.count):
        reached = {far for near in np.flatnonzero(one[node]) for far in np.flatnonzero(one[near])}
        assert set(np.flatnonzero(two[node])) == reached - set(np.flatnonzero(one[node])) - {node}


def test_directions_of_links() -> None:
    pair = [vcr.Graph.from_edges([[0], [1]], num_nodes=3, features=np.eye(3), directed=d) for d in (False, True)]
    both, arcs = (vcr.Graph(**{**vars(one), "labels": np.zeros(3, dtype=np.int64)}) for one in pair)
    bench = Bench(both, arcs, CPU)
    assert bench.directed
    # Row = receiver. "out": node 0 reads node 1, to which it points.
    assert bench.links("out").adjacency.toarray().tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert bench.links("out").edges.tolist() == [[1], [0]]
    assert bench.links("in").edges.tolist() == [[0], [1]]
    assert bench.links("both").adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_convolutions_are_those_of_pyg(links: Links, x: Tensor) -> None:
    gcn, sage = Convolution("GCN", 64, 8), Convolution("GraphSAGE", 64, 8)
    theirs, sage_theirs = GCNConv(64, 8), SAGEConv(64, 8)
    theirs.lin.weight.data, theirs.bias.data = gcn.linear.weight.data, torch.arange(8.0)
    assert gcn.bias is not None
    assert sage.own is not None
    gcn.bias.data = torch.arange(8.0)
    assert torch.allclose(gcn(x, links), theirs(x, links.edges), atol=1e-5)
    sage_theirs.lin_l.weight.data, sage_theirs.lin_l.bias.data = sage.linear.weight.data, sage.own.bias.data
    sage_theirs.lin_r.weight.data = sage.own.weight.data
    assert torch.allclose(sage(x, links), sage_theirs(x, links.edges), atol=1e-5)


def test_sgc_averages_features_before_its_layer(graph: vcr.Graph, links: Links, x: Tensor) -> None:
    network, matrix = make(SGC, graph, steps=3), dense(links, True, "symmetric")
    assert torch.allclose(network(x, links), network.linear(matrix @ matrix @ matrix @ x), atol=1e-5)


def test_appnp_is_personalized_pagerank(graph: vcr.Graph, links: Links, x: Tensor) -> None:
    network, matrix = make(APPNP, graph, restart=0.3, steps=200), dense(links, True, "symmetric").double()
    exact = 0.3 * torch.linalg.inv(torch.eye(links.count) - 0.7 * matrix)
    assert torch.allclose(network(x, links).double(), exact @ network.layers(x).double(), atol=1e-4)


def test_gpr_gnn_with_the_first_weights_is_appnp(graph: vcr.Graph, links: Links, x: Tensor) -> None:
    assert sum(walk_weights(0.2, 7)) == pytest.approx(1)
    one, other = (make(network, graph, restart=0.2, steps=7) for network in (APPNP, GPRGNN))
    other.layers.load_state_dict(one.layers.state_dict())
    assert torch.allclose(one(x, links), other(x, links), atol=1e-5)


def test_pprgo_with_all_nodes_is_the_sum_of_all_steps(graph: vcr.Graph, links: Links, x: Tensor) -> None:
    network, walk = make(PPRGo, graph, k=links.count), dense(links, True, "mean")
    total, power = torch.zeros_like(walk), torch.eye(links.count)
    for weight in walk_weights(0.1, 20):
        total += weight * power
        power = power @ walk
    assert torch.allclose(network(x, links), total @ network.layers(x), atol=1e-5)
    best = links.mixed(walk_weights(0.1, 20), 5).tensor.to_dense()
    assert torch.allclose(best, torch.where(total >= total.topk(5, 1).values[:, -1:], total, 0), atol=1e-6)


def test_mixhop_joins_powers(links: Links, x: Tensor) -> None:
    layer, matrix = MixHopLayer(64, 4, powers=2), dense(links, True, "symmetric")
    wanted = [
        linear(power @ x) for linear, power in zip(layer.linear, [torch.eye(60), matrix, matrix @ matrix], strict=True)
    ]
    assert torch.allclose(layer(x, links), torch.cat(wanted, 1), atol=1e-5)


def test_gcn2_by_its_formula(graph: vcr.Graph, links: Links, x: Tensor) -> None:
    network, matrix = make(GCNII, graph, layers=3, restart=0.2, theta=0.5), dense(links, True, "symmetric")
    first = hidden = F.relu(network.first(x))
    for number, layer in enumerate(network.layers, start=1):
        beta = np.log(0.5 / number + 1)
        weights = (1 - beta) * torch.eye(16) + beta * layer.weight.T
        hidden = F.relu((0.8 * matrix @ hidden + 0.2 * first) @ weights)
    assert torch.allclose(network(x, links), network.head(hidden), atol=1e-5)


def test_h2gcn_keeps_the_node_apart(graph: vcr.Graph, links: Links, x: Tensor) -> None:
    network = make(H2GCN, graph, rounds=2)
    assert network.head.in_features == 16 * (1 + 2 + 4)
    # The state of a node without links is not mixed with others.
    alone = Links(sp.csr_matrix((60, 60)), CPU)
    states = torch.cat([F.relu(network.first(x)), torch.zeros(60, 96)], 1)
    assert torch.allclose(network(x, alone), network.head(states), atol=1e-5)


def test_acm_mixes_three_channels(links: Links, x: Tensor) -> None:
    torch.manual_seed(0)
    layer, matrix = ACMLayer(64, 5), dense(links, True, "mean")
    filters = (matrix, torch.eye(60) - matrix, torch.eye(60))
    channels = [F.relu(part @ linear(x)) for part, linear in zip(filters, layer.linear, strict=True)]
    scores = torch.cat([torch.sigmoid(one(part)) for one, part in zip(layer.scores, channels, strict=True)], 1)
    shares = torch.softmax(layer.mix(scores) / 3, 1)
    wanted = sum(shares[:, [number]] * channel for number, channel in enumerate(channels))
    assert torch.allclose(layer(x, links), torch.as_tensor(wanted), atol=1e-5)


def test_glognn_is_the_minimum_of_its_objective(graph: vcr.Graph, links: Links) -> None:
    network, matrix = make(GloGNN, graph, gamma=0.3, beta_1=0.5, beta_2=2.0), dense(links, True, "symmetric").double()
    hidden, first = (torch.randn(60, 3, generator=torch.Generator().manual_seed(n)).double() for n in (0, 1))
    near = sum(weight * torch.matrix_power(matrix, k) for k, weight in enumerate(network.orders.detach(), start=1))
    # The closed form of the paper, with an inverse of all nodes.
    left = 0.7 * hidden @ hidden.T + 2.0 * near - 0.3 * 0.7 * first @ hidden.T
    z = left @ torch.linalg.inv(0.49 * hidden @ hidden.T + 2.5 * torch.eye(60))
    got = network.layer(hidden.float(), first.float(), links).double()
    assert torch.allclose(got, 0.7 * z @ hidden + 0.3 * first, atol=1e-4)
    z.requires_grad_()
    gap, far = hidden - 0.7 * z @ hidden - 0.3 * first, z - near
    objective = (gap**2).sum() + 0.5 * (z**2).sum() + 2.0 * (far**2).sum()
    objective.backward()
    assert z.grad is not None
    assert z.grad.abs().max() < 1e-8


def test_grand_plus_without_agreement_and_dropping_is_an_mlp(graph: vcr.Graph, links: Links, x: Tensor) -> None:
    network = make(GrandPlus, graph, drop_nodes=0.0, agreement=0.0).train()
    nodes, labels = torch.arange(10), torch.zeros(10, dtype=torch.long)
    plain = F.cross_entropy(network(x, links)[nodes], labels)
    assert torch.allclose(network.loss(x, links, nodes, labels), plain)
    agreeing = make(GrandPlus, graph, drop_nodes=0.5, agreement=1.0, confidence=0.0).train()
    assert agreeing.loss(x, links, nodes, labels) > 0
    assert agreeing.step == 1


def test_full_attention_by_pairs(links: Links) -> None:
    torch.manual_seed(0)
    layer, x = FullAttention(8, 2), torch.randn(60, 8)
    query, key, value = layer.project(x).view(60, 3, 2, 4).unbind(1)
    read = [torch.softmax(query[:, h] @ key[:, h].T / 2, 1) @ value[:, h] for h in range(2)]
    assert torch.allclose(layer(x, links), layer.out(torch.cat(read, 1)), atol=1e-5)


def test_sparse_attention_by_pairs(links: Links) -> None:
    torch.manual_seed(0)
    layer, x = SparseAttention(8, 2, degree=4), torch.randn(60, 8)
    (senders, receivers), kinds = layer.pairs(links)
    states = torch.cat([x, layer.virtual])
    query, key, value = layer.project(states).view(61, 3, 2, 4).unbind(1)
    of_kind = layer.kinds.weight.view(4, 2, 4)
    rows = []
    for node in range(60):
        mine = torch.nonzero(receivers == node)[:, 0]
        scores = (query[node] * key[senders[mine]] * of_kind[kinds[mine]]).sum(2) / 2
        rows.append((torch.softmax(scores, 0)[:, :, None] * value[senders[mine]]).sum(0).flatten())
    assert torch.allclose(layer(x, links), layer.out(torch.stack(rows)), atol=1e-5)


def test_the_expander_is_regular() -> None:
    edges = expander_edges(30, 6)
    assert np.bincount(edges[0]).tolist() == np.bincount(edges[1]).tolist() == [6] * 30
    pairs = {tuple(pair) for pair in edges.T.tolist()}
    assert pairs == {(b, a) for a, b in pairs}


def test_linear_attention_is_that_of_pyg() -> None:
    attention = pytest.importorskip("torch_geometric.nn.attention", reason="needs a newer PyG")
    torch.manual_seed(0)
    theirs, x = attention.SGFormerAttention(8, 1, 8), torch.randn(20, 8)
    ours = linear_attention(theirs.q(x), theirs.k(x), theirs.v(x))
    assert torch.allclose(ours, theirs(x[None])[0], atol=1e-5)


def test_kernel_attention_by_pairs() -> None:
    query, key, value = (torch.randn(20, 4, generator=torch.Generator().manual_seed(n)) for n in range(3))
    weights = torch.sigmoid(query) @ torch.sigmoid(key).T
    assert torch.allclose(kernel_attention(query, key, value), weights / weights.sum(1, True) @ value, atol=1e-5)


def test_polynormer_is_global_after_its_warmup(graph: vcr.Graph, links: Links, x: Tensor) -> None:
    network = make(Polynormer, graph)
    assert network.warming
    local = network(x, links)
    network.warming = False
    assert not torch.allclose(local, network(x, links))


def test_label_propagation_and_correct_and_smooth_keep_training_labels(graph: vcr.Graph) -> None:
    bench, split = Bench(graph, graph, CPU), vcr.Split.random(graph.labels, seed=0)
    train = torch.from_numpy(split.train)
    spread = propagate_labels(bench, {"steps": 20, "restart": 0.5}, split, 0).outputs
    assert torch.equal(spread[train].argmax(1), bench.labels[train])
    guesses = torch.softmax(torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), 1)
    settings = {"steps": 10, "correct": 0.5, "smooth": 0.2, "autoscale": True}
    after = correct(guesses, bench.labels, train, bench.links().edges, settings)
    assert torch.equal(after[train].argmax(1), bench.labels[train])
    # Labels of other nodes are not read.
    hidden = bench.labels.clone()
    hidden[torch.from_numpy(np.concatenate([split.val, split.test]))] = 0
    assert torch.equal(after, correct(guesses, hidden, train, bench.links().edges, settings))


@pytest.mark.parametrize("name", NETWORKS)
def test_each_network_learns_a_small_graph_by_heart(name: str, graph: vcr.Graph) -> None:
    every = np.arange(graph.num_nodes)
    split: Any = SimpleNamespace(train=every, val=every, test=every)  # a real split refuses to overlap
    bench, settings = Bench(graph, graph, CPU), {**MADE, "epochs": 90, "patience": 90}
    settings |= {"kind": NETWORKS[name].fixed.get("kind", "GCN"), "jump": name == "JK", "residual": "tuned" in name}
    settings |= {"learning_rate": 0.2 if name == "SGC" else 0.02, "drop_nodes": 0.0}
    [outcome] = bench.train(NETWORKS[name].make, settings, [(split, 0)])
    assert outcome.val > 0.95


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_side_by_side_are_those_alone(name: str, graph: vcr.Graph, links: Links, x: Tensor) -> None:
    """Losses, gradients, what norms remember, and outputs; trainings would differ, for Adam enlarges rounding."""
    if not NETWORKS[name].together:
        pytest.skip("is always trained alone")
    settings = {**MADE, **NETWORKS[name].fixed, "norm": "batch", "drop_nodes": 0.0}
    networks = list[Network]()
    for seed in range(3):
        torch.manual_seed(seed)
        networks.append(NETWORKS[name].make(Sizes(graph.num_nodes, 64, graph.num_classes), settings))
    random = np.random.default_rng(0)
    nodes = torch.from_numpy(np.stack([random.permutation(graph.num_nodes)[:20] for _ in range(3)]))
    labels = torch.from_numpy(np.asarray(graph.labels).astype(np.int64))[nodes]
    labels[1, 15:] = NO_LABEL  # a shorter training part
    places = sparse(graph).places
    values = torch.randn(3, places.matrix.nnz)
    read: list[Tensor | Rows] = [x[None], x + torch.randn(3, 1, 64), Rows(places, values[:1]), Rows(places, values)]
    for warming, features in product((True, False), read):
        together = Together(copy.deepcopy(networks)).train()
        together.set_warming(warming)
        losses = together.loss(features, links, nodes, labels)
        torch.autograd.backward(losses.sum())
        outputs = together.eval()(features, links)
        each = features if isinstance(features, Tensor) else to_dense(features)
        for number, alone in enumerate(copy.deepcopy(networks)):
            own, real = each[min(number, len(each) - 1)], labels[number] != NO_LABEL
            alone.warming = warming
            loss = alone.train().loss(own, links, nodes[number][real], labels[number][real])
            torch.autograd.backward(loss)
            close(losses[number], loss)
            for kept, parameter in alone.named_parameters():
                gradient = together.get_parameter(kept.replace(".", "/")).grad
                expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                close(torch.zeros_like(parameter) if gradient is None else gradient[number], expected)
            for kept, buffer in alone.named_buffers():
                close(together.get_buffer(kept.replace(".", "/"))[number], buffer)
            close(outputs[number], alone.eval()(own, links))


def sparse(graph: vcr.Graph) -> Rows:
    """Features of which a twentieth is not zero, some rows are empty, and some columns, too."""
    matrix = sp.random(graph.num_nodes, 64, 0.05, random_state=0, dtype=np.float32).toarray()
    matrix[:3], matrix[:, 5] = 0, 0
    return Rows.of(matrix, CPU)


def to_dense(rows: Rows) -> Tensor:
    """The entries of one or several networks at their places."""
    matrix = rows.places.matrix.tocoo()
    result = torch.zeros(*rows.values.shape[:-1], *matrix.shape)
    result[..., torch.from_numpy(matrix.row).long(), torch.from_numpy(matrix.col).long()] = rows.values
    return result


def test_sparse_features_are_read_like_dense_ones(graph: vcr.Graph) -> None:
    rows, layer = sparse(graph), torch.nn.Linear(64, 5)
    dense = to_dense(rows)
    close(F.linear(rows, layer.weight, layer.bias), layer(dense))  # type: ignore[arg-type]
    one = Rows(rows.places, rows.values[None])
    close(to_dense(with_sum_one(one)), with_sum_one(dense[None]))  # type: ignore[arg-type]
    nodes = np.array([7, 3, 50])
    close(to_dense(chosen(one, nodes)), chosen(dense[None], nodes))  # type: ignore[arg-type]
    with pytest.raises(TypeError):  # nothing else reads sparse features without a word
        F.relu(rows)  # type: ignore[arg-type]


def test_dropout_of_sparse_features_hides_entries_and_keeps_their_mean(graph: vcr.Graph) -> None:
    rows = sparse(graph)
    hidden: Any = F.dropout(rows, 0.5)  # type: ignore[arg-type]
    kept = hidden.values != 0
    assert 0.3 < kept.float().mean() < 0.7
    assert torch.equal(hidden.values[kept], 2 * rows.values[kept])
    assert torch.equal(F.dropout(rows, 0.5, False).values, rows.values)  # type: ignore[arg-type]


def test_features_that_are_nearly_all_zero_stay_sparse() -> None:
    links = [[0, 1], [1, 2]]
    for columns, expected in ((40, Rows), (4, Tensor)):
        matrix = sp.eye(3, columns, format="csr", dtype=np.float32)
        graph = vcr.Graph.from_edges(links, num_nodes=3, features=matrix, labels=[0, 1, 0])
        read = read_features(graph, CPU)
        assert isinstance(read, expected)
        assert torch.equal(to_dense(read) if isinstance(read, Rows) else read, torch.from_numpy(matrix.toarray()))


@pytest.mark.parametrize("name", ["GCN", "GAT", "GraphSAGE"])
def test_trainings_with_sparse_features_are_those_with_dense_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = vcr.generate(nodes=60, edges=150, classes=3, features=64, homophily=0.7, seed=0)
    matrix = sp.csr_matrix(to_dense(sparse(graph)).numpy())
    graph = vcr.Graph.from_edges(
        np.stack(graph.to_scipy().nonzero()), num_nodes=60, features=matrix, labels=graph.labels
    )
    pairs = [(vcr.Split.random(graph.labels, seed=seed), seed) for seed in (0, 1)]
    settings = MADE | {**METHODS[name].fixed, "epochs": 20, "normalize_rows": True}
    found = Bench(graph, graph, CPU).train(Convolutional, settings, pairs)
    monkeypatch.setattr("benchmarks.baselines.features.DENSE_FROM", 0.0)
    for sparse_one, dense_one in zip(
        found, Bench(graph, graph, CPU).train(Convolutional, settings, pairs), strict=True
    ):
        close(sparse_one.outputs, dense_one.outputs)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_trainings_side_by_side_are_those_alone(graph: vcr.Graph) -> None:
    """Splits of different sizes; each stops by itself and keeps the outputs of its own best epoch."""
    bench, sizes = Bench(graph, graph, CPU), [(0.6, 0.2), (0.5, 0.3), (0.4, 0.2)]
    pairs = [
        (vcr.Split.random(graph.labels, train=train, val=val, seed=seed), 5 + seed)
        for seed, (train, val) in enumerate(sizes)
    ]
    settings = MADE | {"average": 0.9, "epochs": 60, "patience": 10, "learning_rate": 0.05}
    together, ends = bench.train(SGC, settings, pairs), set()
    for pair, found in zip(pairs, together, strict=True):
        [alone] = bench.train(SGC, settings, [pair])
        np.testing.assert_allclose(found.by_epoch, alone.by_epoch, atol=1e-6)
        assert found.best_epoch == alone.best_epoch
        close(found.outputs, alone.outputs)
        ends.add(len(found.by_epoch))
    assert len(ends) > 1


def test_networks_side_by_side_draw_their_own_dropout(graph: vcr.Graph) -> None:
    bench, split = Bench(graph, graph, CPU), vcr.Split.random(graph.labels, seed=0)
    for dropout in ({"dropout": 0.5}, {"input_dropout": 0.5}, {}):
        one, other = bench.train(Convolutional, MADE | dropout | {"epochs": 5}, [(split, 1), (split, 1)])
        assert torch.allclose(one.outputs, other.outputs, atol=1e-3) == (not dropout)


def test_large_features_are_trained_one_after_the_other(graph: vcr.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(graph, graph, CPU)
    assert (bench.at_once, METHODS["GCN"].at_once(bench), METHODS["GraphGPS"].at_once(bench)) == (10, 10, 1)
    monkeypatch.setattr("benchmarks.baselines.bench.ENTRIES_AT_ONCE", 3 * graph.num_nodes * graph.num_features)
    assert bench.at_once == 3
    monkeypatch.setattr("benchmarks.baselines.bench.ENTRIES_AT_ONCE", 1)
    assert bench.at_once == 1


def test_training_is_repeatable_and_stops_early(graph: vcr.Graph) -> None:
    bench, split = Bench(graph, graph, CPU), vcr.Split.random(graph.labels, seed=0)
    settings = MADE | {"dropout": 0.5, "input_dropout": 0.2, "average": 0.9, "schedule": "cosine", "patience": 15}
    one, again = (bench.train(Convolutional, settings, [(split, 3)])[0] for _ in range(2))
    assert np.array_equal(one.by_epoch, again.by_epoch)
    assert torch.equal(one.outputs, again.outputs)
    assert len(one.by_epoch) < 500
    assert one.val == one.by_epoch[:, 0].max()
    right = (one.outputs.argmax(1) == bench.labels).numpy()
    assert one.val == pytest.approx(right[split.val].mean())
    assert bench.test(one, split) == pytest.approx(right[split.test].mean())
    [seen] = bench.train(Convolutional, settings, [(split, 3)], epochs=20, inductive=True)
    assert len(seen.by_epoch) == 20


def test_the_mean_of_weights_begins_with_the_first(graph: vcr.Graph) -> None:
    bench, split = Bench(graph, graph, CPU), vcr.Split.random(graph.labels, seed=0)

    def trained(average: float, epochs: int) -> Tensor:
        [outcome] = bench.train(SGC, MADE | {"average": average}, [(split, 0)], epochs=epochs)
        return outcome.outputs

    assert torch.allclose(trained(0.0, 1), trained(0.9, 1))
    assert not torch.allclose(trained(0.0, 5), trained(0.9, 5))


def test_scores_are_those_of_the_package() -> None:
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(3, 50, 2)).round(1), random.integers(0, 2, 50)
    for metric in ("accuracy", "roc_auc"):
        ours = score(metric, torch.from_numpy(logits), torch.from_numpy(labels)).tolist()
        # Probabilities of equal margins must be equal, so they are computed from the margin.
        margins = logits[:, :, 1] - logits[:, :, 0]
        margins = margins.round(6)
        both = np.stack([-margins, margins], 2).astype(np.float32)
        exact = score(metric, torch.from_numpy(both), torch.from_numpy(labels)).tolist()
        theirs = [measure(metric, one, labels, TASKS["classification"]) for one in both]
        assert exact == pytest.approx(theirs)
        assert ours == pytest.approx(theirs, abs=0.01)


def test_schedules() -> None:
    assert schedule("constant", 0.1, 5).tolist() == pytest.approx([0.1] * 5)
    rates = schedule("cosine", 0.1, 100)
    assert len(rates) == 100
    assert float(rates.max()) == pytest.approx(0.1)
    assert float(rates[-1]) < 1e-3


def test_settings_are_drawn_from_the_table_and_depend_on_the_number_only() -> None:
    for name, method in METHODS.items():
        draws = method.draw(name, 20, directed=True)
        assert all(settings.keys() >= {*method.space, *method.fixed} for settings in draws)
        by_rule = name == spaces.DEFAULT  # it decides by itself
        assert all(("links" in settings) == (method.reads_links or by_rule) for settings in draws)
        assert len({str(settings) for settings in draws}) == len(draws)
        if "learning_rate" in method.space:
            assert method.draw(name, 7, directed=True) == draws[:7]
            low, high = method.space["learning_rate"]
            assert all(low * 0.99 <= settings["learning_rate"] <= high * 1.01 for settings in draws)
            assert {"input_dropout", "schedule", "average", "optimizer"} <= method.space.keys()  # open to all
    assert [settings["links"] for settings in METHODS["nearest"].draw("nearest", 20, directed=True)] == [*spaces.LINKS]
    assert METHODS["boosting"].draw("boosting", 20, directed=True) == [{"name": "gradient boosting on hops"}]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_recorded_training_is_the_same_as_an_eager_one(name: str, graph: vcr.Graph) -> None:
    split, outputs = vcr.Split.random(graph.labels, seed=0), []
    for record in (True, False):
        bench = Bench(graph, graph, torch.device("cuda"), record=record and NETWORKS[name].record)
        settings = {**MADE, **NETWORKS[name].fixed, "drop_nodes": 0.0, "average": 0.9, "schedule": "cosine"}
        pairs = [(split, seed) for seed in range(2 if NETWORKS[name].together else 1)]
        outcomes = bench.train(NETWORKS[name].make, settings, pairs, epochs=30)
        outputs.append(np.stack([outcome.by_epoch for outcome in outcomes]))
    assert np.abs(outputs[0] - outputs[1]).max() < 0.2  # sums in another order; a wrong recording would not learn


def test_the_table_of_methods_is_whole() -> None:
    wanted = "MLP logistic boosting SGC GCN GraphSAGE GAT JK MixHop APPNP GPR-GNN GCNII H2GCN ACM-GCN LINKX GloGNN"
    wanted += " PPRGo GRAND+ NAGphormer Exphormer GraphGPS SGFormer Polynormer C&S VCR-Graphormer"
    assert {*wanted.split(), "label propagation", "GCN tuned", "GraphSAGE tuned", "GAT tuned"} <= METHODS.keys()
    assert spaces.LINKS == ("both", "out", "in")


def test_our_default_is_the_one_that_is_shipped() -> None:
    for directed in (False, True):
        (settings,) = METHODS[spaces.DEFAULT].draw(spaces.DEFAULT, 20, directed)
        assert settings["links"] == "auto"
        config = make_config(settings, seed=3)
        training = replace(config.training, seed=0, checkpoint_every=vcr.Config().training.checkpoint_every)
        assert replace(config, training=training) == vcr.Config()
    searched = METHODS["VCR-Graphormer"].draw("VCR-Graphormer", 1, False)[0]
    assert make_config(searched, seed=3).model.members == 1  # one network, as all other methods
