"""The term for unlabelled nodes against a plain reference; weight decay in the gradient; what never reads a label."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.plain import alone, model_config, token_config, train_config
from vcr_graphormer import ConfigError, Graph, ModelConfig, Split, TrainConfig, generate
from vcr_graphormer.data.tasks import TASKS, Target
from vcr_graphormer.runs.trials import Workbench
from vcr_graphormer.training.consistency import COPIES, disagreement, ramp
from vcr_graphormer.training.cuda_graphs import WARM_UP, CapturedStep
from vcr_graphormer.training.trainer import CHECKPOINT, Trainer

TOKENS = token_config(hops=2, clusters=4, structure_tokens=2, content_tokens=2)
MODEL = model_config(hidden_channels=16, heads=2, dropout=0.0, attention_dropout=0.0)
TRAINING = train_config(epochs=5, batch_size=20, warmup_steps=2, patience=5, checkpoint_every=2, consistency=2.0)
NOISY = replace(MODEL, feature_dropout=0.3, embedding_dropout=0.3)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return generate(nodes=120, edges=480, classes=3, features=8, homophily=0.8, seed=0)


@pytest.fixture(scope="module")
def split(graph: Graph) -> Split:
    return Split.random(graph.labels, train=0.25, val=0.25, seed=0)


def make_trainer(
    graph: Graph,
    split: Split,
    training: TrainConfig = TRAINING,
    model: ModelConfig = MODEL,
    folder: Path | None = None,
    streamed: bool = False,
) -> Trainer:
    inputs = Workbench(graph, torch.device("cpu")).inputs(split, TOKENS, model)
    inputs = replace(inputs, streamed=streamed)
    return Trainer.of(graph, split, inputs=inputs, model=model, training=training, folder=folder)


def plain_disagreement(logits: Any, squash: Any) -> float:
    """Node by node and copy by copy."""
    distances = []
    for copies in np.asarray(logits, dtype=np.float64):
        wanted = squash(2.0 * copies.mean(0))  # temperature 0.5
        distances += [((squash(copy) - wanted) ** 2).sum() for copy in copies]
    return float(np.mean(distances))


def softmax(values: Any) -> Any:
    return np.exp(values) / np.exp(values).sum()


def test_literal_values() -> None:
    classes = Target(TASKS["classification"])
    # Probabilities 0.731 and 0.269 of both copies; sharpened 0.881 and 0.119; 2 · 0.1497² = 0.0448.
    assert disagreement(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]), classes).item() == pytest.approx(0.04484, abs=1e-5)
    # Copies that contradict each other: their mean says nothing, and both are 0.231 away from one half.
    assert disagreement(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), classes).item() == pytest.approx(0.10678, abs=1e-5)
    assert [ramp(step, 10) for step in (1, 3, 10)] == [pytest.approx(1 / 3), 1.0, 1.0]


@pytest.mark.parametrize(
    ("task", "squash"), [("classification", softmax), ("multilabel", lambda x: 1 / (1 + np.exp(-x)))]
)
def test_it_equals_the_plain_reference(task: str, squash: Any) -> None:
    logits = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0))
    found = disagreement(logits, Target(TASKS[task])).item()
    assert found == pytest.approx(plain_disagreement(logits, squash), rel=1e-5)


def test_the_sharpened_mean_gets_no_gradient() -> None:
    logits = torch.tensor([[[1.0, 0.0], [0.5, 0.0]]], requires_grad=True)
    disagreement(logits, Target(TASKS["classification"])).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    # A small step down raises the confidence of both copies; with a gradient of the mean it would lower the second's.
    assert (logits.grad[0, :, 0] < 0).all()
    assert logits.grad[0].sum(-1).abs().max().item() == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("micro_batch", [0, 1, 3])
def test_a_step_has_the_loss_of_both_parts(graph: Graph, split: Split, micro_batch: int) -> None:
    trainer = make_trainer(graph, split, replace(TRAINING, micro_batch=micro_batch, gradient_clip=0.0))
    labelled, others = trainer.nodes[:20], trainer.unlabelled[:20]
    batch = trainer.inputs.batch(torch.cat([labelled, others.repeat_interleave(COPIES)]))
    trainer.consistency.fill_(2.0)
    with torch.no_grad():
        supervised = torch.nn.functional.cross_entropy(
            trainer.model(trainer.inputs.batch(labelled)), trainer.labels[:20]
        )
        copies = trainer.model(trainer.inputs.batch(others))[:, None].expand(-1, COPIES, -1)
    expected = float(supervised) + 2.0 * plain_disagreement(copies, softmax)
    loss = trainer.take_step(batch, trainer.labels[:20])
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_micro_batches_give_the_same_gradient(graph: Graph, split: Split) -> None:
    gradients = []
    for size in (0, 3):
        trainer = make_trainer(graph, split, replace(TRAINING, micro_batch=size, gradient_clip=0.0))
        nodes = torch.cat([trainer.nodes[:20], trainer.unlabelled[:20].repeat_interleave(COPIES)])
        trainer.consistency.fill_(2.0)
        trainer.take_step(trainer.inputs.batch(nodes), trainer.labels[:20])
        gradients.append([parameter.grad for parameter in trainer.model.parameters()])
    for whole, parts in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, parts, atol=1e-6, rtol=1e-4)


def test_steps_take_other_nodes_than_those_for_training(graph: Graph, split: Split) -> None:
    trainer = make_trainer(graph, split)
    assert set(trainer.unlabelled.tolist()) == set(range(120)) - set(split.train.tolist())
    batches = trainer._add_unlabelled(list(torch.split(trainer.nodes, 20)), torch.Generator().manual_seed(0))
    assert [len(batch) for batch in batches] == [20 + 40, 10 + 40]  # 30 training nodes
    for batch, labelled in zip(batches, (20, 10), strict=True):
        first, second = batch[labelled::2], batch[labelled + 1 :: 2]
        assert torch.equal(first, second)
        assert not set(first.tolist()) & set(split.train.tolist())
    assert not len(make_trainer(graph, split, replace(TRAINING, consistency=0.0)).unlabelled)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_term_makes_predictions_sure(graph: Graph, split: Split, streamed: bool) -> None:
    entropies = []
    for weight in (0.0, 5.0):
        trainer = make_trainer(
            graph,
            split,
            replace(TRAINING, epochs=30, patience=30, learning_rate=0.01, consistency=weight),
            streamed=streamed,
        )
        trainer.fit()
        with torch.no_grad():
            outputs = trainer.model.eval()(trainer.inputs.batch(torch.from_numpy(split.test))).softmax(-1)
        entropies.append(float(-(outputs * outputs.log()).sum(-1).mean()))
    assert entropies[1] < 0.8 * entropies[0]


def test_labels_outside_the_training_part_change_no_weights(graph: Graph, split: Split) -> None:
    labels = np.array(graph.labels)
    others = np.setdiff1d(np.arange(120), split.train)
    labels[others] = (labels[others] + 1) % 3
    model = replace(NOISY, label_hops=2, label_embedding=True)
    trainers = []
    for one in (graph, replace(graph, labels=labels)):
        trainers.append(make_trainer(one, split, model=model))
        trainers[-1].fit()
    first, second = trainers
    assert (
        first.history[-1]["val_loss"] != second.history[-1]["val_loss"]
    )  # validation labels choose the epoch, nothing else
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, second.model.state_dict()[name])


def test_resume_equals_uninterrupted_to_the_bit(graph: Graph, split: Split, tmp_path: Path) -> None:
    training = replace(TRAINING, optimizer="adam", average=0.9)
    whole = make_trainer(graph, split, training, NOISY, tmp_path)
    whole.fit()
    assert (tmp_path / CHECKPOINT).is_file()  # of epoch 4
    again = make_trainer(graph, split, training, NOISY, tmp_path)
    torch.manual_seed(12345)
    again.restore()
    assert again.epoch == 4
    again.fit()
    assert [row["loss"] for row in again.history] == [row["loss"] for row in whole.history]
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])


def test_steps_of_each_size_can_be_recorded(graph: Graph, split: Split) -> None:
    trainer = make_trainer(graph, split)
    trainer.inputs = replace(trainer.inputs, device=torch.device("cuda"), features=torch.zeros(120, 8))
    trainer.inputs = replace(trainer.inputs, hops=(torch.zeros(120, 8),) * 2)
    full, last = trainer._add_unlabelled(list(torch.split(trainer.nodes, 20)), torch.Generator().manual_seed(0))
    assert len(full) > len(last)
    for nodes in (full, last):
        assert not CapturedStep.possible(trainer, nodes)  # not warm
        trainer.steps_taken[len(nodes)] = WARM_UP
        assert CapturedStep.possible(trainer, nodes)


def test_regression_is_refused() -> None:
    with pytest.raises(ConfigError, match="training.consistency is for class labels: set it to 0 for regression"):
        TRAINING.check("regression")


@pytest.mark.parametrize(("optimizer", "expected"), [("adamw", 0.5 - 0.1 * 0.01 * 0.5), ("adam", 0.5 - 0.1)])
def test_weights_that_no_label_speaks_of(graph: Graph, split: Split, optimizer: str, expected: float) -> None:
    # A feature that no node has: with AdamW its weight shrinks a little, with Adam by the whole rate.
    blind = replace(graph, features=np.concatenate([np.asarray(graph.features), np.zeros((120, 1), np.float32)], 1))
    training = train_config(
        learning_rate=0.1, final_learning_rate=0.1, warmup_steps=0, optimizer=optimizer, weight_decay=0.01
    )
    trainer = make_trainer(blind, split, training)
    with torch.no_grad():
        alone(trainer.model).feature_weights[0][-1] = 0.5
    trainer.advance(trainer.nodes, trainer.labels)
    torch.testing.assert_close(alone(trainer.model).feature_weights[0][-1], torch.full((16,), expected))


def test_normalized_rows_do_not_depend_on_the_scale_of_the_features(graph: Graph, split: Split) -> None:
    features = np.asarray(graph.features)
    outputs = {}
    for normalized in (False, True):
        model = replace(MODEL, normalize_rows=normalized, rich_tokens=1)
        for scale in (1.0, 8.0):
            scaled = replace(graph, features=np.asarray(scale * features, dtype=np.float32))
            trainer = make_trainer(scaled, split, model=model)
            with torch.no_grad():
                outputs[normalized, scale] = trainer.model.eval()(trainer.inputs.batch(trainer.nodes))
    torch.testing.assert_close(outputs[True, 1.0], outputs[True, 8.0], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(outputs[False, 1.0], outputs[False, 8.0], atol=0.01)
