"""Every preset is complete, valid, and what it says it is."""

from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path

import pytest

from tests.support.plain import PRESETS, model_config, plain_config, token_config, train_config
from vcr_graphormer import AUTO, Config, ConfigError, DataConfig, Split, adapt, generate, load_config
from vcr_graphormer.data.catalogue import DATASETS
from vcr_graphormer.runs.presets import PAPER, VARIANTS, load_preset

# The authors' settings: hops, clusters, structure, content, hidden, heads, layers.
AUTHORS = {
    "PubMed": (7, 10, 16, 13, 512, 8, 1),
    "CoraFull": (3, 20, 5, 5, 512, 8, 1),
    "Computer": (3, 10, 11, 16, 512, 8, 1),
    "Photo": (3, 10, 5, 5, 512, 8, 1),
    "CS": (3, 20, 5, 5, 512, 8, 3),
    "Physics": (4, 50, 10, 20, 128, 8, 1),
    "Reddit": (6, 400, 20, 20, 512, 8, 1),
    "AMiner": (16, 100, 5, 9, 512, 16, 3),
    "Amazon2M": (10, 300, 5, 5, 512, 1, 1),
    "Squirrel": (5, 10, 10, 1, 512, 8, 1),
    "Actor": (2, 10, 10, 1, 512, 1, 1),
    "Texas": (2, 10, 5, 5, 512, 8, 1),
    "arXiv-year": (8, 500, 16, 6, 128, 8, 1),
}

MEASURED = ("PubMed", "Computer", "Photo", "CS", "Physics", "Squirrel", "Actor", "Texas")


def test_all_thirteen_datasets_have_presets() -> None:
    assert set(AUTHORS) == set(DATASETS) - {"Cora", "CiteSeer", "Minesweeper", "Tolokers"}


@pytest.mark.parametrize("name", AUTHORS)
@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "reduced"])
def test_presets_are_valid(name: str, variant: str) -> None:
    config = load_config(options={"data": {"dataset": name}}, variant=variant)
    config.model.check(config.tokens.hops)
    config.training.check()
    assert config.data.dataset == name


@pytest.mark.parametrize("name", AUTHORS)
def test_our_presets_are_the_full_method(name: str) -> None:
    config = load_config(options={"data": {"dataset": name}})
    tokens, model = config.tokens, config.model
    assert min(tokens.hops, tokens.clusters, tokens.structure_tokens, tokens.content_tokens, model.layers) >= 1
    assert (tokens.distinct, model.combine) == (True, "gated")


@pytest.mark.parametrize("name", MEASURED)
def test_reduced_settings_are_valid_and_say_what_they_leave_out(name: str) -> None:
    config = load_config(options={"data": {"dataset": name}}, variant="reduced")
    config.model.check(config.tokens.hops)
    assert (config.tokens.distinct, config.model.combine) == (False, "joint")
    first = (resources.files("vcr_graphormer.runs") / "presets" / f"{name}.reduced.toml").read_text().splitlines()[0]
    assert ("without neighbours" in first) == (config.tokens.structure_tokens + config.tokens.content_tokens == 0)
    assert ("without a transformer" in first) == (config.model.layers == 0)


@pytest.mark.parametrize("key", [key for key in PRESETS if key != "plain"])
def test_presets_mean_what_they_meant_before_the_adaptive_default(key: str) -> None:
    name, variant = key.split()
    found = asdict(load_config(options={"data": {"dataset": name}}, variant=variant))
    for section, values in PRESETS["plain"].items():
        assert found[section] == values | PRESETS[key].get(section, {})
    assert found["data"] == asdict(DataConfig(name, scale="none", directed=False)) | PRESETS[key].get("data", {})


def test_the_table_has_all_presets() -> None:
    files = {file.name for file in (resources.files("vcr_graphormer.runs") / "presets").iterdir()} - {PAPER}
    kinds = {"": "default", ".reduced": "reduced", ".paper": "paper"}
    named = {
        f"{name}{ending}.toml" for name in DATASETS for ending, kind in kinds.items() if f"{name} {kind}" in PRESETS
    }
    assert files == named


@pytest.mark.parametrize("dataset", ["digits", "some/where", "Cora", "Tolokers"])
def test_the_papers_model_for_any_graph(dataset: str) -> None:
    config = load_config(options={"data": {"dataset": dataset}}, variant="paper")
    tokens, model = token_config(distinct=False, clusters=AUTO, content_clusters=AUTO), model_config()
    assert config == plain_config(data=DataConfig(dataset, scale="none", directed=False), tokens=tokens, model=model)
    graph = generate(150, 600, classes=3, features=4, seed=0)
    adapted = adapt(config, graph, Split.random(graph.labels, seed=0)).config
    assert adapted == replace(config, data=adapted.data, tokens=adapted.tokens, training=adapted.training)
    assert (adapted.tokens.clusters, adapted.training) == (10, train_config(metric="accuracy", threshold=0.5))
    hops = load_config(options={"data": {"dataset": dataset}}, variant="hops").tokens
    assert hops == replace(tokens, structure_tokens=0, content_tokens=0)
    plain = load_config(options={"data": {"dataset": dataset}}, variant="pagerank").tokens
    assert plain == replace(tokens, structure_tokens=16, content_tokens=0, clusters=0)


