"""Recipes: complete files, settings that follow the size of the graph, and a reason where one cannot be trained."""

from dataclasses import fields, replace
from importlib import resources

import numpy as np
import pytest
import torch

import vcr_graphormer as vcr
from vcr_graphormer import Config, ConfigError, Graph, Split
from vcr_graphormer.runs import recipes
from vcr_graphormer.runs.adapt import adapt, with_epochs
from vcr_graphormer.runs.recipes import RECIPES, changed, differences, fit_recipe, load_recipes
from vcr_graphormer.runs.steps import make_space, settle
from vcr_graphormer.runs.trials import Workbench

BY_SIZE = {"epochs", "batch_size", "warmup_steps", "patience"}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return vcr.generate(nodes=120, edges=500, classes=3, features=8, homophily=0.7, seed=0)


@pytest.fixture(scope="module")
def split(graph: Graph) -> Split:
    return Split.random(graph.labels, seed=0)


def test_every_file_is_a_recipe_and_says_what_it_is() -> None:
    files = {file.name for file in (resources.files("vcr_graphormer.runs") / "recipes").iterdir()}
    assert files == {f"{name}.toml" for name in RECIPES}
    keys = [{name: list(table) for name, table in recipe.tables.items()} for recipe in load_recipes()]
    assert all(names == keys[0] for names in keys)
    assert not set(keys[0]["training"]) & BY_SIZE
    for recipe in load_recipes():
        assert recipe.about[0].isupper()
        assert recipe.about.endswith(".")
    with pytest.raises(ConfigError, match="unknown recipe 'hopps'; did you mean 'hops'"):
        load_recipes(["hopps"])


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_lie_in_the_space_of_the_steps(name: str, graph: Graph, split: Split) -> None:
    config = fit_recipe(load_recipes([name])[0], graph, split, {})
    space = make_space(graph, config, {})
    for (section, key), choices in space.items():
        assert getattr(getattr(config, section), key) in choices
    assert settle(config, space) == config


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_can_be_trained(name: str, graph: Graph, split: Split) -> None:
    config = fit_recipe(load_recipes([name])[0], graph, split, {"training": {"epochs": 1}})
    judged = Workbench(graph, torch.device("cpu")).judge(split, config)
    assert 0 <= judged.score <= 1
    assert judged.halves is not None
    assert judged.score == np.mean(judged.halves)


@pytest.mark.parametrize(
    ("train", "batch_size", "epochs", "warmup_steps"),
    [(110, 32, 100, 20), (1000, 40, 100, 125), (2500, 100, 60, 75), (100_000, 1000, 60, 300)],
)
def test_the_schedule_follows_the_number_of_training_nodes(
    train: int, batch_size: int, epochs: int, warmup_steps: int
) -> None:
    graph = vcr.generate(nodes=train + 2, edges=train, classes=2, features=2, seed=0)
    split = Split(np.arange(train), np.array([train]), np.array([train + 1]))
    training = fit_recipe(load_recipes(["hops"])[0], graph, split, {}).training
    assert (training.batch_size, training.epochs, training.warmup_steps) == (batch_size, epochs, warmup_steps)
    assert training.patience == epochs


def test_fixed_settings_hold(graph: Graph, split: Split) -> None:
    fixed = {"training": {"batch_size": 7, "epochs": 8, "patience": 3}, "tokens": {"hops": 5}}
    config = fit_recipe(load_recipes(["hops"])[0], graph, split, fixed)
    assert (config.training.batch_size, config.training.epochs, config.training.patience) == (7, 8, 3)
    assert config.tokens.hops == 5
    fewer = fit_recipe(load_recipes(["hops"])[0], graph, split, {"tokens": {"hops": 1}})
    assert (fewer.model.label_hops, fewer.model.rich_tokens) == (1, 1)
    quarter = with_epochs(config, 2, len(split.train), fixed=fixed)
    assert (quarter.training.epochs, quarter.training.patience) == (2, 3)


def test_small_graphs_and_values(split: Split) -> None:
    graph = vcr.generate(nodes=30, edges=60, classes=2, features=4, seed=0)
    config = fit_recipe(load_recipes(["full"])[0], graph, Split.random(graph.labels, seed=0), {})
    assert (config.tokens.clusters, config.training.label_smoothing) == (3, 0.1)
    values = replace(graph, labels=np.linspace(0, 1, 30, dtype=np.float32), class_names=None, task="regression")
    config = fit_recipe(load_recipes(["full"])[0], values, Split.random(values.labels, seed=0), {})
    assert config.training.label_smoothing == 0
    assert ("training", "label_smoothing") not in make_space(values, config, {})


def test_the_full_recipe_is_the_default(graph: Graph, split: Split) -> None:
    default = adapt(Config(), graph, split).config
    assert default.model.members == 5  # trials train one model
    assert fit_recipe(load_recipes(["full"])[0], graph, split, {}) == changed(default, {"model": {"members": 1}})


def test_adjacency_rows_are_for_small_graphs(graph: Graph, split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "MOST_ADJACENCY_NODES", 119)
    with pytest.raises(ConfigError, match="adjacency rows are for at most 119 nodes"):
        fit_recipe(load_recipes(["adjacency"])[0], graph, split, {})


def test_differences_undo_changes() -> None:
    tables = {"tokens": {"hops": 1}, "model": {"layers": 0}, "training": {"seed": 5}}
    config = changed(Config(), tables)
    assert differences(config, Config()) == tables
    assert changed(Config(), differences(config, Config())) == config
    assert {item.name for item in fields(Config)} == {"data", *recipes.SECTIONS}


def test_of_few_columns_none_is_hidden() -> None:
    for columns, hidden in ((99, 0.0), (100, 0.5)):
        graph = vcr.generate(200, 800, classes=3, features=columns, seed=0)
        recipe, split = load_recipes(["features"])[0], Split.random(graph.labels, seed=0)
        model = fit_recipe(recipe, graph, split, {}).model
        assert (model.feature_dropout, model.embedding_dropout) == (hidden, hidden)
        given = fit_recipe(recipe, graph, split, {"model": {"feature_dropout": 0.2}}).model
        assert given.feature_dropout == 0.2  # what the user gives stays
