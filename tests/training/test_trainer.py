"""The loop: schedule, losses, early stop, determinism, resume, and what makes it stop."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.plain import alone, model_config, token_config, train_config
from vcr_graphormer import (
    ConfigError,
    Graph,
    ModelConfig,
    Split,
    StoreError,
    TokenStore,
    TrainConfig,
    TrainingError,
    generate,
    make_inputs,
    tokenize,
)
from vcr_graphormer.data.tasks import TASKS, Target
from vcr_graphormer.model.batches import Inputs
from vcr_graphormer.model.members import make_model
from vcr_graphormer.training.checkpoint import read_history
from vcr_graphormer.training.trainer import CHECKPOINT, Examples, Trainer

MODEL = model_config(hidden_channels=16, heads=2)
TRAINING = train_config(epochs=6, batch_size=40, warmup_steps=3, patience=6, checkpoint_every=2)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return generate(nodes=160, edges=640, classes=3, features=8, homophily=0.8, seed=0)


@pytest.fixture(scope="module")
def split(graph: Graph) -> Split:
    return Split.random(graph.labels, seed=0)


@pytest.fixture(scope="module")
def store(graph: Graph, split: Split, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    config = token_config(hops=2, clusters=4, structure_tokens=4, content_tokens=4)
    return tokenize(graph, split.train, config, tmp_path_factory.mktemp("store") / "tokens")


def make_trainer(
    graph: Graph,
    split: Split,
    store: TokenStore,
    training: TrainConfig = TRAINING,
    model: ModelConfig = MODEL,
    folder: Path | None = None,
    inputs: Inputs | None = None,
) -> Trainer:
    labels = np.asarray(graph.labels)
    inputs = inputs or make_inputs(graph, store, model, split.train, torch.device("cpu"))
    torch.manual_seed(training.seed)
    sizes = {"num_features": graph.num_features, "num_outputs": graph.num_classes, "num_labels": graph.num_classes}
    made = make_model(model, store.layout, num_nodes=160, **sizes)
    train, val = (Examples(part, labels[part]) for part in (split.train, split.val))
    target = Target(TASKS["classification"]).weighted(train.labels, training.class_weights, ["0", "1", "2"])
    return Trainer(made, inputs, train, val, target, training, folder=folder)


def test_micro_batches_give_the_same_gradient(graph: Graph, split: Split, store: TokenStore) -> None:
    plain = replace(MODEL, dropout=0.0, attention_dropout=0.0)
    gradients = []
    for size in (0, 7):
        trainer = make_trainer(graph, split, store, replace(TRAINING, micro_batch=size, gradient_clip=0.0), plain)
        nodes = torch.from_numpy(split.train[:40])
        trainer.worker.train()
        trainer.take_step(trainer.inputs.batch(nodes), trainer.labels[:40])
        gradients.append([parameter.grad for parameter in trainer.model.parameters()])
    for whole, parts in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, parts, atol=1e-6, rtol=1e-4)


def test_same_seed_same_weights_and_another_seed_others(graph: Graph, split: Split, store: TokenStore) -> None:
    first, second = (make_trainer(graph, split, store).fit() for _ in range(2))
    other = make_trainer(graph, split, store, replace(TRAINING, seed=1)).fit()
    for name, tensor in first.state.items():
        assert torch.equal(tensor, second.state[name])
    assert not torch.equal(first.state["bias"], other.state["bias"])


def test_overfits_twenty_nodes(graph: Graph, split: Split, store: TokenStore) -> None:
    few = Split(split.train[:20], split.train[20:40], split.test)
    training = train_config(epochs=150, batch_size=20, learning_rate=3e-3, warmup_steps=5, patience=150)
    trainer = make_trainer(graph, few, store, training, replace(MODEL, dropout=0.0, attention_dropout=0.0))
    trainer.fit()
    logits = trainer.model.eval()(trainer.inputs.batch(torch.from_numpy(few.train)))
    assert (logits.argmax(1).numpy() == np.asarray(graph.labels)[few.train]).all()


def test_the_best_state_is_a_copy_of_its_epoch(graph: Graph, split: Split, store: TokenStore) -> None:
    # A rate so high that validation worsens again after its best epoch.
    training = replace(TRAINING, epochs=12, patience=12, learning_rate=0.05, warmup_steps=0)
    trainer = make_trainer(graph, split, store, training)
    states = {}

    def remember(row: dict[str, float]) -> None:
        states[int(row["epoch"])] = {name: value.clone() for name, value in trainer.model.state_dict().items()}

    best = trainer.fit(remember)
    assert best.epoch < 12
    values = [row["val"] for row in trainer.history]
    assert best.value == max(values)
    for name, tensor in best.state.items():
        assert torch.equal(tensor, states[best.epoch][name])
    assert any(not torch.equal(tensor, states[12][name]) for name, tensor in best.state.items())


def test_patience(graph: Graph, split: Split, store: TokenStore) -> None:
    training = replace(TRAINING, epochs=100, patience=2, learning_rate=0.05, warmup_steps=0)
    trainer = make_trainer(graph, split, store, training)
    best = trainer.fit()
    assert trainer.epoch == best.epoch + 2 < 100


def test_average_of_weights(graph: Graph, split: Split, store: TokenStore) -> None:
    trainer = make_trainer(graph, split, store, replace(TRAINING, average=0.9))
    assert trainer.average is not None
    expected = {name: tensor.clone() for name, tensor in trainer.average.state_dict().items()}
    trainer.worker.train()
    for step in range(1, 4):
        nodes = torch.from_numpy(split.train[:40])
        trainer.advance(nodes, trainer.labels[:40])
        decay = min(0.9, (1 + step) / (10 + step))
        for name, tensor in trainer.model.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * tensor
    for name, tensor in trainer.average.state_dict().items():
        torch.testing.assert_close(tensor, expected[name])


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_resume_equals_uninterrupted_to_the_bit(
    graph: Graph, split: Split, store: TokenStore, tmp_path: Path, average: float
) -> None:
    training = replace(TRAINING, average=average, epochs=5)
    whole = make_trainer(graph, split, store, training, folder=tmp_path)
    best = whole.fit()
    rows = (tmp_path / "history.jsonl").read_text().splitlines()
    assert (tmp_path / CHECKPOINT).is_file()  # of epoch 4
    again = make_trainer(graph, split, store, training, folder=tmp_path)
    torch.manual_seed(12345)  # whatever the state of the generator is
    again.restore()
    assert again.epoch == 4
    resumed = again.fit()
    assert resumed.epoch == best.epoch
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
    for name, tensor in best.state.items():
        assert torch.equal(tensor, resumed.state[name])
    kept = (tmp_path / "history.jsonl").read_text().splitlines()
    drop = {"seconds"}
    assert [{k: v for k, v in json.loads(row).items() if k not in drop} for row in kept] == [
        {k: v for k, v in json.loads(row).items() if k not in drop} for row in rows
    ]


def test_a_checkpoint_of_another_model_is_refused(
    graph: Graph, split: Split, store: TokenStore, tmp_path: Path
) -> None:
    make_trainer(graph, split, store, folder=tmp_path).fit()
    other = make_trainer(graph, split, store, model=replace(MODEL, hidden_channels=32), folder=tmp_path)
    with pytest.raises(StoreError, match="does not fit this run"):
        other.restore()
    (tmp_path / CHECKPOINT).write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="is damaged"):
        make_trainer(graph, split, store, folder=tmp_path).restore()


def test_a_loss_that_is_no_number_stops_and_names_the_step(
    graph: Graph, split: Split, store: TokenStore, tmp_path: Path
) -> None:
    trainer = make_trainer(graph, split, store, folder=tmp_path)

    def spoil(row: dict[str, float]) -> None:
        if row["epoch"] == 3:
            with torch.no_grad():
                alone(trainer.model).bias.fill_(math.nan)

    # 96 training nodes in batches of 40: three steps an epoch, so epoch 4 starts with step 10.
    with pytest.raises(
        TrainingError, match=r"the loss became nan at step 10 \(epoch 4\).*last good checkpoint is kept"
    ):
        trainer.fit(spoil)
    again = make_trainer(graph, split, store, folder=tmp_path)
    again.restore()
    assert again.epoch == 2
    assert all(tensor.isfinite().all() for tensor in again.model.state_dict().values())


def test_weights_that_give_no_numbers_are_not_kept(
    graph: Graph, split: Split, store: TokenStore, tmp_path: Path
) -> None:
    # So high a rate that the first step's loss is a number and nothing after it.
    training = replace(TRAINING, learning_rate=1e30, warmup_steps=0, batch_size=200, checkpoint_every=1)
    trainer = make_trainer(graph, split, store, training, folder=tmp_path)
    with pytest.raises(TrainingError, match=r"validation outputs are no longer numbers after step 1 \(epoch 1\)"):
        trainer.fit()
    assert not (tmp_path / CHECKPOINT).exists()
    assert trainer.best.epoch == 0


def test_patience_counts_from_the_last_better_metric(graph: Graph, split: Split, store: TokenStore) -> None:
    # Twenty nodes the model soon knows by heart: the metric stays at 1 while the loss goes on falling.
    few = Split(split.train[:20], split.train[20:40], split.test)
    training = train_config(epochs=300, batch_size=20, learning_rate=3e-3, warmup_steps=5, patience=20)
    trainer = make_trainer(graph, few, store, training, replace(MODEL, dropout=0.0, attention_dropout=0.0))
    trainer.val, trainer.val_labels = trainer.train, trainer.labels
    best = trainer.fit()
    assert best.value == 1.0
    assert best.improved < best.epoch
    assert trainer.epoch == best.improved + 20


def test_a_torn_history_is_read_up_to_the_tear(tmp_path: Path) -> None:
    row = '{"epoch": 1, "loss": 0.5, "val_loss": 0.25, "val": 1.0}\n'
    (tmp_path / "history.jsonl").write_text(2 * row + '{"epo')
    assert read_history(tmp_path / "history.jsonl") == 2 * [{"epoch": 1, "loss": 0.5, "val_loss": 0.25, "val": 1.0}]
    assert read_history(tmp_path / "nothing") == []


def test_a_huge_seed(graph: Graph, split: Split, store: TokenStore) -> None:
    make_trainer(graph, split, store, replace(TRAINING, seed=2**62, epochs=1)).fit()


def test_label_smoothing_is_refused_for_regression(graph: Graph, split: Split, store: TokenStore) -> None:
    trainer = make_trainer(graph, split, store)
    with pytest.raises(ConfigError, match="label_smoothing is for class labels"):
        Trainer(
            trainer.model,
            trainer.inputs,
            trainer.train,
            trainer.val,
            Target(TASKS["regression"]),
            replace(TRAINING, label_smoothing=0.1),
        )


def test_bfloat16_trains_on_a_copy(graph: Graph, split: Split, store: TokenStore) -> None:
    trainer = make_trainer(graph, split, store, replace(TRAINING, precision="bfloat16", learning_rate=0.01))
    trainer.fit()
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert {parameter.dtype for parameter in trainer.worker.parameters()} == {torch.bfloat16}
    assert trainer.history[-1]["loss"] < trainer.history[0]["loss"]
    exact = make_trainer(graph, split, store, replace(TRAINING, learning_rate=0.01))
    exact.fit()
    assert trainer.history[-1]["loss"] == pytest.approx(exact.history[-1]["loss"], abs=0.1)


def test_streamed_inputs_train_the_same(graph: Graph, split: Split, store: TokenStore) -> None:
    plain = replace(MODEL, dropout=0.0, attention_dropout=0.0)
    device = torch.device("cpu")
    losses = []
    for streamed in (False, True):
        inputs = make_inputs(graph, store, plain, split.train, device, streamed=streamed)
        trainer = make_trainer(graph, split, store, model=plain, inputs=inputs)
        trainer.fit()
        losses.append([row["loss"] for row in trainer.history])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


CHANGES: dict[str, Any] = {
    "hidden_channels": 32,
    "heads": 4,
    "layers": 2,
    "members": 2,
    "own_hops": True,
    "dropout": 0.3,
    "attention_dropout": 0.3,
    "readout": "mean",
    "kind_embedding": True,
    "rank_embedding": True,
    "rich_tokens": 2,
    "label_hops": 2,
    "label_embedding": True,
    "rich_labels": True,
    "adjacency_rows": True,
    "normalize_rows": True,
    "feature_dropout": 0.3,
    "embedding_dropout": 0.3,
    "token_dropout": 0.3,
    "combine": "gated",
    "neighbour_dropout": 0.5,
    "own_dropout": 0.5,
    "epochs": 3,
    "batch_size": 20,
    "micro_batch": 5,
    "learning_rate": 0.01,
    "final_learning_rate": 0.0,
    "schedule": "cosine",
    "warmup_steps": 1,
    "decay_steps": 5,
    "optimizer": "adam",
    "weight_decay": 0.1,
    "consistency": 1.0,
    "label_smoothing": 0.2,
    "class_weights": {"1": 9.0},
    "gradient_clip": 0.01,
    "metric": "macro_f1",
    "average": 0.5,
    "precision": "bfloat16",
    "seed": 7,
    "patience": 1,
}
# Speed, durability, and what is decided after training: their effects are tested by name elsewhere.
OTHERS = {"checkpoint_every", "compile", "threshold"}


@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_members_learn_as_if_each_were_alone(
    graph: Graph, split: Split, store: TokenStore, optimizer: str, precision: str
) -> None:
    training = replace(TRAINING, optimizer=optimizer, weight_decay=0.05, gradient_clip=0.05, micro_batch=15)
    training = replace(training, precision=precision, class_weights={"1": 3.0})
    one = make_trainer(graph, split, store, training, replace(MODEL, dropout=0.0, attention_dropout=0.0))
    three = make_trainer(graph, split, store, training, replace(one.model.config, members=3))
    others = three.model.all[1:]
    three.model.all[0].load_state_dict(one.model.state_dict())
    one.fit()
    three.fit()
    assert three.history[0]["loss"] != one.history[0]["loss"]  # the mean of three
    for name, weight in one.model.state_dict().items():
        torch.testing.assert_close(three.model.all[0].state_dict()[name], weight, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(others[0].state_dict()["bias"], others[1].state_dict()["bias"])


def test_weight_decay_does_not_close_the_gate(graph: Graph, split: Split, store: TokenStore) -> None:
    gates = []
    for decay in (0.0, 50.0):
        training = replace(TRAINING, epochs=2, weight_decay=decay, gradient_clip=0.0)
        trainer = make_trainer(graph, split, store, training, replace(MODEL, combine="gated"))
        # The second path says nothing: its gate gets no gradient.
        for parameter in alone(trainer.model).head.parameters():
            torch.nn.init.zeros_(parameter).requires_grad_(False)
        trainer.fit()
        gates.append(alone(trainer.model).gate.item())
    assert gates == [pytest.approx(0.55), pytest.approx(0.55)]


@pytest.mark.parametrize(
    "name", sorted({item.name for kind in (ModelConfig, TrainConfig) for item in fields(kind)} - OTHERS)
)
def test_every_setting_changes_something(graph: Graph, split: Split, store: TokenStore, name: str) -> None:
    changed: dict[str, Any] = {name: CHANGES[name]}
    base = replace(TRAINING, epochs=4, learning_rate=0.003, patience=4)
    if name == "patience":
        base = replace(base, epochs=30, learning_rate=0.05, warmup_steps=0, patience=30)
    before = replace(MODEL, combine="gated") if name in ("neighbour_dropout", "own_dropout") else MODEL
    if name == "own_hops":
        before = replace(MODEL, combine="gated", readout="target")
    model = replace(before, **changed) if name in {item.name for item in fields(ModelConfig)} else before
    training = replace(base, **changed) if name in {item.name for item in fields(TrainConfig)} else base
    results = []
    for settings in ((base, before), (training, model)):
        trainer = make_trainer(graph, split, store, *settings)
        trainer.fit()
        results.append([(row["epoch"], row["loss"], row["val"], row["val_loss"]) for row in trainer.history])
    assert results[0] != results[1]