def test_own_data_without_neighbours() -> None:
    config = load_config(options={"data": {"dataset": "some/where"}}, variant="no-neighbours")
    assert (config.tokens.structure_tokens, config.tokens.content_tokens, config.model.rank_embedding) == (0, 0, False)
    assert config.model.combine == Config().model.combine


def test_reduced_settings_of_other_datasets_are_refused() -> None:
    for name in ("Reddit", "digits", "some/where"):
        with pytest.raises(ConfigError, match=f"there are no settings of variant reduced for {name}"):
            load_preset(name, "reduced")


@pytest.mark.parametrize("name", ["Minesweeper", "Tolokers"])
def test_two_unbalanced_classes_are_judged_by_roc_auc(name: str) -> None:
    assert load_config(options={"data": {"dataset": name}}).training.metric == "roc_auc"


@pytest.mark.parametrize("name", ["Cora", "CiteSeer", "Minesweeper", "Tolokers"])
def test_datasets_beside_the_paper_have_a_preset(name: str) -> None:
    config = load_config(options={"data": {"dataset": name}})
    config.model.check(config.tokens.hops)
    config.training.check()


@pytest.mark.parametrize("name", AUTHORS)
def test_the_papers_variant_is_the_authors_settings_and_nothing_else(name: str) -> None:
    config = load_config(options={"data": {"dataset": name}}, variant="paper")
    tokens, model, training = config.tokens, config.model, config.training
    found = (tokens.hops, tokens.clusters, tokens.structure_tokens, tokens.content_tokens)
    assert (*found, model.hidden_channels, model.heads, model.layers) == AUTHORS[name]
    assert (training.batch_size, training.warmup_steps, training.decay_steps, training.patience) == (
        2000,
        400,
        1000,
        50,
    )
    assert (training.learning_rate, training.final_learning_rate, training.weight_decay) == (1e-3, 1e-4, 1e-5)
    switches = (model.kind_embedding, model.rich_tokens, model.label_hops, model.label_embedding, model.adjacency_rows)
    assert not any((*switches, model.rank_embedding, model.rich_labels))
    assert tokens.content == "auto"
    assert (model.feature_dropout, model.token_dropout, training.average) == (0, 0, 0)
    assert (model.embedding_dropout, tokens.self_loops, config.data.directed) == (0, False, False)


def test_variants_leave_out_what_they_say() -> None:
    hops = load_preset("Photo", "hops")["tokens"]
    assert (hops["hops"], hops["structure_tokens"], hops["content_tokens"]) == (3, 0, 0)
    plain = load_preset("Photo", "pagerank")["tokens"]
    assert (plain["clusters"], plain["structure_tokens"], plain["content_tokens"]) == (0, 10, 0)
    alone, whole = load_preset("Photo", "no-neighbours"), load_preset("Photo")
    assert alone["tokens"]["hops"] == whole["tokens"]["hops"]
    kinds = ("structure_tokens", "content_tokens", "link_tokens", "nearest_tokens")
    assert [alone["tokens"][kind] for kind in kinds] == [0, 0, 0, 0]
    assert alone["model"] == whole["model"] | {"rank_embedding": False}
    assert load_preset("digits") == load_preset("some/where") == {}
    with pytest.raises(ConfigError, match="unknown variant 'papre'; did you mean 'paper'"):
        load_preset("Photo", "papre")


def test_a_file_or_an_override_wins_over_the_preset(tmp_path: Path) -> None:
    data = {"data": {"dataset": "photo"}}  # an alias
    assert load_config(overrides=["tokens.hops=9"], options=data, variant="paper").tokens.hops == 9
    assert load_config(overrides=["data.dataset=Physics"], options=data, variant="paper").tokens.clusters == 50
    (tmp_path / "own.toml").write_text('[data]\ndataset = "Photo"\n[tokens]\nhops = 2\n')
    own = load_config(tmp_path / "own.toml")  # a file says everything: no preset beneath it
    assert (own.tokens.hops, own.model.hidden_channels) == (2, load_config().model.hidden_channels)
    with pytest.raises(ConfigError, match="a file says everything"):
        load_config(tmp_path / "own.toml", variant="paper")
