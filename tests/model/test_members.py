"""Several models that learn at once: each as if it were alone, together their mean."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from tests.model.test_transformer import FEATURES, LAYOUT, NODES, SMALL, make_inputs
from tests.support.runs import CONFIG, named_graph
from vcr_graphormer import ConfigError
from vcr_graphormer.model.config import ModelConfig
from vcr_graphormer.model.members import Members, make_model
from vcr_graphormer.model.transformer import VCRGraphormer

THREE = replace(SMALL, members=3, combine="gated", readout="target", kind_embedding=True)
ALL = torch.arange(NODES)


def three(config: ModelConfig = THREE) -> Members:
    torch.manual_seed(0)
    model = make_model(config, LAYOUT, num_features=FEATURES, num_outputs=4)
    assert isinstance(model, Members)
    return model


def test_one_member_is_the_model_itself() -> None:
    alone = make_model(replace(THREE, members=1), LAYOUT, num_features=FEATURES, num_outputs=4)
    assert type(alone) is VCRGraphormer
    with pytest.raises(ConfigError, match="members is 3"):
        VCRGraphormer(THREE, LAYOUT, num_features=FEATURES, num_outputs=4)


def test_predictions_are_the_mean_of_members_that_differ() -> None:
    model, batch = three().eval(), make_inputs().batch(ALL)
    each = torch.stack([member(batch) for member in model.all])
    assert not torch.allclose(each[0], each[1], atol=1e-3)
    torch.testing.assert_close(model(batch), each.mean(0))
    projected = model.project_rows(batch.rows)
    torch.testing.assert_close(model(batch, projected), each.mean(0))
    tokens, mask = model.tokens(batch)
    torch.testing.assert_close(model.read(tokens, mask)[0], each.mean(0))
    torch.testing.assert_close(model.look(tokens, mask).logits, each.mean(0))
    assert model.represent(batch).shape == (NODES, model.vector_width) == (NODES, 3 * 2 * THREE.hidden_channels)


def test_each_member_learns_alone() -> None:
    """The gradient of a member is that of its own loss; the others do not matter."""
    model, batch, labels = three().train(), make_inputs().batch(ALL), ALL % 4
    logits = model(batch)
    assert logits.shape == (3 * NODES, 4)
    torch.autograd.backward(torch.nn.functional.cross_entropy(logits, labels.repeat(3)))
    together = [parameter.grad.clone() for parameter in model.all[1].parameters() if parameter.grad is not None]
    member = model.all[1]
    member.zero_grad()
    torch.autograd.backward(torch.nn.functional.cross_entropy(member(batch), labels))
    own = [parameter.grad for parameter in member.parameters() if parameter.grad is not None]
    assert len(own) > 10
    for one, other in zip(together, own, strict=True):
        torch.testing.assert_close(3 * one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("task", ["classification", "multilabel", "regression"])
def test_a_run_with_members(tmp_path: Path, task: str) -> None:
    graph = named_graph()
    if task == "multilabel":
        several = np.stack([np.asarray(graph.labels) == 0, np.asarray(graph.labels) == 1], 1).astype(np.int8)
        graph = replace(graph, labels=several, task="multilabel", class_names=("a", "b"))
    elif task == "regression":
        graph = replace(graph, labels=np.asarray(graph.features)[:, 0], task="regression", class_names=None)
    tokens = CONFIG.tokens if task == "classification" else replace(CONFIG.tokens, content="features")
    model = replace(CONFIG.model, members=2, combine="gated", readout="target")
    config = replace(CONFIG, model=model, tokens=tokens)
    split = vcr.Split.random(graph.labels, seed=0)
    run = vcr.train(graph, split, config, out=tmp_path / "run", device="cpu", progress=False)
    again = vcr.Run.open(tmp_path / "run")
    np.testing.assert_array_equal(run.predict().probabilities, again.predict().probabilities)
    assert again.embed(["n1"]).shape == (1, 2 * 2 * model.hidden_channels)
    assert 0 < (again.gate or 0) < 1
    explained = again.attributions([3])
    np.testing.assert_allclose(explained.outputs, again.predict([3]).probabilities, rtol=1e-5, atol=1e-6)


def test_training_goes_on_after_an_interruption(tmp_path: Path) -> None:
    graph = named_graph()
    split = vcr.Split.random(graph.labels, seed=0)
    config = replace(CONFIG, model=replace(CONFIG.model, members=2, dropout=0.3))
    config = replace(config, training=replace(config.training, checkpoint_every=1))
    whole = vcr.train(graph, split, config, out=tmp_path / "whole", device="cpu", progress=False)

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        vcr.train(graph, split, config, out=tmp_path / "stopped", device="cpu", on_epoch=stop, progress=False)
    resumed = vcr.resume(tmp_path / "stopped", device="cpu", progress=False)
    np.testing.assert_array_equal(resumed.predict().probabilities, whole.predict().probabilities)
